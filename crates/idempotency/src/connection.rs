//! A pooled connection that goes back to the pool only when it is known to be clean.
//!
//! Promise: whatever ends the use early, an error, a time limit, a panic or a canceled future, the
//! connection is closed and replaced. None is handed on in a transaction or with an answer to come.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    Connection, Database, PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection,
    postgres::PgConnectOptions,
};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use crate::{
    Failure, Observer, ROW_LOCK_WAIT,
    acknowledged::acknowledged,
    admit::{Admit, Everyone, Held},
    observer::Unobserved,
};

/// The time limits that a session sets itself, so that a lost process or a stuck statement frees
/// its locks. Each is longer than the one before it, the claim's lock wait of 250 ms being the
/// first.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// The longest that one statement may take: 3 seconds.
    pub statement: Duration,
    /// How long a session may idle inside a transaction before Postgres ends it: 6 seconds. Longer
    /// than [`Settings::database_deadline`](crate::Settings::database_deadline); it frees the key
    /// of a process that vanished.
    pub idle_in_transaction: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            statement: Duration::from_secs(3),
            idle_in_transaction: Duration::from_secs(6),
        }
    }
}

/// Pins what the promise rests on against the defaults of a role, a database or a server: records
/// are those of the schema, a commit is on disk when it is acknowledged, a new statement sees what
/// has been committed, and no wait is endless. `schema` is that of [`migrate`](crate::migrate).
///
/// Writes outside a transaction that says `READ WRITE`, as [`BEGIN_DURABLE`] does, are refused.
/// Work that swallows an error, or drops a `begin`, may make sqlx roll its transaction back. What
/// it writes after that would be committed without the key, and again by each retry.
pub fn pin_session(
    options: PgConnectOptions,
    schema: &str,
    limits: SessionLimits,
) -> PgConnectOptions {
    // Transactions of requests set the first one themselves.
    let options = options.options([("client_min_messages", "warning"), ("search_path", schema)]);
    let options = options.options(pinned_settings(limits));
    options.options([("default_transaction_read_only", "on")])
}

/// What [`pin_session`] asks for besides the schema: settings and values, times in milliseconds.
pub fn pinned_settings(limits: SessionLimits) -> [(&'static str, String); 6] {
    let milliseconds = |duration: Duration| duration.as_millis().to_string();
    [
        ("synchronous_commit", "on".to_owned()),
        ("default_transaction_isolation", "read committed".to_owned()),
        ("default_transaction_read_only", "off".to_owned()),
        ("statement_timeout", milliseconds(limits.statement)),
        ("lock_timeout", milliseconds(ROW_LOCK_WAIT)),
        (
            "idle_in_transaction_session_timeout",
            milliseconds(limits.idle_in_transaction),
        ),
    ]
}

/// Opens a transaction with what the promise rests on, whatever the session's defaults are: a
/// connection pooler may drop what [`pin_session`] asks for. On a server that may forget what it
/// acknowledges it fails: its settings can change at any time, and `synchronous_commit` has no
/// value for that. With a synchronous standby, even a transaction that only reads leaves a trace in
/// the log, so that its COMMIT waits until the standby has what was read. A COMMIT whose wait is
/// broken off is told from others by a warning.
///
/// What follows may begin with a comma and more columns: a second SELECT costs as much as one.
/// `begin!(", now(); SAVEPOINT work")` is one string, for example.
macro_rules! begin {
    ($($more:literal)?) => {
        concat!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SELECT set_config('synchronous_commit', \
                 CASE WHEN current_setting('fsync') = 'on' \
                       AND current_setting('full_page_writes') = 'on' \
                      THEN 'on' ELSE 'nothing is kept: fsync or full_page_writes is off' END, true), \
                 set_config('client_min_messages', 'warning', true), \
                 CASE WHEN current_setting('synchronous_standby_names') <> '' \
                      THEN pg_logical_emit_message(true, 'idempotency', ''::text) END",
            $($more)?
        )
    };
}
pub(crate) use begin;

/// Opens a transaction as each request with a key does, for writes without one: durable, or none.
pub const BEGIN_DURABLE: &str = begin!();

/// How long a clean connection may take to answer the pool's ping before it is given up. The pool
/// sets no limit: on a socket that died silently its slot would be lost until TCP gives up.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// The account of connections that no account asked for: workers' and strangers'.
pub const NO_ACCOUNT: Uuid = Uuid::nil();

/// Where requests get their connections: a pool, and who is told of its use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Connections {
    pub(crate) pool: PgPool,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) admit: Arc<dyn Admit>,
}

impl From<PgPool> for Connections {
    fn from(pool: PgPool) -> Self {
        Self {
            pool,
            observer: Arc::new(Unobserved),
            admit: Arc::new(Everyone),
        }
    }
}

