//! The keys that this process is working on.
//!
//! Promise: of sends of one key to this process, one at a time goes on. This is what makes
//! `in_progress` an answer; the unique key in the ledger is what makes an operation happen once.

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
    /// Takes `key` until the returned value is dropped. `None`: somebody has it.
    pub(super) fn begin(&self, key: Uuid) -> Option<Working> {
        self.lock().insert(key).then(|| Working {
            all: self.clone(),
            key,
        })
    }

    /// Whether somebody works on `key`.
    pub(super) fn holds(&self, key: Uuid) -> bool {
        self.lock().contains(&key)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is being worked on; dropped, after a panic too, it is free.
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
