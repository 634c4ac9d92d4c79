//! This module connects a service to PostgreSQL, and refuses a server that could lose what it
//! acknowledged.
//!
//! ```rust,no_run
//! use std::time::Duration;
//!
//! use charge_once_idempotency::{MIGRATIONS, MIGRATIONS_TABLE};
//! use charge_once_postgres::database::{
//!     Database, DatabaseSettings, MigrationSet, Schema, StartError, WhenRefused,
//! };
//!
//! /// Add your own migrations: `static OWN: LazyLock<Migrator> = LazyLock::new(|| sqlx::migrate!());`
//! const SCHEMA: Schema = &[MigrationSet {
//!     migrator: &MIGRATIONS,
//!     table: MIGRATIONS_TABLE,
//!     baseline: None,
//!     beside: None,
//! }];
//!
//! async fn connect() -> Result<Database, StartError> {
//!     let settings = DatabaseSettings {
//!         schema: SCHEMA,
//!         migrate: true,
//!         pool_connections: 10,
//!         pool_wait: Duration::from_secs(1),
//!         statement: Duration::from_secs(3),
//!         deadline: Duration::from_secs(5),
//!         idle_in_transaction: Duration::from_secs(6),
//!     };
//!     let url = "postgres://user@localhost/shop";
//!     let database = Database::connect(url, settings, WhenRefused::TryAgain).await?;
//!     // What `/readyz` answers.
//!     assert_eq!(database.check().await, Ok(()));
//!     Ok(database)
//! }
//! ```
//!
//! - The start and readiness refuse `fsync` or `full_page_writes` that is off, a standby, clocks 30
//!   s apart, and two schemas with the tables, of which one knows no key of the other.
//! - The start refuses a part of the URL that has no effect, and a pooler that shares sessions or
//!   drops their settings.
//! - The start **only warns** if no COMMIT waits for a standby: a failover then loses what was
//!   acknowledged.
//! - Each session pins isolation, durability, time limits and `search_path`, whatever the defaults
//!   of role and server.
//! - Replicas migrate in turns. A migration gives way to requests.
//! - The start waits 15 s for its database, and 3 s for one of several. That one's reads and writes
//!   then fail until `Shards::check` finds it fit.
//! - With `SHARD_MIGRATIONS`, a database keeps its name, and refuses keys of accounts that it
//!   doesn't have.
//! - A statement whose client disconnects goes on under a deadline. A connection in doubt is
//!   closed.
//! - Messages name charge-once, its variables and its options.

pub mod checklist;
mod errors;
mod fitness;
mod look;
pub mod migrations;
mod pooler;
mod readiness;
mod schema;
pub mod shards;
mod url;

use std::{io::ErrorKind, pin::Pin, sync::Arc, time::Duration};

use charge_once_idempotency::{
    self as idempotency, Admission, AdmissionObserver, BEGIN_DURABLE, Connections,
    InProgressLimits, NO_ACCOUNT, SessionLimits, acknowledged,
};
pub use sqlx::PgConnection;
use sqlx::{
    Connection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime::Handle, sync::watch, time::Instant};
use tracing::Instrument;
use uuid::Uuid;

pub use self::{
    errors::{ReadError, StartError, WriteError, plain},
    fitness::{CLOCKS_APART_MAX, Unfit},
    look::{LookTimedOut, look, look_limit},
    migrations::{Baseline, MigrationSet},
    readiness::Readiness,
};
use crate::has_code;
use schema::SchemaName;

/// What a database must have, in the order in which it is applied.
pub type Schema = &'static [MigrationSet];

/// How long a start waits for a first connection: a database that starts at the same time.
const FIRST_CONNECTION_LIMIT: Duration = Duration::from_secs(15);

/// Pause between two attempts to make it.
const FIRST_CONNECTION_PAUSE: Duration = Duration::from_millis(200);

/// What a database must have and how it is used.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseSettings {
    /// What it must have.
    pub schema: Schema,
    /// Whether what is missing of the schema is applied at the start.
    pub migrate: bool,
    /// Connections of the pool.
    pub pool_connections: u32,
    /// The longest that one is waited for.
    pub pool_wait: Duration,
    /// The longest that a statement may take.
    pub statement: Duration,
    /// The longest that a read or a write may take, with its wait for a connection.
    pub deadline: Duration,
    /// After which PostgreSQL ends a transaction that does nothing.
    pub idle_in_transaction: Duration,
}

