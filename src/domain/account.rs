//! The account that a request speaks for.

use super::ids::AccountId;

/// An account, as authentication finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Whether it was made for a test, and ends by itself.
    pub is_test: bool,
    /// Which of the service's databases it lives in, counted from 0.
    pub database: usize,
}

impl From<charge_once_postgres::api_keys::Account> for Account {
    fn from(found: charge_once_postgres::api_keys::Account) -> Self {
        Self {
            id: AccountId(found.id),
            is_test: found.is_test,
            database: found.database,
        }
    }
}
