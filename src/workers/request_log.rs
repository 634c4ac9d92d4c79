//! Writes the request log: many rows in one transaction, on a connection of its own.
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

use charge_once_supervisor::Supervisor;
use sqlx::{Connection, PgConnection};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::{database::Database, domain::logged_request::LoggedRequest, store};

/// Requests that may wait to be written: about a megabyte, and a second of a busy process.
pub const QUEUED_MAX: usize = 4096;

/// Rows of one transaction.
pub const BATCH_ROWS: usize = 500;

/// Pause between two transactions, in which the next rows gather. A page of the console is as late.
const GATHER: Duration = Duration::from_millis(50);

/// Shortest time between two warnings that rows were lost.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// Where requests hand in what is to be logged. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestLog {
    queue: mpsc::Sender<LoggedRequest>,
    lost: Arc<AtomicU64>,
}

impl RequestLog {
    /// Hands a request in, or drops it if too many wait.
    pub fn add(&self, request: LoggedRequest) {
        if self.queue.try_send(request).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The worker.
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

/// Starts the worker. Each transaction has the deadline.
pub fn start(
    database: Database,
    deadline: Duration,
    supervisor: &Supervisor,
) -> (RequestLog, Writing) {
    let (queue, queued) = mpsc::channel(QUEUED_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let (stop, stopped) = watch::channel(false);
    // A worker that fails leaves the queue to the next one.
    let queued = Arc::new(Mutex::new(queued));
    let counted = Arc::clone(&lost);
    let task = supervisor.spawn("request_log", move || {
        let worker = Worker {
            database: database.clone(),
            deadline,
            lost: Arc::clone(&counted),
            connection: None,
            warned: None,
        };
        worker.run(Arc::clone(&queued), stopped.clone())
    });
    (RequestLog { queue, lost }, Writing { stop, task })
}

struct Worker {
    database: Database,
    deadline: Duration,
    lost: Arc<AtomicU64>,
    connection: Option<PgConnection>,
    warned: Option<Instant>,
}

impl Worker {
    async fn run(
        mut self,
        queued: Arc<Mutex<mpsc::Receiver<LoggedRequest>>>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut queued = queued.lock().await;
        let mut batch = Vec::with_capacity(BATCH_ROWS);
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
            self.write(&batch).await;
            batch.clear();
            self.tell_of_lost_rows(is_stopping);
            tokio::select! {
                () = tokio::time::sleep(GATHER), if !is_stopping => {}
                else => {}
            }
        }
        self.tell_of_lost_rows(true);
        if let Some(connection) = self.connection.take() {
            // The rows are committed, so a server that doesn't take leave changes nothing.
            let _ = timeout(self.deadline, connection.close()).await;
        }
    }

    /// Writes a batch, or loses it: a log is not worth a queue that grows.
    async fn write(&mut self, batch: &[LoggedRequest]) {
        // Taken out, so that a connection in doubt is closed and not used again.
        let kept = self.connection.take();
        let database = &self.database;
        let writing = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => database.connect_aside().await?,
            };
            let mut tx = connection.begin().await?;
            store::request_log::insert(&mut tx, batch).await?;
            tx.commit().await?;
            Ok::<_, sqlx::Error>(connection)
        };
        match timeout(self.deadline, writing).await {
            Ok(Ok(connection)) => self.connection = Some(connection),
            Ok(Err(error)) => {
                tracing::debug!(%error, "rows of the request log were not written");
                self.lose(batch.len());
            }
            Err(_) => self.lose(batch.len()),
        }
    }

    fn lose(&self, rows: usize) {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        self.lost.fetch_add(rows, Ordering::Relaxed);
    }

    /// Warns of what was lost since the last warning, if that is long ago or `now` is the last
    /// moment.
    fn tell_of_lost_rows(&mut self, now: bool) {
        let is_due = self
            .warned
            .is_none_or(|warned| warned.elapsed() >= WARNING_PAUSE);
        if !is_due && !now {
            return;
        }
        let rows = self.lost.swap(0, Ordering::Relaxed);
        if rows > 0 {
            self.warned = Some(Instant::now());
            tracing::warn!(rows, "the request log lost rows; requests are not affected");
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::{
        ids::{AccountId, RequestId},
        logged_request::LoggedOutcome,
    };

    fn request() -> LoggedRequest {
        LoggedRequest {
            id: RequestId(Uuid::now_v7()),
            account: AccountId(Uuid::nil()),
            method: "GET".to_owned(),
            route: "/charges".to_owned(),
            path: None,
            idempotency_key: None,
            status: Some(200),
            outcome: LoggedOutcome::Read,
            duration: Duration::ZERO,
            resource_id: None,
        }
    }

    #[test]
    fn what_does_not_fit_into_the_queue_is_counted() {
        let (queue, mut queued) = mpsc::channel(2);
        let lost = Arc::new(AtomicU64::new(0));
        let log = RequestLog {
            queue,
            lost: Arc::clone(&lost),
        };
        for _ in 0..5 {
            log.add(request());
        }
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        assert!(queued.try_recv().is_ok());
        log.add(request());
        assert_eq!(lost.load(Ordering::Relaxed), 3);
    }
}