impl DatabaseSettings {
    fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            statement: self.statement,
            idle_in_transaction: self.idle_in_transaction,
        }
    }
}

/// What a refused connection means to the program that starts. A PostgreSQL that answers that it is
/// starting, or that it has no connection left, is waited for in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenRefused {
    /// A server may be started together with its database, which doesn't listen yet.
    TryAgain,
    /// The database is being made, and may have no name yet: it is waited for as long as this.
    WaitFor(Duration),
    /// A command works on the database of a running server.
    GiveUp,
}

/// The pool, and how to make connections beside it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its connections are pinned to the schema of the tables as soon as that is found.
    pool: Connections,
    account: Uuid,
    /// Those of a first connection, which looks for that schema.
    options: PgConnectOptions,
    settings: DatabaseSettings,
    runtime: Handle,
    /// Whether it has passed the checks of a start.
    is_checked: Arc<watch::Sender<bool>>,
}

/// A read: borrows the connection for as long as its future runs.
pub type Reading<'c, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'c>>;

/// A write: borrows the connection for as long as its future runs.
pub type Writing<'c, T> = Reading<'c, T>;

impl Database {
    /// Connects to `url`, checks that the server keeps what it acknowledges, and migrates if the
    /// settings say so.
    pub async fn connect(
        url: &str,
        settings: DatabaseSettings,
        when_refused: WhenRefused,
    ) -> Result<Self, StartError> {
        let database = Self::unchecked(url, settings)?;
        database
            .pass_checks(when_refused, FIRST_CONNECTION_LIMIT)
            .await?;
        database.is_checked.send_replace(true);
        Ok(database)
    }

    /// Connects to nothing yet. Nothing is read and written before it has passed its checks.
    fn unchecked(url: &str, settings: DatabaseSettings) -> Result<Self, StartError> {
        let options = url::options_of(url)?;
        let options = pin_settings(options, settings.session_limits());
        let pool = PgPoolOptions::new()
            .max_connections(settings.pool_connections)
            .acquire_timeout(settings.pool_wait)
            .connect_lazy_with(options.clone());
        Ok(Self {
            pool: pool.into(),
            account: NO_ACCOUNT,
            options,
            settings,
            runtime: Handle::current(),
            is_checked: Arc::default(),
        })
    }

    /// Whether it has passed the checks of a start. Until then, reads and writes fail.
    pub fn is_checked(&self) -> bool {
        *self.is_checked.borrow()
    }

    /// Waits until it has.
    pub async fn checked(&self) {
        // The sender is this database's.
        let _ = self.is_checked.subscribe().wait_for(|is| *is).await;
    }

