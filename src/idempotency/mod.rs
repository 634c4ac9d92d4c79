//! At most one effect per account and idempotency key, and one answer.
//!
//! Promise: [`Idempotency::run`] owns BEGIN, claim, save and COMMIT. The command's writes and the
//! stored outcome are in one Postgres transaction, so either both exist or neither does, whatever
//! crashes, and no handler can forget a step.
//!
//! This folder and `migrations/0001_idempotency_keys.sql` can be copied as they are: nothing here
//! names the rest of the crate or a web framework. See README.md beside this file.

mod claim;
mod connection;
mod expiry;
mod fingerprint;
mod in_flight;
mod inspect;
mod key;
mod reply;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claim::Claim;
use in_flight::{Conclusion, InFlight, Leadership, Place, Verdict};
use sqlx::{Connection, PgConnection, PgPool, postgres::types::PgInterval};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};
use tracing::Instrument;
use uuid::Uuid;

pub use claim::{CLAIM_WAIT, ROW_LOCK_WAIT};
pub use connection::GuardedConnection;
pub use expiry::{SWEEP_BATCH_ROWS, sweep};
pub use fingerprint::{Fingerprint, Fingerprinted, Parameters, UnknownVersion};
pub use in_flight::InFlightRequest;
pub use inspect::Inspected;
pub use key::{IdempotencyKey, KEY_MAX_BYTES, KeyError};
pub use reply::{Failure, FailureKind, Record, Rejection, Reply};

/// How often a claim may find its record vanished, swept or taken over between two statements,
/// before the key counts as in use.
const VANISHED_CLAIMS_MAX: u32 = 3;

/// How often a whole transaction may run: once, and twice more for a deadlock's victim or a
/// serialization failure.
const ATTEMPTS_MAX: u32 = 3;

/// Pause between two claims while another replica holds the key: short against a human's patience,
/// long against a claim. Half of it is random, so that waiting replicas don't march in step.
const RECLAIM_PAUSE: Duration = Duration::from_millis(100);

/// One verb, one transaction. `Ok` is committed with its writes, `Refused` is stored without them,
/// `Failed` leaves nothing and frees the key.
///
/// A command must let every database error through: an error swallowed inside the transaction
/// makes the save fail, and the request with it. It takes `&self`, because a deadlock's victim
/// runs again from the start.
pub trait Command: Send + Sync + 'static {
    /// Runs the verb inside `tx`. It neither begins nor commits, and keeps off savepoints named
    /// `work`.
    fn execute(
        &self,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<Reply, Rejection>> + Send;
}

/// One request that carries an idempotency key.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose key it is. Never the API key: rotation must not split a key in two.
    pub account_id: Uuid,
    /// The key.
    pub key: IdempotencyKey,
    /// What tells this request from another one under the same key.
    pub fingerprint: Fingerprint,
    /// The method, for the record.
    pub method: String,
    /// The path, for the record.
    pub path: String,
    /// The `req_…` of this request; if it executes, every replay will name it.
    pub request_id: String,
    /// How long a duplicate waits for the one in flight before it is told that the key is in use.
    pub wait: Duration,
}

/// How a request ended.
#[derive(Debug)]
pub enum Outcome {
    /// A definite, committed answer.
    Stored {
        /// What to render, the first time as every time.
        record: Arc<Record>,
        /// Whether an earlier request executed it.
        replayed: bool,
    },
    /// The key belongs to another request.
    Reused,
    /// The first request with this key hasn't finished.
    InUse,
    /// Not executed, or not known to be: the same key is the only safe retry.
    Failed(Failure),
}

/// What the folder needs to know; every duration is bounded by the caller's configuration.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a completed record lives, from the first use of its key.
    pub retention: Duration,
    /// The longest wait for a pooled connection: the pool's own `acquire_timeout`.
    pub pool_wait: Duration,
    /// The longest a transaction may take from BEGIN to COMMIT, further attempts included.
    pub database_deadline: Duration,
    /// The pool's size: half of it at most waits for keys that other replicas hold.
    pub pool_connections: u32,
}

/// The one way to write. Cheap to clone; all clones share the map of keys in flight.
#[derive(Clone)]
pub struct Idempotency {
    pool: PgPool,
    settings: Settings,
    retention: PgInterval,
    in_flight: InFlight,
    patient_claims: Arc<Semaphore>,
    runtime: Handle,
}

/// How one transaction ended.
enum Attempt {
    Concluded(Conclusion),
    Vanished,
}

