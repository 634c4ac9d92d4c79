//! For applications on Tokio, sqlx and PostgreSQL: a retried request has no second effect.
//!
//! [add_ons]: add_ons
#![cfg_attr(feature = "http", doc = include_str!("../README.md"))]
// The front page of the documentation is the README. The link above comes before its own, and so counts.
//
// One request, in the order of the code: `in_flight` decides whether this process already works on the
// key, `transaction` begins, `claim` takes the key, the `Command` writes its rows, `reply` saves the
// outcome, and `transaction` commits all of it at once. The core names no add-on behind a cargo feature.

#[cfg(doc)]
#[doc = include_str!("../ADD-ONS.md")]
pub mod add_ons {}

mod claim;
mod connection;
mod expiry;
mod fair_pool;
mod fingerprint;
mod in_flight;
mod kept;
mod key;
mod migrations;
mod observer;
mod reply;
mod request;
mod shedding;
mod sqlstate;
mod trace;
mod transaction;

#[cfg(feature = "batch")]
mod batch;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "phases")]
mod phases;
#[cfg(feature = "replay-cache")]
mod replay_cache;
#[cfg(feature = "workflow")]
mod workflow;

use std::{future::Future, sync::Arc, time::Duration};

use in_flight::{Conclusion, InFlight, Leadership, Place, Verdict};
use shedding::LookUps;
use sqlx::{PgConnection, postgres::types::PgInterval};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};
use trace::{Instrument, trace_span};
use transaction::TxOutcome;
use uuid::Uuid;

pub use key::{IdempotencyKey, KEY_MAX_BYTES, KeyError};
pub use migrations::{MIGRATIONS, MIGRATIONS_TABLE, migrate};
pub use reply::{Failure, FailureKind, Record, Rejection, Reply, RunAgain};
pub use request::{Outcome, Request, Settings};

pub use claim::{CLAIM_WAIT, ROW_LOCK_WAIT};
pub use connection::{
    BEGIN_DURABLE, GuardedConnection, SessionLimits, pin_session, pinned_settings,
};
pub use expiry::{Forgotten, SWEEP_BATCH_ROWS, SweepPace, forget, oldest_expired, sweep};
pub use fair_pool::{FairPool, NO_ACCOUNT};
pub use fingerprint::{Fingerprint, FingerprintInput, Parameters, UnknownVersion};
pub use in_flight::InFlightCounts;
pub use observer::Observer;
pub use shedding::{InProgressLimit, InProgressLimits};
pub use trace::TRACE_TARGET;

#[cfg(feature = "batch")]
pub use batch::{BatchObserver, BatchSettings, Batches, Decide, Decision, RanAlone, Rows};
#[cfg(feature = "http")]
pub use http::HeaderError;
#[cfg(all(feature = "inspect", feature = "phases"))]
pub use inspect::LeasedKey;
#[cfg(feature = "inspect")]
pub use inspect::{Inspected, KnownRequest};
#[cfg(feature = "phases")]
pub use phases::{
    Begin, BeginOutcome, COMPLETION_RESERVE, CallAnswer, CallOutcome, ExternalEffect,
    LeaseSettings, Leased, Phases, PhasesObserver, leased,
};
#[cfg(feature = "replay-cache")]
pub use replay_cache::{ReplayCache, ReplayCacheObserver};
#[cfg(feature = "workflow")]
pub use workflow::{Step, StepOutcome, Steps, WorkflowName, WorkflowNameError};

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

/// The one way to write: [`Idempotency::run`] owns BEGIN, claim, save and COMMIT, so no handler can forget a
/// step. Cheap to clone; all clones share the map of keys in flight.
#[derive(Clone)]
pub struct Idempotency {
    settings: Settings,
    pool: FairPool,
    retention: PgInterval,
    in_flight: InFlight,
    patient_claims: Arc<Semaphore>,
    look_ups: LookUps,
    runtime: Handle,
}

