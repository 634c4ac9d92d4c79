//! Applying migrations while other replicas serve requests.
//!
//! Promise: replicas that start together apply each migration once. A migration that can't get its
//! lock in time gives up, lets requests pass, and is tried again. A database of release 0.2 keeps its
//! tables, and any other that the baseline doesn't fit is left as it is.

use std::{sync::LazyLock, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use sqlx::{
    Connection, PgConnection,
    migrate::{AppliedMigration, Migrate, MigrateError, Migrator},
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

/// Migrations that are counted in a table of their own. The first of them are the baseline: release 0.2
/// had made the same schema by others.
#[derive(Debug)]
pub struct MigrationSet {
    /// The migrations.
    pub migrator: &'static LazyLock<Migrator>,
    /// Where sqlx writes down which of them are applied.
    pub table: &'static str,
    /// The last version of the baseline.
    pub baseline: i64,
    /// All migrations of release 0.2: a line for each, with its version and its SHA-384.
    pub release_0_2: &'static str,
}

impl MigrationSet {
    /// Whether exactly the migrations of release 0.2 are applied.
    fn is_of_release_0_2(&self, applied: &[AppliedMigration]) -> bool {
        let line =
            |one: &AppliedMigration| format!("{} {}", one.version, hex::encode(&one.checksum));
        applied.iter().map(line).eq(self.release_0_2.lines())
    }

    /// Whether the baseline was begun, or nothing.
    fn goes_on(&self, applied: &[AppliedMigration]) -> bool {
        let first = self
            .migrator
            .iter()
            .map(|migration| migration.version)
            .min();
        applied.is_empty() || applied.iter().any(|one| Some(one.version) == first)
    }
}

/// Marks the baseline as applied in a database of release 0.2. Whether [`apply`] can go on: not in a
/// database that has migrations, but neither the baseline nor all of release 0.2.
///
/// The rows of release 0.2 stay, so that its replicas are ready meanwhile, and start after a rollback.
pub async fn adopt(
    set: &MigrationSet,
    connection: &mut PgConnection,
) -> Result<bool, MigrateError> {
    take_turn(connection).await?;
    connection.ensure_migrations_table(set.table).await?;
    let applied = connection.list_applied_migrations(set.table).await?;
    if !set.is_of_release_0_2(&applied) {
        return Ok(set.goes_on(&applied));
    }
    // All of it or nothing: a half of the baseline would be taken for a start that was interrupted.
    let mut tx = connection.begin().await?;
    set.migrator.skip(&mut *tx, Some(set.baseline)).await?;
    tx.commit().await?;
    tracing::info!(table = set.table, "the schema of release 0.2 is taken over");
    Ok(true)
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
