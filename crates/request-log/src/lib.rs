#![doc = include_str!("../README.md")]
// In the order of a request: `entry` gathers what is known of it, `worker` writes many at once, and
// `table` has the SQL.

mod entry;
mod logged;
mod table;
mod worker;

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

pub use entry::{Entry, PATH_MAX_BYTES};
pub use logged::{LoggedOutcome, LoggedRequest};
pub use table::{
    COUNTED_MAX, RequestFilter, SEARCHED_MAX, count_replays, delete_requests, list, list_of_key,
    old_requests, searched_to,
};
pub use worker::{BATCH_ROWS, QUEUED_MAX, RequestLog, Worker, Writing, start};

/// Where the migrations of this crate are counted, apart from the application's.
pub const MIGRATIONS_TABLE: &str = "request_log_migrations";

/// The table.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!();
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator.set_ignore_missing(true);
    migrator
});

/// Creates the table, if it is missing: in the schema that has it, or else in the current one. It
/// is then the only schema of the session. Returns its name, as `search_path` takes it: give it to
/// all sessions. Fails if two schemas have the table, or one that the connection's options don't
/// name. Replicas that start together take turns.
pub async fn migrate(connection: &mut PgConnection) -> Result<String, MigrateError> {
    // Two replicas with different defaults could otherwise both find none.
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
