//! Removing expired records.
//!
//! Promise: the sweep removes nothing but what is already dead, never makes a request wait longer
//! than one short batch, and runs on any number of replicas at once without a leader.

use sqlx::PgConnection;

/// Records deleted in one statement, which is a transaction of its own: a few milliseconds' work, well
/// under the claim's lock wait, because a claim of a key in the batch waits for the batch. The statement
/// has the number a second time.
pub const SWEEP_BATCH_ROWS: i64 = 500;

/// Deletes every record that is expired now, batch by batch, and returns how many there were.
///
/// `connection` should be the sweep's own, not a pool's: a long backlog must not take one from
/// requests.
pub async fn sweep(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let mut removed = 0;
    loop {
        let batch = sweep_batch(connection).await?;
        removed += batch;
        if batch < SWEEP_BATCH_ROWS.unsigned_abs() {
            return Ok(removed);
        }
    }
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] expired records.
///
/// `MATERIALIZED` makes the limit a limit: a subquery that the planner may run again would lock
/// more. It is written into the statement, because PostgreSQL's plan for any limit expects a tenth of
/// the table, and reads all of it. `SKIP LOCKED` leaves rows alone that another replica sweeps or a
/// request takes over.
async fn sweep_batch(connection: &mut PgConnection) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query!(
        r#"
        WITH dead AS MATERIALIZED (
            SELECT account_id, key
              FROM idempotency_keys
             WHERE status IS NOT NULL AND expires_at <= now()
             ORDER BY expires_at
             LIMIT 500
               FOR UPDATE SKIP LOCKED)
        DELETE FROM idempotency_keys AS record
         USING dead
         WHERE record.account_id = dead.account_id AND record.key = dead.key
        "#,
    )
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected())
}
