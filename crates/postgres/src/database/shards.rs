//! Several databases with the same schema, of which each has accounts of its own.
//!
//! Promise: a shard is known by its name, which its database keeps. A database that is another
//! shard's, or a copy of one, is refused at the start, and PostgreSQL refuses to claim a key for an
//! account that lives elsewhere, or moves just now (`migrations/shard`).

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::future::join_all;
use sqlx::{Connection, PgConnection, migrate::Migrator};
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::{
    Database, DatabaseSettings, FIRST_CONNECTION_LIMIT, MigrationSet, Reading, StartError,
    WhenRefused, in_time,
};

/// The shard that was there before there were others.
pub const FIRST_SHARD: &str = "main";

/// Most shards, the first one included: each has pools and workers in every process.
pub const SHARDS_MAX: usize = 32;

/// How long a start waits for one of several databases, as long as it can serve from another.
const ONE_OF_SEVERAL_LIMIT: Duration = Duration::from_secs(3);

/// What those wait for that make accounts, in the first shard: "accounts" in ASCII.
const NAMES_LOCK: i64 = i64::from_be_bytes(*b"accounts");

/// Longest name of a shard.
const NAME_MAX_CHARS: usize = 32;

/// What a shard has beside the schema of a database that is the only one. It comes last.
pub const SHARD_MIGRATIONS: MigrationSet = MigrationSet {
    migrator: &MIGRATIONS,
    table: "shard_migrations",
    baseline: None,
    beside: None,
};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("migrations/shard");
    migrations.dangerous_set_table_name("shard_migrations");
    migrations.set_ignore_missing(true);
    migrations
});

/// Where another shard than the first one is.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardUrl {
    /// Its name.
    pub name: String,
    /// Its database. It may hold a password.
    pub url: String,
}

impl fmt::Debug for ShardUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardUrl")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reads `name=url`, with commas or line breaks between them. `None`: it can't be read, or two have
/// one name, or one has the name of the first shard, or there are too many.
pub fn parse_shard_urls(text: &str) -> Option<Vec<ShardUrl>> {
    let parts = text
        .split([',', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let mut shards: Vec<ShardUrl> = Vec::new();
    for part in parts {
        let (name, url) = part.split_once('=')?;
        let is_name = (1..=NAME_MAX_CHARS).contains(&name.len())
            && name
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        let is_url = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        let is_known = name == FIRST_SHARD || shards.iter().any(|known| known.name == name);
        if !is_name || !is_url || is_known {
            return None;
        }
        shards.push(ShardUrl {
            name: name.to_owned(),
            url: url.to_owned(),
        });
    }
    (1..SHARDS_MAX).contains(&shards.len()).then_some(shards)
}

/// One of the databases.
#[derive(Debug, Clone)]
pub struct Shard {
    /// What it is called.
    pub name: Arc<str>,
    /// Where it is.
    pub database: Database,
}

/// All databases of a service, in the order of its configuration.
#[derive(Debug, Clone)]
pub struct Shards {
    all: Vec<Shard>,
    /// Held while one is compared with those that are served, and becomes one of them.
    turn: Arc<Mutex<()>>,
}

impl From<Database> for Shards {
    /// The only one.
    fn from(database: Database) -> Self {
        let name = FIRST_SHARD.into();
        vec![Shard { name, database }].into()
    }
}

impl From<Vec<Shard>> for Shards {
    fn from(all: Vec<Shard>) -> Self {
        let turn = Arc::default();
        Self { all, turn }
    }
}

impl std::ops::Deref for Shards {
    type Target = [Shard];

    fn deref(&self) -> &[Shard] {
        &self.all
    }
}

/// A shard by its name, or why it can't be used.
pub type Reached = (Arc<str>, Result<Database, StartError>);

/// A database that has passed its checks. While this is held, no other one is compared.
#[derive(Debug)]
pub struct FitShard<'s> {
    shard: &'s Shard,
    _turn: MutexGuard<'s, ()>,
}

impl FitShard<'_> {
    /// From now on, it is read and written.
    pub fn open(self) {
        self.shard.database.is_checked.send_replace(true);
    }
}