impl Idempotency {
    /// `pool` must connect with `READ COMMITTED` as the default isolation level and
    /// `synchronous_commit = on`. Fails on a retention that Postgres can't represent.
    ///
    /// Call it on the runtime that lives longest: all work runs there, because a pooled socket
    /// belongs to the runtime that opened it, and an HTTP worker's may end before its requests do.
    pub fn new(pool: PgPool, settings: Settings) -> Result<Self, sqlx::error::BoxDynError> {
        let waiting = usize::try_from(settings.pool_connections / 2)?.max(1);
        Ok(Self {
            pool,
            retention: PgInterval::try_from(settings.retention)?,
            settings,
            in_flight: InFlight::new(),
            patient_claims: Arc::new(Semaphore::new(waiting)),
            runtime: Handle::current(),
        })
    }

    /// Runs `command` at most once for the request's account and key, and answers every duplicate
    /// with the first one's outcome.
    ///
    /// Dropping the returned future, as a client's disconnect does, cancels nothing: claim, work
    /// and commit run in a task of their own.
    pub async fn run<C: Command>(&self, request: Request, command: C) -> Outcome {
        let command = Arc::new(command);
        let patience = Instant::now() + request.wait;
        loop {
            let (conclusion, shared) = match self.in_flight.join(&request) {
                Place::Leader(leadership) => {
                    let (request, command) = (request.clone(), Arc::clone(&command));
                    let lead = self.clone().lead(request, command, leadership);
                    let ended = self.runtime.spawn(lead.in_current_span()).await;
                    let panicked = |_| {
                        tracing::error!("the work panicked; the key is free");
                        Conclusion::Failed(Failure::internal("the work panicked"))
                    };
                    (ended.unwrap_or_else(panicked), false)
                }
                Place::Follower(follower) => {
                    let claimed_by =
                        Instant::now() + self.settings.pool_wait + self.settings.database_deadline;
                    match follower.follow(claimed_by, patience).await {
                        Verdict::Share(conclusion) => (conclusion, true),
                        Verdict::InUse => return Outcome::InUse,
                        Verdict::StartOver => continue,
                    }
                }
            };
            match conclusion {
                Conclusion::Stored { record, replayed } => {
                    return Outcome::Stored {
                        record,
                        replayed: replayed || shared,
                    };
                }
                Conclusion::Reused => return Outcome::Reused,
                Conclusion::Failed(failure) => return Outcome::Failed(failure),
                Conclusion::HeldElsewhere => {
                    let again = Instant::now() + jittered(RECLAIM_PAUSE);
                    if again >= patience || !self.in_flight.pause(again).await {
                        return Outcome::InUse;
                    }
                }
            }
        }
    }

    /// Ends every wait for a duplicate's owner, now and from now on: the process is stopping.
    pub fn end_waits(&self) {
        self.in_flight.end_waits();
    }

    /// Resolves when no request is executing in this process any more.
    pub async fn drained(&self) {
        self.in_flight.drained().await;
    }

    /// The leader's task: to the definite end, whether anybody still listens or not.
    async fn lead<C: Command>(
        self,
        request: Request,
        command: Arc<C>,
        leadership: Leadership,
    ) -> Conclusion {
        let committing = AtomicBool::new(false);
        let conclusion = match GuardedConnection::acquire(&self.pool).await {
            Err(error) => Conclusion::Failed(error.into()),
            Ok(connection) => {
                let attempts =
                    self.attempts(connection, &request, &*command, &leadership, &committing);
                tokio::time::timeout(self.settings.database_deadline, attempts)
                    .await
                    .unwrap_or_else(|_| Conclusion::Failed(deadline_over(&committing)))
            }
        };
        if let Conclusion::Failed(Failure { kind, cause, .. }) = &conclusion {
            let request_id = &request.request_id;
            match kind {
                FailureKind::Busy => tracing::warn!(request_id, %cause, "no definite outcome"),
                FailureKind::Unavailable | FailureKind::Internal => {
                    tracing::error!(request_id, ?kind, %cause, "no definite outcome");
                }
            }
        }
        leadership.conclude(conclusion.clone());
        conclusion
    }

