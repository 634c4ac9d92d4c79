//! Add-on: removing expired records. Until then they are dead, and take room.
//!
//! Promise: the sweep removes nothing but what is already dead, never makes a request wait longer
//! than one short batch, leaves most of the time to requests, and runs on any number of replicas at
//! once without a leader.

use std::{future::Future, io, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::types::PgInterval};
use tokio::time::{Instant, sleep, timeout};

/// Records deleted in one statement, which is a transaction of its own: a few milliseconds' work,
/// well under the claim's lock wait, because a claim of a key in the batch waits for the batch. The
/// statement has the number a second time.
pub const SWEEP_BATCH_ROWS: i64 = 500;

/// How fast a sweep goes, and what it leaves.
#[derive(Debug, Clone, Copy)]
pub struct SweepPace {
    /// The longest that one batch may take: 5 seconds.
    pub batch_deadline: Duration,
    /// How long the sweep rests after a batch, as a multiple of what the batch took: 7, so that a
    /// backlog of millions costs an eighth of one connection's time, and still goes faster than new
    /// records are made. With 0 it doesn't rest.
    pub rest: u32,
    /// How long keys are remembered after that, as [`Memory::keep`](crate::Memory) says: not.
    pub memory: Option<Duration>,
}

impl Default for SweepPace {
    fn default() -> Self {
        Self {
            batch_deadline: Duration::from_secs(5),
            rest: 7,
            memory: None,
        }
    }
}

/// Deletes every record that is expired now, batch by batch, and returns how many there were.
///
/// `connection` should be the sweep's own, not a pool's: a long backlog must not take one from
/// requests. After an error, a batch that took too long included, close it.
pub async fn sweep(connection: &mut PgConnection, pace: SweepPace) -> Result<u64, sqlx::Error> {
    let memory = pace.memory.map(PgInterval::try_from).transpose();
    let memory = memory.map_err(sqlx::Error::Encode)?;
    // A session of `pin_session` is read-only, and is so again after this.
    set(connection, "SET default_transaction_read_only = off").await?;
    if memory.is_some() {
        remember_keys(connection).await?;
    }
    let removed = sweep_all(connection, pace, memory.as_ref()).await?;
    set(connection, "RESET default_transaction_read_only").await?;
    Ok(removed)
}

async fn set(connection: &mut PgConnection, setting: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(setting).execute(connection).await.map(drop)
}

async fn sweep_all(
    connection: &mut PgConnection,
    pace: SweepPace,
    memory: Option<&PgInterval>,
) -> Result<u64, sqlx::Error> {
    let mut removed = 0;
    // Each batch goes on where the last one stopped. From the beginning of the index, it would have
    // to pass over the entries of everything that was deleted before.
    let mut from = None;
    loop {
        let began = Instant::now();
        let batch = sweep_batch(connection, from, memory);
        let batch = in_time(pace, batch).await?;
        if batch.would_forget {
            let cause = "keys are remembered in this database, and a sweep without a memory would \
                         forget those that it removes";
            return Err(sqlx::Error::Configuration(cause.into()));
        }
        removed += batch.rows.unsigned_abs();
        if batch.rows < SWEEP_BATCH_ROWS {
            break;
        }
        from = batch.until;
        sleep(began.elapsed() * pace.rest).await;
    }
    let Some(memory) = memory else {
        return Ok(removed);
    };
    let mut from = None;
    loop {
        let began = Instant::now();
        let batch = in_time(pace, forget_batch(connection, from, memory)).await?;
        if batch.rows < SWEEP_BATCH_ROWS {
            return Ok(removed);
        }
        from = batch.until;
        sleep(began.elapsed() * pace.rest).await;
    }
}

async fn in_time<T>(
    pace: SweepPace,
    batch: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let batch = timeout(pace.batch_deadline, batch).await;
    batch.map_err(|_| {
        let late = "a batch of the sweep took longer than its deadline";
        sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, late))
    })?
}

/// States that keys are remembered in this database, before the first one is: by a tombstone of no
/// key, which stays until the table is emptied. An older release reads it, too. A session of
/// `pin_session` writes it only in a transaction that says `READ WRITE`; [`sweep`] sees to that.
pub async fn remember_keys(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let stated = "SELECT EXISTS (SELECT FROM idempotency_tombstones
                   WHERE id = '00000000-0000-0000-0000-000000000000')";
    if !sqlx::query_scalar(stated)
        .fetch_one(&mut *connection)
        .await?
    {
        let state = "INSERT INTO idempotency_tombstones (id, request, expired_at)
                     VALUES ('00000000-0000-0000-0000-000000000000', 0, 'infinity')
                     ON CONFLICT DO NOTHING";
        sqlx::query(state).execute(connection).await?;
    }
    Ok(())
}

