//! Who works on a key that is in flight across transactions.
//!
//! Promise: at most one holder can settle a key. Every claim and every takeover makes a fresh random
//! token, and nothing is settled but by its holder's, whatever a late holder believes.

use sqlx::{PgConnection, postgres::types::PgInterval};
use tokio::time::Instant;
use uuid::Uuid;

use super::KnownRequest;

/// A committed row without an outcome.
pub(super) struct Leased {
    /// What its effect is asked for under.
    pub(super) operation: Uuid,
    /// Its holder's.
    pub(super) token: Uuid,
    /// Whether its holder has had its time.
    pub(super) is_over: bool,
    /// The rule that `request.fingerprint` was made by.
    pub(super) fingerprint_version: i16,
    /// The first request.
    pub(super) request: KnownRequest,
}

/// The right, and for a while the only one, to settle a key.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) account_id: Uuid,
    pub(super) key: String,
    /// Whose operation it is: no other [`super::Operations`] takes it over.
    pub(super) kind: &'static str,
    pub(super) operation: Uuid,
    pub(super) token: Uuid,
    /// Not later than the moment that the database counts the lease from.
    pub(super) since: Instant,
    /// Whether an earlier holder may have had the effect executed.
    pub(super) in_doubt: bool,
    /// Whether an earlier request began the operation.
    pub(super) taken_over: bool,
}

/// Puts a lease on the row that this transaction claimed.
pub(super) async fn take(
    tx: &mut PgConnection,
    lease: &Lease,
    length: &PgInterval,
    resource_id: Option<&str>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET operation = $3, lease_token = $4, leased_until = now() + $5::interval,
               recover_after = now() + $5::interval, takeovers = 0, in_doubt = false,
               operation_kind = $6, resource_id = $7
         WHERE account_id = $1 AND key = $2 AND status IS NULL
        RETURNING account_id
        "#,
        lease.account_id,
        lease.key,
        lease.operation,
        lease.token,
        length,
        lease.kind,
        resource_id,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// Makes a lease that is over this transaction's own, if it still is `from`. Of many at once one
/// succeeds: the others wait for its row lock and then see another token.
///
/// Whether the last holder sent anything is unknown, so the operation is in doubt from here on.
pub(super) async fn take_over(
    tx: &mut PgConnection,
    lease: &Lease,
    from: Uuid,
    length: &PgInterval,
) -> Result<bool, sqlx::Error> {
    let taken = sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET lease_token = $5, leased_until = now() + $6::interval,
               recover_after = now() + $6::interval, takeovers = takeovers + 1, in_doubt = true
         WHERE account_id = $1 AND key = $2 AND operation = $3 AND lease_token = $4
           AND operation_kind = $7 AND leased_until <= now()
        "#,
        lease.account_id,
        lease.key,
        lease.operation,
        from,
        lease.token,
        length,
        lease.kind,
    )
    .execute(tx)
    .await?;
    Ok(taken.rows_affected() == 1)
}

/// Takes over an operation of this kind that nobody works on, the one that waits longest; `None` if
/// there is none. `SKIP LOCKED` lets replicas share the work.
pub(super) async fn take_over_any(
    tx: &mut PgConnection,
    kind: &str,
    token: Uuid,
    length: &PgInterval,
) -> Result<Option<(Uuid, String, Uuid)>, sqlx::Error> {
    let taken = sqlx::query!(
        r#"
        WITH abandoned AS MATERIALIZED (
            SELECT account_id, key
              FROM idempotency_keys
             WHERE operation_kind = $3 AND recover_after <= now() AND leased_until <= now()
             ORDER BY recover_after
             LIMIT 1
               FOR UPDATE SKIP LOCKED)
        UPDATE idempotency_keys AS record
           SET lease_token = $1, leased_until = now() + $2::interval,
               recover_after = now() + $2::interval, takeovers = takeovers + 1, in_doubt = true
          FROM abandoned
         WHERE record.account_id = abandoned.account_id AND record.key = abandoned.key
        RETURNING record.account_id, record.key, record.operation AS "operation!"
        "#,
        token,
        length,
        kind,
    )
    .fetch_optional(tx)
    .await?;
    Ok(taken.map(|taken| (taken.account_id, taken.key, taken.operation)))
}

/// Takes over the operation of this kind with this id, if its holder's lease is over; `None` if it isn't in flight
/// or somebody is at work on it.
pub(super) async fn take_over_operation(
    tx: &mut PgConnection,
    kind: &str,
    operation: Uuid,
    token: Uuid,
    length: &PgInterval,
) -> Result<Option<(Uuid, String)>, sqlx::Error> {
    let taken = sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET lease_token = $2, leased_until = now() + $3::interval,
               recover_after = now() + $3::interval, takeovers = takeovers + 1, in_doubt = true
         WHERE operation = $1 AND operation_kind = $4 AND leased_until <= now()
        RETURNING account_id, key
        "#,
        operation,
        token,
        length,
        kind,
    )
    .fetch_optional(tx)
    .await?;
    Ok(taken.map(|taken| (taken.account_id, taken.key)))
}

/// Whether the key is still in this holder's hands; nobody else can take it over until the
/// transaction ends.
pub(super) async fn hold(tx: &mut PgConnection, lease: &Lease) -> Result<bool, sqlx::Error> {
    let held = sqlx::query!(
        r#"
        SELECT account_id
          FROM idempotency_keys
         WHERE account_id = $1 AND key = $2 AND operation = $3 AND lease_token = $4
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

/// Gives the lease back without an outcome. A client's retry may go on at once; the reconciler waits,
/// twice as long after every takeover, from 5 seconds to 5 minutes. The caller holds the row.
pub(super) async fn give_back(tx: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET in_doubt = true, leased_until = now(),
               recover_after = now()
                   + least(interval '5 seconds' * (2 ^ least(takeovers, 10)), interval '5 minutes')
         WHERE account_id = $1 AND key = $2
        "#,
        lease.account_id,
        lease.key,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Makes the key new: it is certain that nothing was executed. The caller holds the row.
pub(super) async fn release(tx: &mut PgConnection, lease: &Lease) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM idempotency_keys WHERE account_id = $1 AND key = $2",
        lease.account_id,
        lease.key,
    )
    .execute(tx)
    .await?;
    Ok(())
}