impl Shards {
    /// Connects to all of them. One that is down is left out, as long as there is another one:
    /// nothing is read and written there before [`Shards::check`] finds it fit. Fails if one is not
    /// what it should be.
    pub async fn connect(
        first: &str,
        others: &[ShardUrl],
        settings: DatabaseSettings,
        when_refused: WhenRefused,
    ) -> Result<Self, StartError> {
        if others.is_empty() {
            let only = Database::connect(first, settings, when_refused).await?;
            return Ok(only.into());
        }
        let each = all(first, others)
            .into_iter()
            .map(|ShardUrl { name, url }| {
                let database = Database::unchecked(&url, settings);
                let database = database.map_err(|error| error.of_shard(&name))?;
                let name = name.into();
                Ok(Shard { name, database })
            });
        let shards: Self = each.collect::<Result<Vec<_>, StartError>>()?.into();
        let mut found = shards.pass_checks(when_refused, ONE_OF_SEVERAL_LIMIT).await;
        if found.iter().all(Result::is_err) {
            let checking = shards.pass_checks(when_refused, FIRST_CONNECTION_LIMIT);
            found = checking.await;
        }
        let is_none_up = found.iter().all(Result::is_err);
        let mut fit = Vec::new();
        for (shard, found) in shards.iter().zip(found) {
            match found {
                Ok(()) => fit.push(shard),
                Err(error) if is_none_up || !error.is_outage() => {
                    return Err(error.of_shard(&shard.name));
                }
                Err(error) => tracing::error!(
                    shard = %shard.name,
                    %error,
                    "a shard is down: its accounts get 503 until it has passed the checks of a start"
                ),
            }
        }
        ensure_apart(&fit).await?;
        for shard in fit {
            shard.database.is_checked.send_replace(true);
        }
        Ok(shards)
    }

    async fn pass_checks(
        &self,
        when_refused: WhenRefused,
        limit: Duration,
    ) -> Vec<Result<(), StartError>> {
        let checks = self.iter();
        join_all(checks.map(|shard| shard.pass_checks(when_refused, limit))).await
    }

    /// Makes the checks of a start for one that was down then, and compares it with those that are
    /// served.
    pub async fn check<'s>(&'s self, shard: &'s Shard) -> Result<FitShard<'s>, StartError> {
        let checking = shard.pass_checks(WhenRefused::GiveUp, ONE_OF_SEVERAL_LIMIT);
        checking.await?;
        let turn = self.turn.lock().await;
        let served = self.iter().filter(|one| one.database.is_checked());
        ensure_apart(&served.chain([shard]).collect::<Vec<_>>()).await?;
        Ok(FitShard { shard, _turn: turn })
    }

    /// Those that have not passed the checks of a start.
    pub fn unchecked(&self) -> impl Iterator<Item = &Shard> {
        self.iter().filter(|shard| !shard.database.is_checked())
    }

    /// Takes the turn of those that make accounts, until the connection is closed: a name belongs
    /// to one account in all databases, and no constraint sees more than one of them.
    pub async fn take_turn(&self) -> Result<Option<PgConnection>, StartError> {
        let [Shard { database, .. }, _, ..] = &**self else {
            return Ok(None);
        };
        let taking = async {
            let mut connection = database.connect_aside().await?;
            let take = sqlx::query("SELECT pg_advisory_lock($1)").bind(NAMES_LOCK);
            take.execute(&mut connection).await?;
            Ok(Some(connection))
        };
        taking.await.map_err(StartError::Unreachable)
    }

    /// The databases alone.
    pub fn databases(&self) -> Vec<Database> {
        self.iter().map(|shard| shard.database.clone()).collect()
    }
}

impl Shard {
    /// The checks of a start that concern this database alone. Where the schema is that of shards,
    /// it must be the one that it is taken for.
    async fn pass_checks(
        &self,
        when_refused: WhenRefused,
        limit: Duration,
    ) -> Result<(), StartError> {
        self.database.pass_checks(when_refused, limit).await?;
        let mut sets = self.database.settings.schema.iter();
        match sets.any(|set| set.table == SHARD_MIGRATIONS.table) {
            true => self.database.ensure_is_shard(&self.name).await,
            false => Ok(()),
        }
    }
}

/// All databases of a configuration, with those that it has beside the first one.
pub fn all(first: &str, others: &[ShardUrl]) -> Vec<ShardUrl> {
    let first = ShardUrl {
        name: FIRST_SHARD.to_owned(),
        url: first.to_owned(),
    };
    [&[first], others].concat()
}

/// Connects to each of them at the same time, as [`Database::connect`] does. Where the schema is
/// that of shards, each must be the one that it is taken for.
pub async fn reach(
    shards: &[ShardUrl],
    settings: DatabaseSettings,
    when_refused: WhenRefused,
) -> Vec<Reached> {
    join_all(shards.iter().map(async |ShardUrl { name, url }| {
        let name: Arc<str> = name.as_str().into();
        let reaching = async {
            let database = Database::unchecked(url, settings)?;
            let name = Arc::clone(&name);
            let shard = Shard { name, database };
            let checking = shard.pass_checks(when_refused, FIRST_CONNECTION_LIMIT);
            checking.await?;
            shard.database.is_checked.send_replace(true);
            Ok(shard.database)
        };
        let reached = reaching.await;
        (name, reached)
    }))
    .await
}

