//! Connections that stay taken from the pool between requests.
//!
//! Promise: sqlx pings a connection whenever it goes back to its pool, and again when it is taken: two
//! round trips of each request. A kept connection goes to the next request without them: with one ping to
//! what can't begin again, and with none to a transaction that can. It goes back
//! after a second without a request, after a minute in any case, so that the pool's own limits on age hold,
//! and when the pool is closed. No more than a quarter of the pool idles here: others may use it too.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use sqlx::{Connection, PgPool, Postgres, pool::PoolConnection};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

/// The longest that a connection stays away from the pool.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How long a kept connection may idle, and is believed to be alive: PostgreSQL may be restarted.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The part of the pool that may idle here.
const IDLE_SHARE: usize = 4;

/// How long a clean connection may take to answer the pool's ping before it is given up. The pool sets no
/// limit: on a socket that died silently its slot would be lost until TCP gives up.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// The connections that are kept. Cheap to clone; all clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pool: PgPool,
    idle_max: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Idle>,
    is_watched: bool,
    /// The runtime that gives them back.
    runtime: Option<Handle>,
}

impl Drop for State {
    /// A connection of sqlx's pool goes back in a task, and the last clone may be dropped anywhere.
    fn drop(&mut self) {
        let _entered = self.runtime.as_ref().map(Handle::enter);
        self.idle.clear();
    }
}

#[derive(Debug)]
struct Idle {
    connection: Taken,
    since: Instant,
}

/// Whether a kept connection is believed to be alive.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust {
    /// It must answer a ping: what it is for can't be done twice.
    None,
    /// It was used within a second. What it is for begins again if it is dead.
    UsedJustNow,
}

/// A connection of the pool, and since when it is away.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) connection: PoolConnection<Postgres>,
    since: Instant,
}

impl Kept {
    pub(crate) fn of(pool: PgPool) -> Self {
        let connections = usize::try_from(pool.options().get_max_connections());
        Self {
            pool,
            idle_max: connections.unwrap_or(usize::MAX) / IDLE_SHARE,
            state: Arc::default(),
        }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How many idle here.
    pub(crate) fn idle(&self) -> usize {
        self.lock().idle.len()
    }

    /// The connection that was used last, or one of the pool.
    pub(crate) async fn take(&self, trust: Trust) -> Result<Taken, sqlx::Error> {
        // That of the last request: where it is old or dead, all may be.
        let kept = self.lock().idle.pop();
        if let Some(idle) = kept {
            let alive = if idle.since.elapsed() >= IDLE_MAX {
                give_back_all(vec![idle]);
                None
            } else {
                match trust {
                    Trust::UsedJustNow => Some(idle.connection),
                    // In a task of its own: a ping that is cut off would leave its answer on the wire.
                    Trust::None => tokio::spawn(if_alive(idle.connection))
                        .await
                        .unwrap_or(None),
                }
            };
            match alive {
                Some(connection) => return Ok(connection),
                None => self.distrust(),
            }
        }
        Ok(Taken {
            connection: self.pool.acquire().await?,
            since: Instant::now(),
        })
    }

    /// Keeps a clean connection for the next request. The result is one that must go back to the pool.
    pub(crate) fn keep(&self, connection: Taken) -> Option<Taken> {
        if self.pool.is_closed() || connection.since.elapsed() >= KEPT_FOR {
            return Some(connection);
        }
        let mut state = self.lock();
        if state.idle.len() >= self.idle_max {
            return Some(connection);
        }
        let since = Instant::now();
        state.idle.push(Idle { connection, since });
        if !state.is_watched {
            state.is_watched = true;
            state.runtime = Some(Handle::current());
            tokio::spawn(watch(self.pool.clone(), Arc::downgrade(&self.state)));
        }
        None
    }

    /// Gives all of them back: the pool looks at each before it is used again.
    pub(crate) fn distrust(&self) {
        let idle = std::mem::take(&mut self.lock().idle);
        give_back_all(idle);
    }

    /// Closes all of them, and those that idle in the pool.
    pub(crate) fn close_idle(&self) {
        let kept = std::mem::take(&mut self.lock().idle);
        let kept = kept.into_iter().map(|idle| idle.connection.connection);
        let pooled = std::iter::from_fn(|| self.pool.try_acquire());
        for mut connection in kept.chain(pooled) {
            connection.close_on_drop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Nothing that holds it panics halfway through a change.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives back what idles for too long, and everything when the pool is closed, until nothing is kept. It
/// does not keep the state itself: the last clone's end gives everything back at once.
async fn watch(pool: PgPool, state: Weak<Mutex<State>>) {
    let mut closing = pool.close_event();
    loop {
        let is_closing = timeout(IDLE_MAX, &mut closing).await.is_ok();
        let Some(state) = state.upgrade() else { return };
        let (old, is_empty) = {
            let mut state = lock(&state);
            let is_old = |idle: &mut Idle| is_closing || idle.since.elapsed() >= IDLE_MAX;
            let old: Vec<Idle> = state.idle.extract_if(.., is_old).collect();
            let is_empty = state.idle.is_empty();
            state.is_watched = !is_empty;
            (old, is_empty)
        };
        give_back_all(old);
        if is_empty {
            return;
        }
    }
}

/// The connection, if it answers a ping in time.
async fn if_alive(mut taken: Taken) -> Option<Taken> {
    let answered = timeout(RETURN_LIMIT, taken.connection.ping()).await;
    if matches!(answered, Ok(Ok(()))) {
        Some(taken)
    } else {
        taken.connection.close_on_drop();
        None
    }
}

/// Gives a clean connection back to the pool.
pub(crate) async fn give_back(mut taken: Taken) {
    let _ = timeout(RETURN_LIMIT, taken.connection.return_to_pool()).await;
}

fn give_back_all(idle: Vec<Idle>) {
    for Idle { connection, .. } in idle {
        tokio::spawn(give_back(connection));
    }
}
