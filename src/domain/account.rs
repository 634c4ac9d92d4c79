//! The account that a request speaks for.

use super::ids::AccountId;

/// An account, as authentication finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Whether it was made for a test, and ends by itself.
    pub is_test: bool,
}
