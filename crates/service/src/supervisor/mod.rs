//! This module keeps background tasks at work. A worker that panics, or returns before the process
//! is stopping, is logged and counted, and begins again after a pause.
//!
//! ```rust
//! use std::time::Duration;
//!
//! use charge_once_service::supervisor::Supervisor;
//! use tokio::sync::watch;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let (stopping, is_stopping) = watch::channel(false);
//!     // Counted where your metrics are.
//!     let supervisor = Supervisor::new(is_stopping.clone(), |worker| eprintln!("{worker} failed"));
//!     let sweep = supervisor.spawn("sweep", move || {
//!         let mut stopping = is_stopping.clone();
//!         async move {
//!             // A round of work, over and over, until the process stops.
//!             while !*stopping.borrow() {
//!                 let _ = tokio::time::timeout(Duration::from_secs(1), stopping.changed()).await;
//!             }
//!         }
//!     });
//!     // What `/readyz` answers.
//!     assert!(supervisor.failing().names().is_empty());
//!     stopping.send_replace(true);
//!     assert!(sweep.await.is_ok());
//! }
//! ```
//!
//! - Pauses double from 1 s to 60 s, and jitter makes each up to twice as long.
//! - `failing` names a worker until it has worked for a minute.
//! - A worker makes a new future each time. Share the state that the next one needs, such as a
//!   queue.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tracing::Instrument;

/// How long a worker works until its last failure is forgotten: longer than most take from one
/// round to the next.
const STEADY: Duration = Duration::from_secs(60);

/// The longest pause before a worker begins again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Starts workers, and starts those again that fail. Cheap to clone.
#[derive(Clone)]
pub struct Supervisor {
    failed: Arc<dyn Fn(&'static str) + Send + Sync>,
    stopping: watch::Receiver<bool>,
    failing: Failing,
}

/// The workers that have failed and are not steady yet. Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Failing(Arc<Mutex<BTreeSet<&'static str>>>);

impl Failing {
    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        self.lock().iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    /// Workers end by themselves after `stopping`. `failed` is told the name of each worker that
    /// fails.
    pub fn new(
        stopping: watch::Receiver<bool>,
        failed: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            failed: Arc::new(failed),
            stopping,
            failing: Failing::default(),
        }
    }

    /// Those that fail.
    pub fn failing(&self) -> Failing {
        self.failing.clone()
    }

    /// Keeps a worker at work. The task ends with it after `stopping`. Aborting the task drops the
    /// worker.
    pub fn spawn<F>(
        &self,
        name: &'static str,
        worker: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.clone().keep_at_work(name, worker))
    }

    async fn keep_at_work<F>(mut self, name: &'static str, mut worker: impl FnMut() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pauses = self::pauses();
        loop {
            let mut running = JoinSet::new();
            running.spawn(worker().instrument(tracing::info_span!("worker", worker = name)));
            let ended = match timeout(STEADY, running.join_next()).await {
                Ok(ended) => ended,
                Err(_) => {
                    self.failing.lock().remove(name);
                    pauses = self::pauses();
                    running.join_next().await
                }
            };
            // Without a sender, the server has ended.
            if *self.stopping.borrow() || self.stopping.has_changed().is_err() {
                return;
            }
            (self.failed)(name);
            self.failing.lock().insert(name);
            let pause = pauses.next().unwrap_or(PAUSE_MAX);
            let panic = ended.and_then(Result::err).map(|error| error.to_string());
            tracing::error!(
                worker = name,
                panic,
                ?pause,
                "a worker failed; it begins again"
            );
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// Each is twice as long as the one before, with jitter: what a worker failed at may lie there for
/// its next attempt, and for other replicas.
fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, advance};

    use super::*;

    /// Time passes until it does.
    async fn becomes(condition: impl Fn() -> bool) {
        while !condition() {
            advance(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_fails_begins_again_and_is_named_until_it_is_steady() {
        let (stopping, is_stopping) = watch::channel(false);
        let supervisor = Supervisor::new(is_stopping.clone(), |_| {});
        let (failing, began) = (supervisor.failing(), Instant::now());
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let task = supervisor.spawn("webhooks", move || {
            let times = counted.fetch_add(1, Ordering::SeqCst);
            let mut stopping = is_stopping.clone();
            async move {
                assert!(times > 0, "a defect, on purpose");
                if times > 1 {
                    let _ = stopping.wait_for(|stopping| *stopping).await;
                }
            }
        });
        becomes(|| failing.names() == ["webhooks"]).await;
        becomes(|| begun.load(Ordering::SeqCst) == 3).await;
        // The second pause is twice as long as the first one.
        assert!(began.elapsed() >= Duration::from_secs(3));
        becomes(|| failing.names().is_empty()).await;
        assert!(began.elapsed() >= STEADY);
        stopping.send_replace(true);
        assert!(task.await.is_ok());
        // What ends in time doesn't begin again.
        assert_eq!(begun.load(Ordering::SeqCst), 3);
        assert!(failing.names().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_is_dropped_with_its_task_and_a_pause_ends_with_the_process() {
        let (stopping, is_stopping) = watch::channel(false);
        let supervisor = Supervisor::new(is_stopping, |_| {});
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        let task = supervisor.spawn("webhooks", move || {
            let holds = Arc::clone(&holds);
            async move {
                std::future::pending::<()>().await;
                drop(holds);
            }
        });
        becomes(|| Arc::strong_count(&held) == 3).await;
        task.abort();
        becomes(|| Arc::strong_count(&held) == 1).await;

        let task = supervisor.spawn("webhooks", || async {});
        becomes(|| supervisor.failing().names() == ["webhooks"]).await;
        stopping.send_replace(true);
        assert!(task.await.is_ok());
    }
}
