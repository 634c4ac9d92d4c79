//! Test accounts, and the expiry of their keys, as clients see them.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::error::{ApiError, ErrorCode};
use crate::domain::ids::AccountId;

/// Most test accounts that are not closed. Each lives for a day.
pub const OPEN_MAX: i64 = 10_000;

/// The refusal of one more.
pub fn too_many_test_accounts() -> ApiError {
    let message = format!(
        "There are {OPEN_MAX} test accounts. Each ends 24 hours after it was made; use those that \
         you have for more tests."
    );
    ApiError::new(ErrorCode::ParameterInvalid, message)
}

/// An account for tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = TestAccount)]
pub struct TestAccountView {
    /// `acct_…`
    #[schema(example = "acct_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `test_account`.
    #[schema(pattern = "^test_account$")]
    pub object: &'static str,
    /// Speaks for the account; shown here only.
    #[schema(example = "sk_test_S4mPl3S4mPl3S4mPl3S4mPl3S4mPl3Sa")]
    pub api_key: String,
    /// When the account ends, in unix seconds. Its API key is refused from then on, and its data is
    /// removed.
    pub expires_at: i64,
}

impl TestAccountView {
    /// A new account, with the one key that it has.
    pub fn new(id: AccountId, api_key: String, ends_at: DateTime<Utc>) -> Self {
        Self {
            id: id.to_string(),
            object: "test_account",
            api_key,
            expires_at: ends_at.timestamp(),
        }
    }
}

/// What the expiry of an account's keys did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ExpiredKeys)]
pub struct ExpiredKeysView {
    /// Always `expired_keys`.
    #[schema(pattern = "^expired_keys$")]
    pub object: &'static str,
    /// How many keys are new again.
    pub deleted: u64,
    /// Whether there may be more: one request deletes 10,000 records at most.
    pub has_more: bool,
}

impl ExpiredKeysView {
    /// So many keys were deleted, and there may be more.
    pub fn new(deleted: u64, has_more: bool) -> Self {
        Self {
            object: "expired_keys",
            deleted,
            has_more,
        }
    }
}
