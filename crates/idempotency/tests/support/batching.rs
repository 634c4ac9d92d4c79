//! What the tests of batches that read rows share: an application whose batches wait for nothing
//! but the gates of the test, and what happened to them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use charge_once_idempotency::{
    BatchObserver, BatchSettings, Batches, Idempotency, RanAlone, Rows, SessionLimits, Settings,
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::{PATIENCE, execute, set_up_with, until};

/// Where transactions wait until the test lets them go on: advisory locks.
pub const BEFORE_WRITING: i64 = 1;
pub const IN_READ: i64 = 2;
pub const IN_COMMIT: i64 = 3;

/// Passes a gate of the test when it is open. Other locks are waited for briefly, as before.
pub async fn pass(tx: &mut PgConnection, gate: i64) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared($1)")
        .bind(gate)
        .execute(&mut *tx)
        .await?;
    let again = sqlx::query("SET LOCAL lock_timeout = '20ms'");
    again.execute(tx).await.map(drop)
}

/// What happened to batches.
#[derive(Debug, Default)]
pub struct Seen {
    batches: Mutex<Vec<(usize, bool)>>,
    alone: Mutex<Vec<RanAlone>>,
}

impl BatchObserver for Seen {
    fn ended_batch(&self, requests: usize, _: Duration, committed: bool) {
        self.batches.lock().unwrap().push((requests, committed));
    }

    fn ran_alone(&self, because: RanAlone) {
        self.alone.lock().unwrap().push(because);
    }
}

impl Seen {
    /// How many requests each had, and whether it committed.
    pub fn batches(&self) -> Vec<(usize, bool)> {
        self.batches.lock().unwrap().clone()
    }

    pub fn alone(&self) -> Vec<RanAlone> {
        self.alone.lock().unwrap().clone()
    }
}

/// Batches that have time. The gates are the only thing that they wait for.
pub fn patient(connections: u32) -> BatchSettings {
    BatchSettings {
        connections,
        prepare_limit: PATIENCE,
    }
}

pub struct World<R: Rows> {
    pub pool: PgPool,
    pub idempotency: Idempotency,
    pub batches: Batches<R>,
    pub seen: Arc<Seen>,
}

impl<R: Rows> World<R> {
    pub async fn set_up(schema: &'static str, batches: BatchSettings, pool: PgPool) -> Self {
        let limits = SessionLimits {
            statement: PATIENCE * 2,
            idle_in_transaction: PATIENCE * 4,
        };
        let settings = Settings {
            database_deadline: PATIENCE * 3,
            ..Settings::default()
        };
        let (pool, idempotency) = set_up_with(pool, 12, limits, settings).await;
        execute(&pool, schema).await;
        let seen = Arc::new(Seen::default());
        Self {
            batches: Batches::observed(&idempotency, batches, seen.clone()),
            pool,
            idempotency,
            seen,
        }
    }
}

/// Closes a gate, until the transaction ends.
pub async fn close(pool: &PgPool, gate: i64) -> Transaction<'static, Postgres> {
    let mut closed = pool.begin().await.unwrap();
    let close = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(gate);
    close.execute(&mut *closed).await.unwrap();
    closed
}

/// How many transactions wait at a gate.
pub async fn waiting_at(pool: &PgPool, gate: i64) -> i64 {
    let waiting = "SELECT count(*) FROM pg_locks
                    WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = $1
                      AND database = (SELECT oid FROM pg_database
                                       WHERE datname = current_database())";
    let waiting = sqlx::query_scalar(waiting).bind(gate);
    waiting.fetch_one(pool).await.unwrap()
}

/// Returns when a transaction waits at a gate.
pub async fn arrives_at(pool: &PgPool, gate: i64) {
    let arrives = async || waiting_at(pool, gate).await > 0;
    until("a transaction waits at the gate", arrives).await;
}

/// Returns when so many requests wait for the next batch.
pub async fn gathered<R: Rows>(batches: &Batches<R>, waiting: usize) {
    let gather = async || batches.waiting() >= waiting;
    until("requests wait for the next batch", gather).await;
}
