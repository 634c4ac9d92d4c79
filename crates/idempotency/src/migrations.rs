//! The tables of this crate and of the add-ons that are compiled in.
//!
//! Promise: they are counted apart from the application's migrations, and no second set is made.

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

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

/// Creates what is missing of the tables: in the schema that has them, or else in the current one,
/// from then on the session's only one, also for the application's own tables. Returns its name for
/// [`pin_session`](crate::pin_session). Fails if two schemas have the tables, or one that the
/// connection's options don't name: a second set knows no key of the first. Replicas that start
/// together take turns, by sqlx's advisory lock.
pub async fn migrate(connection: &mut PgConnection) -> Result<String, MigrateError> {
    // Two replicas with different defaults could otherwise both find no tables.
    connection.lock().await?;
    // Names without a comma are no list of schemas: the error shows them.
    let find = "SELECT set_config('search_path', CASE
             WHEN source = 'client' AND found <> ALL (SELECT quote_ident(unnest(current_schemas(false))))
             THEN found || ' has the tables and not ' || setting
             ELSE coalesce(found, quote_ident(current_schema())) END, false)
           FROM (SELECT string_agg(quote_ident(nspname), ' and also ' ORDER BY nspname)
                   FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                  WHERE relname = $1 AND relkind = 'r' AND relpersistence <> 't') AS tables (found)
           JOIN pg_settings ON name = 'search_path'";
    let find = sqlx::query_scalar(find).bind(MIGRATIONS_TABLE);
    let schema = find.fetch_one(&mut *connection).await?;
    MIGRATIONS.run(&mut *connection).await?;
    connection.unlock().await?;
    Ok(schema)
}
