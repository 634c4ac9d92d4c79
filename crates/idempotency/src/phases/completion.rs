//! The call, and the transaction that stores its outcome.
//!
//! Promise: nothing is sent with too little of the lease left, and nothing is written but under the
//! lease's own token. A received answer is written again and again until the database deadline.

use std::{future::Future, sync::Arc, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    COMPLETION_RESERVE, CallAnswer, CallOutcome, CompletionOutcome, ExternalEffect, LeaseSettings,
    LeasedOperation, Phases, in_doubt,
    lease::{self, Lease},
};
use crate::{
    Failure, FailureKind, RunAgain,
    acknowledged::commit,
    connection::begin,
    reply,
    trace::{self, trace_span},
};

/// The first pause before an outcome that could not be written is written again, and the longest:
/// each is twice the one before, with jitter. Short against the database deadline, which ends the
/// attempts, and long enough for a server that restarts.
const REWRITE_PAUSE_MIN: Duration = Duration::from_millis(20);
const REWRITE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How long the attempt to give a lease back may take: the client waits for it, after the database
/// deadline.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(1);

/// Opens the transaction, which is tried again where a row stays locked: a connection is not held
/// meanwhile.
const BEGIN: &str = begin!("; SET LOCAL lock_timeout = '100ms'");

impl<E: ExternalEffect> Phases<E> {
    pub(super) async fn call_and_complete(
        &self,
        leased: LeasedOperation<E::Operation>,
    ) -> CompletionOutcome {
        let called = self.call(&leased).await;
        let completing = self.complete(&leased, &called, self.complete_by());
        self.conclude(&leased, &called, completing).await
    }

    /// Makes the call, if enough of the lease is left.
    pub(crate) async fn call(
        &self,
        leased: &LeasedOperation<E::Operation>,
    ) -> CallOutcome<E::Answer> {
        let LeaseSettings { lease, call_limit } = self.settings;
        let asked = Instant::now();
        // A call that could end after the lease might be answered when another process has already
        // asked. `since` is not later than the moment that the database counts the lease from, so
        // the holder gives up first.
        let called = if leased.lease.since.elapsed() + call_limit + COMPLETION_RESERVE > lease {
            let late = "too little of the lease is left to ask for the effect";
            CallOutcome::NotExecuted(Failure::unavailable(late))
        } else {
            let calling = async {
                let call = self.effect.call(&leased.operation, leased.leased_until);
                let called = tokio::time::timeout(call_limit, call).await;
                called.unwrap_or_else(|_| {
                    let silent = "no answer about the effect in time, the outcome is unknown";
                    CallOutcome::Unknown(Failure::unavailable(silent))
                })
            };
            let span = trace_span!("call", "idempotency.kind" = E::KIND);
            let how = |called: &_| match called {
                CallOutcome::Answered(_) => Some("answered"),
                CallOutcome::NotExecuted(_) | CallOutcome::Unknown(_) => None,
            };
            trace::step(span, calling, how).await
        };
        let answer = CallAnswer::from(&called);
        self.observer.called(E::KIND, asked.elapsed(), answer);
        called
    }

    /// Ends the work of a holder who stores the outcome of the call by `completing`.
    pub(crate) async fn conclude(
        &self,
        leased: &LeasedOperation<E::Operation>,
        called: &CallOutcome<E::Answer>,
        completing: impl Future<Output = Result<CompletionOutcome, Failure>>,
    ) -> CompletionOutcome {
        let span = trace_span!("complete", "idempotency.kind" = E::KIND);
        let how = |completed: &Result<_, _>| completed.as_ref().ok().map(CompletionOutcome::name);
        match trace::step(span, completing, how).await {
            Ok(completed) => {
                if let CompletionOutcome::Completed(record) = &completed {
                    self.observer.completed(E::KIND, record.reply.status);
                }
                if let (CompletionOutcome::LeaseLost, CallOutcome::Answered(_)) =
                    (&completed, called)
                {
                    let operation = leased.lease.operation;
                    tracing::error!(
                        %operation,
                        "answered, but this holder may no longer complete it: another process took \
                         over, or a COMMIT of its own went through unacknowledged"
                    );
                }
                completed
            }
            Err(failure) => CompletionOutcome::Failed(in_doubt(failure)),
        }
    }

    /// When an outcome that is known now must have been written.
    pub(crate) fn complete_by(&self) -> Instant {
        Instant::now() + self.idempotency.settings.database_deadline
    }

