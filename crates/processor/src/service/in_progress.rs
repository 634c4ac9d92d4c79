//! The keys that this process is working on.
//!
//! Promise: this process executes one attempt per key at a time, and answers others with
//! `in_progress`. The unique key in the ledger ensures that an operation happens once.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

/// Shared by all requests.
#[derive(Debug, Clone, Default)]
pub(super) struct InProgress {
    keys: Arc<Mutex<HashSet<Uuid>>>,
}

impl InProgress {
    /// Takes `key` until the returned value is dropped. `None` if it is taken.
    pub(super) fn begin(&self, key: Uuid) -> Option<Working> {
        self.lock().insert(key).then(|| Working {
            all: self.clone(),
            key,
        })
    }

    pub(super) fn holds(&self, key: Uuid) -> bool {
        self.lock().contains(&key)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is being worked on. Dropping it frees the key, also after a panic.
#[derive(Debug)]
pub(super) struct Working {
    all: InProgress,
    key: Uuid,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}
