//! For applications on Tokio, sqlx and PostgreSQL: a retried request has no second effect.
//!
//! [add_ons]: add_ons
#![cfg_attr(all(feature = "http", feature = "sweep"), doc = include_str!("../README.md"))]
// The documentation's front page is the README. The link above comes before its own, and counts.
//
// One request, in the order of the code: `in_flight` decides whether this process already works on
// the key, `connection` takes one from the pool, `transaction` begins, `claim` takes the key, the
// `Command` writes its rows, `reply` saves the outcome, and `transaction` commits all of it at
// once. The core names no add-on behind a cargo feature.

#[cfg(doc)]
#[doc = include_str!("../ADD-ONS.md")]
pub mod add_ons {}

mod acknowledged;
mod admit;
mod claim;
mod connection;
mod fingerprint;
mod in_flight;
mod key;
mod migrations;
mod observer;
mod recall;
mod reply;
mod request;
mod seal;
mod sqlstate;
mod trace;
mod transaction;

#[cfg(feature = "abandon")]
mod abandon;
#[cfg(feature = "admission")]
mod admission;
#[cfg(feature = "batch")]
mod batch;
#[cfg(feature = "sweep")]
mod expiry;
#[cfg(feature = "forget")]
mod forget;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(any(feature = "axum", feature = "actix"))]
mod layer;
#[cfg(all(feature = "inspect", feature = "phases"))]
mod leased_keys;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "phases")]
mod phases;
#[cfg(feature = "replay-cache")]
mod replay_cache;
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "seal")]
mod seal_secrets;
#[cfg(feature = "workflow")]
mod workflow;

use std::{
    convert::Infallible,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use admit::{Answering, Held};
use in_flight::{Followed, InFlight, Leadership, Place};
use recall::Recall;
use sqlx::{PgConnection, postgres::types::PgInterval};
use tokio::{runtime::Handle, time::Instant};
use trace::{Instrument, trace_span};
use transaction::Work;

pub use key::{IdempotencyKey, KEY_MAX_BYTES, KEY_MISTAKES, KeyError};
pub use migrations::{MIGRATIONS, MIGRATIONS_TABLE, migrate};
pub use reply::{Failure, FailureKind, Record, Rejection, Reply, RunAgain, Verdict};
pub use request::{Outcome, Request, Settings, retry_after_seconds};
pub use seal::{Cipher, Seal, sealed_key};

pub use acknowledged::acknowledged;
pub use claim::{CLAIM_WAIT, ROW_LOCK_WAIT};
pub use connection::{
    BEGIN_DURABLE, Connections, GuardedConnection, NO_ACCOUNT, SessionLimits, pin_session,
    pinned_settings,
};
pub use fingerprint::{Fingerprint, FingerprintInput, Parameters, UnknownVersion};
pub use observer::Observer;
pub use recall::Expired;
pub use trace::TRACE_TARGET;

#[cfg(feature = "abandon")]
pub use abandon::Abandoned;
#[cfg(feature = "admission")]
pub use admission::{Admission, AdmissionObserver, InProgressLimit, InProgressLimits, Seat};
#[cfg(feature = "batch")]
pub use batch::{
    BatchObserver, BatchSettings, Batches, Begun, Decide, Decision, FirstVerdict, RanAlone, Rows,
    SharedBegin, SharedEffect, SharedPhases, read_rounds, transaction_time,
};
#[cfg(feature = "sweep")]
pub use expiry::{
    SWEEP_BATCH_ROWS, SweepPace, oldest_expired, remember_keys, remembers_keys, sweep,
};
#[cfg(feature = "forget")]
pub use forget::{Forgotten, ForgottenKey, expire, forget, forget_key};
#[cfg(feature = "http")]
pub use http::HeaderError;
#[cfg(feature = "inspect")]
pub use inspect::{InFlightCounts, Inspected, KnownOutcome, KnownRequest};
#[cfg(any(feature = "axum", feature = "actix"))]
pub use layer::IdempotentTx;
#[cfg(feature = "actix")]
pub use layer::actix::{IdempotencyMiddleware, IdempotentService};
#[cfg(feature = "axum")]
pub use layer::axum::{IdempotencyLayer, IdempotencyService};
#[cfg(all(feature = "inspect", feature = "phases"))]
pub use leased_keys::{LeasedKey, WantedKeys, list_leased_keys};
#[cfg(feature = "memory")]
pub use memory::{Memory, Remembered};
#[cfg(feature = "phases")]
pub use phases::{
    Begin, COMPLETION_RESERVE, CallAnswer, CallOutcome, ExternalEffect, LeaseSettings, Leased,
    Phases, PhasesObserver, leased,
};
#[cfg(feature = "replay-cache")]
pub use replay_cache::{ReplayCache, ReplayCacheObserver};
#[cfg(feature = "report")]
pub use report::KeyReport;
#[cfg(feature = "seal")]
pub use seal_secrets::{
    SEAL_MIGRATIONS, SEAL_MIGRATIONS_TABLE, SEAL_SECRET_MIN_BYTES, SealSecrets, SealSecretsError,
};
#[cfg(feature = "workflow")]
pub use workflow::{Step, Steps, WorkflowName, WorkflowNameError};

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
    /// Runs the verb inside `tx`. Neither begins nor commits, nor has a savepoint named `work`.
    fn execute(
        &self,
        tx: &mut PgConnection,
    ) -> impl Future<Output = Result<Reply, Rejection>> + Send;
}

/// The one way to write: [`Idempotency::run`] owns BEGIN, claim, save and COMMIT, so no handler can
/// forget a step. Cheap to clone; all clones share the map of keys in flight.
#[derive(Clone)]
pub struct Idempotency {
    settings: Settings,
    pool: Connections,
    retention: PgInterval,
    recall: Option<Arc<dyn Recall>>,
    in_flight: InFlight,
    runtime: Handle,
}

