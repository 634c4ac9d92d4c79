//! Requests with an effect outside the database: three steps, two transactions, and no transaction
//! open while the network is waited for.
//!
//! | step | what it does | a crash after it |
//! |---|---|---|
//! | `begin` | claims the key, checks, reserves, writes the operation down; COMMIT | leaves the key in flight: the recovery point |
//! | `call` | asks for the effect, under the operation's own key | may or may not have had the effect: in doubt |
//! | `settle` | writes the outcome and completes the record; COMMIT | has lost nothing |
//!
//! Promise: whoever goes on after a crash, a client's retry or the reconciler, asks under the same
//! key, so the effect happens at most once; and an outcome that is unknown stays unknown, with its
//! key in flight, until the other side's definite answer for that key is there.

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::{Connection, PgConnection, postgres::types::PgInterval};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Ended, Failure, FailureKind, GuardedConnection, Idempotency, Outcome, Record, Rejection, Reply,
    Request, Work, Worked, commit_failure, conclude,
    in_flight::Conclusion,
    jittered,
    lease::{self, Lease, Leased},
    reply,
};

/// What must be left of a lease for its holder to ask for the effect: the call's own time, and this
/// to settle. Whoever has less would still be asking when somebody else may already go on.
pub const SETTLE_RESERVE: Duration = Duration::from_secs(5);

/// The first pause before an outcome that could not be written is written again, and the longest:
/// each is twice the one before, and half of it is random. Short against the database deadline, which
/// ends the attempts, and long enough for a server that restarts.
const SETTLE_PAUSE_MIN: Duration = Duration::from_millis(20);
const SETTLE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How often a holder that lost its lease looks for the answer of whoever took it over, before it
/// says that the key is in use.
const LOST_LEASES_MAX: u32 = 3;

/// The first step: one implementation for each verb.
pub trait Begin: Send + Sync + 'static {
    /// Checks, reserves, and writes the operation down under `operation`, the key that the effect
    /// will be asked for under. It neither begins nor commits.
    fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> impl Future<Output = Result<Begun, Rejection>> + Send;
}

/// How `begin` ended.
#[derive(Debug)]
pub enum Begun {
    /// Nothing has to be asked: a definite answer, as of a command in one transaction.
    Replied(Reply),
    /// The operation is written down.
    Written {
        /// The id of what it makes or changes, for whoever looks the key up meanwhile.
        resource_id: Option<String>,
    },
}

