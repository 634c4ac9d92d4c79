//! A pooled connection that goes back to the pool only when it is known to be clean.
//!
//! Promise: whatever ends the use early, an error, a time limit, a panic or a canceled future, the
//! connection is closed and replaced, never handed to the next request inside a transaction or with
//! an answer still on the wire.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use sqlx::{Connection, PgConnection, Postgres, Transaction, postgres::PgConnectOptions};

use crate::{
    Failure, Observer, ROW_LOCK_WAIT,
    fair_pool::Place,
    kept::{Kept, Taken, Trust, give_back},
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

/// Pins what the promise rests on against the defaults of a role, a database or a server: a commit
/// is on disk when it is acknowledged, a new statement sees what has been committed, and no wait is
/// endless.
pub fn pin_session(options: PgConnectOptions, limits: SessionLimits) -> PgConnectOptions {
    options.options(pinned_settings(limits))
}

/// What [`pin_session`] asks for: names of settings and their values, times in milliseconds.
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
/// connection pooler may drop what [`pin_session`] asks for. On a server that may forget what it acknowledges
/// it fails: its settings can change at any time, and `synchronous_commit` has no value for that.
macro_rules! begin {
    ($($more:literal)?) => {
        concat!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SELECT set_config('synchronous_commit', \
                 CASE WHEN current_setting('fsync') = 'on' \
                       AND current_setting('full_page_writes') = 'on' \
                      THEN 'on' ELSE 'nothing is kept: fsync or full_page_writes is off' END, true)",
            $($more)?
        )
    };
}
pub(crate) use begin;

/// Opens a transaction as every request with a key does, for writes without one: it is durable, or it fails.
pub const BEGIN_DURABLE: &str = begin!();

/// The right to a connection, and to claim keys with it.
pub(crate) type Places = (Place, Option<Place>);

/// A connection in doubt until [`GuardedConnection::release`] is called.
pub struct GuardedConnection {
    /// Empty only while it is dropped.
    taken: Option<Taken>,
    kept: Kept,
    /// Its account's, until another request may have the connection.
    places: Option<Places>,
    clean: bool,
    observer: Arc<dyn Observer>,
}

impl GuardedConnection {
    /// Takes a connection, for an account that has a place.
    ///
    /// Never `pool.begin()`: canceled halfway, it returns a connection to the pool with an open
    /// transaction, and the next autocommit write on it is acknowledged and lost.
    pub(crate) async fn acquire(
        kept: &Kept,
        trust: Trust,
        places: Places,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            taken: Some(kept.take(trust).await?),
            kept: kept.clone(),
            places: Some(places),
            clean: false,
            observer,
        })
    }

    /// Opens a transaction.
    pub(crate) async fn open(
        &mut self,
        begin: &'static str,
    ) -> Result<Transaction<'_, Postgres>, Failure> {
        self.begin_with(begin).await.map_err(Failure::of_begin)
    }

    /// The last statement was acknowledged and no transaction is open: for the next request.
    pub fn release(mut self) {
        self.clean = true;
    }
}

impl Drop for GuardedConnection {
    fn drop(&mut self) {
        let Some(mut taken) = self.taken.take() else {
            return;
        };
        if !self.clean {
            self.observer.discarded_connection();
            // Closing is bounded by sqlx.
            taken.connection.close_on_drop();
        } else if let Some(returning) = self.kept.keep(taken) {
            let places = self.places.take();
            tokio::spawn(async move {
                give_back(returning).await;
                drop(places);
            });
        }
    }
}

const IS_TAKEN: &str = "the connection is taken back only by drop";

#[expect(clippy::expect_used, reason = "nothing but drop empties it")]
impl Deref for GuardedConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.taken.as_ref().expect(IS_TAKEN).connection
    }
}

#[expect(clippy::expect_used, reason = "nothing but drop empties it")]
impl DerefMut for GuardedConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.taken.as_mut().expect(IS_TAKEN).connection
    }
}
