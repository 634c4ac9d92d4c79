//! Accounts for tests, and what they may do with their keys.

mod create;
mod expire_keys;

pub use create::CreateTestAccount;
pub use expire_keys::ExpireKeys;