    /// Completes, if need be again and again until the deadline: a received answer is
    /// worth more than a second question to the other side. Only a defect would fail each time.
    ///
    /// After a COMMIT that was not acknowledged, too: an attempt begins by asking whether the lease
    /// is still this holder's. If that COMMIT completed or released the key, it isn't, so nothing
    /// is written twice, and the caller reads the outcome as if another process had completed. A
    /// lease that is given back twice is as good as given back once.
    pub(crate) async fn complete(
        &self,
        leased: &LeasedOperation<E::Operation>,
        called: &CallOutcome<E::Answer>,
        deadline: Instant,
    ) -> Result<CompletionOutcome, Failure> {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(REWRITE_PAUSE_MIN)
            .with_max_delay(REWRITE_PAUSE_MAX)
            .with_jitter()
            .without_max_times();
        let attempts = (|| self.complete_once(leased, called))
            .retry(pauses)
            .when(|failure| failure.kind != FailureKind::Internal)
            .notify(|failure, _| {
                let (operation, cause) = (leased.lease.operation, &failure.cause);
                if failure.run_again == RunAgain::InAnotherSession {
                    self.idempotency.pool.close_idle();
                }
                if failure.run_again == RunAgain::WhenUnlocked {
                    // Another request is about the same money.
                    tracing::debug!(%operation, %cause, "the outcome waits for a row");
                } else {
                    tracing::warn!(
                        %operation, %cause, "the outcome could not be written; trying again"
                    );
                }
            });
        let completed = tokio::time::timeout_at(deadline, attempts)
            .await
            .unwrap_or_else(|_| {
                let late = "the database deadline is over before the outcome was written";
                Err(Failure::unavailable(late))
            });
        // The process that takes over asks under the same key again. After a defect, it would fail
        // again, so it waits until the lease runs out.
        if let Err(failure) = &completed
            && failure.kind != FailureKind::Internal
        {
            self.return_unwritten(&leased.lease).await;
        }
        completed
    }

    /// Gives the lease back after its holder could not write in time, such as because rows stayed
    /// locked: no process works on the key any more, and without this, every retry would get 409
    /// until the lease runs out. If this fails too, that is what happens.
    async fn return_unwritten(&self, lease: &Lease) {
        let returned = self.give_back(lease, lease.account_id, BEGIN);
        let operation = lease.operation;
        match tokio::time::timeout(GIVE_BACK_LIMIT, returned).await {
            Ok(Ok(())) => {}
            Ok(Err(Failure { cause, .. })) => {
                tracing::warn!(%operation, %cause, "the lease could not be given back");
            }
            Err(_) => tracing::warn!(%operation, "the lease could not be given back in time"),
        }
    }

    /// Gives a lease back on a connection of `account`: the reconciler comes back to the operation
    /// after a pause.
    pub(super) async fn give_back(
        &self,
        lease: &Lease,
        account: Uuid,
        begin: &'static str,
    ) -> Result<(), Failure> {
        let mut connection = self.idempotency.pool.acquire(account).await?;
        let mut tx = connection.open(begin).await?;
        // A COMMIT that was not acknowledged may have ended the lease.
        if lease::hold(&mut tx, lease).await? {
            lease::give_back(&mut tx, lease).await?;
        }
        commit(tx).await?;
        connection.release();
        Ok(())
    }

    /// The last transaction: only where the lease is still this holder's.
    async fn complete_once(
        &self,
        leased: &LeasedOperation<E::Operation>,
        called: &CallOutcome<E::Answer>,
    ) -> Result<CompletionOutcome, Failure> {
        let LeasedOperation {
            lease, operation, ..
        } = leased;
        let mut connection = self.idempotency.pool.acquire(lease.account_id).await?;
        let mut tx = connection.open(BEGIN).await?;
        if !lease::hold(&mut tx, lease).await? {
            tx.rollback().await?;
            connection.release();
            return Ok(CompletionOutcome::LeaseLost);
        }
        let completed = match called {
            CallOutcome::Answered(answer) => {
                let reply = self.effect.complete(&mut tx, operation, answer).await?;
                lease::delete(&mut tx, lease).await?;
                let (account_id, key) = (lease.account_id, &lease.key);
                let saved = reply::save(&mut tx, account_id, key, (reply, None));
                CompletionOutcome::Completed(Arc::new(saved.await?))
            }
            CallOutcome::NotExecuted(failure) if !lease.in_doubt => {
                self.effect.release(&mut tx, operation).await?;
                lease::release(&mut tx, lease).await?;
                CompletionOutcome::Failed(failure.clone())
            }
            CallOutcome::NotExecuted(failure) | CallOutcome::Unknown(failure) => {
                lease::give_back(&mut tx, lease).await?;
                CompletionOutcome::Failed(in_doubt(failure.clone()))
            }
        };
        commit(tx).await?;
        connection.release();
        Ok(completed)
    }
}
