//! Whether the database can be served from, as this replica saw it last.
//!
//! Promise: however often strangers ask whether this replica is ready, the database is asked once a
//! second.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};

use super::{Database, Unfit};

/// A probe that waits longer than this has its answer: not ready.
const READINESS_LIMIT: Duration = Duration::from_secs(2);

/// How long an answer counts. Probes come every few seconds, and one replica has few of them.
const READINESS_AGE_MAX: Duration = Duration::from_secs(1);

/// What the last look at the database found. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct Readiness {
    database: Database,
    last: Arc<Mutex<Option<Look>>>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    found: Result<(), Unfit>,
}

impl Readiness {
    /// Nothing is known of `database` yet.
    pub fn of(database: Database) -> Self {
        Self {
            database,
            last: Arc::default(),
        }
    }

    /// Looks, unless that was done within the last second. Probes that come meanwhile wait for the
    /// same look.
    pub async fn check(&self) -> Result<(), Unfit> {
        let last = Arc::clone(&self.last).lock_owned().await;
        if let Some(Look { at, found }) = *last
            && at.elapsed() < READINESS_AGE_MAX
        {
            return found;
        }
        // In a task of its own. A client that resets its connection ends its handler: the read
        // would go on, nothing would be noted, and the next probe would read again.
        let looking = tokio::spawn(look(self.database.clone(), last));
        looking.await.unwrap_or(Err(Unfit::Unreachable))
    }
}

/// Looks at the database, and notes what it found.
async fn look(database: Database, mut last: OwnedMutexGuard<Option<Look>>) -> Result<(), Unfit> {
    let looking = tokio::time::timeout(READINESS_LIMIT, database.check());
    let found = looking.await.unwrap_or(Err(Unfit::Unreachable));
    *last = Some(Look {
        at: Instant::now(),
        found,
    });
    found
}