impl Idempotency {
    /// `pool` is a [`PgPool`](sqlx::PgPool) whose sessions have `READ COMMITTED` as the default isolation
    /// level and `synchronous_commit = on`: see [`pin_session`]. Where reads or an [`Observer`] need it
    /// too, it is a [`FairPool`]. Fails on a retention that Postgres can't represent.
    ///
    /// Up to a quarter of the pool stays taken for a second after a request, for the next one. Leave as many
    /// connections more to an application that uses the pool directly as well. Give each instance a pool
    /// of its own: four that share one could keep all of it, idle, from each other.
    ///
    /// Call it on the runtime that lives longest: all work runs there, because a pooled socket
    /// belongs to the runtime that opened it, and an HTTP worker's may end before its requests do.
    /// Panics outside a Tokio runtime.
    pub fn new(
        pool: impl Into<FairPool>,
        settings: Settings,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        let pool = pool.into();
        let waiting = usize::try_from(pool.pool().options().get_max_connections() / 2)?.max(1);
        Ok(Self {
            look_ups: LookUps::by(pool.clone()),
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
                let until = this.answered_by();
                let conclusion = this.execute(&request, &*command, &leadership, until).await;
                conclude(&request, &leadership, conclusion)
            }
        })
        .await
    }

    /// The requests of one account that this process works on, in the order they came. For display
    /// only, and never a reason to use a new key: other replicas have requests of their own.
    pub fn requests_in_flight(&self, account_id: Uuid) -> Vec<Request> {
        self.in_flight.of_account(account_id, |_| true)
    }

    /// The request that this process works on under a key, if there is one.
    pub fn request_in_flight(&self, account_id: Uuid, key: &IdempotencyKey) -> Option<Request> {
        self.in_flight.look_up(account_id, key)
    }

    /// How many keys this process works on, and how many duplicates wait for them. Costs two numbers.
    pub fn in_flight_counts(&self) -> InFlightCounts {
        self.in_flight.counts()
    }

    /// Ends every wait of a duplicate for the first request, now and from now on: the process is
    /// stopping.
    pub fn end_waits(&self) {
        self.in_flight.end_waits();
    }

    /// Resolves when no request is executing in this process any more.
    pub async fn drained(&self) {
        self.in_flight.drained().await;
    }

    /// Runs a command in one transaction.
    async fn execute<C: Command>(
        &self,
        request: &Request,
        command: &C,
        leadership: &Leadership,
        until: Instant,
    ) -> Conclusion {
        match self.lead(request, command, leadership, until).await {
            TxOutcome::Concluded(conclusion) => conclusion,
            TxOutcome::Pending(nothing) => match nothing {},
        }
    }

    /// When a request that begins now has its answer at the latest: after the wait for a connection, and
    /// the database deadline.
    fn answered_by(&self) -> Instant {
        let pool_wait = self.pool.pool().options().get_acquire_timeout();
        Instant::now() + pool_wait + self.settings.database_deadline
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
        let mut is_held_elsewhere = false;
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
                    let waiting = trace_span!("wait for first request");
                    let followed = follower.follow(self.answered_by(), patience);
                    match followed.instrument(waiting).await {
                        Verdict::Share(conclusion) => (conclusion, true),
                        Verdict::InUse => return Outcome::InUse,
                        Verdict::AskAgain => {
                            is_held_elsewhere = true;
                            continue;
                        }
                        Verdict::StartOver => continue,
                    }
                }
                // The request waited for another process, and others took its place here.
                Place::OverLimit(_) if is_held_elsewhere => return Outcome::InUse,
                Place::OverLimit(limit) => return self.shed(&request, limit).await,
            };
            match conclusion {
                Conclusion::Stored {
                    record,
                    replayed,
                    taken_over,
                } => {
                    return Outcome::Stored {
                        record,
                        replayed: replayed || shared,
                        taken_over: taken_over && !shared,
                    };
                }
                Conclusion::Reused => return Outcome::Reused,
                Conclusion::Unfinished => return Outcome::Unfinished,
                Conclusion::Failed(failure) => return Outcome::Failed(failure),
                Conclusion::HeldElsewhere => {
                    is_held_elsewhere = true;
                    let again = Instant::now() + jittered(RECLAIM_PAUSE);
                    if again >= patience || !self.in_flight.pause(again).await {
                        return Outcome::InUse;
                    }
                }
            }
        }
    }
}

/// The end of a leader's task: logs what went wrong, once, and tells the followers.
fn conclude(request: &Request, leadership: &Leadership, conclusion: Conclusion) -> Conclusion {
    // The request that a step belongs to fails with it, and is logged.
    if let Conclusion::Failed(failure) = &conclusion
        && !request.key.is_reserved()
    {
        failure.log(&request.request_id);
    }
    leadership.conclude(conclusion.clone());
    conclusion
}

/// Between half of `pause` and all of it.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    half + rand::random_range(Duration::ZERO..=half)
}
