//! Applying migrations while other replicas serve requests.
//!
//! Promise: replicas that start together apply each migration once. A migration that can't get its
//! lock in time gives up, lets requests pass, and is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use sqlx::{
    PgConnection,
    migrate::{MigrateError, Migrator},
};

/// The advisory lock of the replica that is migrating: "migrate" in ASCII.
const LOCK: i64 = 0x6d_69_67_72_61_74_65;

/// The pause between two attempts to get the advisory lock.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the lock of a table: ten retries, about four minutes. A transaction that holds a lock
/// for longer than that needs a person.
fn retries() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(10)
        .with_jitter()
        .build()
}

/// Applies what is missing of `migrations`, on a connection that is not used for anything else and
/// is closed afterwards: it keeps the lock that makes replicas take turns.
///
/// A migration sets a `lock_timeout`, and PostgreSQL ends it with 55P03 when a lock takes longer.
/// It is rolled back and tried again, so that requests queue behind it only for the time-out.
pub async fn apply(
    migrations: &Migrator,
    connection: &mut PgConnection,
) -> Result<(), MigrateError> {
    take_turn(connection).await?;
    let mut retries = retries();
    loop {
        let error = match migrations.run(&mut *connection).await {
            Err(error) if is_lock_timeout(&error) => error,
            outcome => return outcome,
        };
        let Some(pause) = retries.next() else {
            return Err(error);
        };
        tracing::warn!(%error, "a migration waits for a lock and is tried again");
        tokio::time::sleep(pause).await;
    }
}

/// Waits until no other replica is migrating.
///
/// sqlx's own lock waits inside a statement. That statement has a snapshot, and `CREATE INDEX
/// CONCURRENTLY` waits for all older snapshots: the two would wait for each other. This one asks
/// again and again, and has no snapshot in between.
async fn take_turn(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    loop {
        let is_ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(LOCK)
            .fetch_one(&mut *connection)
            .await?;
        if is_ours {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn is_lock_timeout(error: &MigrateError) -> bool {
    let MigrateError::ExecuteMigration(sqlx::Error::Database(error), _) = error else {
        return false;
    };
    // 55P03 is lock_not_available.
    error.code().is_some_and(|code| code == "55P03")
}
