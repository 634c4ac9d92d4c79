//! Add-on: removing expired records. Until then they are dead, and take room.
//!
//! Promise: the sweep removes nothing but what is already dead, never makes a request wait longer
//! than one short batch, leaves most of the time to requests, and runs on any number of replicas at
//! once without a leader.

use std::{io, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::time::{Instant, sleep, timeout};

/// Records deleted in one statement, which is a transaction of its own: a few milliseconds' work,
/// well under the claim's lock wait, because a claim of a key in the batch waits for the batch. The
/// statement has the number a second time.
pub const SWEEP_BATCH_ROWS: i64 = 500;

/// How fast a sweep goes.
#[derive(Debug, Clone, Copy)]
pub struct SweepPace {
    /// The longest that one batch may take: 5 seconds.
    pub batch_deadline: Duration,
    /// How long the sweep rests after a batch, as a multiple of what the batch took: 7, so that a
    /// backlog of millions costs an eighth of one connection's time, and still goes faster than new
    /// records are made. With 0 it doesn't rest.
    pub rest: u32,
}

impl Default for SweepPace {
    fn default() -> Self {
        Self {
            batch_deadline: Duration::from_secs(5),
            rest: 7,
        }
    }
}

/// Deletes every record that is expired now, batch by batch, and returns how many there were.
///
/// `connection` should be the sweep's own, not a pool's: a long backlog must not take one from
/// requests. After an error, a batch that took too long included, close it.
pub async fn sweep(connection: &mut PgConnection, pace: SweepPace) -> Result<u64, sqlx::Error> {
    let mut removed = 0;
    // Each batch goes on where the last one stopped. From the beginning of the index, it would have
    // to pass over the entries of everything that was deleted before.
    let mut from = None;
    loop {
        let began = Instant::now();
        let batch = timeout(pace.batch_deadline, sweep_batch(connection, from)).await;
        let batch = batch.map_err(|_| {
            let late = "a batch of the sweep took longer than its deadline";
            sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, late))
        })??;
        removed += batch.rows.unsigned_abs();
        if batch.rows < SWEEP_BATCH_ROWS {
            return Ok(removed);
        }
        from = batch.until;
        sleep(began.elapsed() * pace.rest).await;
    }
}

struct Swept {
    rows: i64,
    /// When the last of them died.
    until: Option<DateTime<Utc>>,
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] expired records that died at `from` or after it.
///
/// `MATERIALIZED` makes the limit a limit: a subquery that the planner may run again would lock
/// more. It is written into the statement, because PostgreSQL's plan for any limit expects a tenth
/// of the table, and reads all of it. `SKIP LOCKED` leaves rows alone that another replica sweeps
/// or a request takes over. What is locked is deleted by its place in the table (`ctid`), which its
/// lock keeps: records that expire together lie together, and their keys lie all over a large
/// index.
async fn sweep_batch(
    connection: &mut PgConnection,
    from: Option<DateTime<Utc>>,
) -> Result<Swept, sqlx::Error> {
    sqlx::query_as!(
        Swept,
        r#"
        WITH dead AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_keys
             WHERE status IS NOT NULL AND expires_at <= now()
               AND expires_at >= coalesce($1::timestamptz, '-infinity')
             ORDER BY expires_at
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        deleted AS (
            DELETE FROM idempotency_keys AS record
             USING dead
             WHERE record.ctid = dead.ctid
            RETURNING record.expires_at)
        SELECT count(*) AS "rows!", max(expires_at) AS until
          FROM deleted
        "#,
        from,
    )
    .fetch_one(connection)
    .await
}

/// How long the record has been expired that expired first of all that are not swept: how late the
/// sweep is. `None`: nothing is expired. Reads the first entries of an index, and takes no lock.
pub async fn oldest_expired(
    connection: &mut PgConnection,
) -> Result<Option<Duration>, sqlx::Error> {
    let age = sqlx::query_scalar!(
        r#"
        SELECT extract(epoch FROM now() - expires_at)::float8 AS "age!"
          FROM idempotency_keys
         WHERE status IS NOT NULL AND expires_at <= now()
         ORDER BY expires_at
         LIMIT 1
        "#,
    )
    .fetch_optional(connection)
    .await?;
    Ok(age.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()))
}
