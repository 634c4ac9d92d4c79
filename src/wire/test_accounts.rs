//! Test accounts, and the expiry of their keys, as clients see them.

use chrono::{DateTime, Utc};

use super::prelude::*;

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

views! {
    /// An account for tests.
    pub struct TestAccountView as TestAccount
        of(id: AccountId, api_key: String, ends_at: DateTime<Utc>)
    {
        /// `acct_…`
        id: String [example = "acct_01kar2w7n9e4xt8f5mq0v3z6yd"] = id.to_string();
        /// Always `test_account`.
        object: &'static str [pattern = "^test_account$"] = "test_account";
        /// Speaks for the account; shown here only.
        api_key: String [example = "sk_test_S4mPl3S4mPl3S4mPl3S4mPl3S4mPl3Sa"] = api_key;
        /// When the account ends, in unix seconds. Its API key is refused from then on, and its
        /// data is removed.
        expires_at: i64 = ends_at.timestamp();
    }

    /// What the expiry of an account's keys did.
    pub struct ExpiredKeysView as ExpiredKeys of(deleted: u64, has_more: bool) {
        /// Always `expired_keys`.
        object: &'static str [pattern = "^expired_keys$"] = "expired_keys";
        /// How many keys have expired.
        deleted: u64 = deleted;
        /// Whether there may be more: one request lets 10,000 records expire at most.
        has_more: bool = has_more;
    }
}
