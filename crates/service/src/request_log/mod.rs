//! This module keeps one table of what each request was and how it ended, for people to read.
//!
//! ```rust,no_run
//! use std::time::Duration;
//!
//! use charge_once_service::request_log::{LoggedOutcome, list_of_key, migrate, start};
//! use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};
//! use tokio::time::Instant;
//! use uuid::Uuid;
//!
//! async fn serve(connect: PgConnectOptions, account: Uuid) -> Result<(), sqlx::Error> {
//!     let mut connection = PgConnection::connect_with(&connect).await?;
//!     let schema = migrate(&mut connection).await?;
//!     let pool = PgPool::connect_lazy_with(connect.options([("search_path", schema)]));
//!     let deadline = Duration::from_secs(5);
//!     let (log, writing) = start(pool, deadline, |worker| tokio::spawn(worker.run()));
//!
//!     // The outermost middleware begins an entry, and puts a clone into the request's extensions.
//!     let entry = log.begin(Uuid::now_v7());
//!     // Where the API key is checked. `None` in place of a path that must not be kept.
//!     entry.authenticated(account, "PUT", "/seats/{id}".to_owned(), Some("/seats/12A"));
//!     // Where the idempotency key is checked, if there is one.
//!     entry.has_key("key-1");
//!     // The middleware has the reply.
//!     entry.end(200, LoggedOutcome::of("PUT", 200), Some("12A".to_owned()));
//!
//!     // After the last request.
//!     writing.end(Instant::now() + deadline).await;
//!     assert_eq!(list_of_key(&mut connection, account, "key-1", 10).await?.len(), 1);
//!     Ok(())
//! }
//! ```
//!
//! - **Decide nothing by this table.** No request waits for it. If the queue of 4096 is full, or
//!   the database is down, rows are dropped, and a warning says how many.
//! - Only authenticated requests are logged. Pass no path and no key that may hold a secret, and no
//!   query string.
//! - A client that leaves is logged as `Unanswered`.
//! - `migrate` creates the tables, apart from your migrations, and returns its schema for
//!   `search_path`.
//! - `list` looks at 20,000 requests. `searched_to` says where the next search begins.
//! - `report` finds what is wrong with the retries of a client in a test.
//! - `minutes_since` has counts of each minute, by outcome and duration.
//! - `old_requests`, `delete_requests` and `delete_minutes` remove old rows.
// In the order of a request: `entry` gathers what is known of it, `worker` writes many at once, and
// `table` and `counts` have the SQL.

mod counts;
mod entry;
mod logged;
pub mod report;
mod table;
mod worker;

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

pub use counts::{DURATION_BOUNDS, MINUTES_MAX, Minute, delete_minutes, minutes_since};
pub use entry::{Entry, PATH_MAX_BYTES};
pub use logged::{LoggedOutcome, LoggedRequest};
pub use table::{
    COUNTED_MAX, RequestFilter, SEARCHED_MAX, count_replays, delete_requests, list, list_of_key,
    old_requests, searched_to,
};
pub use worker::{BATCH_ROWS, QUEUED_MAX, RequestLog, Worker, Writing, start};

/// Where the migrations of this crate are counted, apart from the application's.
pub const MIGRATIONS_TABLE: &str = "request_log_migrations";

/// The tables.
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
