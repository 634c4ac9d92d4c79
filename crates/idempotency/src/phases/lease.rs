//! Which process works on a key that is in flight across transactions.
//!
//! Promise: at most one holder can complete a key. Every claim and every takeover makes a fresh
//! random token, and only the holder of the token completes the key, whatever a late holder
//! believes.

#[cfg(feature = "batch")]
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::types::PgInterval};
use tokio::time::Instant;
use uuid::Uuid;

#[cfg(feature = "batch")]
use crate::claim::column;
use crate::{Failure, Request};

/// The right to complete a key, which no other process has until the lease is over.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) account_id: Uuid,
    pub(crate) key: String,
    /// The [`super::ExternalEffect`] of the operation; no other one takes it over.
    pub(crate) kind: &'static str,
    pub(crate) operation: Uuid,
    pub(crate) token: Uuid,
    /// Not later than the moment that the database counts the lease from.
    pub(crate) since: Instant,
    /// Whether an earlier holder may have had the effect executed.
    pub(crate) in_doubt: bool,
    /// Whether an earlier request began the operation.
    pub(crate) taken_over: bool,
}

impl Lease {
    /// That of an operation which `request` begins. Its token is new: a holder who comes back late
    /// can't complete with an old one what another process has taken over.
    pub(crate) fn new(
        request: &Request,
        kind: &'static str,
        operation: Uuid,
        since: Instant,
    ) -> Self {
        Self {
            account_id: request.account_id,
            key: request.key.as_str().to_owned(),
            kind,
            operation,
            token: Uuid::new_v4(),
            since,
            in_doubt: false,
            taken_over: false,
        }
    }
}

/// The lease that was found on a request's key.
pub(super) struct FoundLease {
    pub(super) operation: Uuid,
    pub(super) token: Uuid,
    pub(super) is_over: bool,
    pub(super) seconds_left: f64,
    fingerprint_version: i16,
    fingerprint: Vec<u8>,
}

impl FoundLease {
    /// Whether `request` is the one that the operation was begun by.
    pub(super) fn belongs_to(&self, request: &Request) -> Result<bool, Failure> {
        request
            .fingerprint
            .matches(self.fingerprint_version, &self.fingerprint)
            .map_err(Failure::unavailable)
    }
}

pub(super) struct TakenOperation {
    pub(super) account_id: Uuid,
    pub(super) key: String,
    pub(super) operation: Uuid,
    pub(super) leased_until: DateTime<Utc>,
}

/// A wait of so many seconds: none, where the moment has passed.
pub(crate) fn wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Puts a lease on the key that this transaction claimed, and returns until when.
pub(super) async fn take(
    tx: &mut PgConnection,
    lease: &Lease,
    length: &PgInterval,
    resource_id: Option<&str>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        WITH claimed AS (
            UPDATE idempotency_keys
               SET resource_id = $7
             WHERE account_id = $1 AND key = $2 AND status IS NULL
            RETURNING account_id, key)
        INSERT INTO idempotency_leases
               (account_id, key, kind, operation, token, leased_until, recover_after)
        SELECT account_id, key, $3, $4, $5, now() + $6::interval, now() + $6::interval
          FROM claimed
        RETURNING leased_until
        "#,
        lease.account_id,
        lease.key,
        lease.kind,
        lease.operation,
        lease.token,
        length,
        resource_id,
    )
    .fetch_one(tx)
    .await
}

/// Reads the lease of a request's key, with the fingerprint of the request that it was taken for.
/// Takes no lock.
pub(super) async fn read(
    tx: &mut PgConnection,
    request: &Request,
) -> Result<Option<FoundLease>, sqlx::Error> {
    sqlx::query_as!(
        FoundLease,
        r#"
        SELECT lease.operation, lease.token, lease.leased_until <= now() AS "is_over!",
               extract(epoch FROM lease.leased_until - now())::float8 AS "seconds_left!",
               record.fingerprint_version, record.fingerprint
          FROM idempotency_leases AS lease
          JOIN idempotency_keys AS record USING (account_id, key)
         WHERE lease.account_id = $1 AND lease.key = $2 AND record.status IS NULL
        "#,
        request.account_id,
        request.key.as_str(),
    )
    .fetch_optional(tx)
    .await
}