/// Whether keys are remembered in this database. What neither looks at it nor adds to it, although
/// others do, would execute a late retry.
pub async fn remembers_keys(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let any = "SELECT EXISTS (SELECT FROM idempotency_tombstones)";
    sqlx::query_scalar(any).fetch_one(connection).await
}

struct Swept {
    rows: i64,
    /// When the last of them died.
    until: Option<DateTime<Utc>>,
    /// Keys are remembered, and the sweep has no memory, so it deletes nothing.
    would_forget: bool,
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] expired records that died at `from` or after it.
///
/// `MATERIALIZED` makes the limit a limit: a subquery that the planner may run again would lock
/// more. It is written into the statement, because PostgreSQL's plan for any limit expects a tenth
/// of the table, and reads all of it. `SKIP LOCKED` leaves rows alone that another replica sweeps
/// or a request takes over. What is locked is deleted by its place in the table (`ctid`), which its
/// lock keeps: records that expire together lie together, and their keys lie all over a large
/// index.
///
/// A key is remembered in the statement that deletes its record. Between two, it would be new. So
/// the statement itself asks whether keys are remembered: another process may begin with it during
/// a long sweep. Two keys whose tombstones have one id leave one: an insert of both would fail, and
/// the sweep stop.
async fn sweep_batch(
    connection: &mut PgConnection,
    from: Option<DateTime<Utc>>,
    memory: Option<&PgInterval>,
) -> Result<Swept, sqlx::Error> {
    sqlx::query_as!(
        Swept,
        r#"
        WITH this_sweep AS MATERIALIZED (
            SELECT $2::interval IS NULL
                   AND (SELECT id FROM idempotency_tombstones ORDER BY id LIMIT 1) IS NOT NULL
                   AS would_forget),
        dead AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_keys
             WHERE status IS NOT NULL AND expires_at <= now()
               AND expires_at >= coalesce($1::timestamptz, '-infinity')
               AND NOT (SELECT would_forget FROM this_sweep)
             ORDER BY expires_at
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        deleted AS (
            DELETE FROM idempotency_keys AS record
             USING dead
             WHERE record.ctid = dead.ctid
            RETURNING record.account_id, record.key, record.fingerprint, record.resource_id,
                      record.expires_at),
        remembered AS (
            INSERT INTO idempotency_tombstones (id, request, expired_at, resource_id)
            SELECT DISTINCT ON (id) idempotency_tombstone_id(account_id, key) AS id,
                   ('x' || encode(substring(fingerprint FOR 8), 'hex'))::bit(64)::bigint,
                   expires_at, CASE WHEN octet_length(resource_id) <= 31 THEN resource_id END
              FROM deleted
             WHERE expires_at > now() - $2::interval AND (key NOT LIKE ',%' OR key LIKE ',sealed.%')
             ORDER BY id, expires_at DESC
            ON CONFLICT (id) DO UPDATE
               SET request = excluded.request, expired_at = excluded.expired_at,
                   resource_id = excluded.resource_id)
        SELECT count(*) AS "rows!", max(expires_at) AS until,
               (SELECT would_forget FROM this_sweep) AS "would_forget!"
          FROM deleted
        "#,
        from,
        memory,
    )
    .fetch_one(connection)
    .await
}

/// Deletes at most [`SWEEP_BATCH_ROWS`] tombstones of keys that are remembered no more, whose
/// records died at `from` or after it.
async fn forget_batch(
    connection: &mut PgConnection,
    from: Option<DateTime<Utc>>,
    memory: &PgInterval,
) -> Result<Swept, sqlx::Error> {
    sqlx::query_as!(
        Swept,
        r#"
        WITH old AS MATERIALIZED (
            SELECT ctid
              FROM idempotency_tombstones
             WHERE expired_at <= now() - $2::interval
               AND expired_at >= coalesce($1::timestamptz, '-infinity')
             ORDER BY expired_at
             LIMIT 500
               FOR UPDATE SKIP LOCKED),
        deleted AS (
            DELETE FROM idempotency_tombstones AS tombstone
             USING old
             WHERE tombstone.ctid = old.ctid
            RETURNING expired_at)
        SELECT count(*) AS "rows!", max(expired_at) AS until, false AS "would_forget!"
          FROM deleted
        "#,
        from,
        memory,
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