    /// Runs the transaction until it concludes, again where that may help.
    async fn attempts<C: Command>(
        &self,
        mut connection: GuardedConnection,
        request: &Request,
        command: &C,
        leadership: &Leadership,
        committing: &AtomicBool,
    ) -> Conclusion {
        let (mut vanished, mut failed) = (0, 0);
        loop {
            leadership.claiming();
            committing.store(false, Ordering::Relaxed);
            let attempt = self.attempt(connection, request, command, leadership, committing);
            match attempt.await {
                Ok(Attempt::Concluded(conclusion)) => return conclusion,
                Ok(Attempt::Vanished) => {
                    vanished += 1;
                    if vanished == VANISHED_CLAIMS_MAX {
                        return Conclusion::HeldElsewhere;
                    }
                }
                Err(failure) => {
                    failed += 1;
                    if !failure.worth_another_attempt || failed == ATTEMPTS_MAX {
                        return Conclusion::Failed(failure);
                    }
                }
            }
            connection = match GuardedConnection::acquire(&self.pool).await {
                Ok(connection) => connection,
                Err(error) => return Conclusion::Failed(error.into()),
            };
        }
    }

    /// One transaction: claim, work, save, COMMIT.
    ///
    /// Every `?` drops the connection guard with its doubt: the connection is closed, and Postgres
    /// rolls back at the latest when it notices.
    async fn attempt<C: Command>(
        &self,
        mut connection: GuardedConnection,
        request: &Request,
        command: &C,
        leadership: &Leadership,
        committing: &AtomicBool,
    ) -> Result<Attempt, Failure> {
        let patient = self.patient_claims.try_acquire().ok();
        let begin = if patient.is_some() {
            claim::BEGIN
        } else {
            claim::BEGIN_BRIEFLY
        };
        let mut tx = connection.begin_with(begin).await?;

        let claimed = claim::claim(&mut tx, request, self.retention).await?;
        drop(patient);
        let attempt = match claimed {
            Claim::Mine => None,
            Claim::Completed(record) => Some(Attempt::Concluded(compare(request, record)?)),
            Claim::HeldElsewhere => Some(Attempt::Concluded(Conclusion::HeldElsewhere)),
            Claim::Vanished => Some(Attempt::Vanished),
        };
        if let Some(attempt) = attempt {
            tx.rollback().await?;
            connection.release();
            return Ok(attempt);
        }

        sqlx::raw_sql(claim::START_WORK).execute(&mut *tx).await?;
        leadership.executing();
        let reply = match command.execute(&mut tx).await {
            Ok(reply) => reply,
            Err(Rejection::Refused(reply)) => {
                sqlx::raw_sql(claim::UNDO_WORK).execute(&mut *tx).await?;
                reply
            }
            Err(Rejection::Failed(failure)) => {
                // The failure stands whether or not the ROLLBACK is answered; only an answered one
                // gives the connection back.
                if tx.rollback().await.is_ok() {
                    connection.release();
                }
                return Err(failure);
            }
        };
        let record = reply::save(&mut tx, request.account_id, request.key.as_str(), &reply).await?;

        committing.store(true, Ordering::Relaxed);
        let committed = tx.commit().await;
        if let Err(error) = committed {
            return Err(commit_failure(error));
        }
        connection.release();
        Ok(Attempt::Concluded(Conclusion::Stored {
            record: Arc::new(record),
            replayed: false,
        }))
    }
}

/// A completed record answers only its own request.
fn compare(request: &Request, record: Arc<Record>) -> Result<Conclusion, Failure> {
    match request
        .fingerprint
        .matches(record.fingerprint_version, &record.fingerprint)
    {
        Ok(true) => Ok(Conclusion::Stored {
            record,
            replayed: true,
        }),
        Ok(false) => Ok(Conclusion::Reused),
        Err(unknown) => Err(Failure::unavailable(unknown)),
    }
}

/// Postgres answers COMMIT with an error of class 23 or 40 only after it has rolled back: the key
/// is free. Everything else, silence included, says nothing about what happened: unknown.
fn commit_failure(error: sqlx::Error) -> Failure {
    let rolled_back = error
        .as_database_error()
        .and_then(|database| database.code())
        .is_some_and(|code| code.starts_with("23") || code.starts_with("40"));
    if rolled_back {
        Failure {
            kind: FailureKind::Unavailable,
            ..Failure::from(error)
        }
    } else {
        Failure::unavailable(format!(
            "COMMIT was not acknowledged, the outcome is unknown: {error}"
        ))
    }
}

fn deadline_over(committing: &AtomicBool) -> Failure {
    Failure::unavailable(if committing.load(Ordering::Relaxed) {
        "no answer to COMMIT within the database deadline, the outcome is unknown"
    } else {
        "the database deadline is over"
    })
}

/// Between half of `pause` and all of it.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + rand::random_range(Duration::ZERO..=half)
}
