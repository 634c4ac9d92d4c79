//! Webhooks that are neither lost nor made up, for applications on Tokio, sqlx and PostgreSQL.
//!
#![doc = include_str!("../README.md")]
// In the order of an event: `events` writes it with its deliveries, in the caller's transaction.
// `worker` gives endpoints their `turns`, claims deliveries from the `queue`, and lets the `sender`
// make attempts.

mod attempt;
mod changes;
pub mod deliveries;
pub mod endpoints;
pub mod events;
mod interference;
mod observer;
mod public_addresses;
mod queue;
mod secret;
mod sender;
mod settings;
mod slice;
mod turns;
mod url;
mod worker;

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

pub use attempt::{ATTEMPTS_MAX, Attempt, DeliveryStatus, Pauses};
pub use changes::previous_attributes;
pub use deliveries::Delivery;
pub use endpoints::{EVERY_EVENT, Endpoint, NewEndpoint};
pub use events::{Event, NewEvent, delete_events, emit, old_events};
pub use interference::{DeliveryFault, Interference};
pub use observer::Observer;
pub use public_addresses::is_public;
pub use queue::{
    Claimed, ReadyEndpoint, Turn, claim, count_due, longest_due, make_ready, ready_endpoints,
    retry_failed, retry_now,
};
pub use secret::Secret;
pub use sender::{Message, Sender, TlsError};
pub use settings::{Commit, Settings};
pub use slice::Slice;
pub use turns::SENDS_MAX;
pub use url::{UrlRefusal, check_url, literal_address};
pub use worker::{Body, Worker};

/// Where applied migrations are counted; `sqlx.toml` says the same to sqlx's command line.
pub const MIGRATIONS_TABLE: &str = "webhooks_migrations";

/// The tables, counted apart from the application's migrations. One that the database has and this
/// build doesn't is no error: an older release must be able to start beside a newer one.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!();
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator.set_ignore_missing(true);
    migrator
});

/// Creates what is missing of the tables: in the schema that has them, or else in the current one,
/// which is then the session's only one. Returns its name, as `search_path` takes it: give it to
/// all sessions. Fails if two schemas have the tables, or one that the connection's options don't
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
