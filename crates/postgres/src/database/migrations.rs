//! Applying migrations while other replicas serve requests.
//!
//! Promise: replicas that start together apply each migration once. A migration that can't get its
//! lock in time gives up, lets requests pass, and is tried again. A database that has what a
//! baseline replaces keeps its tables, and any other that the baseline doesn't fit is left as it
//! is.

use std::{sync::LazyLock, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use sqlx::{
    Connection, PgConnection,
    migrate::{AppliedMigration, Migrate, MigrateError, Migrator},
};

use crate::{
    database::{StartError, errors},
    has_code,
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

/// Migrations that are counted in a table of their own.
#[derive(Debug, Clone, Copy)]
pub struct MigrationSet {
    /// The migrations.
    pub migrator: &'static LazyLock<Migrator>,
    /// Where sqlx writes down which of them are applied.
    pub table: &'static str,
    /// The first of them, if they replace others.
    pub baseline: Option<Baseline>,
    /// Of the first set: a table of this program's own beside that one, if other programs may have
    /// migrations that are counted in a table of that name.
    pub beside: Option<&'static str>,
}

/// Migrations that make at once what a release had made by others.
#[derive(Debug, Clone, Copy)]
pub struct Baseline {
    /// The version of the last of them.
    pub last: i64,
    /// The release that had others, for a message.
    pub release: &'static str,
    /// Where that release counted them. It may be another set's table; then that set comes later.
    pub table: &'static str,
    /// All that it had: a line for each, with its version and its SHA-384.
    pub replaces: &'static str,
}

impl Baseline {
    /// Whether exactly what it replaces is applied.
    fn fits(&self, applied: &[AppliedMigration]) -> bool {
        let line =
            |one: &AppliedMigration| format!("{} {}", one.version, hex::encode(&one.checksum));
        applied.iter().map(line).eq(self.replaces.lines())
    }
}

/// Whether the first migration of the set is applied.
fn has_begun(set: &MigrationSet, applied: &[AppliedMigration]) -> bool {
    let first = set.migrator.iter().map(|one| one.version).min();
    applied.iter().any(|one| Some(one.version) == first)
}

/// Marks the baseline as applied where all that it replaces is. [`apply`] can go on then. It can't
/// in a database that has migrations, but neither those nor the baseline: the error names the
/// release.
///
/// The rows of what is replaced stay, so that replicas of that release are ready meanwhile, and
/// start after a rollback.
pub async fn adopt(set: &MigrationSet, connection: &mut PgConnection) -> Result<(), StartError> {
    let Some(baseline) = &set.baseline else {
        return Ok(());
    };
    take_turn(connection).await.map_err(MigrateError::from)?;
    for table in [set.table, baseline.table] {
        connection.ensure_migrations_table(table).await?;
        if let Some(version) = connection.dirty_version(table).await? {
            return Err(MigrateError::Dirty(version).into());
        }
    }
    let earlier = connection.list_applied_migrations(baseline.table).await?;
    if !baseline.fits(&earlier) {
        let applied = connection.list_applied_migrations(set.table).await?;
        return match earlier.is_empty() || has_begun(set, &applied) {
            true => Ok(()),
            false => Err(StartError::AnotherSchema {
                table: baseline.table,
                release: baseline.release,
            }),
        };
    }
    // All of it or nothing: a half of the baseline would be taken for a start that was interrupted.
    let mut tx = connection.begin().await.map_err(MigrateError::from)?;
    // As `skip` does, whose future can't be shown to be `Send`.
    let skip = set.migrator.run_direct(Some(baseline.last), &mut *tx, true);
    skip.await?;
    tx.commit().await.map_err(MigrateError::from)?;
    let (table, release) = (set.table, baseline.release);
    tracing::info!(
        table,
        release,
        "the schema of an earlier release is taken over"
    );
    Ok(())
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
        // As `run` does, whose future can't be shown to be `Send`.
        let run = migrations.run_direct(None, &mut *connection, false);
        let error = match run.await {
            Err(error) if is_lock_timeout(&error) => error,
            outcome => return outcome,
        };
        let Some(pause) = retries.next() else {
            return Err(error);
        };
        let error = errors::plain_of_migration(&error);
        tracing::warn!(error, "a migration waits for a lock and is tried again");
        tokio::time::sleep(pause).await;
    }
}

/// Waits until no other replica is migrating.
///
/// sqlx's own lock waits inside a statement. That statement has a snapshot, and `CREATE INDEX
/// CONCURRENTLY` waits for all older snapshots: the two would wait for each other. This one asks
/// again and again, and has no snapshot in between.
pub(super) async fn take_turn(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    loop {
        let ask = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK);
        if ask.fetch_one(&mut *connection).await? {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn is_lock_timeout(error: &MigrateError) -> bool {
    // 55P03 is lock_not_available.
    matches!(error, MigrateError::ExecuteMigration(error, _) if has_code(error, &["55P03"]))
}