/// Makes a lease that is over this transaction's own, if it still is `from`, and returns until
/// when. Of many at once one succeeds: the others wait for its row lock and then see another token.
///
/// Whether the last holder sent anything is unknown, so the operation is in doubt from here on.
pub(super) async fn take_over(
    tx: &mut PgConnection,
    lease: &Lease,
    from: Uuid,
    length: &PgInterval,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        UPDATE idempotency_leases
           SET token = $5, leased_until = now() + $6::interval,
               recover_after = now() + $6::interval, takeovers = takeovers + 1, in_doubt = true
         WHERE account_id = $1 AND key = $2 AND operation = $3 AND token = $4 AND kind = $7
           AND leased_until <= now()
        RETURNING leased_until
        "#,
        lease.account_id,
        lease.key,
        lease.operation,
        from,
        lease.token,
        length,
        lease.kind,
    )
    .fetch_optional(tx)
    .await
}

/// What is in flight of one kind, on all replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leased {
    /// A process holds the lease.
    pub running: i64,
    /// The lease is over: the operation waits for a retry or a reconciler.
    pub waiting: i64,
    /// Those of both that may have been executed.
    pub in_doubt: i64,
    /// When the oldest of them began, by the clock of the machine that began it.
    pub oldest: Option<DateTime<Utc>>,
}

/// Counts what is in flight of a kind: of at most `limit` operations, those first that a reconciler
/// takes over first. Takes no lock.
pub async fn leased(
    connection: &mut PgConnection,
    kind: &str,
    limit: i64,
) -> Result<Leased, sqlx::Error> {
    let found = sqlx::query!(
        r#"
        SELECT count(*) FILTER (WHERE leased_until > now()) AS "running!",
               count(*) FILTER (WHERE leased_until <= now()) AS "waiting!",
               count(*) FILTER (WHERE in_doubt) AS "in_doubt!",
               (array_agg(operation ORDER BY operation))[1] AS oldest
          FROM (SELECT leased_until, in_doubt, operation
                  FROM idempotency_leases
                 WHERE kind = $1
                 ORDER BY recover_after
                 LIMIT $2) AS leased
        "#,
        kind,
        limit,
    )
    .fetch_one(connection)
    .await?;
    Ok(Leased {
        running: found.running,
        waiting: found.waiting,
        in_doubt: found.in_doubt,
        oldest: found.oldest.as_ref().and_then(made_at),
    })
}

/// An operation's id begins with the time at which it was made.
fn made_at(operation: &Uuid) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = operation.get_timestamp()?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

/// Whether an operation of this kind waits that no process works on.
pub(super) async fn is_any_abandoned(
    connection: &mut PgConnection,
    kind: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT EXISTS (
            SELECT FROM idempotency_leases
             WHERE kind = $1 AND recover_after <= now() AND leased_until <= now()) AS "exists!"
        "#,
        kind,
    )
    .fetch_one(connection)
    .await
}

/// Takes over an operation of this kind that no process works on, of the first account from
/// `account` on, and of its operations the one that waits longest; `None` if no account from there
/// on has any. `SKIP LOCKED` lets replicas share the work.
pub(super) async fn take_over_any(
    tx: &mut PgConnection,
    kind: &str,
    account: Uuid,
    token: Uuid,
    length: &PgInterval,
) -> Result<Option<TakenOperation>, sqlx::Error> {
    sqlx::query_as!(
        TakenOperation,
        r#"
        WITH abandoned AS MATERIALIZED (
            SELECT account_id, key
              FROM idempotency_leases
             WHERE kind = $3 AND account_id >= $4
               AND recover_after <= now() AND leased_until <= now()
             ORDER BY account_id, recover_after
             LIMIT 1
               FOR UPDATE SKIP LOCKED)
        UPDATE idempotency_leases AS lease
           SET token = $1, leased_until = now() + $2::interval,
               recover_after = now() + $2::interval, takeovers = takeovers + 1, in_doubt = true
          FROM abandoned
         WHERE lease.account_id = abandoned.account_id AND lease.key = abandoned.key
        RETURNING lease.account_id, lease.key, lease.operation, lease.leased_until
        "#,
        token,
        length,
        kind,
        account,
    )
    .fetch_optional(tx)
    .await
}

/// Takes over one operation of this kind that no process works on; `None` if it isn't in flight, or
/// its holder is at work.
pub(super) async fn take_over_operation(
    tx: &mut PgConnection,
    kind: &str,
    operation: Uuid,
    token: Uuid,
    length: &PgInterval,
) -> Result<Option<TakenOperation>, sqlx::Error> {
    sqlx::query_as!(
        TakenOperation,
        r#"
        UPDATE idempotency_leases
           SET token = $2, leased_until = now() + $3::interval,
               recover_after = now() + $3::interval, takeovers = takeovers + 1, in_doubt = true
         WHERE operation = $1 AND kind = $4 AND leased_until <= now()
        RETURNING account_id, key, operation, leased_until
        "#,
        operation,
        token,
        length,
        kind,
    )
    .fetch_optional(tx)
    .await
}

