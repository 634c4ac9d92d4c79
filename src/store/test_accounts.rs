//! Test accounts that have ended, and what they leave behind.
//!
//! All that an account has is deleted here, table by table, because nothing else ever deletes it
//! whole.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::ids::AccountId;

/// A test account's place among those that are to be closed, in the order in which they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// The account.
    pub id: Uuid,
}

impl Place {
    /// Before all of them.
    pub const FIRST: Self = Self {
        ended_at: DateTime::UNIX_EPOCH,
        id: Uuid::nil(),
    };

    /// Behind it.
    pub fn next(self) -> Self {
        let id = Uuid::from_u128(self.id.as_u128().wrapping_add(1));
        Self { id, ..self }
    }
}

/// The first test account that is to be closed, from a place on, and locks it. An account that
/// another replica works on is left to that one.
///
/// It ended ten minutes ago: what its last requests wrote is there. One with a key in flight waits
/// until that has its outcome.
pub async fn lock_ended(
    connection: &mut PgConnection,
    from: Place,
) -> Result<Option<Place>, sqlx::Error> {
    sqlx::query_as!(
        Place,
        r#"
        SELECT account.id, account.test_until AS "ended_at!"
          FROM accounts AS account
         WHERE account.test_until <= now() - interval '10 minutes' AND account.closed_at IS NULL
           AND (account.test_until, account.id) >= ($1, $2)
           -- NOT EXISTS would be a join, which reads the leases of all accounts.
           AND (SELECT lease.key
                  FROM idempotency_leases AS lease
                 WHERE lease.account_id = account.id
                 ORDER BY lease.key
                 LIMIT 1) IS NULL
         ORDER BY account.test_until, account.id
         LIMIT 1
           FOR NO KEY UPDATE OF account SKIP LOCKED
        "#,
        from.ended_at,
        from.id,
    )
    .fetch_optional(connection)
    .await
}

/// Deletes at most 500 rows of one account, the oldest first, from the first table that has any,
/// and returns how many: 100 of checkouts, each of which has five steps, which go with it. Locks
/// them. What refers to another row goes before that row.
///
/// `ARRAY` makes the limit a limit: whatever is expected of the account, the rows are found by
/// their primary key.
pub async fn delete_batch(
    connection: &mut PgConnection,
    AccountId(account): AccountId,
) -> Result<u64, sqlx::Error> {
    macro_rules! delete {
        ($query:expr) => {
            let deleted = $query.execute(&mut *connection).await?.rows_affected();
            if deleted > 0 {
                return Ok(deleted);
            }
        };
        ($table:literal, $id:literal, $rows:literal) => {
            delete!(sqlx::query!(
                "DELETE FROM "
                    + $table
                    + " WHERE account_id = $1 AND "
                    + $id
                    + " = ANY(ARRAY(
                SELECT "
                    + $id
                    + " FROM "
                    + $table
                    + " WHERE account_id = $1 ORDER BY "
                    + $id
                    + " LIMIT "
                    + $rows
                    + "))",
                account,
            ))
        };
    }
    delete!("webhook_deliveries", "id", "500");
    delete!("events", "id", "500");
    delete!("webhook_endpoints", "id", "500");
    delete!("operations", "id", "500");
    delete!("manual_resolutions", "operation_id", "500");
    delete!("refunds", "id", "500");
    delete!("checkouts", "id", "100");
    // An order and the charge that paid it name each other, so the order lets go of it.
    delete!(sqlx::query!(
        "WITH batch AS MATERIALIZED (
                SELECT id FROM charges WHERE account_id = $1 ORDER BY id LIMIT 500),
            unpaid AS (
                UPDATE orders SET status = 'open', charge_id = NULL
                 WHERE account_id = $1 AND charge_id = ANY(ARRAY(SELECT id FROM batch)))
            DELETE FROM charges WHERE account_id = $1 AND id = ANY(ARRAY(SELECT id FROM batch))",
        account,
    ));
    delete!("orders", "id", "500");
    delete!("inventory", "sku", "500");
    delete!("request_log", "id", "500");
    Ok(0)
}