    /// Makes the checks of a start that concern this database alone. Waits for a first connection
    /// for as long as `limit`.
    async fn pass_checks(
        &self,
        when_refused: WhenRefused,
        limit: Duration,
    ) -> Result<(), StartError> {
        let until = Instant::now() + limit;
        loop {
            match self.prepare(when_refused, until, limit).await {
                Ok(()) => return Ok(()),
                // The database was restarted in between, or the network broke.
                Err(StartError::Unreachable(error))
                    if Instant::now() + FIRST_CONNECTION_PAUSE < until
                        && may_be_starting(&error, when_refused) =>
                {
                    tracing::warn!(
                        error = plain(&error),
                        "the start begins again with another connection"
                    );
                    tokio::time::sleep(FIRST_CONNECTION_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn prepare(
        &self,
        when_refused: WhenRefused,
        until: Instant,
        limit: Duration,
    ) -> Result<(), StartError> {
        let mut connection = first_connection(&self.options, when_refused, until, limit).await?;
        let limits = self.settings.session_limits();
        let looking = pooler::ensure_own_session(&mut connection, &self.options, limits);
        let looked = tokio::time::timeout_at(until, looking).await;
        looked.unwrap_or(Err(StartError::Silent(limit)))?;
        in_time(ensure_fit(&mut connection)).await?;
        if self.settings.migrate {
            // Two replicas with different defaults could otherwise both find no tables. The lock is
            // kept until the connection is closed.
            let turn = migrations::take_turn(&mut connection).await;
            turn.map_err(StartError::Unreachable)?;
        }
        let finding = find_schema(&mut connection, &self.options, self.settings.schema);
        let (_, pinned) = in_time(finding).await?;
        self.pool().set_connect_options(pinned);
        if self.settings.migrate {
            self.migrate_on(&mut connection).await?;
        }
        let schema = self.settings.schema;
        in_time(ensure_schema_is_current(&mut connection, schema)).await?;
        // All is done: whether the end of the session is answered tells nothing.
        let _ = connection.close().await;
        Ok(())
    }

    /// The pool that requests share.
    pub fn pool(&self) -> &PgPool {
        self.pool.pool()
    }

    /// The pool, and who gets its connections.
    pub fn connections(&self) -> &Connections {
        &self.pool
    }

    /// The same database, whose connections are dealt to accounts, with limits on the requests in
    /// progress. `observer` is told of its use.
    #[must_use]
    pub fn admitting(self, limits: InProgressLimits, observer: Arc<dyn AdmissionObserver>) -> Self {
        let admission = Admission::new(self.pool().clone(), limits).observed_by(observer);
        Self {
            pool: admission.into(),
            ..self
        }
    }

    /// The same database, used for an account: what it reads and writes counts as the account's
    /// share of the pool.
    pub fn of(&self, account: Uuid) -> Self {
        Self {
            account,
            ..self.clone()
        }
    }

    /// A connection outside the pool, for work that must not take one from requests.
    pub async fn connect_aside(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.pool().connect_options()).await
    }

    /// Migrates on a connection that is closed soon: it keeps the lock that makes replicas take
    /// turns.
    async fn migrate_on(&self, connection: &mut PgConnection) -> Result<(), StartError> {
        // A migration may take longer than any request is allowed to, and so may the wait for
        // another replica that is migrating.
        for setting in [
            "SET statement_timeout = 0",
            "SET idle_in_transaction_session_timeout = 0",
            "SET lock_timeout = 0",
            // sqlx makes its own table unless it exists, and PostgreSQL would notice each time.
            "SET client_min_messages = warning",
        ] {
            sqlx::raw_sql(setting)
                .execute(&mut *connection)
                .await
                .map_err(StartError::Unreachable)?;
        }
        for set in self.settings.schema {
            migrations::adopt(set, connection).await?;
            migrations::apply(set.migrator, connection).await?;
        }
        sqlx::raw_sql("RESET statement_timeout; RESET lock_timeout")
            .execute(connection)
            .await
            .map_err(StartError::Unreachable)?;
        Ok(())
    }

    /// Whether a replica can serve from this database now. What holds at the start may change long
    /// after it: a failover leads to a standby, a setting is changed, a clock goes wrong.
    pub async fn check(&self) -> Result<(), Unfit> {
        let (schema, is_checked) = (self.settings.schema, self.is_checked());
        let looked = if is_checked {
            let look = self
                .read(move |connection| Box::pin(fitness::unfit(connection, schema, is_checked)));
            look.await.ok()
        } else {
            // The pool's connections are not pinned yet, and none must stay there.
            let look = async {
                let mut connection = PgConnection::connect_with(&self.options).await?;
                fitness::unfit(&mut connection, schema, is_checked).await
            };
            let looked = tokio::time::timeout(self.settings.deadline, look).await;
            looked.ok().and_then(Result::ok)
        };
        match looked {
            Some(None) if is_checked => Ok(()),
            Some(None) => Err(Unfit::NotChecked),
            Some(Some(reason)) => Err(reason),
            None => Err(Unfit::Unreachable),
        }
    }

    /// Runs a read of several statements as [`Database::read`] does; all of them see one moment.
    pub async fn snapshot<T, F>(&self, read: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        self.read(|connection| {
            Box::pin(async move {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
                let mut tx = connection.begin_with(begin).await?;
                let value = read(&mut tx).await?;
                tx.commit().await?;
                Ok(value)
            })
        })
        .await
    }

    /// Runs a read on a pooled connection, in a task of its own and under the database deadline,
    /// so that neither a disconnect nor a dead server leaves the connection in doubt.
    pub async fn read<T, F>(&self, read: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        if !self.is_checked() {
            return Err(ReadError::NotChecked);
        }
        let (pool, account) = (self.pool.clone(), self.account);
        let reading = async move {
            let mut connection = pool.acquire(account).await?;
            let value = read(&mut connection).await?;
            connection.release();
            Ok(value)
        };
        let outcome = self.in_a_task(reading, ReadError::Deadline, ReadError::Panicked);
        outcome.await?.map_err(ReadError::Database)
    }

    /// Runs on the runtime that outlives the HTTP workers: a pooled socket belongs to the runtime
    /// that opened it, and a worker's ends with the worker.
    async fn in_a_task<T: Send + 'static, E>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        late: E,
        panicked: E,
    ) -> Result<T, E> {
        let work = tokio::time::timeout(self.settings.deadline, work).in_current_span();
        match self.runtime.spawn(work).await {
            Ok(ended) => ended.map_err(|_| late),
            Err(_) => Err(panicked),
        }
    }

    /// Runs a write that carries no idempotency key, a DELETE, in a transaction of its own. Like
    /// [`Database::read`] in everything else: a disconnect cancels nothing, and a connection in
    /// doubt is closed. A write must do no harm when it is repeated, because after a COMMIT without
    /// an answer its client can only repeat it.
    pub async fn write<T, F>(&self, write: F) -> Result<T, WriteError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Writing<'c, T> + Send + 'static,
    {
        if !self.is_checked() {
            return Err(WriteError::NotChecked);
        }
        let (pool, account) = (self.pool.clone(), self.account);
        let writing = async move {
            let mut connection = pool.acquire(account).await?;
            let begun = connection.begin_with(BEGIN_DURABLE).await;
            let mut tx = begun.map_err(WriteError::Begin)?;
            let value = write(&mut tx).await?;
            let committed = acknowledged(tx.commit()).await;
            committed.map_err(WriteError::Commit)?;
            connection.release();
            Ok(value)
        };
        self.in_a_task(writing, WriteError::Deadline, WriteError::Panicked)
            .await?
    }
}

/// Waits for a database that is starting, and logs at once why there is something to wait for.
async fn first_connection(
    options: &PgConnectOptions,
    when_refused: WhenRefused,
    until: Instant,
    limit: Duration,
) -> Result<PgConnection, StartError> {
    let mut is_told = false;
    loop {
        let connecting = PgConnection::connect_with(options);
        let error = match tokio::time::timeout_at(until, connecting).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(StartError::Silent(limit)),
        };
        let is_late = Instant::now() + FIRST_CONNECTION_PAUSE >= until;
        if is_late || !may_be_starting(&error, when_refused) {
            return Err(StartError::of_connection(error));
        }
        if !is_told {
            tracing::warn!(
                error = plain(&error),
                ?limit,
                "the database doesn't answer yet; trying again"
            );
            is_told = true;
        }
        tokio::time::sleep(FIRST_CONNECTION_PAUSE).await;
    }
}

/// Whether a database that fails like this may answer in a moment.
fn may_be_starting(error: &sqlx::Error, when_refused: WhenRefused) -> bool {
    let sqlx::Error::Io(error) = error else {
        return is_restarting(error);
    };
    match when_refused {
        WhenRefused::GiveUp => false,
        WhenRefused::TryAgain => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        ),
        // A name that nothing knows yet has no kind of its own. A certificate that isn't trusted is
        // `InvalidData`, and a file that `sslrootcert` names wrongly is `NotFound`.
        WhenRefused::WaitFor(_) => {
            !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound)
        }
    }
}

