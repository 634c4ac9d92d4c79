//! At most one effect per account and idempotency key, and one answer.
//!
//! Promise: [`Idempotency::run`] owns BEGIN, claim, save and COMMIT. The command's writes and the
//! stored outcome are in one Postgres transaction. Either both exist or neither does, whatever
//! crashes, and no handler can forget a step.
//!
//! One request, in the order of the code: `in_flight` decides whether this process already works on
//! the key, `claim` takes the key in a transaction, the [`Command`] writes its rows, `reply` saves
//! the outcome, and COMMIT makes all of it true at once.
//!
//! Add-ons behind cargo features use this core, and the core names none of them: `phases` for
//! effects outside the database, `inspect` for looking a key up, `workflow` for requests that
//! belong together.

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;

mod claim;
mod connection;
mod expiry;
mod fingerprint;
mod in_flight;
mod key;
mod migrations;
mod reply;
mod request;

#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "phases")]
mod phases;
#[cfg(feature = "workflow")]
mod workflow;

use std::{
    convert::Infallible,
    future::Future,
    ops::ControlFlow,
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
pub use connection::{GuardedConnection, SessionLimits, pin_session};
pub use expiry::{SWEEP_BATCH_ROWS, sweep};
pub use fingerprint::{Fingerprint, FingerprintInput, Parameters, UnknownVersion};
pub use key::{IdempotencyKey, KEY_MAX_BYTES, KeyError};
pub use migrations::{MIGRATIONS, MIGRATIONS_TABLE, migrate};
pub use reply::{Failure, FailureKind, Record, Rejection, Reply};
pub use request::{Outcome, Request, Settings};

#[cfg(feature = "inspect")]
pub use inspect::{Inspected, KnownRequest};
#[cfg(feature = "phases")]
pub use phases::{
    Begin, BeginOutcome, COMPLETION_RESERVE, CallOutcome, ExternalEffect, LeaseSettings, Phases,
};
#[cfg(feature = "workflow")]
pub use workflow::{Step, StepOutcome, Steps, WorkflowName, WorkflowNameError};

/// How often a whole transaction may run: once, and twice more where its record vanished between two
/// statements, or where it was a deadlock's victim or a serialization failure.
const ATTEMPTS_MAX: u32 = 3;

/// Pause between two claims while another replica holds the key: short against a human's patience,
/// long against a claim. Half of it is random, so that waiting replicas don't march in step.
const RECLAIM_PAUSE: Duration = Duration::from_millis(100);

/// One verb, one transaction. `Ok` is committed with its writes, `Refused` is stored without them,
/// `Failed` leaves nothing and frees the key.
///
/// A command must let every database error through: an error swallowed inside the transaction
/// makes the save fail, and the request with it. It awaits nothing but SQL: a rollback does not
/// undo an effect elsewhere, and locks are held meanwhile. It takes `&self`, because a deadlock's
/// victim runs again from the start.
pub trait Command: Send + Sync + 'static {
    /// Runs the verb inside `tx`. It neither begins nor commits, and keeps off savepoints named
    /// `work`.
    fn execute(
        &self,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<Reply, Rejection>> + Send;
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

/// What is done in the transaction that claims a key: a whole [`Command`], or the first of several
/// transactions.
trait Work: Sync {
    /// What is left to do after a COMMIT without an outcome.
    type Pending: Send;

    /// Works on a key that is this transaction's own. `began` is no later than its `now()`.
    /// `Break` is the answer to save; with `Continue` the key stays in flight.
    fn work(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        began: Instant,
    ) -> impl Future<Output = Result<ControlFlow<Reply, Self::Pending>, Rejection>> + Send;
}

/// How the transaction that claims a key ended.
enum TxOutcome<P> {
    /// The request has its answer.
    Concluded(Conclusion),
    /// Committed without an outcome: the key is in flight until this is done.
    Pending(P),
}

impl<P> TxOutcome<P> {
    /// The key is in flight by a committed row: it is known whose it is, and not what it answers.
    fn is_without_answer(&self) -> bool {
        match self {
            Self::Concluded(conclusion) => matches!(conclusion, Conclusion::Unfinished),
            Self::Pending(_) => true,
        }
    }
}

/// A command is one transaction: nothing is left to do after it.
impl<C: Command> Work for C {
    type Pending = Infallible;

    async fn work(
        &self,
        tx: &mut PgConnection,
        _: &Request,
        _: Instant,
    ) -> Result<ControlFlow<Reply, Infallible>, Rejection> {
        self.execute(tx).await.map(ControlFlow::Break)
    }
}

impl Idempotency {
    /// `pool` must connect with `READ COMMITTED` as the default isolation level and
    /// `synchronous_commit = on`: see [`pin_session`]. Fails on a retention that Postgres can't
    /// represent.
    ///
    /// Call it on the runtime that lives longest: all work runs there, because a pooled socket
    /// belongs to the runtime that opened it, and an HTTP worker's may end before its requests do.
    pub fn new(pool: PgPool, settings: Settings) -> Result<Self, sqlx::error::BoxDynError> {
        let waiting = usize::try_from(pool.options().get_max_connections() / 2)?.max(1);
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
        self.lead_or_follow(request, |this, request, leadership| {
            let command = Arc::clone(&command);
            async move {
                let conclusion = match this.lead(&request, &*command, &leadership).await {
                    TxOutcome::Concluded(conclusion) => conclusion,
                    TxOutcome::Pending(nothing) => match nothing {},
                };
                conclude(&request, leadership, conclusion)
            }
        })
        .await
    }

    /// The requests of one account that this process works on, in the order they came. News for a
    /// person or a page, never a permission: other replicas have requests of their own.
    pub fn requests_in_flight(&self, account_id: Uuid) -> Vec<Request> {
        self.in_flight.of_account(account_id)
    }

    /// The request that this process works on under a key, if there is one.
    pub fn request_in_flight(&self, account_id: Uuid, key: &IdempotencyKey) -> Option<Request> {
        self.in_flight.look_up(account_id, key)
    }

    /// Ends every wait for a duplicate's owner, now and from now on: the process is stopping.
    pub fn end_waits(&self) {
        self.in_flight.end_waits();
    }

    /// Resolves when no request is executing in this process any more.
    pub async fn drained(&self) {
        self.in_flight.drained().await;
    }

    /// Leads, in a task of its own, if no other request in this process works on the key, and else
    /// shares the leader's conclusion.
    async fn lead_or_follow<F>(
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
                    let pool_wait = self.pool.options().get_acquire_timeout();
                    let claimed_by = Instant::now() + pool_wait + self.settings.database_deadline;
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
                Conclusion::Unfinished => return Outcome::Unfinished,
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

    /// Runs the transaction that claims the key, again where that may help, under the database
    /// deadline.
    async fn lead<W: Work>(
        &self,
        request: &Request,
        work: &W,
        leadership: &Leadership,
    ) -> TxOutcome<W::Pending> {
        let committing = AtomicBool::new(false);
        // The wait for the first connection is bounded by the pool and comes before the deadline.
        let mut connection = match GuardedConnection::acquire(&self.pool).await {
            Err(error) => return TxOutcome::Concluded(Conclusion::Failed(error.into())),
            Ok(connection) => connection,
        };
        let attempts = async {
            for attempt in 1.. {
                leadership.claiming();
                committing.store(false, Ordering::Relaxed);
                let last = attempt == ATTEMPTS_MAX;
                match self
                    .attempt(connection, request, work, leadership, &committing)
                    .await
                {
                    Ok(Some(outcome)) => {
                        if outcome.is_without_answer() {
                            leadership.recorded();
                        }
                        return outcome;
                    }
                    Ok(None) if last => return TxOutcome::Concluded(Conclusion::HeldElsewhere),
                    Ok(None) => {}
                    Err(failure) if last || !failure.worth_another_attempt => {
                        return TxOutcome::Concluded(Conclusion::Failed(failure));
                    }
                    Err(_) => {}
                }
                connection = match GuardedConnection::acquire(&self.pool).await {
                    Err(error) => return TxOutcome::Concluded(Conclusion::Failed(error.into())),
                    Ok(connection) => connection,
                };
            }
            TxOutcome::Concluded(Conclusion::HeldElsewhere)
        };
        tokio::time::timeout(self.settings.database_deadline, attempts)
            .await
            .unwrap_or_else(|_| {
                TxOutcome::Concluded(Conclusion::Failed(Failure::deadline(&committing)))
            })
    }

    /// One transaction: claim, work, save, COMMIT. `None`: the record vanished between two
    /// statements, so begin afresh.
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
    ) -> Result<Option<TxOutcome<W::Pending>>, Failure> {
        let patient = self.patient_claims.try_acquire().ok();
        let begin = match patient {
            Some(_) => claim::BEGIN,
            None => claim::BEGIN_BRIEFLY,
        };
        let began = Instant::now();
        let mut tx = connection.begin_with(begin).await?;

        let claimed = claim::claim(&mut tx, request, self.retention).await?;
        drop(patient);
        let found = match claimed {
            Claim::Mine => None,
            Claim::Completed(record) => Some(compare(request, record)?),
            Claim::Unfinished(row) => Some(row.compare(request)?),
            Claim::HeldElsewhere => Some(Conclusion::HeldElsewhere),
            Claim::Vanished => {
                tx.rollback().await?;
                connection.release();
                return Ok(None);
            }
        };
        if let Some(conclusion) = found {
            tx.rollback().await?;
            connection.release();
            return Ok(Some(TxOutcome::Concluded(conclusion)));
        }

        sqlx::raw_sql(claim::START_WORK).execute(&mut *tx).await?;
        leadership.executing();
        let worked = match work.work(&mut tx, request, began).await {
            Ok(worked) => worked,
            Err(Rejection::Refused(reply)) => {
                sqlx::raw_sql(claim::UNDO_WORK).execute(&mut *tx).await?;
                ControlFlow::Break(reply)
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
        let outcome = match worked {
            ControlFlow::Break(reply) => {
                let (account_id, key) = (request.account_id, request.key.as_str());
                let saved = reply::save(&mut tx, account_id, key, &reply, &self.retention);
                TxOutcome::Concluded(Conclusion::Stored {
                    record: Arc::new(saved.await?),
                    replayed: false,
                })
            }
            ControlFlow::Continue(pending) => TxOutcome::Pending(pending),
        };

        committing.store(true, Ordering::Relaxed);
        tx.commit().await.map_err(Failure::of_commit)?;
        connection.release();
        Ok(Some(outcome))
    }
}

/// The end of a leader's task: logs what went wrong, once, and tells the followers.
fn conclude(request: &Request, leadership: Leadership, conclusion: Conclusion) -> Conclusion {
    // The request that a step belongs to fails with it, and is logged.
    if let Conclusion::Failed(failure) = &conclusion
        && !request.key.is_reserved()
    {
        failure.log(&request.request_id);
    }
    leadership.conclude(conclusion.clone());
    conclusion
}

/// A completed record answers only its own request.
fn compare(request: &Request, record: Arc<Record>) -> Result<Conclusion, Failure> {
    let (version, fingerprint) = (record.fingerprint_version, &record.fingerprint);
    Ok(match request.fingerprint.matches(version, fingerprint) {
        Ok(true) => Conclusion::Stored {
            record,
            replayed: true,
        },
        Ok(false) => Conclusion::Reused,
        Err(unknown) => return Err(Failure::unavailable(unknown)),
    })
}

/// Between half of `pause` and all of it.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + rand::random_range(Duration::ZERO..=half)
}
