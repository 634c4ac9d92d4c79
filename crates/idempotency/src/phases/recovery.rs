//! Operations that no request works on: the reconciler's takeover, and a person's resolution.
//!
//! Promise: both take the lease like a client's retry does, so neither crosses with a holder at
//! work.

use chrono::{DateTime, Utc};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    CallOutcome, CompletionOutcome, ExternalEffect, LeasedOperation, Phases,
    lease::{self, Lease, TakenOperation},
};
use crate::{
    Failure, FailureKind, NO_ACCOUNT,
    acknowledged::commit,
    connection::BEGIN_DURABLE,
    lock,
    trace::{self, trace_span},
};

impl<E: ExternalEffect> Phases<E> {
    /// Whether an operation waits for [`Phases::recover_one`] now. Takes no lock, and costs less.
    pub async fn is_any_abandoned(&self) -> Result<bool, Failure> {
        self.bounded(async {
            let mut connection = self.idempotency.pool.acquire(NO_ACCOUNT).await?;
            let found = lease::is_any_abandoned(&mut connection, E::KIND).await?;
            connection.release();
            Ok(found)
        })
        .await
    }

    /// Takes over one operation that waits for it, for clients that never retry. `false`: there is
    /// none now. Call it in a loop now and then, on every replica. A panic of the effect reaches
    /// the caller, so spawn each call.
    ///
    /// Accounts take turns, so that one with thousands of abandoned operations delays another's by
    /// one at most.
    pub async fn recover_one(&self) -> Result<bool, Failure> {
        let Some((lease, until)) = self.bounded(self.take_over_any()).await? else {
            return Ok(false);
        };
        let operation = lease.operation;
        // The takeover is committed by now: an operation that can't be read, or whose call panics,
        // waits for its turn again.
        let leased = match self.bounded(self.read_aside(lease.clone(), until)).await {
            Ok(leased) => leased,
            Err(Failure { kind, cause, .. }) => {
                match kind {
                    FailureKind::Internal => {
                        tracing::error!(%operation, %cause, "an operation can't be read");
                    }
                    FailureKind::Busy | FailureKind::Unavailable | FailureKind::Unsupported => {
                        tracing::warn!(%operation, %cause, "an operation can't be read now");
                    }
                }
                let giving_back = self.give_back(&lease, NO_ACCOUNT, BEGIN_DURABLE);
                self.bounded(giving_back).await?;
                return Ok(true);
            }
        };
        let span = trace_span!("recover", "idempotency.kind" = E::KIND);
        let completing = self.call_and_complete(leased);
        match trace::step(span, completing, |completed| Some(completed.name())).await {
            CompletionOutcome::Completed(record) => {
                let status = record.reply.status;
                tracing::info!(%operation, status, "completed an abandoned operation");
            }
            CompletionOutcome::Failed(Failure { cause, .. }) => {
                tracing::warn!(%operation, %cause, "an operation stays without a known outcome");
            }
            CompletionOutcome::LeaseLost => {
                tracing::info!(%operation, "another process took it over");
            }
        }
        Ok(true)
    }