/// The other steps: one implementation for all verbs, because whoever goes on after a crash has
/// nothing but what `begin` wrote down.
pub trait Operations: Send + Sync + 'static {
    /// What tells its operations from those of another implementation, in the table: each goes on
    /// with its own.
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
    fn call(
        &self,
        operation: &Self::Operation,
    ) -> impl Future<Output = Called<Self::Answer>> + Send;

    /// Writes the outcome. It neither begins nor commits.
    fn settle(
        &self,
        tx: &mut PgConnection,
        operation: &Self::Operation,
        answer: &Self::Answer,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// Undoes what `begin` wrote: nothing was executed, now or before.
    fn undo(
        &self,
        tx: &mut PgConnection,
        operation: &Self::Operation,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// What came of asking.
#[derive(Debug)]
pub enum Called<A> {
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
    /// From `begin` to `settle`; longer than `call_limit` and [`SETTLE_RESERVE`] together.
    pub lease: Duration,
    /// The longest that one `call` may take.
    pub call_limit: Duration,
}

/// The one way to have an effect outside the database. Cheap to clone.
pub struct Phases<O> {
    idempotency: Idempotency,
    operations: Arc<O>,
    settings: LeaseSettings,
    lease: PgInterval,
}

impl<O> Clone for Phases<O> {
    fn clone(&self) -> Self {
        Self {
            idempotency: self.idempotency.clone(),
            operations: Arc::clone(&self.operations),
            settings: self.settings,
            lease: self.lease,
        }
    }
}

/// An operation in this process's hands.
struct Held<O> {
    lease: Lease,
    operation: O,
}

/// How a holder's work ended.
enum Finished {
    /// The outcome is committed.
    Settled(Arc<Record>),
    /// No definite outcome, or none that is known.
    Failed(Failure),
    /// Somebody else took over, and answers.
    Lost,
}

impl<O: Operations> Phases<O> {
    /// Fails on a lease that Postgres can't represent.
    pub fn new(
        idempotency: Idempotency,
        operations: O,
        settings: LeaseSettings,
    ) -> Result<Self, sqlx::error::BoxDynError> {
        Ok(Self {
            idempotency,
            operations: Arc::new(operations),
            lease: PgInterval::try_from(settings.lease)?,
            settings,
        })
    }

    /// Runs a verb in phases, at most once for the request's account and key, and answers every
    /// duplicate with the first one's outcome. As [`Idempotency::run`], a disconnect cancels nothing.
    pub async fn run<B: Begin>(&self, request: Request, begin: B) -> Outcome {
        let begin = Arc::new(begin);
        self.idempotency
            .share(request, |_, request, leadership| {
                let (this, begin) = (self.clone(), Arc::clone(&begin));
                async move {
                    let mut first = FirstPhase {
                        phases: &this,
                        begin: &*begin,
                        may_begin: true,
                    };
                    let mut conclusion = Conclusion::HeldElsewhere;
                    for _ in 0..LOST_LEASES_MAX {
                        let held = match this
                            .idempotency
                            .transact(&request, &first, &leadership)
                            .await
                        {
                            Ended::Rest(held) => held,
                            Ended::Concluded(concluded) => {
                                conclusion = concluded;
                                break;
                            }
                        };
                        leadership.recorded();
                        let replayed = held.lease.taken_over;
                        match this.finish(held).await {
                            Finished::Settled(record) => {
                                conclusion = Conclusion::Stored { record, replayed };
                                break;
                            }
                            Finished::Failed(failure) => {
                                conclusion = Conclusion::Failed(failure);
                                break;
                            }
                            // Whatever became of the operation, it is not for this request to
                            // begin another one.
                            Finished::Lost => first.may_begin = false,
                        }
                    }
                    conclude(&request, leadership, conclusion)
                }
            })
            .await
    }

    /// Goes on with one operation that nobody works on: for clients that never retry. `false`: there
    /// is none now.
    pub async fn recover_one(&self) -> Result<bool, Failure> {
        let deadline = self.idempotency.settings.database_deadline;
        let late = |_| Failure::unavailable("the database deadline is over");
        let taking_over = tokio::time::timeout(deadline, self.take_over_any());
        let Some(lease) = taking_over.await.map_err(late)?? else {
            return Ok(false);
        };
        let operation = lease.operation;
        // The takeover is committed by now, so that one operation that can't be read, or whose work
        // panics, waits for its turn again and doesn't keep the others from theirs.
        let reading = tokio::time::timeout(deadline, self.read_aside(&lease));
        let held = match reading.await.map_err(late).flatten() {
            Ok(operation) => Held { lease, operation },
            Err(failure) => {
                let Failure { kind, cause, .. } = failure;
                match kind {
                    FailureKind::Internal => {
                        tracing::error!(%operation, %cause, "an operation can't be read");
                    }
                    FailureKind::Busy | FailureKind::Unavailable => {
                        tracing::warn!(%operation, %cause, "an operation can't be read now");
                    }
                }
                let putting_back = tokio::time::timeout(deadline, self.put_back(&lease));
                putting_back.await.map_err(late)??;
                return Ok(true);
            }
        };
        match self.finish(held).await {
            Finished::Settled(record) => {
                let status = record.reply.status;
                tracing::info!(%operation, status, "went on with an abandoned operation");
            }
            Finished::Failed(Failure { cause, .. }) => {
                tracing::warn!(%operation, %cause, "an operation stays without a known outcome");
            }
            Finished::Lost => tracing::info!(%operation, "somebody else took it over"),
        }
        Ok(true)
    }

    /// Settles an operation by the word of a person who has asked the other side. `word` is asked for
    /// it in place of [`Operations::call`], while nobody else can be at work, and counts for every
    /// attempt, so that [`Called::NotExecuted`] frees the key. [`Called::Unknown`] settles nothing and
    /// is the error. `None`: the operation isn't in flight, or somebody is at work on it.
    pub async fn settle_by_hand(
        &self,
        operation: Uuid,
        word: impl AsyncFnOnce(&O::Operation) -> Called<O::Answer>,
    ) -> Result<Option<()>, Failure> {
        let LeaseSettings { call_limit, .. } = self.settings;
        let deadline = self.idempotency.settings.database_deadline;
        let late = |_| Failure::unavailable("the database deadline is over");
        let taking_over = tokio::time::timeout(deadline, self.take_over_by_hand(operation));
        let Some(held) = taking_over.await.map_err(late)?? else {
            return Ok(None);
        };
        let called = tokio::time::timeout(call_limit, word(&held.operation)).await;
        let silent = |_| Called::Unknown(Failure::unavailable("nothing was said in time"));
        let called = called.unwrap_or_else(silent);
        let certain = !matches!(called, Called::Unknown(_));
        match self.write_down(&held, &called).await? {
            Finished::Settled(_) => Ok(Some(())),
            Finished::Failed(_) if certain => Ok(Some(())),
            Finished::Failed(failure) => Err(failure),
            Finished::Lost => Ok(None),
        }
    }

    /// Takes over one operation; the person's word counts for all that was tried before.
    async fn take_over_by_hand(
        &self,
        operation: Uuid,
    ) -> Result<Option<Held<O::Operation>>, Failure> {
        let mut connection = GuardedConnection::acquire(&self.idempotency.pool).await?;
        let since = Instant::now();
        let mut tx = connection.begin().await?;
        let token = Uuid::new_v4();
        let taken =
            lease::take_over_operation(&mut tx, O::KIND, operation, token, &self.lease).await?;
        let Some((account_id, key)) = taken else {
            return Ok(None);
        };
        let lease = Lease {
            account_id,
            key,
            kind: O::KIND,
            operation,
            token,
            since,
            in_doubt: false,
            taken_over: true,
        };
        let held = self.held(&mut tx, lease).await?;
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(Some(held))
    }

    async fn take_over_any(&self) -> Result<Option<Lease>, Failure> {
        let mut connection = GuardedConnection::acquire(&self.idempotency.pool).await?;
        let since = Instant::now();
        let mut tx = connection.begin().await?;
        let token = Uuid::new_v4();
        let taken = lease::take_over_any(&mut tx, O::KIND, token, &self.lease).await?;
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(taken.map(|(account_id, key, operation)| Lease {
            account_id,
            key,
            kind: O::KIND,
            operation,
            token,
            since,
            in_doubt: true,
            taken_over: true,
        }))
    }

    /// Reads an operation in a transaction of its own.
    async fn read_aside(&self, lease: &Lease) -> Result<O::Operation, Failure> {
        let mut connection = GuardedConnection::acquire(&self.idempotency.pool).await?;
        let mut tx = connection.begin().await?;
        let operation = self
            .operations
            .read(&mut tx, lease.account_id, lease.operation)
            .await?;
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(operation)
    }

    /// Gives a lease back unused: the reconciler comes back to the operation after a pause.
    async fn put_back(&self, lease: &Lease) -> Result<(), Failure> {
        let mut connection = GuardedConnection::acquire(&self.idempotency.pool).await?;
        let mut tx = connection.begin().await?;
        if lease::hold(&mut tx, lease).await? {
            lease::give_back(&mut tx, lease).await?;
        }
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(())
    }

    /// The operation that the lease is about, as `begin` wrote it down.
    async fn held(
        &self,
        tx: &mut PgConnection,
        lease: Lease,
    ) -> Result<Held<O::Operation>, Failure> {
        let operation = self
            .operations
            .read(tx, lease.account_id, lease.operation)
            .await?;
        Ok(Held { lease, operation })
    }

    /// Asks for the effect and writes down what came of it.
    async fn finish(&self, held: Held<O::Operation>) -> Finished {
        let LeaseSettings { lease, call_limit } = self.settings;
        let called = if held.lease.since.elapsed() + call_limit + SETTLE_RESERVE > lease {
            let late = "too little of the lease is left to ask for the effect";
            Called::NotExecuted(Failure::unavailable(late))
        } else {
            tokio::time::timeout(call_limit, self.operations.call(&held.operation))
                .await
                .unwrap_or_else(|_| {
                    let silent = "no answer about the effect in time, the outcome is unknown";
                    Called::Unknown(Failure::unavailable(silent))
                })
        };
        match self.write_down(&held, &called).await {
            Ok(finished) => {
                if matches!((&finished, &called), (Finished::Lost, Called::Answered(_))) {
                    let operation = held.lease.operation;
                    tracing::error!(
                        %operation,
                        "answered, but no longer this holder's to settle: somebody took over, or a \
                         COMMIT of its own went through unacknowledged"
                    );
                }
                finished
            }
            // The lease runs out, and whoever goes on then asks under the same key again.
            Err(failure) => Finished::Failed(in_doubt(failure)),
        }
    }

    /// Settles, if need be again and again until the database deadline: an answer in hand is worth
    /// more than a second question to the other side. Only a defect would fail each time.
    ///
    /// After a COMMIT that was not acknowledged, too: an attempt begins by asking whether the key is
    /// still this holder's. If that COMMIT settled or released it, it isn't, so nothing is written
    /// twice, and the caller reads the outcome as if somebody else had settled. A lease that is given
    /// back twice is as good as given back once.
    async fn write_down(
        &self,
        held: &Held<O::Operation>,
        called: &Called<O::Answer>,
    ) -> Result<Finished, Failure> {
        let deadline = Instant::now() + self.idempotency.settings.database_deadline;
        let mut pause = SETTLE_PAUSE_MIN;
        loop {
            let failure = match tokio::time::timeout_at(deadline, self.settle(held, called)).await {
                Ok(Err(failure)) if failure.kind != FailureKind::Internal => failure,
                Ok(ended) => return ended,
                Err(_) => {
                    let late = "the database deadline is over before the outcome was written";
                    return Err(Failure::unavailable(late));
                }
            };
            let again = Instant::now() + jittered(pause);
            if again >= deadline {
                return Err(failure);
            }
            let (operation, cause) = (held.lease.operation, failure.cause);
            tracing::warn!(%operation, %cause, "the outcome could not be written; trying again");
            tokio::time::sleep_until(again).await;
            pause = (pause * 2).min(SETTLE_PAUSE_MAX);
        }
    }

    /// The last transaction: only where the key is still in this holder's hands.
    async fn settle(
        &self,
        held: &Held<O::Operation>,
        called: &Called<O::Answer>,
    ) -> Result<Finished, Failure> {
        let Held { lease, operation } = held;
        let mut connection = GuardedConnection::acquire(&self.idempotency.pool).await?;
        let mut tx = connection.begin().await?;
        if !lease::hold(&mut tx, lease).await? {
            tx.rollback().await?;
            connection.release();
            return Ok(Finished::Lost);
        }
        let finished = match called {
            Called::Answered(answer) => {
                let reply = self.operations.settle(&mut tx, operation, answer).await?;
                let retention = &self.idempotency.retention;
                let saved = reply::save(&mut tx, lease.account_id, &lease.key, &reply, retention);
                Finished::Settled(Arc::new(saved.await?))
            }
            Called::NotExecuted(failure) if !lease.in_doubt => {
                self.operations.undo(&mut tx, operation).await?;
                lease::release(&mut tx, lease).await?;
                Finished::Failed(failure.clone())
            }
            Called::NotExecuted(failure) | Called::Unknown(failure) => {
                lease::give_back(&mut tx, lease).await?;
                Finished::Failed(failure.clone())
            }
        };
        tx.commit().await.map_err(commit_failure)?;
        connection.release();
        Ok(finished)
    }
}

/// A failure once the effect may have happened: a row that stayed locked doesn't mean that nothing
/// was done.
fn in_doubt(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Busy => Failure::unavailable(format!(
            "the outcome could not be written: {}",
            failure.cause
        )),
        FailureKind::Unavailable | FailureKind::Internal => failure,
    }
}

/// What the claiming transaction does for a verb in phases.
struct FirstPhase<'a, O, B> {
    phases: &'a Phases<O>,
    begin: &'a B,
    /// No more once this request has begun an operation and lost it.
    may_begin: bool,
}

