//! Requests with an effect outside the database: three steps, two transactions, and no transaction
//! open while the network is waited for.
//!
//! | step | what it does | a crash after it |
//! |---|---|---|
//! | `begin` | claims the key, checks, reserves, writes the operation down; COMMIT | leaves the key in flight: the recovery point |
//! | `call` | asks for the effect, under the operation's own key | may or may not have had the effect: in doubt |
//! | `complete` | writes the outcome and completes the record; COMMIT | has lost nothing |
//!
//! Promise: a client's retry or the reconciler that takes over after a crash asks under the same
//! key, so the effect happens at most once. An outcome that is unknown stays unknown, with its key
//! in flight, until the other side gives a definite answer for that key.

mod completion;
mod first_phase;
pub(crate) mod lease;
mod observer;
mod reconciler;
mod recovery;
mod steps;

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::types::PgInterval};
use uuid::Uuid;

use crate::{
    Failure, FailureKind, Idempotency, Outcome, Record, Rejection, Reply, Verdict,
    observer::Unobserved,
};
use lease::Lease;

pub use lease::{Leased, leased};
pub use observer::{CallAnswer, PhasesObserver};

/// What must be left of a lease for its holder to ask for the effect: the call's own time, and this
/// to complete. A holder with less would still be asking when another process may take over.
pub const COMPLETION_RESERVE: Duration = Duration::from_secs(5);

/// The first step: one implementation for each verb.
pub trait Begin: Send + Sync + 'static {
    /// Checks, reserves, and writes the operation down under `operation`, the key that the effect
    /// will be asked for under. It neither begins nor commits a transaction.
    ///
    /// Answered: no call is needed, and this is the reply. Pending: the operation is written down,
    /// and this is the id of what it makes or changes, for a look at the key meanwhile.
    fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> impl Future<Output = Result<Verdict<Reply, Option<String>>, Rejection>> + Send;
}

/// The other steps: one implementation for all verbs of a kind, because a process that takes over
/// after a crash has only what `begin` wrote down.
pub trait ExternalEffect: Send + Sync + 'static {
    /// What tells its operations from those of another implementation, in the table: each takes
    /// over its own. It is stored, so a new name strands the operations in flight.
    const KIND: &'static str;

    /// What was written down.
    type Operation: Send + Sync;
    /// The other side's definite answer.
    type Answer: Send + Sync;

    /// Reads what `begin` wrote down.
    fn read(
        &self,
        tx: &mut PgConnection,
        account_id: Uuid,
        operation: Uuid,
    ) -> impl Future<Output = Result<Self::Operation, Failure>> + Send;

    /// Asks for the effect. No transaction is open, and no connection is held.
    ///
    /// From `not_after` on, by the database's clock, another process may take the operation over.
    /// Pass the time on, so that the other side refuses what arrives later: on a machine that is
    /// suspended, and wakes up between two instructions, no time limit of this process has passed.
    fn call(
        &self,
        operation: &Self::Operation,
        not_after: DateTime<Utc>,
    ) -> impl Future<Output = CallOutcome<Self::Answer>> + Send;

    /// Writes the outcome. It neither begins nor commits a transaction.
    fn complete(
        &self,
        tx: &mut PgConnection,
        operation: &Self::Operation,
        answer: &Self::Answer,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Undoes what `begin` wrote: no attempt was executed, now or before.
    fn release(
        &self,
        tx: &mut PgConnection,
        operation: &Self::Operation,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The outcome of [`ExternalEffect::call`].
#[derive(Debug)]
pub enum CallOutcome<A> {
    /// The other side's definite answer for this operation.
    Answered(A),
    /// Certain: this attempt was not executed. Frees the key only if no earlier one may have been.
    NotExecuted(Failure),
    /// Anything else.
    Unknown(Failure),
}

/// How long a holder has.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// From `begin` to `complete`: [`Settings::database_deadline`], `call_limit` and
    /// [`COMPLETION_RESERVE`] together. What `begin` takes more is missing for the call.
    ///
    /// [`Settings::database_deadline`]: crate::Settings::database_deadline
    pub lease: Duration,
    /// The longest that one `call` may take.
    pub call_limit: Duration,
}

/// The one way to have an effect outside the database. Cheap to clone.
pub struct Phases<E> {
    idempotency: Idempotency,
    pub(crate) effect: Arc<E>,
    settings: LeaseSettings,
    pub(crate) lease: PgInterval,
    /// The account from which on the next turn to be recovered is. Shared by all clones.
    next_turn: Arc<Mutex<Uuid>>,
    observer: Arc<dyn PhasesObserver>,
}

impl<E> Clone for Phases<E> {
    fn clone(&self) -> Self {
        Self {
            idempotency: self.idempotency.clone(),
            effect: Arc::clone(&self.effect),
            settings: self.settings,
            lease: self.lease,
            next_turn: Arc::clone(&self.next_turn),
            observer: Arc::clone(&self.observer),
        }
    }
}

/// An operation that this process holds the lease of.
pub(crate) struct LeasedOperation<O> {
    pub(crate) lease: Lease,
    /// By the database's clock.
    pub(crate) leased_until: DateTime<Utc>,
    pub(crate) operation: O,
}

/// How a holder's work ended.
pub(crate) enum CompletionOutcome {
    /// The outcome is committed.
    Completed(Arc<Record>),
    /// No definite outcome, or none that is known.
    Failed(Failure),
    /// Another process took over, and answers.
    LeaseLost,
}

impl CompletionOutcome {
    /// Its name, in the span of a completion.
    fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed(_) => "not_completed",
            Self::LeaseLost => "lease_lost",
        }
    }

    /// How the request ends with it. `None`: the other process concludes the operation.
    pub(crate) fn conclusion(self, taken_over: bool) -> Option<Outcome> {
        match self {
            Self::Completed(record) => Some(Outcome::Stored {
                record,
                replayed: taken_over,
                taken_over,
            }),
            Self::Failed(failure) => Some(Outcome::Failed(failure)),
            Self::LeaseLost => None,
        }
    }
}

