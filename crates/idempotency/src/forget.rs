//! Add-on: forgetting what has not expired.
//!
//! Promise: a key in flight is never forgotten.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::SWEEP_BATCH_ROWS;

/// What [`forget`] deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// All records.
    pub rows: u64,
    /// Those of keys that clients sent. The others are of steps of their requests.
    pub keys: u64,
    /// Where the next batch begins; `None` if there is none.
    pub last: Option<String>,
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] completed records of one account, expired or not, that come
/// after the key `last`: all of their keys are new again. Records without an outcome stay. Locks
/// what it deletes, and passes over what another transaction has locked.
///
/// This breaks the promise of the records, so it is for accounts that are removed, and for tests. A
/// replay cache knows nothing of it.
pub async fn forget(
    connection: &mut PgConnection,
    account_id: Uuid,
    last: Option<String>,
) -> Result<Forgotten, sqlx::Error> {
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
        last.unwrap_or_default(),
    )
    .fetch_one(connection)
    .await?;
    Ok(Forgotten {
        rows: deleted.rows.unsigned_abs(),
        keys: deleted.keys.unsigned_abs(),
        last: deleted.last.filter(|_| deleted.rows == SWEEP_BATCH_ROWS),
    })
}
