//! Add-on: forgetting what has not expired.
//!
//! Promise: a key in flight is never forgotten.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{SWEEP_BATCH_ROWS, sealed_key};

/// What [`forget`] deleted, or [`expire`] let expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// All records, and what was remembered of keys.
    pub rows: u64,
    /// Those of keys that clients sent. The others are of steps of their requests.
    pub keys: u64,
    /// Where the next batch begins; `None` if there is none.
    pub last: Option<String>,
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] completed records of one account, expired or not, that come
/// after the key `last`, and after the last of them as much of what is remembered of keys: all of
/// them are new again. Records without an outcome stay. Locks what it deletes, and passes over what
/// another transaction has locked.
///
/// This breaks the promise of the records, so it is for accounts that are removed, and for tests. A
/// replay cache knows nothing of it.
pub async fn forget(
    connection: &mut PgConnection,
    account_id: Uuid,
    last: Option<String>,
) -> Result<Forgotten, sqlx::Error> {
    let from = last.unwrap_or_default();
    let deleted = sqlx::query!(
        r#"
        WITH completed AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_keys
             WHERE account_id = $1 AND key > $2 AND status IS NOT NULL
             ORDER BY key
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        deleted AS (
            DELETE FROM idempotency_keys AS record
             USING completed
             WHERE record.ctid = completed.ctid
            RETURNING record.key)
        SELECT count(*) AS "rows!",
               count(*) FILTER (WHERE key NOT LIKE ',%' OR key LIKE ',sealed.%') AS "keys!",
               max(key) AS last
          FROM deleted
        "#,
        account_id,
        from,
    )
    .fetch_one(&mut *connection)
    .await?;
    let (mut rows, mut is_full) = (deleted.rows, deleted.rows == SWEEP_BATCH_ROWS);
    if !is_full {
        let tombstones = forget_tombstones(connection, account_id).await?;
        rows += tombstones;
        is_full = tombstones == SWEEP_BATCH_ROWS;
    }
    Ok(Forgotten {
        rows: rows.unsigned_abs(),
        keys: deleted.keys.unsigned_abs(),
        last: is_full.then(|| deleted.last.unwrap_or(from)),
    })
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] tombstones of one account. Both ends are of the parameter
/// alone, so that the index is read between them: joined to a row with them, PostgreSQL expects a
/// ninth of the table, and reads all of it.
async fn forget_tombstones(
    connection: &mut PgConnection,
    account_id: Uuid,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        WITH remembered AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_tombstones
             WHERE id BETWEEN
                   (encode(substring(sha256(uuid_send($1)) FOR 8), 'hex') || repeat('0', 16))::uuid
                   AND
                   (encode(substring(sha256(uuid_send($1)) FOR 8), 'hex') || repeat('f', 16))::uuid
             ORDER BY id
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        deleted AS (
            DELETE FROM idempotency_tombstones AS tombstone
             USING remembered
             WHERE tombstone.ctid = remembered.ctid
            RETURNING 1)
        SELECT count(*) AS "count!"
          FROM deleted
        "#,
        account_id,
    )
    .fetch_one(connection)
    .await
}

/// What [`forget_key`] deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenKey {
    /// The method and the path of the first request, and the status of its reply; `None` where the
    /// key was only remembered.
    pub request: Option<(String, String, u16)>,
    /// The id of what it created, if that is known.
    pub resource_id: Option<String>,
}

/// Deletes the record of one key, if it is that of `request_id` or has expired, and what is
/// remembered of the key: it is new again. `None`: the key has another record, one without an
/// outcome, or nothing.
///
/// This breaks the promise of the record, so it is for a person who knows what became of it. A
/// replay cache knows nothing of it.
pub async fn forget_key(
    connection: &mut PgConnection,
    account_id: Uuid,
    key: &str,
    request_id: Option<&str>,
) -> Result<Option<ForgottenKey>, sqlx::Error> {
    let keys = [key.to_owned(), sealed_key(account_id, key)];
    let deleted = sqlx::query!(
        r#"
        WITH record AS (
            DELETE FROM idempotency_keys
             WHERE account_id = $1 AND key = ANY ($2) AND status IS NOT NULL
               AND (request_id = $4 OR expires_at <= now())
            RETURNING method, path, status, resource_id),
        tombstone AS (
            DELETE FROM idempotency_tombstones
             WHERE id = idempotency_tombstone_id($1, $3)
               AND (EXISTS (SELECT FROM record)
                    OR NOT EXISTS (SELECT FROM idempotency_keys
                                    WHERE account_id = $1 AND key = ANY ($2)))
            RETURNING resource_id)
        SELECT method AS "method?", path AS "path?", status AS "status?",
               coalesce(record.resource_id, tombstone.resource_id) AS resource_id
          FROM record
          FULL JOIN tombstone ON true
        "#,
        account_id,
        &keys,
        key,
        request_id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(deleted.map(|row| ForgottenKey {
        request: row
            .method
            .zip(row.path)
            .zip(row.status)
            .map(|((method, path), status)| (method, path, status.unsigned_abs())),
        resource_id: row.resource_id,
    }))
}

/// Lets at most [`SWEEP_BATCH_ROWS`] completed records of one account that come after the key
/// `last` expire now, as they would when their time has come. Otherwise as [`forget`].
pub async fn expire(
    connection: &mut PgConnection,
    account_id: Uuid,
    last: Option<String>,
) -> Result<Forgotten, sqlx::Error> {
    let expired = sqlx::query!(
        r#"
        WITH completed AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_keys
             WHERE account_id = $1 AND key > $2 AND status IS NOT NULL AND expires_at > now()
             ORDER BY key
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        expired AS (
            UPDATE idempotency_keys AS record
               SET expires_at = greatest(now(), created_at + interval '1 microsecond')
              FROM completed
             WHERE record.ctid = completed.ctid
            RETURNING record.key)
        SELECT count(*) AS "rows!",
               count(*) FILTER (WHERE key NOT LIKE ',%' OR key LIKE ',sealed.%') AS "keys!",
               max(key) AS last
          FROM expired
        "#,
        account_id,
        last.unwrap_or_default(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Forgotten {
        rows: expired.rows.unsigned_abs(),
        keys: expired.keys.unsigned_abs(),
        last: expired.last.filter(|_| expired.rows == SWEEP_BATCH_ROWS),
    })
}
