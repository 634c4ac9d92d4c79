//! `charge-once api-key`: accounts and their API keys.
//!
//! Promise: a key is random, shown once, and stored as its hash.

use std::{io::IsTerminal, sync::Arc};

use charge_once_postgres::api_keys::{self as api_keys, ListedKey};
use serde_json::json;
use sqlx::Connection;

use super::{
    BoxError, print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::{Config, FORMER_DEV_API_KEY},
    database::{Database, Shard, Shards, StartError, shards::Reached},
    domain::{api_key::API_KEY, ids::AccountId},
    idempotency::acknowledged,
};

/// The account of the embedded mode.
pub const DEV_ACCOUNT: &str = "dev";

const ACCOUNT_MAX_CHARS: usize = 100;

/// What is done with API keys.
#[derive(Debug, clap::Subcommand)]
pub enum ApiKeyCommand {
    /// Makes a key and shows it, once.
    Create {
        /// The account of the key; it is created if it doesn't exist.
        #[arg(long)]
        account: String,
        /// Where a new account is to live, if there are several databases. Without it, it lives
        /// where the fewest do.
        #[command(flatten)]
        only: OnlyShard,
    },
    /// Lists all keys, without their secret parts.
    List {
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
        /// Which database, where there are several.
        #[command(flatten)]
        only: OnlyShard,
    },
    /// Revokes a key, read from standard input so that it stays out of the shell's history.
    Revoke,
}

pub(super) fn run(command: ApiKeyCommand) -> Result<(), BoxError> {
    let config = Config::from_env()?;
    match command {
        ApiKeyCommand::Create { account, only } => {
            if account.is_empty() || account.chars().count() > ACCOUNT_MAX_CHARS {
                return Err("--account must have 1 to 100 characters".into());
            }
            session::once(&config, &OnlyShard::default(), async |reached| {
                let (shards, unreached) = split(reached)?;
                let turn = shards.take_turn().await?;
                let shard = place(&shards, unreached, &account, &only).await?;
                let key = create_key(&shard.database, &account).await?;
                drop(turn);
                if !config.shards.is_empty() {
                    say(&format!("the account lives in the shard {}", shard.name));
                }
                print(&key)?;
                print("It is shown only now: only its hash is stored.")
            })
        }
        ApiKeyCommand::List { json, only } => {
            only.prints_one(&config, json)?;
            session::each(&config, &only, async |database| list(database, json).await)
        }
        ApiKeyCommand::Revoke => {
            let key = read_key()?;
            session::once(&config, &OnlyShard::default(), async |reached| {
                let (shards, mut unreached) = split(reached)?;
                let mut revoked = false;
                for shard in shards.iter() {
                    match revoke_key(&shard.database, &key).await {
                        Ok(is_there) => revoked |= is_there,
                        Err(error) if shards.len() == 1 => return Err(error.into()),
                        Err(error) => {
                            say(&format!("shard {}: {error}", shard.name));
                            unreached.push(Arc::clone(&shard.name));
                        }
                    }
                }
                match (revoked, unreached.join(", ")) {
                    (true, _) => print("Revoked. Servers stop accepting it within 5 seconds."),
                    (false, none) if none.is_empty() => {
                        Err("there is no such key, or it was revoked before".into())
                    }
                    (false, unreached) => Err(format!(
                        "nothing was revoked: the key may be one of {unreached}, which can't be reached"
                    )
                    .into()),
                }
            })
        }
    }
}

/// Asks for the key before anything is started, while Ctrl-C still ends the program.
fn read_key() -> Result<String, BoxError> {
    if std::io::stdin().is_terminal() {
        print("Type or paste the key to revoke, then Enter:")?;
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

async fn list(database: &Database, json: bool) -> Result<(), BoxError> {
    let keys = list_keys(database).await?;
    if json {
        return print(&json!({"api_keys": keys}).to_string());
    }
    if keys.is_empty() {
        say("there are no API keys; make one with: charge-once api-key create --account NAME");
    }
    keys.iter().try_for_each(|key| print(&key.to_string()))
}

/// A key could not be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The database refused, or can't be reached.
    #[error("the database refused: {0}")]
    Database(#[from] sqlx::Error),
    /// The dev key exists and belongs to another account, or was revoked.
    #[error(
        "DEV_API_KEY must be a key that is new, or the account dev's own and not revoked: choose \
         another one"
    )]
    KeyTaken,
}

/// Makes a key for the account `name`, and the account if there is none. Returns the key: it can't
/// be shown again.
pub async fn create_key(database: &Database, name: &str) -> Result<String, AccountsError> {
    let mut connection = database.connect_aside().await?;
    let creating = api_keys::create_key(&mut connection, name, API_KEY);
    let key = acknowledged(creating).await?;
    connection.close().await?;
    Ok(key)
}

/// Makes sure that `key`, and no other that came from `DEV_API_KEY`, is valid for the account
/// `dev`.
pub async fn ensure_dev_key(database: &Database, key: &str) -> Result<(), AccountsError> {
    let mut connection = database.connect_aside().await?;
    // Early releases have left it without a mark that it came from `DEV_API_KEY`.
    let public = FORMER_DEV_API_KEY;
    let taking_up = api_keys::take_up_dev_key(&mut connection, DEV_ACCOUNT, key, public);
    let taken_up = acknowledged(taking_up).await?;
    let revoked = taken_up.ok_or(AccountsError::KeyTaken)?;
    if revoked > 0 {
        tracing::warn!(
            revoked,
            "DEV_API_KEY has another value: the key before it is revoked"
        );
    }
    Ok(connection.close().await?)
}