/// Whether the lease is still this holder's; no other process can take it over until the
/// transaction ends.
pub(super) async fn hold(tx: &mut PgConnection, lease: &Lease) -> Result<bool, sqlx::Error> {
    let held = sqlx::query!(
        r#"
        SELECT account_id
          FROM idempotency_leases
         WHERE account_id = $1 AND key = $2 AND operation = $3 AND token = $4
           FOR UPDATE
        "#,
        lease.account_id,
        lease.key,
        lease.operation,
        lease.token,
    )
    .fetch_optional(tx)
    .await?;
    Ok(held.is_some())
}

/// Ends those leases that are still their holders', for keys that this transaction completes.
/// Returns their operations. Until the transaction ends, no other process can take them over.
#[cfg(feature = "batch")]
pub(crate) async fn end_all(
    tx: &mut PgConnection,
    leases: &[&Lease],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let ended = sqlx::query_scalar!(
        r#"
        DELETE FROM idempotency_leases AS lease
         USING UNNEST($1::uuid[], $2::text[], $3::uuid[], $4::uuid[])
               AS ended (account_id, key, operation, token)
         WHERE lease.account_id = ended.account_id AND lease.key = ended.key
           AND lease.operation = ended.operation AND lease.token = ended.token
        RETURNING lease.operation
        "#,
        &column(leases, |lease| lease.account_id),
        &column(leases, |lease| lease.key.as_str()) as _,
        &column(leases, |lease| lease.operation),
        &column(leases, |lease| lease.token),
    )
    .fetch_all(tx)
    .await?;
    Ok(ended.into_iter().collect())
}

/// Puts leases on keys that this transaction claimed. Returns until when, by their operations.
#[cfg(feature = "batch")]
pub(crate) async fn take_all(
    tx: &mut PgConnection,
    leases: &[(&Lease, PgInterval)],
) -> Result<HashMap<Uuid, DateTime<Utc>>, sqlx::Error> {
    let taken = sqlx::query!(
        r#"
        INSERT INTO idempotency_leases
               (account_id, key, kind, operation, token, leased_until, recover_after)
        SELECT account_id, key, kind, operation, token, now() + length, now() + length
          FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::interval[])
               AS lease (account_id, key, kind, operation, token, length)
        RETURNING operation, leased_until
        "#,
        &column(leases, |(lease, _)| lease.account_id),
        &column(leases, |(lease, _)| lease.key.as_str()) as _,
        &column(leases, |(lease, _)| lease.kind) as _,
        &column(leases, |(lease, _)| lease.operation),
        &column(leases, |(lease, _)| lease.token),
        &column(leases, |(_, length)| *length),
    )
    .fetch_all(tx)
    .await?;
    let taken = taken.into_iter();
    Ok(taken.map(|row| (row.operation, row.leased_until)).collect())
}

/// Gives the lease back without an outcome. A client's retry may take over at once; the reconciler
/// waits, longer after every takeover, from 5 to 15 seconds. Clients' retries are takeovers too, so
/// a longer pause would punish an operation for them once the fault is over. What protects the
/// other side is how few operations are recovered at a time. The caller holds the row.
pub(super) async fn give_back(tx: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"
        UPDATE idempotency_leases
           SET in_doubt = true, leased_until = now(),
               recover_after = now()
                   + least(interval '5 seconds' * (1 + takeovers), interval '15 seconds')
         WHERE account_id = $1 AND key = $2
        "#,
        lease.account_id,
        lease.key,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Ends the lease of a key that this transaction completes. The caller holds the row.
pub(super) async fn delete(tx: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM idempotency_leases WHERE account_id = $1 AND key = $2",
        lease.account_id,
        lease.key,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Makes the key new: it is certain that no attempt was executed. The caller holds the row.
pub(super) async fn release(tx: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    delete(tx, lease).await?;
    sqlx::query!(
        "
        DELETE FROM idempotency_keys
         WHERE account_id = $1 AND key = $2 AND status IS NULL
        RETURNING account_id
        ",
        lease.account_id,
        lease.key,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}