/// Refuses an account that lives in two shards.
async fn ensure_apart(shards: &[&Shard]) -> Result<(), StartError> {
    if shards.len() < 2 {
        return Ok(());
    }
    let mut homes: HashMap<Uuid, &str> = HashMap::new();
    for shard in shards {
        for account in shard.database.open_accounts().await? {
            if let Some(first) = homes.insert(account, &shard.name) {
                return Err(StartError::AccountTwice {
                    account,
                    first: first.to_owned(),
                    second: shard.name.to_string(),
                });
            }
        }
    }
    Ok(())
}

impl Database {
    /// Refuses a database that is one of several, for a process that knows no others. It would find
    /// no key of the other accounts, and could make one of them a second time.
    pub async fn ensure_is_only(&self) -> Result<(), StartError> {
        let name = self.ask_aside(|connection| {
            Box::pin(async move {
                let is_shard = sqlx::query_scalar("SELECT to_regclass('shard') IS NOT NULL");
                match is_shard.fetch_one(&mut *connection).await? {
                    true => shard_name(connection).await,
                    false => Ok(None),
                }
            })
        });
        match name.await? {
            Some(name) => Err(StartError::OneOfSeveral(name)),
            None => Ok(()),
        }
    }

    /// Refuses another shard, and a database that should become one and has accounts. Where it may
    /// be migrated, one that has no name yet gets it.
    async fn ensure_is_shard(&self, name: &str) -> Result<(), StartError> {
        let (wanted, may_name) = (name.to_owned(), self.settings.migrate);
        let found = self.ask_aside(move |connection| {
            Box::pin(async move {
                if may_name {
                    take_name(connection, &wanted).await?;
                }
                shard_name(connection).await
            })
        });
        match found.await? {
            Some(found) if found == name => Ok(()),
            Some(found) => Err(StartError::AnotherShard(found)),
            None if may_name => Err(StartError::ShardNotEmpty),
            None => Err(StartError::SchemaNotCurrent),
        }
    }

    /// The accounts that live here and are open.
    async fn open_accounts(&self) -> Result<Vec<Uuid>, StartError> {
        self.ask_aside(|connection| {
            // The old home of an account that moved has it for a while longer.
            let accounts = sqlx::query_scalar(
                "SELECT id FROM accounts WHERE closed_at IS NULL AND id NOT IN (
                     SELECT account_id FROM moving WHERE state = 'leaving')",
            );
            Box::pin(accounts.fetch_all(connection))
        })
        .await
    }

    /// Asks something at the start, on a connection beside the pool.
    async fn ask_aside<T>(
        &self,
        ask: impl for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T>,
    ) -> Result<T, StartError> {
        let asking = async {
            let mut connection = self.connect_aside().await?;
            let answer = ask(&mut connection).await?;
            connection.close().await?;
            Ok(answer)
        };
        in_time(async { asking.await.map_err(StartError::Unreachable) }).await
    }
}

/// `None`: the database has no name yet.
async fn shard_name(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    let name = sqlx::query_scalar("SELECT name FROM shard");
    name.fetch_optional(connection).await
}

/// Names a database that has no name: the first shard, which may have been the only database for
/// years, or one without accounts.
async fn take_name(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let naming = sqlx::query(
        "INSERT INTO shard (name)
         SELECT $1 WHERE $2 OR NOT EXISTS (SELECT FROM accounts)
             ON CONFLICT DO NOTHING",
    );
    let named = naming.bind(name).bind(name == FIRST_SHARD);
    named.execute(connection).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_names_and_urls() {
        let urls = parse_shard_urls("b=postgres://u:p@h/b?x=y,\n c-2=postgresql://h/c\n");
        let urls = urls.unwrap_or_default();
        let found: Vec<_> = urls.iter().map(|one| (&*one.name, &*one.url)).collect();
        let expected = [("b", "postgres://u:p@h/b?x=y"), ("c-2", "postgresql://h/c")];
        assert_eq!(found, expected);
        assert!(!format!("{urls:?}").contains("u:p"));
        let many: String = (0..SHARDS_MAX)
            .map(|n| format!("s{n}=postgres://h/x,"))
            .collect();
        for bad in [
            "",
            "postgres://h/b",
            "b=h/b",
            "=postgres://h/b",
            "B=postgres://h/b",
            "main=postgres://h/b",
            "b=postgres://h/b,b=postgres://h/c",
            &many,
        ] {
            assert_eq!(parse_shard_urls(bad), None, "{bad}");
        }
    }
}