impl<O: Operations, B: Begin> Work for FirstPhase<'_, O, B> {
    type Rest = Held<O::Operation>;

    async fn work(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        began: Instant,
    ) -> Result<Worked<Self::Rest>, Rejection> {
        if !self.may_begin {
            let released = "the operation of this request was released by somebody else";
            return Err(Rejection::Failed(Failure::unavailable(released)));
        }
        let lease = Lease {
            account_id: request.account_id,
            key: request.key.as_str().to_owned(),
            kind: O::KIND,
            operation: Uuid::now_v7(),
            token: Uuid::new_v4(),
            since: began,
            in_doubt: false,
            taken_over: false,
        };
        match self.begin.begin(tx, lease.operation).await? {
            Begun::Replied(reply) => Ok(Worked::Reply(reply)),
            Begun::Written { resource_id } => {
                let resource_id = resource_id.as_deref();
                lease::take(tx, &lease, &self.phases.lease, resource_id).await?;
                let held = self.phases.held(tx, lease).await;
                held.map(Worked::Rest).map_err(Rejection::Failed)
            }
        }
    }

    async fn take_over(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        leased: &Leased,
        began: Instant,
    ) -> Result<Option<Self::Rest>, Failure> {
        let lease = Lease {
            account_id: request.account_id,
            key: request.key.as_str().to_owned(),
            kind: O::KIND,
            operation: leased.operation,
            token: Uuid::new_v4(),
            since: began,
            in_doubt: true,
            taken_over: true,
        };
        let taken = lease::take_over(tx, &lease, leased.token, &self.phases.lease).await;
        // "Busy" would say that nothing was done, and that isn't known of this operation.
        if !taken.map_err(|error| in_doubt(error.into()))? {
            return Ok(None);
        }
        self.phases
            .held(tx, lease)
            .await
            .map(Some)
            .map_err(in_doubt)
    }
}
