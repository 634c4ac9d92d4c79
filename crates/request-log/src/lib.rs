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
    migrate::{MigrateError, Migrator},
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

/// Creates the table, if it is missing. Replicas that start together take turns.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    MIGRATIONS.run(connection).await
}