/// Whether PostgreSQL said that it stops or starts, or that others have all connections:
/// admin_shutdown, crash_shutdown, cannot_connect_now or too_many_connections.
fn is_restarting(error: &sqlx::Error) -> bool {
    has_code(error, &["57P01", "57P02", "57P03", "53300"])
}

/// How rows that are read as JSON have their bytes.
const BYTES: (&str, &str) = ("bytea_output", "hex");

/// Pins what the promise rests on, but for the schema, and this program's name and time zone.
fn pin_settings(options: PgConnectOptions, limits: SessionLimits) -> PgConnectOptions {
    options
        .options(idempotency::pinned_settings(limits))
        .options([
            ("client_min_messages", "warning"),
            ("TimeZone", "UTC"),
            BYTES,
        ])
        .application_name("charge-once")
}

/// Bounds a check of a start: the network may break at any moment, and says nothing then.
async fn in_time<T>(check: impl Future<Output = Result<T, StartError>>) -> Result<T, StartError> {
    let checked = tokio::time::timeout(FIRST_CONNECTION_LIMIT, check).await;
    checked.unwrap_or(Err(StartError::Silent(FIRST_CONNECTION_LIMIT)))
}

async fn ensure_fit(connection: &mut PgConnection) -> Result<(), StartError> {
    let is_standby = fitness::is_standby(connection).await;
    if is_standby.map_err(StartError::Unreachable)? {
        return Err(StartError::Standby);
    }
    ensure_durable(connection).await?;
    ensure_clocks_agree(connection).await?;
    warn_of_asynchronous_standby(connection).await?;
    warn_of_changed_locale(connection).await
}

