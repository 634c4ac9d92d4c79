//! Accounts and persons, as all commands name them: what one command prints is found in what
//! another prints.

use std::collections::HashMap;

use charge_once_postgres::api_keys::names_of_accounts;
use serde_json::Value;
use uuid::Uuid;

use super::BoxError;
use crate::{database::PgConnection, domain::ids::AccountId};

/// Longest name of a person.
const PERSON_MAX_CHARS: usize = 100;

/// Whether the option `--by` can be the name of a person.
pub(super) fn ensure_person(by: &str) -> Result<(), BoxError> {
    if by.trim().is_empty() || by.chars().count() > PERSON_MAX_CHARS {
        return Err("--by must have 1 to 100 characters".into());
    }
    Ok(())
}

/// The names of some accounts.
pub(super) struct Names(HashMap<Uuid, String>);

impl Names {
    /// Reads them. Takes no lock.
    pub(super) async fn of(
        connection: &mut PgConnection,
        accounts: impl Iterator<Item = AccountId>,
    ) -> Result<Self, sqlx::Error> {
        let accounts: Vec<_> = accounts.map(|account| account.0).collect();
        Ok(Self(names_of_accounts(connection, &accounts).await?))
    }

    /// One of them with its id: `shop (acct_…)`.
    pub(super) fn told(&self, account: AccountId) -> String {
        format!("{} ({account})", self.name(account))
    }

    /// A document about `key`, an object, in which the key and its account are named too.
    pub(super) fn tell(&self, account: AccountId, key: &str, mut document: Value) -> Value {
        if let Value::Object(members) = &mut document {
            members.insert("account".to_owned(), account.to_string().into());
            members.insert("account_name".to_owned(), self.name(account).into());
            members.insert("key".to_owned(), key.into());
        }
        document
    }

    fn name(&self, account: AccountId) -> &str {
        self.0.get(&account.0).map_or("", String::as_str)
    }
}