    /// Resolves an operation by what a person has found out from the other side. `decide` is asked
    /// in place of [`ExternalEffect::call`], under a lease of its own, and counts for every
    /// attempt: [`CallOutcome::NotExecuted`] frees the key. [`CallOutcome::Unknown`] resolves
    /// nothing and is the error.
    ///
    /// An earlier attempt may still be on its way, because a call that timed out can arrive late.
    /// So `NotExecuted` needs more than "not found": the other side has voided the operation's key,
    /// or no attempt was made for longer than a request can travel.
    ///
    /// `false`: the operation isn't in flight, a process holds its lease, or it was resolved by a
    /// COMMIT whose acknowledgment was lost. Look the key up before trying again.
    pub async fn resolve(
        &self,
        operation: Uuid,
        decide: impl AsyncFnOnce(&E::Operation) -> CallOutcome<E::Answer>,
    ) -> Result<bool, Failure> {
        let taking_over = self.bounded(self.take_over_operation(operation));
        let Some(leased) = taking_over.await? else {
            return Ok(false);
        };
        let call_limit = self.settings.call_limit;
        let decided = tokio::time::timeout(call_limit, decide(&leased.operation))
            .await
            .unwrap_or_else(|_| {
                CallOutcome::Unknown(Failure::unavailable("nothing was decided in time"))
            });
        let certain = !matches!(decided, CallOutcome::Unknown(_));
        match self.complete(&leased, &decided, self.complete_by()).await? {
            CompletionOutcome::Completed(_) => Ok(true),
            CompletionOutcome::Failed(_) if certain => Ok(true),
            CompletionOutcome::Failed(failure) => Err(failure),
            CompletionOutcome::LeaseLost => Ok(false),
        }
    }

    /// Takes over one operation for a person, whose decision counts for all that was tried before.
    async fn take_over_operation(
        &self,
        operation: Uuid,
    ) -> Result<Option<LeasedOperation<E::Operation>>, Failure> {
        let mut connection = self.idempotency.pool.acquire(NO_ACCOUNT).await?;
        let since = Instant::now();
        let mut tx = connection.open(BEGIN_DURABLE).await?;
        let token = Uuid::new_v4();
        let taken =
            lease::take_over_operation(&mut tx, E::KIND, operation, token, &self.lease).await?;
        let leased = match taken {
            None => None,
            Some(taken) => {
                let until = taken.leased_until;
                let lease = Lease {
                    in_doubt: false,
                    ..taken_over::<E>(taken, token, since)
                };
                Some(self.read(&mut tx, lease, until).await?)
            }
        };
        commit(tx).await?;
        connection.release();
        Ok(leased)
    }

    async fn take_over_any(&self) -> Result<Option<(Lease, DateTime<Utc>)>, Failure> {
        let mut connection = self.idempotency.pool.acquire(NO_ACCOUNT).await?;
        let since = Instant::now();
        let mut tx = connection.open(BEGIN_DURABLE).await?;
        let token = Uuid::new_v4();
        let next = *lock(&self.next_turn);
        let taking = lease::take_over_any(&mut tx, E::KIND, next, token, &self.lease);
        let mut taken = taking.await?;
        if taken.is_none() && !next.is_nil() {
            // The round is over: it begins again with the first account.
            let first = Uuid::nil();
            taken = lease::take_over_any(&mut tx, E::KIND, first, token, &self.lease).await?;
        }
        if let Some(taken) = &taken {
            // This account had its turn: the next one is after it.
            let after = taken.account_id.as_u128().wrapping_add(1);
            *lock(&self.next_turn) = Uuid::from_u128(after);
        }
        commit(tx).await?;
        connection.release();
        Ok(taken.map(|taken| {
            let until = taken.leased_until;
            (taken_over::<E>(taken, token, since), until)
        }))
    }

    async fn read_aside(
        &self,
        lease: Lease,
        leased_until: DateTime<Utc>,
    ) -> Result<LeasedOperation<E::Operation>, Failure> {
        let mut connection = self.idempotency.pool.acquire(NO_ACCOUNT).await?;
        let mut tx = connection.open(BEGIN_DURABLE).await?;
        let leased = self.read(&mut tx, lease, leased_until).await?;
        commit(tx).await?;
        connection.release();
        Ok(leased)
    }
}

/// The lease of an operation that was taken over: its last holder may have sent it.
fn taken_over<E: ExternalEffect>(taken: TakenOperation, token: Uuid, since: Instant) -> Lease {
    Lease {
        account_id: taken.account_id,
        key: taken.key,
        kind: E::KIND,
        operation: taken.operation,
        token,
        since,
        in_doubt: true,
        taken_over: true,
    }
}
