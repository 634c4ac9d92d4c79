//! The rows of batches that commit.
//!
//! Promise: a batch that wants such a row waits for the end of that COMMIT rather than for the
//! row's lock, for which it waits 20 ms only. That is a courtesy: the lock decides.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::watch;

use crate::lock;

pub(super) struct HeldRows<N>(Mutex<Vec<Committing<N>>>);

impl<N> Default for HeldRows<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The rows of a batch, until its [`Hold`] is dropped.
struct Committing<N> {
    names: HashSet<N>,
    hold: watch::Receiver<()>,
}

/// Holds the rows of a batch. Dropped in whatever way, by a panic too, it lets go of them.
#[must_use]
pub(super) struct Hold(#[expect(dead_code, reason = "its end is the signal")] watch::Sender<()>);

impl<N: Eq + Hash> HeldRows<N> {
    pub(super) fn hold(&self, names: HashSet<N>) -> Hold {
        let (ends, hold) = watch::channel(());
        if !names.is_empty() {
            self.lock().push(Committing { names, hold });
        }
        Hold(ends)
    }

    /// Returns when no batch holds any of these rows.
    pub(super) async fn let_go(&self, names: &[N]) {
        loop {
            let found = {
                let committing = self.lock();
                let is_held = |one: &&Committing<N>| names.iter().any(|n| one.names.contains(n));
                committing.iter().find(is_held).map(|one| one.hold.clone())
            };
            let Some(mut hold) = found else {
                return;
            };
            // An error is the end that is waited for: nothing is ever sent.
            while hold.changed().await.is_ok() {}
        }
    }

    /// The batches that commit now.
    fn lock(&self) -> MutexGuard<'_, Vec<Committing<N>>> {
        let mut committing = lock(&self.0);
        committing.retain(|one| one.hold.has_changed().is_ok());
        committing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_held(rows: &HeldRows<u8>, names: &[u8]) -> bool {
        let waiting = tokio::time::timeout(Duration::from_millis(10), rows.let_go(names));
        waiting.await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_held_until_every_batch_that_has_them_ends() {
        let rows = HeldRows::default();
        let first = rows.hold(HashSet::from([1, 2]));
        let second = rows.hold(HashSet::from([2, 3]));
        assert!(is_held(&rows, &[4, 1]).await);
        assert!(!is_held(&rows, &[4]).await);
        drop(first);
        assert!(!is_held(&rows, &[1]).await);
        assert!(is_held(&rows, &[2]).await);
        drop(second);
        assert!(!is_held(&rows, &[1, 2, 3]).await);
        assert!(rows.lock().is_empty());
    }

    #[tokio::test]
    async fn those_that_wait_are_told_of_a_panic() {
        let rows = HeldRows::default();
        let hold = rows.hold(HashSet::from([1]));
        let waiting = tokio::spawn(async move { rows.let_go(&[1]).await });
        let panics = tokio::spawn(async move {
            let _hold = hold;
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "a defect");
        });
        assert!(panics.await.is_err());
        assert!(waiting.await.is_ok());
    }
}
