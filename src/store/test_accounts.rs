//! Test accounts that have ended, and what they leave behind.
//!
//! All that an account has is deleted here, table by table, because nothing else ever deletes it
//! whole.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::ids::AccountId;

/// A test account that is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it ended.
    pub at: DateTime<Utc>,
    /// The account.
    pub id: AccountId,
}

impl Ended {
    /// Before all of them.
    pub const FIRST: Self = Self {
        at: DateTime::UNIX_EPOCH,
        id: AccountId(Uuid::nil()),
    };
}

/// Whether the account is for tests. Takes no lock.
pub async fn is_one(
    connection: &mut PgConnection,
    account_id: AccountId,
) -> Result<bool, sqlx::Error> {
    let is_test = sqlx::query_scalar!(
        r#"SELECT (test_until IS NOT NULL) AS "is_test!" FROM accounts WHERE id = $1"#,
        account_id.0,
    );
    Ok(is_test.fetch_optional(connection).await?.unwrap_or(false))
}

/// Test accounts that are to be closed, in the order in which they ended, behind one of them. They
/// ended ten minutes ago: what their last requests wrote is there. Takes no lock.
pub async fn list_ended(
    connection: &mut PgConnection,
    behind: Ended,
) -> Result<Vec<Ended>, sqlx::Error> {
    let listed = sqlx::query!(
        r#"
        SELECT account.id, account.test_until AS "ended_at!"
          FROM accounts AS account
         WHERE account.test_until <= now() - interval '10 minutes' AND account.closed_at IS NULL
           AND (account.test_until, account.id) > ($1, $2)
         ORDER BY account.test_until, account.id
         LIMIT 100
        "#,
        behind.at,
        behind.id.0,
    )
    .fetch_all(connection)
    .await?;
    let listed = listed.into_iter().map(|row| Ended {
        at: row.ended_at,
        id: AccountId(row.id),
    });
    Ok(listed.collect())
}

/// Locks a test account that is to be closed. `false`: another replica works on it or has closed
/// it, or it has a key in flight and waits until that has its outcome.
pub async fn lock_ended(
    connection: &mut PgConnection,
    account: AccountId,
) -> Result<bool, sqlx::Error> {
    let locked = sqlx::query_scalar!(
        r#"
        SELECT account.id
          FROM accounts AS account
         WHERE account.id = $1
           AND account.test_until <= now() - interval '10 minutes' AND account.closed_at IS NULL
           -- NOT EXISTS would be a join, which reads the leases of all accounts.
           AND (SELECT lease.key
                  FROM idempotency_leases AS lease
                 WHERE lease.account_id = account.id
                 ORDER BY lease.key
                 LIMIT 1) IS NULL
           FOR NO KEY UPDATE OF account SKIP LOCKED
        "#,
        account.0,
    );
    Ok(locked.fetch_optional(connection).await?.is_some())
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
    // `delete!("refunds", "id", "500")` deletes up to 500 refunds, and returns if there were any.
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
    delete!("webhook_replies", "delivery_id", "500");
    delete!("webhook_deliveries", "id", "500");
    delete!("events", "id", "500");
    delete!("webhook_endpoints", "id", "500");
    delete!("operations", "id", "500");
    delete!("manual_resolutions", "operation_id", "500");
    delete!("refunds", "id", "500");
    delete!("setup_intents", "id", "500");
    delete!("checkouts", "id", "100");
    // An intent and its charges name each other, so the charges let go of it.
    delete!(sqlx::query!(
        "WITH batch AS MATERIALIZED (
                SELECT id FROM payment_intents WHERE account_id = $1 ORDER BY id LIMIT 500),
            of_none AS (
                UPDATE charges SET payment_intent_id = NULL, payment_method_id = NULL
                 WHERE account_id = $1 AND payment_intent_id = ANY(ARRAY(SELECT id FROM batch)))
            DELETE FROM payment_intents
             WHERE account_id = $1 AND id = ANY(ARRAY(SELECT id FROM batch))",
        account,
    ));
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
    // A customer and the default payment method name each other, so the customer lets go of it.
    delete!(sqlx::query!(
        "WITH batch AS MATERIALIZED (
                SELECT id FROM payment_methods WHERE account_id = $1 ORDER BY id LIMIT 500),
            without AS (
                UPDATE customers SET default_payment_method_id = NULL
                 WHERE account_id = $1
                   AND default_payment_method_id = ANY(ARRAY(SELECT id FROM batch)))
            DELETE FROM payment_methods
             WHERE account_id = $1 AND id = ANY(ARRAY(SELECT id FROM batch))",
        account,
    ));
    delete!("customers", "id", "500");
    delete!("inventory", "sku", "500");
    delete!("request_log", "id", "500");
    delete!("request_counts", "minute", "500");
    delete!("fault_plans", "id", "500");
    Ok(0)
}
