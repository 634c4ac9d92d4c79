//! Accounts, as all commands name them: what one command prints is found in what another prints.

use std::{collections::HashMap, fmt};

use charge_once_postgres::api_keys::names_of_accounts;
use serde_json::Value;
use uuid::Uuid;

use crate::{database::PgConnection, domain::ids::AccountId};

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

    /// One of them.
    pub(super) fn account(&self, id: AccountId) -> NamedAccount<'_> {
        let name = self.0.get(&id.0).map_or("", String::as_str);
        NamedAccount { id, name }
    }
}

/// An account. Its `Display` is the name with the id: `shop (acct_…)`.
pub(super) struct NamedAccount<'n> {
    id: AccountId,
    name: &'n str,
}

impl NamedAccount<'_> {
    /// A document about `key`, an object, in which the key and the account are named too.
    pub(super) fn tell(&self, key: &str, mut document: Value) -> Value {
        if let Value::Object(members) = &mut document {
            members.insert("account".to_owned(), self.id.to_string().into());
            members.insert("account_name".to_owned(), self.name.into());
            members.insert("key".to_owned(), key.into());
        }
        document
    }
}

impl fmt::Display for NamedAccount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}
