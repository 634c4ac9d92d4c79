//! The tables of this crate and of the add-ons that are compiled in.
//!
//! Promise: they are counted in a table of their own, apart from the application's, so that the two
//! never meet.

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

use crate::SchemaName;

/// Where applied migrations are counted; `sqlx.toml` says the same to sqlx's command line.
pub const MIGRATIONS_TABLE: &str = "idempotency_migrations";

/// Every migration of the compiled features, in order. One that the database has and this build
/// doesn't is no error: an older release must be able to start beside a newer one.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let sets = [
        sqlx::migrate!("migrations/core"),
        #[cfg(feature = "phases")]
        sqlx::migrate!("migrations/phases"),
        #[cfg(feature = "workflow")]
        sqlx::migrate!("migrations/workflow"),
    ];
    let all = sets.iter().flat_map(Migrator::iter).cloned().collect();
    let mut migrator = Migrator::with_migrations(all);
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator.set_ignore_missing(true);
    migrator
});

/// Creates what is missing of the tables: in the schema that has them, or else in the current one.
/// That schema is then the only one of the session, where the application can make its own tables,
/// and [`pin_session`](crate::pin_session) makes it the only one of others. Replicas that start
/// together take turns, by sqlx's advisory lock.
pub async fn migrate(connection: &mut PgConnection) -> Result<SchemaName, MigrateError> {
    // Two replicas with different defaults could otherwise both find no tables.
    connection.lock().await?;
    let found = SchemaName::find(connection, MIGRATIONS_TABLE).await;
    let schema = found.map_err(|error| MigrateError::Source(error.into()))?;
    MIGRATIONS.run(&mut *connection).await?;
    connection.unlock().await?;
    Ok(schema)
}