impl Idempotency {
    /// `pool` is a [`PgPool`](sqlx::PgPool) whose sessions have the schema of the tables,
    /// `READ COMMITTED` as the default isolation level, and `synchronous_commit = on`: see
    /// [`pin_session`]. For an [`Observer`], or an add-on that admits requests, it is
    /// [`Connections`]. Fails on a retention that Postgres can't represent.
    ///
    /// Call it on the runtime that lives longest: all work runs there, because a pooled socket
    /// belongs to the runtime that opened it, and an HTTP worker's may end before its requests do.
    /// Panics outside a Tokio runtime.
    pub fn new(
        pool: impl Into<Connections>,
        settings: Settings,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self {
            pool: pool.into(),
            retention: PgInterval::try_from(settings.retention)?,
            recall: None,
            settings,
            in_flight: InFlight::new(),
            runtime: Handle::current(),
        })
    }

    /// Runs `command` at most once per account and key, and answers duplicates with its outcome.
    ///
    /// Dropping the returned future, as a client's disconnect does, cancels nothing: claim, work
    /// and commit run in a task of their own.
    pub async fn run<C: Command>(&self, request: Request, command: C) -> Outcome {
        self.run_work(request, Arc::new(command)).await
    }

    async fn run_work<W>(&self, request: Request, work: Arc<W>) -> Outcome
    where
        W: Work<Pending = Infallible> + Send + 'static,
    {
        self.lead_or_follow(request, |this, request, leadership| {
            let work = Arc::clone(&work);
            Box::pin(async move {
                let until = this.answered_by();
                let conclusion = this.execute(&request, &*work, &leadership, until).await;
                conclude(&request, &leadership, conclusion)
            })
        })
        .await
    }

    /// Ends every wait of a duplicate for the first request, for good: the process is stopping.
    pub fn end_waits(&self) {
        self.in_flight.stopping.send_replace(true);
    }

    /// Resolves when no request is executing in this process any more.
    pub async fn drained(&self) {
        self.in_flight.drained().await;
    }

    async fn execute<W: Work<Pending = Infallible>>(
        &self,
        request: &Request,
        work: &W,
        leadership: &Leadership,
        until: Instant,
    ) -> Outcome {
        let Verdict::Answered(conclusion) = self.lead(request, work, leadership, until).await;
        conclusion
    }

    /// When a request that begins now has its answer at the latest: after the wait for a
    /// connection, and the database deadline.
    fn answered_by(&self) -> Instant {
        let pool_wait = self.pool.pool().options().get_acquire_timeout();
        Instant::now() + pool_wait + self.settings.database_deadline
    }

    /// Leads, in a task of its own, if no other request in this process works on the key, and else
    /// shares the leader's conclusion.
    ///
    /// `lead` makes a boxed future: what a command does is kilobytes of state, and each move of it
    /// would be paid by every request.
    async fn lead_or_follow(
        &self,
        request: Request,
        lead: impl Fn(Self, Request, Leadership) -> Answering,
    ) -> Outcome {
        let patience = Instant::now() + request.wait;
        // Another process had the key when it was asked for before.
        let mut was_in_use = false;
        loop {
            let leadership = match self.in_flight.join(&request) {
                Place::Leader(leadership) => leadership,
                Place::Follower(follower) => {
                    let seat = self.pool.admit.follow(request.account_id);
                    let patience = seat.as_ref().map_or_else(Instant::now, |_| patience);
                    let following = follower.follow(self.answered_by(), patience);
                    let waiting = trace_span!("wait for first request");
                    match following.instrument(waiting).await {
                        Followed::Answered(outcome) => return outcome,
                        Followed::BeginAgain { is_in_use } => was_in_use |= is_in_use,
                    }
                    continue;
                }
            };
            let begun = self.pool.admit.begin(&request, was_in_use);
            let goes_on = begun.is_ok() || !was_in_use;
            let (work, held): (Answering, _) = match begun {
                Ok(held) => (lead(self.clone(), request.clone(), leadership), Some(held)),
                Err(no) => (Box::pin(async move { leadership.conclude(no.await) }), None),
            };
            let ended = self.in_a_task(work, held).await;
            let again = Instant::now() + jittered(RECLAIM_PAUSE);
            let waits = goes_on && matches!(ended, Outcome::InUse { .. }) && again < patience;
            let seat = || self.pool.admit.follow(request.account_id);
            let seat = waits.then(seat).flatten();
            if seat.is_none() || !self.in_flight.pause(again).await {
                return ended;
            }
            was_in_use = true;
        }
    }

    /// Does what a disconnect must not cancel, and then lets go of what it holds.
    async fn in_a_task(&self, work: Answering, held: Option<Held>) -> Outcome {
        let work = async move {
            let ended = work.await;
            drop(held);
            ended
        };
        let ended = self.runtime.spawn(work.in_current_span()).await;
        ended.unwrap_or_else(|_| {
            tracing::error!("the work panicked");
            Outcome::Failed(Failure::internal("the work panicked"))
        })
    }
}

/// The end of a leader's task: logs what went wrong, once, and tells the followers.
fn conclude(request: &Request, leadership: &Leadership, conclusion: Outcome) -> Outcome {
    // The request that a step belongs to fails with it, and is logged.
    if let Outcome::Failed(failure) = &conclusion
        && !request.is_step
    {
        failure.log(&request.request_id);
    }
    leadership.conclude(conclusion)
}

/// Nothing that holds such a lock panics halfway through a change. None is held across an await.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between half of `pause` and all of it.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + rand::random_range(Duration::ZERO..=half)
}
