//! At most one effect per account and idempotency key, and one answer.
//!
//! Promise: [`Idempotency::run`] owns BEGIN, claim, save and COMMIT. The command's writes and the
//! stored outcome are in one Postgres transaction, so either both exist or neither does, whatever
//! crashes, and no handler can forget a step.
//!
//! This folder and the migration that its README.md names can be copied as they are: nothing here
//! names the rest of the crate or a web framework.

mod claim;
mod connection;
mod expiry;
mod fingerprint;
mod in_flight;
mod inspect;
mod key;
mod lease;
mod phases;
mod reply;
mod workflow;

use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claim::Claim;
use in_flight::{Conclusion, InFlight, Leadership, Place, Verdict};
use lease::Leased;
use sqlx::{Connection, PgConnection, PgPool, postgres::types::PgInterval};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};
use tracing::Instrument;
use uuid::Uuid;

pub use claim::{CLAIM_WAIT, ROW_LOCK_WAIT};
pub use connection::GuardedConnection;
pub use expiry::{SWEEP_BATCH_ROWS, sweep};
pub use fingerprint::{Fingerprint, Fingerprinted, Parameters, UnknownVersion};
pub use inspect::{Inspected, KnownRequest};
pub use key::{IdempotencyKey, KEY_MAX_BYTES, KeyError};
pub use phases::{Begin, Begun, Called, LeaseSettings, Operations, Phases, SETTLE_RESERVE};
pub use reply::{Failure, FailureKind, Record, Rejection, Reply};
pub use workflow::{Step, StepOutcome, Steps, WorkflowName, WorkflowNameError};

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
    /// The workflow that its client links it to. No part of what tells one request from another: a
    /// record stays where the first use of its key put it.
    pub workflow: Option<WorkflowName>,
    /// The `req_…` of this request; if it executes, every replay will name it.
    pub request_id: String,
    /// How long a duplicate waits for the one in flight before it is told that the key is in use.
    pub wait: Duration,
}

impl Request {
    /// Work that belongs to something bigger: `path` says which, and is its key in a scope that no
    /// client can write.
    pub fn reserved(
        account_id: Uuid,
        path: String,
        request_id: String,
        wait: Duration,
    ) -> Result<Self, KeyError> {
        let nothing = Parameters::Canonical(b"{}");
        Ok(Self {
            account_id,
            key: IdempotencyKey::reserved(&path)?,
            fingerprint: Fingerprint::of(&Fingerprinted {
                method: "POST",
                path: &path,
                query: nothing,
                media_type: "json",
                parameters: nothing,
            }),
            method: "POST".to_owned(),
            path,
            request_id,
            wait,
            workflow: None,
        })
    }
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

/// What a transaction that claims a key is for: a whole command, or the first phase of one.
trait Work: Sync {
    /// What is left to do after COMMIT, where the work leaves its key in flight.
    type Rest: Send;

    /// Works on a key that is this transaction's own. `began` is no later than its `now()`.
    fn work(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        began: Instant,
    ) -> impl Future<Output = Result<Worked<Self::Rest>, Rejection>> + Send;

    /// Goes on with a key whose holder's lease is over. `None`: somebody else does.
    fn take_over(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        leased: &Leased,
        began: Instant,
    ) -> impl Future<Output = Result<Option<Self::Rest>, Failure>> + Send;
}

/// How the work in one transaction ended, if it didn't fail.
enum Worked<R> {
    /// A definite answer, to be saved.
    Reply(Reply),
    /// The key stays in flight, and this is what remains to be done.
    Rest(R),
}

/// How one transaction ended.
enum Attempt<R> {
    Concluded(Conclusion),
    Rest(R),
    Vanished,
}

/// How the transaction that claims a key ended, further attempts included.
enum Ended<R> {
    Concluded(Conclusion),
    Rest(R),
}

/// A command that is one transaction leaves nothing to be done after it.
impl<C: Command> Work for C {
    type Rest = Infallible;