impl Connections {
    /// The same pool, whose use `observer` is told of, and all that is done with this clone.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The pool itself.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Takes a connection for the account, or for [`NO_ACCOUNT`]. Waits as long as the pool's
    /// `acquire_timeout` allows.
    pub async fn acquire(&self, account: Uuid) -> Result<GuardedConnection, sqlx::Error> {
        self.acquire_to(account, false).await
    }

    /// Takes a connection for a transaction that claims a key, and a place among the claims.
    pub(crate) async fn acquire_to_claim(
        &self,
        account: Uuid,
    ) -> Result<GuardedConnection, sqlx::Error> {
        self.acquire_to(account, true).await
    }

    /// Takes a connection, and a place among the claims where it is `to_claim` a key.
    ///
    /// Never `pool.begin()`: canceled halfway, it returns a connection to the pool with an open
    /// transaction, and the next autocommit write on it is acknowledged and lost.
    pub(crate) async fn acquire_to(
        &self,
        account: Uuid,
        to_claim: bool,
    ) -> Result<GuardedConnection, sqlx::Error> {
        let asked = Instant::now();
        let deadline = asked + self.pool.options().get_acquire_timeout();
        let acquiring = async {
            let turn = self.admit.connect(account, to_claim).await;
            Ok(GuardedConnection {
                pooled: Some(self.pool.acquire().await?),
                turn: Some(turn),
                clean: false,
                observer: Arc::clone(&self.observer),
            })
        };
        let acquired = timeout_at(deadline, acquiring)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let timed_out = matches!(acquired, Err(sqlx::Error::PoolTimedOut));
        if acquired.is_ok() || timed_out {
            let waited = asked.elapsed();
            self.observer.waited_for_connection(waited, timed_out);
        }
        acquired
    }

    /// Closes the connections that are not in use: they know prepared statements as long as they
    /// live, and what those were prepared for has changed.
    pub(crate) fn close_idle(&self) {
        while let Some(mut idle) = self.pool.try_acquire() {
            idle.close_on_drop();
        }
    }
}

/// A connection in doubt until [`GuardedConnection::release`] is called.
pub struct GuardedConnection {
    /// Empty only while it is dropped, or with a handler.
    pub(crate) pooled: Option<PoolConnection<Postgres>>,
    /// Its account's, until another request may have the connection.
    pub(crate) turn: Option<Held>,
    pub(crate) clean: bool,
    pub(crate) observer: Arc<dyn Observer>,
}

impl GuardedConnection {
    pub(crate) async fn open(
        &mut self,
        begin: &'static str,
    ) -> Result<Transaction<'_, Postgres>, Failure> {
        self.begin_with(begin).await.map_err(Failure::of_begin)
    }

    /// Fails where the work has ended the transaction, or a part of it is open: the COMMIT of sqlx
    /// would end a savepoint that the work left, and nothing else.
    pub(crate) fn is_as_begun(&self) -> Result<(), Failure> {
        let wrong = match Manager::get_transaction_depth(self) {
            1 => return Ok(()),
            0 => "the work ended its transaction: it swallowed an error, or dropped a begin",
            _ => "the work left a savepoint of its own",
        };
        Err(Failure::internal(wrong))
    }

    /// Commits what [`GuardedConnection::open`] began. Its [`Transaction`] was forgotten.
    pub(crate) async fn commit_work(&mut self) -> Result<(), Failure> {
        let committed = acknowledged(Manager::commit(self)).await;
        committed.map_err(Failure::of_commit)
    }

    /// Rolls it back. Fails where the work has kept the connection.
    pub(crate) async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        let connection = self.pooled.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        // The ROLLBACK of sqlx, too, would end a savepoint that the work left open, and nothing
        // else: the pool would get a connection in a transaction.
        while Manager::get_transaction_depth(connection) > 0 {
            Manager::rollback(connection).await?;
        }
        Ok(())
    }

    /// The last statement was acknowledged and no transaction is open: for the next request.
    pub fn release(mut self) {
        self.clean = true;
    }
}

/// How sqlx ends transactions.
type Manager = <Postgres as Database>::TransactionManager;

impl Drop for GuardedConnection {
    fn drop(&mut self) {
        let Some(mut pooled) = self.pooled.take() else {
            return;
        };
        if !self.clean {
            self.observer.discarded_connection();
            // Closing is bounded by sqlx.
            pooled.close_on_drop();
            return;
        }
        let turn = self.turn.take();
        tokio::spawn(async move {
            let _ = timeout(RETURN_LIMIT, pooled.return_to_pool()).await;
            drop(turn);
        });
    }
}

const IS_TAKEN: &str = "nothing uses a connection that is dropped or with a handler";

#[expect(clippy::expect_used, reason = "what empties it uses it no more")]
impl Deref for GuardedConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.pooled.as_ref().expect(IS_TAKEN)
    }
}

#[expect(clippy::expect_used, reason = "what empties it uses it no more")]
impl DerefMut for GuardedConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.pooled.as_mut().expect(IS_TAKEN)
    }
}
