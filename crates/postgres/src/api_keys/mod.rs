//! This module makes, lists and revokes the API keys of a service's accounts, looks up the key of
//! each request, and limits how often an account may ask.
//!
//! ```rust,no_run
//! use std::net::IpAddr;
//!
//! use charge_once_postgres::api_keys::{ApiKeys, KeyShape, RateLimit, Refusal};
//! use sqlx::PgPool;
//! use tokio::time::{Duration, Instant};
//! use uuid::Uuid;
//!
//! /// By this prefix, people and secret scanners recognize your keys.
//! const SHAPE: KeyShape = KeyShape::with_prefix("acme_");
//!
//! struct Service {
//!     keys: ApiKeys<PgPool>,
//!     rate: RateLimit<Uuid>,
//! }
//!
//! impl Service {
//!     fn new(pool: PgPool) -> Self {
//!         let rate = RateLimit::new(1000.try_into().ok());
//!         Self { keys: ApiKeys::of(pool, SHAPE, true), rate }
//!     }
//!
//!     /// The account that a request speaks for, or the status that it is refused with.
//!     async fn account_of(&self, authorization: &[&str], client: IpAddr) -> Result<Uuid, u16> {
//!         let until = Instant::now() + Duration::from_secs(2);
//!         let authorization = authorization.iter().copied();
//!         let found = self.keys.authenticate(authorization, Some(client), until).await;
//!         let status = |refusal: Refusal<_>| -> u16 {
//!             match refusal {
//!                 Refusal::Missing | Refusal::Invalid => 401,
//!                 Refusal::TooMany(_) => 429,
//!                 Refusal::LookUp(_) | Refusal::TooSlow | Refusal::Ended => 503,
//!             }
//!         };
//!         let account = found.map_err(status)?;
//!         self.rate.check(account.id).map(|()| account.id).map_err(|_| 429)
//!     }
//! }
//! ```
//!
//! - `migrate` creates the tables, apart from your migrations, and returns their schema for
//!   `search_path`.
//! - A key is stored as its SHA-256, and shown once.
//! - A revoked key is accepted for up to 5 seconds. An unknown key is refused for 2 seconds without
//!   a look-up.
//! - From one IPv4 address or IPv6 network of 64 bits, 20 unknown keys in a second get 401, and
//!   further ones 429. An account's key is never among them.
//! - Each process counts the rate limit alone.
//! - Test accounts and their keys end after a day.

mod accounts;
mod keys;
mod look_up;
mod rate_limit;
mod shape;
mod strangers;

use std::sync::LazyLock;

use sqlx::{
    PgConnection,
    migrate::{Migrate, MigrateError, Migrator},
};

pub use accounts::{
    close_account, count_accounts, count_test_accounts, ensure_account, find_account_by_name,
    find_moving, hold_account, insert_test_account, list_accounts, lock_account, names_of_accounts,
};
pub use keys::{
    Account, ListedKey, Stay, create_key, find_account, find_accounts, insert_key, list_keys,
    revoke_key, take_up_dev_key,
};
pub use look_up::{ApiKeys, KeyDatabase, REMEMBERED_FOR, Refusal, key_of};
pub use rate_limit::RateLimit;
pub use shape::{KeyHash, KeyShape, hash, holds_secret};
pub use strangers::Strangers;

/// Where the migrations of this crate are counted, apart from the application's.
pub const MIGRATIONS_TABLE: &str = "api_keys_migrations";

/// The tables.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("migrations/api_keys");
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
