//! A pooled connection that goes back to the pool only when it is known to be clean.
//!
//! Promise: whatever ends the use early, an error, a time limit, a panic or a cancelled future, the
//! connection is closed and replaced, never handed to the next request inside a transaction or
//! with an answer still on the wire.

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};

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
        if !self.clean {
            // Returning it would ping it without a time limit; closing is bounded.
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
