//! What a sweep would remove, for `charge-once sweep --dry-run`.
//!
//! Promise: it only reads. The conditions are those of the statements that remove: of the
//! idempotency crate's sweep, and of `find_old` and `lock_ended` in this folder. It reads tables
//! whole, because a person waits for it and no request does.

use std::time::Duration;

use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval};

/// How long rows are kept; `None`: for good.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Events, with their deliveries.
    pub events: Option<Duration>,
    /// Operations that have their answer.
    pub operations: Option<Duration>,
    /// Rows of the request log.
    pub requests: Option<Duration>,
}

/// Numbers of what would be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct Sweepable {
    /// Expired idempotency keys.
    pub keys: i64,
    /// Test accounts that have ended, with all that they have left.
    pub test_accounts: i64,
    /// Events without a pending delivery.
    pub events: i64,
    /// Operations that have their answer, and belong to no checkout in progress.
    pub operations: i64,
    /// Rows of the request log, and replies of receivers of webhooks.
    pub requests: i64,
}

const COUNT: &str = "
    SELECT (SELECT count(*)
              FROM idempotency_keys
             WHERE status IS NOT NULL AND expires_at <= now()) AS keys,
           (SELECT count(*)
              FROM accounts AS account
             WHERE account.test_until <= now() - interval '10 minutes' AND account.closed_at IS NULL
               AND NOT EXISTS (SELECT FROM idempotency_leases AS lease
                                WHERE lease.account_id = account.id)) AS test_accounts,
           (SELECT count(*)
              FROM events AS event
             WHERE event.created_at < now() - $1::interval
               AND NOT EXISTS (SELECT FROM webhook_deliveries AS delivery
                                WHERE delivery.account_id = event.account_id
                                  AND delivery.event_id = event.id
                                  AND delivery.status = 'pending')) AS events,
           (SELECT count(*)
              FROM operations AS operation
             WHERE operation.created_at < now() - $2::interval AND operation.completed_at IS NOT NULL
               AND NOT EXISTS (SELECT FROM checkouts AS checkout
                                WHERE checkout.account_id = operation.account_id
                                  AND checkout.id = operation.checkout_id
                                  AND checkout.status = 'in_progress')) AS operations,
           (SELECT count(*)
              FROM request_log
             WHERE created_at < now() - $3::interval)
         + (SELECT count(*)
              FROM webhook_replies
             WHERE created_at < now() - $3::interval) AS requests";

/// Counts what would be removed at this moment. Takes no lock. Fails if a time is none that
/// PostgreSQL can represent.
pub async fn count(connection: &mut PgConnection, kept: Kept) -> Result<Sweepable, sqlx::Error> {
    let interval = |kept: Option<Duration>| {
        let interval = kept.map(PgInterval::try_from).transpose();
        interval.map_err(|error: BoxDynError| sqlx::Error::Encode(error))
    };
    // Not one of sqlx's macros, whose statements must not read tables whole.
    sqlx::query_as(COUNT)
        .bind(interval(kept.events)?)
        .bind(interval(kept.operations)?)
        .bind(interval(kept.requests)?)
        .fetch_one(connection)
        .await
}
