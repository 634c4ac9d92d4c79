//! `POST /test/expire_keys`: let the account's idempotency keys expire now.
//!
//! Locks    the records of completed keys, in batches
//! Writes   the time at which they expire
//! Emits    nothing
//! Refuses  any parameter

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked},
};
use crate::{
    idempotency::{self, Command, Rejection, Reply},
    wire::test_accounts::ExpiredKeysView,
};

/// Most batches in one request. With 500 records each, they take a fraction of the request's time.
const BATCHES_MAX: u32 = 20;

/// Lets the records of an account's completed keys expire.
///
/// Its own key is not completed before it ends, and keys in flight are not either: both stay.
pub struct ExpireKeys {
    /// The request's origin: a test account, or the dev account. Replays to these never come from
    /// memory.
    pub origin: Origin,
    /// As decoded; there is none to be given.
    pub params: Params,
}

impl Command for ExpireKeys {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let () = checked(&self.params)?;
        let account = self.origin.account.0;
        let (mut expired, mut last) = (0, None);
        for _ in 0..BATCHES_MAX {
            let batch = idempotency::expire(tx, account, last).await?;
            expired += batch.keys;
            last = batch.last;
            if last.is_none() {
                break;
            }
        }
        Ok(Reply::json(
            OK,
            &ExpiredKeysView::of(expired, last.is_some()),
        )?)
    }
}