impl<E: ExternalEffect> Phases<E> {
    /// Fails on a lease that leaves `begin` no time before a call and [`COMPLETION_RESERVE`],
    /// because nothing would ever be asked for, and on one that Postgres can't represent.
    pub fn new(
        idempotency: Idempotency,
        effect: E,
        settings: LeaseSettings,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        if settings.lease <= settings.call_limit + COMPLETION_RESERVE {
            let too_short = format!(
                "the lease must be longer than the call limit and {COMPLETION_RESERVE:?} together"
            );
            return Err(too_short.into());
        }
        Ok(Self {
            idempotency,
            effect: Arc::new(effect),
            lease: PgInterval::try_from(settings.lease)?,
            next_turn: Arc::default(),
            settings,
            observer: Arc::new(Unobserved),
        })
    }

    /// The same phases, whose calls and outcomes `observer` is told of.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn PhasesObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Reads the operation of a lease that was taken over, as `begin` wrote it down.
    async fn read(
        &self,
        tx: &mut PgConnection,
        lease: Lease,
        leased_until: DateTime<Utc>,
    ) -> Result<LeasedOperation<E::Operation>, Failure> {
        let operation = self.effect.read(tx, lease.account_id, lease.operation);
        let operation = operation.await?;
        // Last: after an error that was swallowed, this statement fails. Without it, COMMIT would
        // answer as if it had committed, and the takeover would be undone.
        if !lease::hold(tx, &lease).await? {
            return Err(Failure::unavailable(
                "another process took the operation over",
            ));
        }
        Ok(LeasedOperation {
            lease,
            leased_until,
            operation,
        })
    }

    /// Bounds a transaction by the database deadline.
    async fn bounded<T>(
        &self,
        transaction: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let deadline = self.idempotency.settings.database_deadline;
        tokio::time::timeout(deadline, transaction)
            .await
            .unwrap_or_else(|_| Err(Failure::unavailable("the database deadline is over")))
    }
}

/// A failure once the effect may have happened: a row that stayed locked doesn't mean that nothing
/// was done.
fn in_doubt(failure: Failure) -> Failure {
    let failure = match failure.kind {
        FailureKind::Busy => Failure::unavailable(format!(
            "the outcome could not be written: {}",
            failure.cause
        )),
        FailureKind::Unavailable | FailureKind::Unsupported | FailureKind::Internal => failure,
    };
    Failure {
        is_unknown: true,
        ..failure
    }
}
