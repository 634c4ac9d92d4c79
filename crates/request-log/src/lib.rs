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

/// Creates the table, if it is missing: in the schema that has it, or else in the current one. It is
/// then the only schema of the session. Returns its name, as `search_path` takes it: give it to all
/// sessions. Fails if two schemas have the table. Replicas that start together take turns.
pub async fn migrate(connection: &mut PgConnection) -> Result<String, MigrateError> {
    // Two replicas with different defaults could otherwise both find none.
    connection.lock().await?;
    let found: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(nspname)
           FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
          WHERE relname = $1 AND relkind = 'r' AND relpersistence <> 't'
          ORDER BY nspname",
    )
    .bind(MIGRATIONS_TABLE)
    .fetch_all(&mut *connection)
    .await?;
    if found.len() > 1 {
        let told = format!("several schemas have the table: {}", found.join(", "));
        return Err(MigrateError::Source(told.into()));
    }
    let pin =
        "SELECT set_config('search_path', coalesce($1, quote_ident(current_schema())), false)";
    let pin = sqlx::query_scalar(pin).bind(found.first());
    let schema = pin.fetch_one(&mut *connection).await?;
    MIGRATIONS.run(&mut *connection).await?;
    connection.unlock().await?;
    Ok(schema)
}
