//! `charge-once api-key`: accounts and their API keys.
//!
//! Promise: a key is random, shown once, and stored as its hash.

use std::io::IsTerminal;

use charge_once_api_keys::{self as api_keys, ListedKey};
use serde_json::json;
use sqlx::Connection;

use super::{BoxError, print, say, session};
use crate::{
    config::{Config, DEFAULT_DEV_API_KEY},
    database::Database,
    domain::{api_key::API_KEY, ids::AccountId},
};

/// The account of the embedded mode.
pub const DEV_ACCOUNT: &str = "dev";

/// Longest name of an account.
const ACCOUNT_MAX_CHARS: usize = 100;

/// What is done with API keys.
#[derive(Debug, clap::Subcommand)]
pub enum ApiKeyCommand {
    /// Makes a key and shows it, once.
    Create {
        /// The account of the key; it is created if it doesn't exist.
        #[arg(long)]
        account: String,
    },
    /// Lists all keys, without their secret parts.
    List {
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key, read from standard input so that it stays out of the shell's history.
    Revoke,
}

pub(super) fn run(command: ApiKeyCommand) -> Result<(), BoxError> {
    let config = Config::from_env()?;
    match command {
        ApiKeyCommand::Create { account } => {
            if account.is_empty() || account.chars().count() > ACCOUNT_MAX_CHARS {
                return Err("--account must have 1 to 100 characters".into());
            }
            session::once(&config, async |database| {
                let key = create_key(database, &account).await?;
                print(&format!(
                    "{key}\nIt is shown only now: only its hash is stored."
                ))
            })
        }
        ApiKeyCommand::List { json } => {
            session::once(&config, async move |database| list(database, json).await)
        }
        ApiKeyCommand::Revoke => {
            let key = read_key()?;
            session::once(&config, async |database| {
                if revoke_key(database, &key).await? {
                    print("Revoked. Servers stop accepting it within 5 seconds.")
                } else {
                    Err("there is no such key, or it was revoked before".into())
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
    let key = api_keys::create_key(&mut connection, name, API_KEY).await?;
    connection.close().await?;
    Ok(key)
}

/// Makes sure that `key`, and no other that came from `DEV_API_KEY`, is valid for the account
/// `dev`.
pub async fn ensure_dev_key(database: &Database, key: &str) -> Result<(), AccountsError> {
    let mut connection = database.connect_aside().await?;
    let public = DEFAULT_DEV_API_KEY;
    let taken_up = api_keys::take_up_dev_key(&mut connection, DEV_ACCOUNT, key, public).await?;
    let revoked = taken_up.ok_or(AccountsError::KeyTaken)?;
    if revoked > 0 {
        tracing::warn!(
            revoked,
            "DEV_API_KEY has another value: the key before it is revoked"
        );
    }
    Ok(connection.close().await?)
}

/// Whether a request with `key` would be served.
pub(super) async fn is_valid(database: &Database, key: &str) -> Result<bool, AccountsError> {
    let mut connection = database.connect_aside().await?;
    let found = api_keys::find_account(&mut connection, key).await?;
    connection.close().await?;
    Ok(found.is_some())
}

/// The account with this name, or else with this id, for the option `--account`.
pub(super) async fn account_named(database: &Database, name: &str) -> Result<AccountId, BoxError> {
    let wanted = name.to_owned();
    let find = database.read(move |connection| {
        Box::pin(async move { api_keys::find_account_by_name(connection, &wanted).await })
    });
    let found = find
        .await?
        .map(AccountId)
        .or_else(|| AccountId::parse(name));
    found.ok_or_else(|| {
        let names = "`charge-once api-key list` shows the names";
        format!("--account: there is no account {name:?}; {names}").into()
    })
}

/// Every key with its account. Only hashes of the keys are stored.
pub async fn list_keys(database: &Database) -> Result<Vec<ListedKey>, AccountsError> {
    let mut connection = database.connect_aside().await?;
    Ok(api_keys::list_keys(&mut connection).await?)
}

/// Revokes a key. `false` if there is none, or if it was revoked before.
pub async fn revoke_key(database: &Database, key: &str) -> Result<bool, AccountsError> {
    let mut connection = database.connect_aside().await?;
    Ok(api_keys::revoke_key(&mut connection, key).await?)
}