    async fn work(
        &self,
        tx: &mut PgConnection,
        _: &Request,
        _: Instant,
    ) -> Result<Worked<Infallible>, Rejection> {
        self.execute(tx).await.map(Worked::Reply)
    }

    async fn take_over(
        &self,
        _: &mut PgConnection,
        _: &Request,
        _: &Leased,
        _: Instant,
    ) -> Result<Option<Infallible>, Failure> {
        Err(Failure::unavailable(
            "the key is in flight by a command in phases, which this process doesn't run",
        ))
    }
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
        self.share(request, |this, request, leadership| {
            let command = Arc::clone(&command);
            async move {
                let conclusion = match this.transact(&request, &*command, &leadership).await {
                    Ended::Concluded(conclusion) => conclusion,
                    Ended::Rest(nothing) => match nothing {},
                };
                conclude(&request, leadership, conclusion)
            }
        })
        .await
    }

    /// Leads, in a task of its own, if nobody in this process works on the key, and else shares the
    /// leader's conclusion.
    async fn share<F>(
        &self,
        request: Request,
        lead: impl Fn(Self, Request, Leadership) -> F,
    ) -> Outcome
    where
        F: Future<Output = Conclusion> + Send + 'static,
    {
        let patience = Instant::now() + request.wait;
        loop {
            let (conclusion, shared) = match self.in_flight.join(&request) {
                Place::Leader(leadership) => {
                    let lead = lead(self.clone(), request.clone(), leadership);
                    let ended = self.runtime.spawn(lead.in_current_span()).await;
                    let panicked = |_| {
                        tracing::error!("the work panicked");
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

    /// Claims the key and works, under the database deadline.
    async fn transact<W: Work>(
        &self,
        request: &Request,
        work: &W,
        leadership: &Leadership,
    ) -> Ended<W::Rest> {
        let committing = AtomicBool::new(false);
        let connection = match GuardedConnection::acquire(&self.pool).await {
            Err(error) => return Ended::Concluded(Conclusion::Failed(error.into())),
            Ok(connection) => connection,
        };
        let attempts = self.attempts(connection, request, work, leadership, &committing);
        tokio::time::timeout(self.settings.database_deadline, attempts)
            .await
            .unwrap_or_else(|_| Ended::Concluded(Conclusion::Failed(deadline_over(&committing))))
    }

    /// Runs the transaction until it concludes, again where that may help.
    async fn attempts<W: Work>(
        &self,
        mut connection: GuardedConnection,
        request: &Request,
        work: &W,
        leadership: &Leadership,
        committing: &AtomicBool,
    ) -> Ended<W::Rest> {
        let (mut vanished, mut failed) = (0, 0);
        loop {
            leadership.claiming();
            committing.store(false, Ordering::Relaxed);
            let attempt = self.attempt(connection, request, work, leadership, committing);
            match attempt.await {
                Ok(Attempt::Concluded(conclusion)) => return Ended::Concluded(conclusion),
                Ok(Attempt::Rest(rest)) => return Ended::Rest(rest),
                Ok(Attempt::Vanished) => {
                    vanished += 1;
                    if vanished == VANISHED_CLAIMS_MAX {
                        return Ended::Concluded(Conclusion::HeldElsewhere);
                    }
                }
                Err(failure) => {
                    failed += 1;
                    if !failure.worth_another_attempt || failed == ATTEMPTS_MAX {
                        return Ended::Concluded(Conclusion::Failed(failure));
                    }
                }
            }
            connection = match GuardedConnection::acquire(&self.pool).await {
                Ok(connection) => connection,
                Err(error) => return Ended::Concluded(Conclusion::Failed(error.into())),
            };
        }
    }

    /// One transaction: claim, work, save, COMMIT.
    ///
    /// Every `?` drops the connection guard with its doubt: the connection is closed, and Postgres
    /// rolls back at the latest when it notices.
    async fn attempt<W: Work>(
        &self,
        mut connection: GuardedConnection,
        request: &Request,
        work: &W,
        leadership: &Leadership,
        committing: &AtomicBool,
    ) -> Result<Attempt<W::Rest>, Failure> {
        let patient = self.patient_claims.try_acquire().ok();
        let begin = if patient.is_some() {
            claim::BEGIN
        } else {
            claim::BEGIN_BRIEFLY
        };
        let began = Instant::now();
        let mut tx = connection.begin_with(begin).await?;

        let claimed = claim::claim(&mut tx, request, self.retention).await?;
        drop(patient);
        let found = match claimed {
            Claim::Mine => Ok(None),
            Claim::InFlight(leased) => match judge(request, &leased)? {
                None => Ok(Some(leased)),
                Some(conclusion) => Err(Attempt::Concluded(conclusion)),
            },
            Claim::Completed(record) => Err(Attempt::Concluded(compare(request, record)?)),
            Claim::HeldElsewhere => Err(Attempt::Concluded(Conclusion::HeldElsewhere)),
            Claim::Vanished => Err(Attempt::Vanished),
        };
        let abandoned = match found {
            Ok(abandoned) => abandoned,
            Err(attempt) => {
                tx.rollback().await?;
                connection.release();
                return Ok(attempt);
            }
        };

        sqlx::raw_sql(claim::START_WORK).execute(&mut *tx).await?;
        leadership.executing();
        let worked = match &abandoned {
            None => work.work(&mut tx, request, began).await,
            Some(leased) => match work.take_over(&mut tx, request, leased, began).await {
                Ok(Some(rest)) => Ok(Worked::Rest(rest)),
                Ok(None) => {
                    tx.rollback().await?;
                    connection.release();
                    return Ok(Attempt::Vanished);
                }
                Err(failure) => Err(Rejection::Failed(failure)),
            },
        };
        let worked = match worked {
            Ok(worked) => worked,
            Err(Rejection::Refused(reply)) => {
                sqlx::raw_sql(claim::UNDO_WORK).execute(&mut *tx).await?;
                Worked::Reply(reply)
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
        let attempt = match worked {
            Worked::Reply(reply) => {
                let (account_id, key) = (request.account_id, request.key.as_str());
                let saved = reply::save(&mut tx, account_id, key, &reply, &self.retention);
                Attempt::Concluded(Conclusion::Stored {
                    record: Arc::new(saved.await?),
                    replayed: false,
                })
            }
            Worked::Rest(rest) => Attempt::Rest(rest),
        };

        committing.store(true, Ordering::Relaxed);
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(attempt)
    }
}

/// The end of a leader's task: logs what went wrong, once, and tells the followers.
fn conclude(request: &Request, leadership: Leadership, conclusion: Conclusion) -> Conclusion {
    // Whoever a step belongs to fails with it, and says so.
    if let Conclusion::Failed(failure) = &conclusion
        && !request.key.is_reserved()
    {
        log(&request.request_id, failure);
    }
    leadership.conclude(conclusion.clone());
    conclusion
}

fn log(request_id: &str, Failure { kind, cause, .. }: &Failure) {
    match kind {
        FailureKind::Busy => tracing::warn!(request_id, %cause, "no definite outcome"),
        FailureKind::Unavailable | FailureKind::Internal => {
            tracing::error!(request_id, ?kind, %cause, "no definite outcome");
        }
    }
}

/// What a key in flight means for a duplicate: on a row that exists the fingerprint is compared
/// before anything else. `None`: its holder's lease is over, and somebody has to go on.
fn judge(request: &Request, leased: &Leased) -> Result<Option<Conclusion>, Failure> {
    let fingerprint = &leased.request.fingerprint;
    let same_request = request
        .fingerprint
        .matches(leased.fingerprint_version, fingerprint)
        .map_err(Failure::unavailable)?;
    Ok(match (same_request, leased.is_over) {
        (false, _) => Some(Conclusion::Reused),
        (true, false) => Some(Conclusion::HeldElsewhere),
        (true, true) => None,
    })
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
