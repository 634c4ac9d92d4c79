//! Whether the database is one that this build can serve from: the schema, and the clock.
//!
//! Ids are made by this machine's clock, `created_at` and every expiry by the database's. Lists
//! find what was created at a time by the ids, so clocks that are far apart would hide objects from
//! them.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

use super::{Schema, SchemaName, first_tables};
use crate::has_code;

/// Why this replica can't serve from its database, in words that a probe may be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It can't be reached, or doesn't answer in time.
    #[error("The database can't be reached.")]
    Unreachable,
    /// The server is a standby, which can't be written to. After a failover, an address may lead to
    /// one.
    #[error("The database is a standby, which can't be written to.")]
    Standby,
    /// The server may forget what it acknowledged: a setting has changed since the start. Every
    /// transaction with a key refuses to begin then, whether or not readiness is asked for.
    #[error("The database may lose what it acknowledged: fsync or full_page_writes is off.")]
    NotDurable,
    /// A migration of this build is missing.
    #[error("The database schema is not current.")]
    SchemaNotCurrent,
    /// The tables are in two schemas, or not in the one where the start found them.
    #[error("The database has the tables in another schema than this replica's.")]
    AnotherSchema,
    /// This machine's clock and the database's are further apart than [`CLOCKS_APART_MAX`].
    #[error("This machine's clock and the database's are too far apart.")]
    ClocksApart,
    /// One of several databases was down when this process started, and is not used before it has
    /// passed the checks of a start.
    #[error("The database has not passed the checks of a start yet. The log says why.")]
    NotChecked,
}

/// Why this replica can't serve, if anything. `is_pinned`: the session has the schema that the
/// start found.
pub(super) async fn unfit(
    connection: &mut PgConnection,
    schema: Schema,
    is_pinned: bool,
) -> Result<Option<Unfit>, sqlx::Error> {
    if is_standby(connection).await? {
        return Ok(Some(Unfit::Standby));
    }
    if forgetful_setting(connection).await?.is_some() {
        return Ok(Some(Unfit::NotDurable));
    }
    if is_pinned {
        if !SchemaName::is_only_current(connection, &first_tables(schema)).await? {
            return Ok(Some(Unfit::AnotherSchema));
        }
        if !schema_is_current(connection, schema).await? {
            return Ok(Some(Unfit::SchemaNotCurrent));
        }
    }
    let apart = clocks_apart(connection).await?;
    Ok((apart > CLOCKS_APART_MAX).then_some(Unfit::ClocksApart))
}

/// Whether the server is a standby.
pub(super) async fn is_standby(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let look = sqlx::query_scalar("SELECT pg_is_in_recovery()");
    look.fetch_one(connection).await
}

/// The settings of the server that must be on, so that a crash loses nothing that was acknowledged.
const DURABLE: [&str; 2] = [
    "fsync",
    // Without it, a page that a crash tore in two stays torn.
    "full_page_writes",
];

/// Each of them, and what it is.
pub(super) async fn durability(
    connection: &mut PgConnection,
) -> Result<Vec<(&'static str, String)>, sqlx::Error> {
    let mut settings = Vec::new();
    for setting in DURABLE {
        settings.push((setting, current_setting(connection, setting).await?));
    }
    Ok(settings)
}

/// What a setting of the session is.
pub(super) async fn current_setting(
    connection: &mut PgConnection,
    name: &str,
) -> Result<String, sqlx::Error> {
    let look = sqlx::query_scalar("SELECT current_setting($1)").bind(name);
    look.fetch_one(connection).await
}

/// The first setting that makes the server forget, and what it is.
pub(super) async fn forgetful_setting(
    connection: &mut PgConnection,
) -> Result<Option<(&'static str, String)>, sqlx::Error> {
    let mut settings = durability(connection).await?.into_iter();
    Ok(settings.find(|(_, found)| found != "on"))
}

/// How many receive the log, and which of them a COMMIT waits for. Not only standbys do: so do
/// subscribers of a publication, a backup, and an archive.
pub(super) async fn standbys(connection: &mut PgConnection) -> Result<(i64, String), sqlx::Error> {
    sqlx::query_as(
        "SELECT count(*), current_setting('synchronous_standby_names') FROM pg_stat_replication",
    )
    .fetch_one(connection)
    .await
}

/// Whether every migration of this build is applied. Newer ones are fine: a release being rolled
/// out beside this one.
pub(super) async fn schema_is_current(
    connection: &mut PgConnection,
    schema: Schema,
) -> Result<bool, sqlx::Error> {
    for migrations in schema {
        let versions = migrations.migrator.iter();
        let newest = versions.map(|migration| migration.version).max();
        let table = migrations.table;
        let query = format!("SELECT max(version) FROM {table} WHERE success");
        let applied = sqlx::query_scalar::<_, Option<i64>>(sqlx::AssertSqlSafe(query));
        match applied.fetch_one(&mut *connection).await {
            Ok(applied) if applied >= newest => {}
            Ok(_) => return Ok(false),
            // 42P01 is undefined_table: never migrated.
            Err(error) if has_code(&error, &["42P01"]) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Where another C library sorts text than the one by which the database was made: its name, and
/// the two versions. PostgreSQL knows no version of the locale C, which always sorts alike, and
/// none of some systems.
pub(super) async fn changed_locale(
    connection: &mut PgConnection,
) -> Result<Option<(String, String, Option<String>)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT datname::text, datcollversion, pg_database_collation_actual_version(oid)
           FROM pg_database
          WHERE datname = current_database() AND datcollversion IS NOT NULL
            AND datcollversion IS DISTINCT FROM pg_database_collation_actual_version(oid)",
    )
    .fetch_optional(connection)
    .await
}

/// What to do about a changed locale, and why.
pub(super) fn sort_again(database: &str) -> String {
    format!(
        "indexes on text may miss what they hold: run REINDEX DATABASE {database} and then ALTER DATABASE {database} \
         REFRESH COLLATION VERSION"
    )
}

/// How far the two clocks may be apart.
pub const CLOCKS_APART_MAX: TimeDelta = TimeDelta::seconds(30);

/// How far they are apart now, at least: the answer's way through the network is not counted.
pub(super) async fn clocks_apart(connection: &mut PgConnection) -> Result<TimeDelta, sqlx::Error> {
    let asked = Utc::now();
    let look = sqlx::query_scalar("SELECT clock_timestamp()");
    let theirs = look.fetch_one(connection).await?;
    Ok(apart(asked, theirs, Utc::now()))
}

/// How far `theirs` is from the time between `asked` and `answered`.
fn apart(asked: DateTime<Utc>, theirs: DateTime<Utc>, answered: DateTime<Utc>) -> TimeDelta {
    (asked - theirs)
        .max(theirs - answered)
        .max(TimeDelta::zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_way_through_the_network_cannot_explain_counts() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        for (theirs, seconds) in [(70, 30), (99, 1), (100, 0), (107, 0), (110, 0), (145, 35)] {
            let found = apart(at(100), at(theirs), at(110));
            assert_eq!(found, TimeDelta::seconds(seconds), "{theirs}");
        }
    }
}