/// As [`ensure_dev_key`], in the shard where the account lives. A new one lives in the first. Does
/// nothing while one is down: the account, or another one with this key, may live there.
pub(super) async fn ensure_dev_key_in(shards: &Shards, key: &str) -> Result<(), BoxError> {
    if let Some(Shard { name, .. }) = shards.unchecked().next() {
        tracing::warn!(
            shard = %name,
            "a shard is down: DEV_API_KEY is as it was, and read again at the next start"
        );
        return Ok(());
    }
    let turn = shards.take_turn().await?;
    let found = find_account(shards, DEV_ACCOUNT).await?;
    let home = found.map(|(home, _)| home).or(shards.first());
    for shard in shards.iter() {
        if home.is_some_and(|home| home.name == shard.name) {
            ensure_dev_key(&shard.database, key).await?;
        } else if has_key(&shard.database, key).await? {
            return Err(AccountsError::KeyTaken.into());
        }
    }
    drop(turn);
    Ok(())
}

/// Whether a request with `key` would be served.
pub(super) async fn is_valid(shards: &Shards, key: &str) -> Result<bool, AccountsError> {
    let served = |shard: &&Shard| shard.database.is_checked();
    for shard in shards.iter().filter(served) {
        if has_key(&shard.database, key).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn has_key(database: &Database, key: &str) -> Result<bool, AccountsError> {
    let mut connection = database.connect_aside().await?;
    let found = api_keys::find_account(&mut connection, key).await?;
    connection.close().await?;
    Ok(found.is_some())
}

/// The shards that can be used, and the names of the others, each of which is told why. Fails if
/// there are none.
pub(super) fn split(reached: Vec<Reached>) -> Result<(Shards, Vec<Arc<str>>), StartError> {
    let is_one = reached.len() == 1;
    let (mut shards, mut unreached) = (Vec::new(), Vec::new());
    for (name, database) in reached {
        match database {
            Ok(database) => shards.push(Shard { name, database }),
            Err(error) if is_one => return Err(error),
            Err(error) => {
                say(&format!("shard {name}: {error}"));
                unreached.push(name);
            }
        }
    }
    Ok((shards.into(), unreached))
}

/// The account with this name, or else with this id, and where it lives.
pub(super) async fn find_account<'s>(
    shards: &'s Shards,
    name: &str,
) -> Result<Option<(&'s Shard, AccountId)>, BoxError> {
    let id = AccountId::parse(name);
    let several = shards.len() > 1;
    for shard in shards.iter() {
        let wanted = name.to_owned();
        let find = shard.database.read(move |connection| {
            Box::pin(async move {
                let mut found = api_keys::find_account_by_name(connection, &wanted).await?;
                if let (None, Some(id)) = (found, id) {
                    let named = api_keys::names_of_accounts(connection, &[id.0]).await?;
                    found = named.into_keys().next();
                }
                // Of two homes, the new one is meant.
                let Some(id) = found.filter(|_| several) else {
                    return Ok(found);
                };
                let moving = api_keys::find_moving(connection, &[id]).await?;
                Ok(found.filter(|_| moving.get(&id) != Some(&api_keys::Stay::Leaving)))
            })
        });
        if let Some(found) = find.await? {
            return Ok(Some((shard, AccountId(found))));
        }
    }
    Ok(None)
}

/// The shard in which an account lives, or is to live. A name belongs to one account in all of
/// them, so a new one is made only while all of them can be asked.
async fn place(
    shards: &Shards,
    unreached: Vec<Arc<str>>,
    name: &str,
    only: &OnlyShard,
) -> Result<Shard, BoxError> {
    if let Some((home, _)) = find_account(shards, name).await? {
        if only.allows(&home.name) {
            return Ok(home.clone());
        }
        let home = &home.name;
        return Err(format!("--shard: the account {name:?} lives in the shard {home}").into());
    }
    if !unreached.is_empty() {
        let unreached = unreached.join(", ");
        let message = format!("the account {name:?} may live in {unreached}, so none is made");
        return Err(message.into());
    }
    if let [only] = &**shards {
        only.database.ensure_is_only().await?;
    }
    let mut fewest: Option<(i64, &Shard)> = None;
    for shard in shards.iter().filter(|shard| only.allows(&shard.name)) {
        let counting = shard
            .database
            .read(|connection| Box::pin(api_keys::count_accounts(connection)));
        let accounts = counting.await?;
        if fewest.is_none_or(|(least, _)| accounts < least) {
            fewest = Some((accounts, shard));
        }
    }
    let (_, shard) = fewest.ok_or("--shard: SHARD_URLS names no such database")?;
    Ok(shard.clone())
}

/// Every key with its account. Only hashes of the keys are stored.
pub async fn list_keys(database: &Database) -> Result<Vec<ListedKey>, AccountsError> {
    let mut connection = database.connect_aside().await?;
    Ok(api_keys::list_keys(&mut connection).await?)
}

/// Revokes a key. `false` if there is none, or if it was revoked before.
pub async fn revoke_key(database: &Database, key: &str) -> Result<bool, AccountsError> {
    let mut connection = database.connect_aside().await?;
    let revoking = api_keys::revoke_key(&mut connection, key);
    Ok(acknowledged(revoking).await?)
}
