//! The table `idempotency_leases`, as an operator sees it: keys in flight whose request takes
//! several transactions. Only the idempotency crate writes it.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::ids::AccountId;

/// A key in flight, with its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub account: AccountId,
    /// The name of that account.
    pub account_name: String,
    /// The key. One that begins with a comma is a step of a checkout.
    pub key: String,
    /// The `req_…` that first used it.
    pub request_id: String,
    /// The method of that request.
    pub method: String,
    /// Its path.
    pub path: String,
    /// When the key was first used.
    pub created_at: DateTime<Utc>,
    /// What the effect is asked for under: the operation's id, for `charge-once operations`.
    pub operation: Uuid,
    /// Whether a process is trusted to be at work on it now.
    pub is_held: bool,
    /// From when on a client's retry may take it over.
    pub leased_until: DateTime<Utc>,
    /// From when on the reconciler takes it over.
    pub recover_after: DateTime<Utc>,
    /// How often it was taken over.
    pub takeovers: i32,
    /// Whether an attempt may have been executed.
    pub in_doubt: bool,
}

/// Which keys in flight are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Those of one account.
    pub account: Option<AccountId>,
    /// This key only.
    pub key: Option<String>,
    /// Only those in doubt.
    pub in_doubt: bool,
}

/// Keys in flight, the oldest first, at most `limit`. Takes no lock. It reads all leases: there are
/// as many as requests in flight.
pub async fn list(
    connection: &mut PgConnection,
    wanted: &Wanted,
    limit: i64,
) -> Result<Vec<Lease>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT lease.account_id, account.name, lease.key, lease.operation, lease.leased_until,
               lease.leased_until > now() AS "is_held!", lease.recover_after, lease.takeovers,
               lease.in_doubt, record.method, record.path, record.request_id, record.created_at
          FROM idempotency_leases AS lease
          JOIN idempotency_keys AS record
            ON record.account_id = lease.account_id AND record.key = lease.key
          JOIN accounts AS account ON account.id = lease.account_id
         WHERE ($1::uuid IS NULL OR lease.account_id = $1)
           AND ($2::text IS NULL OR lease.key = $2)
           AND (lease.in_doubt OR NOT $3::boolean)
         ORDER BY record.created_at, lease.account_id, lease.key
         LIMIT $4
        "#,
        wanted.account.map(|account| account.0),
        wanted.key,
        wanted.in_doubt,
        limit,
    )
    .fetch_all(connection)
    .await?;
    let leases = rows.into_iter().map(|row| Lease {
        account: AccountId(row.account_id),
        account_name: row.name,
        key: row.key,
        request_id: row.request_id,
        method: row.method,
        path: row.path,
        created_at: row.created_at,
        operation: row.operation,
        is_held: row.is_held,
        leased_until: row.leased_until,
        recover_after: row.recover_after,
        takeovers: row.takeovers,
        in_doubt: row.in_doubt,
    });
    Ok(leases.collect())
}
