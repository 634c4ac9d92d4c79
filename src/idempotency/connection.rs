//! A pooled connection that goes back to the pool only when it is known to be clean.
//!
//! Promise: whatever ends the use early, an error, a time limit, a panic or a cancelled future, the
//! connection is closed and replaced, never handed to the next request inside a transaction or
//! with an answer still on the wire.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};

/// How long a clean connection may take to answer the pool's ping before it is given up.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// A connection in doubt until [`GuardedConnection::release`] is called.
pub struct GuardedConnection {
    connection: PoolConnection<Postgres>,
    clean: bool,
}

impl GuardedConnection {
    /// Takes a connection from the pool, waiting as long as the pool's `acquire_timeout` allows.
    ///
    /// Never `pool.begin()`: cancelled half-way, it returns a connection to the pool with a
    /// transaction open, and the next autocommit write on it is acknowledged and lost.
    pub async fn acquire(pool: &PgPool) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: pool.acquire().await?,
            clean: false,
        })
    }

    /// The last statement was acknowledged and no transaction is open: back to the pool.
    pub fn release(mut self) {
        self.clean = true;
    }
}

impl Drop for GuardedConnection {
    fn drop(&mut self) {
        if self.clean {
            // The pool pings what comes back, and sets no limit: on a socket that died silently
            // the slot would be lost until TCP gives up.
            let returning = self.connection.return_to_pool();
            tokio::spawn(tokio::time::timeout(RETURN_LIMIT, returning));
        } else {
            // Closing is bounded by sqlx.
            self.connection.close_on_drop();
        }
    }
}

impl Deref for GuardedConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for GuardedConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
