//! Several databases with the same schema, of which each has accounts of its own.
//!
//! Promise: a shard is known by its name, which its database keeps. A database that is another
//! shard's, or a copy of one, is refused at the start, and PostgreSQL refuses to claim a key for an
//! account that lives elsewhere (`migrations/0001_shard.sql`).

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use futures_util::future::join_all;
use sqlx::{Connection, PgConnection, migrate::Migrator};
use uuid::Uuid;

use super::{Database, MigrationSet, Settings, StartError, WhenRefused};

/// The shard that was there before there were others.
pub const FIRST_SHARD: &str = "main";

/// Most shards, the first one included: each has pools and workers in every process.
pub const SHARDS_MAX: usize = 32;

/// Longest name of a shard.
const NAME_MAX_CHARS: usize = 32;

/// What a shard has beside the schema of a database that is the only one. It comes last.
pub const SHARD_MIGRATIONS: MigrationSet = MigrationSet {
    migrator: &MIGRATIONS,
    table: "shard_migrations",
    baseline: None,
};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!();
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
pub struct Shards(Vec<Shard>);

impl From<Database> for Shards {
    /// The only one.
    fn from(database: Database) -> Self {
        let name = FIRST_SHARD.into();
        Self(vec![Shard { name, database }])
    }
}

impl From<Vec<Shard>> for Shards {
    fn from(shards: Vec<Shard>) -> Self {
        Self(shards)
    }
}

impl std::ops::Deref for Shards {
    type Target = [Shard];

    fn deref(&self) -> &[Shard] {
        &self.0
    }
}

/// A shard by its name, or why it can't be used.
pub type Reached = (Arc<str>, Result<Database, StartError>);

impl Shards {
    /// Connects to all of them, or fails.
    pub async fn connect(
        first: &str,
        others: &[ShardUrl],
        settings: Settings,
        when_refused: WhenRefused,
    ) -> Result<Self, StartError> {
        let reached = reach(&all(first, others), settings, when_refused)
            .await
            .into_iter();
        let shards = reached.map(|(name, reached)| match reached {
            Ok(database) => Ok(Shard { name, database }),
            Err(error) if others.is_empty() => Err(error),
            Err(error) => Err(StartError::OfShard {
                name: name.to_string(),
                error: Box::new(error),
            }),
        });
        let shards: Vec<Shard> = shards.collect::<Result<_, _>>()?;
        ensure_apart(&shards).await?;
        Ok(Self(shards))
    }

    /// The databases alone.
    pub fn databases(&self) -> Vec<Database> {
        self.iter().map(|shard| shard.database.clone()).collect()
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
    settings: Settings,
    when_refused: WhenRefused,
) -> Vec<Reached> {
    let are_shards = settings
        .schema
        .iter()
        .any(|set| set.table == SHARD_MIGRATIONS.table);
    join_all(shards.iter().map(async |ShardUrl { name, url }| {
        let reaching = async {
            let database = Database::connect(url, settings, when_refused).await?;
            if are_shards {
                database.ensure_is_shard(name, settings.migrate).await?;
            }
            Ok(database)
        };
        (name.as_str().into(), reaching.await)
    }))
    .await
}

/// Refuses an account that lives in two shards.
async fn ensure_apart(shards: &[Shard]) -> Result<(), StartError> {
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
        let name = self.ask_aside(async |connection| {
            let is_shard = sqlx::query_scalar("SELECT to_regclass('shard') IS NOT NULL");
            match is_shard.fetch_one(&mut *connection).await? {
                true => shard_name(connection).await,
                false => Ok(None),
            }
        });
        match name.await? {
            Some(name) => Err(StartError::OneOfSeveral { name }),
            None => Ok(()),
        }
    }

    /// Refuses another shard, and a database that should become one and has accounts. `may_name`:
    /// one that has no name yet gets it.
    async fn ensure_is_shard(&self, name: &str, may_name: bool) -> Result<(), StartError> {
        let found = self.ask_aside(async |connection| {
            if may_name {
                take_name(connection, name).await?;
            }
            shard_name(connection).await
        });
        match found.await? {
            Some(found) if found == name => Ok(()),
            Some(found) => Err(StartError::AnotherShard { found }),
            None if may_name => Err(StartError::ShardNotEmpty),
            None => Err(StartError::SchemaNotCurrent),
        }
    }

    /// The accounts that live here and are open.
    async fn open_accounts(&self) -> Result<Vec<Uuid>, StartError> {
        self.ask_aside(async |connection| {
            let accounts = sqlx::query_scalar("SELECT id FROM accounts WHERE closed_at IS NULL");
            accounts.fetch_all(connection).await
        })
        .await
    }

    /// Asks something at the start, on a connection beside the pool.
    async fn ask_aside<T>(
        &self,
        ask: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StartError> {
        let asking = async {
            let mut connection = self.connect_aside().await?;
            let answer = ask(&mut connection).await?;
            connection.close().await?;
            Ok(answer)
        };
        asking.await.map_err(StartError::Unreachable)
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
