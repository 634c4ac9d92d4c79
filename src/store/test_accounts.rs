//! Test accounts: made for a while, ended, and closed.
//!
//! All that an account has is deleted here, table by table, because nothing else ever deletes it
//! whole.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::ids::AccountId;

/// How many test accounts there are that are not closed, at most `up_to`. Takes no lock.
pub async fn count_open(connection: &mut PgConnection, up_to: i64) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "count!"
          FROM (SELECT 1
                  FROM accounts
                 WHERE test_until IS NOT NULL AND closed_at IS NULL
                 LIMIT $1) AS open
        "#,
        up_to,
    )
    .fetch_one(connection)
    .await
}

/// Adds a test account, named by its id, and returns when it ends: 24 hours from now. Locks nothing
/// that exists.
pub async fn insert(
    connection: &mut PgConnection,
    id: AccountId,
) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        INSERT INTO accounts (id, name, test_until)
        VALUES ($1, $2, now() + interval '24 hours')
        RETURNING test_until AS "test_until!"
        "#,
        id.0,
        id.to_string(),
    )
    .fetch_one(connection)
    .await
}

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

/// Revokes the API keys of an account, and marks it as closed. Locks both.
pub async fn close(connection: &mut PgConnection, account: AccountId) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"
        WITH revoked AS (
            UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND revoked_at IS NULL)
        UPDATE accounts SET closed_at = now() WHERE id = $1
        "#,
        account.0,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The tables with rows of an account, beside the idempotency keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// `webhook_deliveries`
    WebhookDeliveries,
    /// `events`
    Events,
    /// `webhook_endpoints`
    WebhookEndpoints,
    /// `operations`
    Operations,
    /// `manual_resolutions`
    ManualResolutions,
    /// `refunds`
    Refunds,
    /// `checkouts`, and `checkout_steps` with them
    Checkouts,
    /// `charges`
    Charges,
    /// `orders`
    Orders,
    /// `inventory`
    Inventory,
    /// `request_log`
    RequestLog,
}

impl Table {
    /// In an order in which they can be emptied: what refers to another row goes before that row.
    pub const IN_ORDER: [Self; 11] = [
        Self::WebhookDeliveries,
        Self::Events,
        Self::WebhookEndpoints,
        Self::Operations,
        Self::ManualResolutions,
        Self::Refunds,
        Self::Checkouts,
        Self::Charges,
        Self::Orders,
        Self::Inventory,
        Self::RequestLog,
    ];
}

/// Deletes at most 500 rows of one account, the oldest first, and returns how many: 100 of
/// checkouts, each of which has five steps, which go with it. Locks them.
///
/// `ARRAY` makes the limit a limit: whatever is expected of the account, the rows are found by
/// their primary key.
pub async fn delete_batch(
    connection: &mut PgConnection,
    AccountId(account): AccountId,
    table: Table,
) -> Result<u64, sqlx::Error> {
    let deleted = match table {
        Table::WebhookDeliveries => sqlx::query!(
            "DELETE FROM webhook_deliveries WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM webhook_deliveries WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::Events => sqlx::query!(
            "DELETE FROM events WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM events WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::WebhookEndpoints => sqlx::query!(
            "DELETE FROM webhook_endpoints WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM webhook_endpoints WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::Operations => sqlx::query!(
            "DELETE FROM operations WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM operations WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::ManualResolutions => sqlx::query!(
            "DELETE FROM manual_resolutions WHERE account_id = $1 AND operation_id = ANY(ARRAY(
                SELECT operation_id FROM manual_resolutions
                 WHERE account_id = $1 ORDER BY operation_id LIMIT 500))",
            account,
        ),
        Table::Refunds => sqlx::query!(
            "DELETE FROM refunds WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM refunds WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::Checkouts => sqlx::query!(
            "DELETE FROM checkouts WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM checkouts WHERE account_id = $1 ORDER BY id LIMIT 100))",
            account,
        ),
        // An order and the charge that paid it name each other, so the order lets go of it.
        Table::Charges => sqlx::query!(
            "WITH batch AS MATERIALIZED (
                SELECT id FROM charges WHERE account_id = $1 ORDER BY id LIMIT 500),
            unpaid AS (
                UPDATE orders SET status = 'open', charge_id = NULL
                 WHERE account_id = $1 AND charge_id = ANY(ARRAY(SELECT id FROM batch)))
            DELETE FROM charges WHERE account_id = $1 AND id = ANY(ARRAY(SELECT id FROM batch))",
            account,
        ),
        Table::Orders => sqlx::query!(
            "DELETE FROM orders WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM orders WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
        Table::Inventory => sqlx::query!(
            "DELETE FROM inventory WHERE account_id = $1 AND sku = ANY(ARRAY(
                SELECT sku FROM inventory WHERE account_id = $1 ORDER BY sku LIMIT 500))",
            account,
        ),
        Table::RequestLog => sqlx::query!(
            "DELETE FROM request_log WHERE account_id = $1 AND id = ANY(ARRAY(
                SELECT id FROM request_log WHERE account_id = $1 ORDER BY id LIMIT 500))",
            account,
        ),
    };
    Ok(deleted.execute(connection).await?.rows_affected())
}
