//! Keys in flight across transactions, for a person who asks.
//!
//! Promise: looking takes no lock.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Failure, Idempotency, KnownRequest};

/// A key in flight whose request takes several transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedKey {
    /// Its account.
    pub account_id: Uuid,
    /// The key.
    pub key: String,
    /// Its first request.
    pub request: KnownRequest,
    /// What the effect is asked for under.
    pub operation: Uuid,
    /// Whether a process is trusted to be at work on it, by the database's clock.
    pub is_held: bool,
    /// From when on a client's retry may take it over.
    pub leased_until: DateTime<Utc>,
    /// From when on a reconciler takes it over.
    pub recover_after: DateTime<Utc>,
    /// How often another process took it over.
    pub takeovers: i32,
}

/// Which keys in flight are wanted.
#[derive(Debug, Clone, Default)]
pub struct WantedKeys {
    /// Those of one account.
    pub account_id: Option<Uuid>,
    /// This key only.
    pub key: Option<String>,
    /// Only those in doubt.
    pub in_doubt: bool,
}

/// Of rows of leases with the requests that they were taken for: `leased_keys!(rows)` is a
/// `Vec<LeasedKey>`. The rows of two statements have the same columns and different types.
macro_rules! leased_keys {
    ($rows:expr) => {
        $rows
            .into_iter()
            .map(|row| LeasedKey {
                account_id: row.account_id,
                key: row.key,
                request: KnownRequest {
                    method: row.method,
                    path: row.path,
                    request_id: row.request_id,
                    fingerprint: row.fingerprint,
                    label: row.label,
                    resource_id: row.resource_id,
                    created_at: Some(row.created_at),
                    outcome: None,
                    in_doubt: row.in_doubt,
                },
                operation: row.operation,
                is_held: row.is_held,
                leased_until: row.leased_until,
                recover_after: row.recover_after,
                takeovers: row.takeovers,
            })
            .collect()
    };
}

/// Keys in flight of all accounts, the oldest first, at most `limit`. It reads all leases: there
/// are as many as requests in flight.
pub async fn list_leased_keys(
    connection: &mut PgConnection,
    wanted: &WantedKeys,
    limit: i64,
) -> Result<Vec<LeasedKey>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT lease.account_id, lease.key, lease.operation, lease.leased_until > now() AS "is_held!",
               lease.leased_until, lease.recover_after, lease.takeovers, lease.in_doubt,
               record.method, record.path, record.request_id, record.fingerprint, record.label,
               record.resource_id, record.created_at
          FROM idempotency_leases AS lease
          JOIN idempotency_keys AS record
            ON record.account_id = lease.account_id AND record.key = lease.key
         WHERE ($1::uuid IS NULL OR lease.account_id = $1)
           AND ($2::text IS NULL OR lease.key = $2)
           AND (lease.in_doubt OR NOT $3::boolean)
         ORDER BY record.created_at, lease.account_id, lease.key
         LIMIT $4
        "#,
        wanted.account_id,
        wanted.key,
        wanted.in_doubt,
        limit,
    )
    .fetch_all(connection)
    .await?;
    Ok(leased_keys!(rows))
}

/// Those of one account, in the order of the keys.
async fn list_of_account(
    connection: &mut PgConnection,
    account_id: Uuid,
    limit: usize,
) -> Result<Vec<LeasedKey>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT account_id, key, lease.operation, lease.leased_until > now() AS "is_held!",
               lease.leased_until, lease.recover_after, lease.takeovers, lease.in_doubt,
               record.method, record.path, record.request_id, record.fingerprint, record.label,
               record.resource_id, record.created_at
          FROM idempotency_leases AS lease
          JOIN idempotency_keys AS record USING (account_id, key)
         WHERE lease.account_id = $1 AND record.status IS NULL
         ORDER BY key
         LIMIT $2
        "#,
        account_id,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(connection)
    .await?;
    Ok(leased_keys!(rows))
}

impl Idempotency {
    /// At most `limit` keys of an account that are in flight across transactions, whichever process
    /// works on them, in the order of the keys.
    pub async fn leased_keys(
        &self,
        account_id: Uuid,
        limit: usize,
    ) -> Result<Vec<LeasedKey>, Failure> {
        let this = self.clone();
        self.look(async move {
            let mut connection = this.pool.acquire(account_id).await?;
            let leased = list_of_account(&mut connection, account_id, limit).await?;
            connection.release();
            Ok(leased)
        })
        .await
    }
}
