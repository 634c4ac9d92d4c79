//! Writes the log: many rows in one transaction, on a connection of its own.
//!
//! Promise: no request waits for it, and none has it in its transaction. What comes while the queue
//! is full is dropped and counted. A database that is down or silent costs rows of the log and
//! nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{Connection, PgConnection, PgPool};
use tokio::{
    sync::{Mutex, Notify, mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::request_log::{LoggedRequest, counts, table};

/// Requests that may wait to be written: about a megabyte, and a second of a busy process.
pub const QUEUED_MAX: usize = 4096;

/// Rows of one transaction.
pub const BATCH_ROWS: usize = 500;

/// Longest pause between two transactions, in which the next rows gather.
const GATHER: Duration = Duration::from_millis(50);

/// Shortest time between two warnings that rows were lost.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// Where requests hand in what is to be logged. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLog {
    queue: mpsc::Sender<LoggedRequest>,
    lost: Arc<AtomicU64>,
    /// How many were handed in, and how many of them are written or lost.
    added: Arc<AtomicU64>,
    done: watch::Receiver<u64>,
    /// Ends the worker's pause.
    awaited: Arc<Notify>,
}

impl RequestLog {
    /// Hands a request in, or drops it if too many wait.
    pub(super) fn add(&self, request: LoggedRequest) {
        if self.queue.try_send(request).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            self.added.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was handed in before is written or lost, for `limit` at most: after a panic
    /// of the worker, some of it is neither.
    pub async fn written(&self, limit: Duration) {
        let added = self.added.load(Ordering::Relaxed);
        let mut done = self.done.clone();
        self.awaited.notify_one();
        let _ = timeout(limit, done.wait_for(|done| *done >= added)).await;
    }
}

/// The worker at work. Dropping this ends it, too, without waiting.
#[derive(Debug)]
pub struct Writing {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Writing {
    /// Writes what is queued, until `limit`, and ends.
    pub async fn end(self, limit: Instant) {
        let Self { stop, mut task } = self;
        stop.send_replace(true);
        if timeout_at(limit, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the request log was not written whole at the drain limit");
        }
    }
}

/// Starts the worker, with a connection beside `pool`. Each transaction has the deadline.
/// `spawn` spawns [`Worker::run`] of a clone, and may do so again if that panics.
pub fn start(
    pool: PgPool,
    deadline: Duration,
    spawn: impl FnOnce(Worker) -> JoinHandle<()>,
) -> (RequestLog, Writing) {
    let (queue, queued) = mpsc::channel(QUEUED_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let (stop, stopped) = watch::channel(false);
    let (done, is_done) = watch::channel(0);
    let awaited = Arc::<Notify>::default();
    let task = spawn(Worker {
        pool,
        deadline,
        queued: Arc::new(Mutex::new(queued)),
        lost: Arc::clone(&lost),
        done,
        awaited: Arc::clone(&awaited),
        stopped,
    });
    let log = RequestLog {
        queue,
        lost,
        added: Arc::default(),
        done: is_done,
        awaited,
    };
    (log, Writing { stop, task })
}

/// Writes what is queued. A clone that fails leaves the queue to the next one.
#[derive(Debug, Clone)]
pub struct Worker {
    pool: PgPool,
    deadline: Duration,
    queued: Arc<Mutex<mpsc::Receiver<LoggedRequest>>>,
    lost: Arc<AtomicU64>,
    done: watch::Sender<u64>,
    awaited: Arc<Notify>,
    stopped: watch::Receiver<bool>,
}

impl Worker {
    /// Writes until [`Writing::end`], or until no [`RequestLog`] is left.
    pub async fn run(self) {
        let mut queued = self.queued.lock().await;
        let mut stopped = self.stopped.clone();
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        let (mut connection, mut warned) = (None, None);
        let mut is_stopping = false;
        loop {
            // A closed queue still gives out what is in it.
            let received = tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                    is_stopping = true;
                    queued.close();
                    continue;
                }
                received = queued.recv_many(&mut batch, BATCH_ROWS) => received,
            };
            if received == 0 {
                break;
            }
            // Taken out, so that a connection in doubt is closed and not used again.
            connection = self.write(connection.take(), &batch).await;
            let rows = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            self.done.send_modify(|done| *done += rows);
            batch.clear();
            self.tell_of_lost_rows(&mut warned, is_stopping);
            tokio::select! {
                () = tokio::time::sleep(GATHER), if !is_stopping => {}
                () = self.awaited.notified(), if !is_stopping => {}
                else => {}
            }
        }
        self.tell_of_lost_rows(&mut warned, true);
        if let Some(connection) = connection {
            // The rows are committed, so a server that doesn't take leave changes nothing.
            let _ = timeout(self.deadline, connection.close()).await;
        }
    }

    /// Writes a batch, or loses it: a log is not worth a queue that grows. Returns the connection,
    /// unless it is in doubt.
    async fn write(
        &self,
        kept: Option<PgConnection>,
        batch: &[LoggedRequest],
    ) -> Option<PgConnection> {
        let writing = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => PgConnection::connect_with(&self.pool.connect_options()).await?,
            };
            let mut tx = connection.begin().await?;
            table::insert(&mut tx, batch).await?;
            // At last: other replicas wait for these rows until the commit.
            counts::add(&mut tx, batch).await?;
            tx.commit().await?;
            Ok::<_, sqlx::Error>(connection)
        };
        match timeout(self.deadline, writing).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(error)) => tracing::debug!(%error, "rows of the request log were not written"),
            Err(_) => {}
        }
        let rows = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        self.lost.fetch_add(rows, Ordering::Relaxed);
        None
    }

    /// Tells of what was lost since the last warning, if that is long ago or `now` is the last
    /// moment.
    fn tell_of_lost_rows(&self, warned: &mut Option<Instant>, now: bool) {
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= WARNING_PAUSE);
        if !is_due && !now {
            return;
        }
        let rows = self.lost.swap(0, Ordering::Relaxed);
        if rows > 0 {
            *warned = Some(Instant::now());
            tracing::warn!(rows, "the request log lost rows; requests are not affected");
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_does_not_fit_into_the_queue_is_counted() {
        let (queue, mut queued) = mpsc::channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let log = RequestLog {
            queue,
            lost: Arc::clone(&lost),
            added: Arc::default(),
            done: watch::channel(0).1,
            awaited: Arc::default(),
        };
        // A request without a reply is logged when it is dropped.
        let add = || {
            let (entry, route) = (log.begin(Uuid::nil()), "/charges".to_owned());
            entry.authenticated(Uuid::nil(), "GET", route, None);
        };
        (0..5).for_each(|_| add());
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        assert!(queued.try_recv().is_ok());
        add();
        assert_eq!(lost.load(Ordering::Relaxed), 3);
    }
}
