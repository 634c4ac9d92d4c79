//! What the database has, and what its private PostgreSQL is called.
//! `charge_once_postgres::database` connects to it.

pub mod embedded;
pub mod move_account;
pub mod shard_load;

use std::{sync::LazyLock, time::Duration};

pub use charge_once_postgres::database::{
    Baseline, CLOCKS_APART_MAX, Database, DatabaseSettings, MigrationSet, ReadError, Readiness,
    Reading, Schema, StartError, Unfit, WhenRefused, WriteError, Writing, checklist, migrations,
    plain,
    shards::{self, Shard, Shards},
};
use charge_once_processor::service;
pub use sqlx::PgConnection;
use sqlx::migrate::Migrator;

use crate::{
    config::Config,
    idempotency::{self, acknowledged},
    webhooks,
};

/// The migrations of this program, compiled in. One that the database has and this build doesn't is
/// no error: an older release must be able to start beside a newer one, during a rollout or after a
/// rollback.
static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!();
    migrations.set_ignore_missing(true);
    migrations
});

/// Where sqlx counts the migrations of an application by default.
pub const APPLICATION_MIGRATIONS_TABLE: &str = "_sqlx_migrations";

/// The last migration of a baseline, and what of release 0.2 it replaces, which is counted in
/// `table`.
const fn of_release_0_2(
    last: i64,
    table: &'static str,
    replaces: &'static str,
) -> Option<Baseline> {
    Some(Baseline {
        last,
        release: "0.2",
        table,
        replaces,
    })
}

const API_OF_RELEASE_0_2: &str = include_str!("release_0_2/api.txt");

/// The tables of a crate, which its first migration makes, and those of the API in release 0.2
/// made.
const fn of_crate(migrator: &'static LazyLock<Migrator>, table: &'static str) -> MigrationSet {
    MigrationSet {
        migrator,
        table,
        baseline: of_release_0_2(1, APPLICATION_MIGRATIONS_TABLE, API_OF_RELEASE_0_2),
        beside: None,
    }
}

/// The tables of the API: first those of its crates, then its own, whose keys may lead to them.
pub const SCHEMA: Schema = match SHARD_SCHEMA {
    [schema @ .., _] => schema,
    [] => &[],
};

/// Those of a database that is one of several.
pub const SHARD_SCHEMA: &[MigrationSet] = &[
    MigrationSet {
        migrator: &idempotency::MIGRATIONS,
        table: idempotency::MIGRATIONS_TABLE,
        baseline: of_release_0_2(
            103,
            idempotency::MIGRATIONS_TABLE,
            include_str!("release_0_2/idempotency.txt"),
        ),
        beside: Some("charges"),
    },
    of_crate(
        &charge_once_postgres::api_keys::MIGRATIONS,
        charge_once_postgres::api_keys::MIGRATIONS_TABLE,
    ),
    of_crate(&webhooks::MIGRATIONS, webhooks::MIGRATIONS_TABLE),
    of_crate(
        &charge_once_service::request_log::MIGRATIONS,
        charge_once_service::request_log::MIGRATIONS_TABLE,
    ),
    MigrationSet {
        migrator: &MIGRATIONS,
        table: APPLICATION_MIGRATIONS_TABLE,
        baseline: of_release_0_2(111, APPLICATION_MIGRATIONS_TABLE, API_OF_RELEASE_0_2),
        beside: None,
    },
    shards::SHARD_MIGRATIONS,
];

/// What sealed replies need more.
const SEAL: MigrationSet = MigrationSet {
    migrator: &idempotency::SEAL_MIGRATIONS,
    table: idempotency::SEAL_MIGRATIONS_TABLE,
    baseline: None,
    beside: None,
};

/// Both schemas, where replies are sealed.
static SEALED: LazyLock<[Vec<MigrationSet>; 2]> = LazyLock::new(|| {
    [SCHEMA, SHARD_SCHEMA].map(|schema| schema.iter().copied().chain([SEAL]).collect())
});

/// The tables of the card processor's simulator, in a database of its own.
pub const PROCESSOR_SCHEMA: Schema = &[MigrationSet {
    migrator: &service::MIGRATIONS,
    table: APPLICATION_MIGRATIONS_TABLE,
    baseline: of_release_0_2(
        101,
        APPLICATION_MIGRATIONS_TABLE,
        include_str!("release_0_2/processor.txt"),
    ),
    beside: None,
}];

impl Config {
    /// What each database of the API must have.
    pub fn schema(&self) -> Schema {
        let [one, several] = match self.seal {
            None => [SCHEMA, SHARD_SCHEMA],
            Some(_) => SEALED.each_ref().map(Vec::as_slice),
        };
        match &*self.shards {
            [] => one,
            [_, ..] => several,
        }
    }

    /// How this configuration uses a database with this schema.
    pub fn database_settings(&self, schema: Schema) -> DatabaseSettings {
        let values = &self.values;
        DatabaseSettings {
            schema,
            migrate: values.migrate_on_start,
            pool_connections: values.pool_connections,
            pool_wait: values.pool_wait,
            statement: values.statement_timeout,
            deadline: values.database_deadline,
            idle_in_transaction: values.idle_in_transaction_timeout,
        }
    }
}

/// Connects to the API's database, which may be starting.
pub async fn connect(url: &str, config: &Config) -> Result<Database, StartError> {
    let settings = config.database_settings(config.schema());
    Database::connect(url, settings, WhenRefused::TryAgain).await
}

/// Connects to the API's database and to those of `SHARD_URLS`, which may be starting.
pub async fn connect_all(url: &str, config: &Config) -> Result<Shards, StartError> {
    let settings = config.database_settings(config.schema());
    Shards::connect(url, &config.shards, settings, WhenRefused::TryAgain).await
}

/// Why a process must not use a database.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It would execute requests whose keys others remember.
    #[error(
        "KEY_MEMORY must be set as in the other processes: this database remembers keys that have expired, \
         and without it they would be new. To forget them, stop all processes that have it, and \
         TRUNCATE idempotency_tombstones"
    )]
    Forgets,
    /// The database can't be asked.
    #[error("what is remembered of keys can't be read: {0}")]
    Database(#[from] sqlx::Error),
}

/// Whether a process with this `KEY_MEMORY` may use the database. One that remembers keys says so
/// there, and from then on none starts that doesn't.
pub async fn ensure_memory(
    database: &Database,
    memory: Option<Duration>,
) -> Result<(), MemoryError> {
    let mut connection = database.connect_aside().await?;
    if memory.is_some() {
        acknowledged(idempotency::remember_keys(&mut connection)).await?;
    } else if idempotency::remembers_keys(&mut connection).await? {
        return Err(MemoryError::Forgets);
    }
    Ok(())
}