/// Where these tables are, all of them are: the one in which the first migrations are counted, and
/// one that no other program has beside it.
fn first_tables(schema: Schema) -> Vec<&'static str> {
    let first = schema.first().into_iter();
    let tables = first.flat_map(|set| [Some(set.table), set.beside]);
    tables.flatten().collect()
}

/// Finds the schema that has the tables, or else the current one, and makes it the only one of the
/// session. Returns the options that pin other sessions to it, too.
async fn find_schema(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    schema: Schema,
) -> Result<(SchemaName, PgConnectOptions), StartError> {
    pooler::ensure_search_path_arrives(connection, options).await?;
    let found = SchemaName::find(connection, &first_tables(schema)).await?;
    // The last one counts, before a default and before the URL's.
    let pinned = options.clone();
    let pinned = pinned.options([("search_path", found.as_str())]);
    pooler::ensure_pinned_to(&found, &pinned).await?;
    Ok((found, pinned))
}

async fn ensure_schema_is_current(
    connection: &mut PgConnection,
    schema: Schema,
) -> Result<(), StartError> {
    let is_current = fitness::schema_is_current(connection, schema).await;
    match is_current.map_err(StartError::Unreachable)? {
        true => Ok(()),
        false => Err(StartError::SchemaNotCurrent),
    }
}

async fn ensure_durable(connection: &mut PgConnection) -> Result<(), StartError> {
    let forgetful = fitness::forgetful_setting(connection).await;
    match forgetful.map_err(StartError::Unreachable)? {
        None => Ok(()),
        Some((setting, found)) => Err(StartError::Unsafe { setting, found }),
    }
}

async fn ensure_clocks_agree(connection: &mut PgConnection) -> Result<(), StartError> {
    let apart = fitness::clocks_apart(connection).await;
    let apart = apart.map_err(StartError::Unreachable)?;
    if apart > CLOCKS_APART_MAX {
        return Err(StartError::ClocksApart {
            seconds: apart.num_seconds(),
        });
    }
    Ok(())
}

/// A standby may be for reading only, so the start goes on.
async fn warn_of_asynchronous_standby(connection: &mut PgConnection) -> Result<(), StartError> {
    let standbys = fitness::standbys(connection).await;
    let (standbys, waited_for) = standbys.map_err(StartError::Unreachable)?;
    if standbys > 0 && waited_for.is_empty() {
        tracing::warn!(
            "something receives the log of the database, as a standby does, and synchronous_standby_names is \
             empty: a failover to a standby can lose charges that were acknowledged, and the records of their \
             keys. If one may take over, set synchronous_standby_names on the server; docs/deployment.md says \
             how"
        );
    }
    Ok(())
}

/// The indexes of this program are sorted by bytes, but the ones of earlier releases were not, and
/// others in the database may not be.
async fn warn_of_changed_locale(connection: &mut PgConnection) -> Result<(), StartError> {
    let changed = fitness::changed_locale(connection).await;
    if let Some((database, made_with, now)) = changed.map_err(StartError::Unreachable)? {
        let now = now.as_deref().unwrap_or("none");
        tracing::warn!(
            %made_with,
            %now,
            "the locale of the database {database} comes from another version of the C library, so that {}; \
             docs/deployment.md says more",
            fitness::sort_again(&database)
        );
    }
    Ok(())
}
