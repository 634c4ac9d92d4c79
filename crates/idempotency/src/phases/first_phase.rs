//! A client's request in phases: its first transaction, or the takeover of an earlier one's
//! operation, and then the call and the completion.
//!
//! Promise: a request whose operation was lost to another process never begins a second one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Begin, ExternalEffect, LeasedOperation, Phases, in_doubt,
    lease::{self, Lease},
};
use crate::{
    Failure, GuardedConnection, Outcome, Rejection, Reply, Request, Verdict, acknowledged::commit,
    conclude, connection::BEGIN_DURABLE, in_flight::Leadership, transaction::Work,
};

/// How often a request claims its key again, after its operation was lost to another process or
/// ended before it could be taken over, until it says that the key is in use.
const ROUNDS_MAX: u32 = 3;

/// The longest that a duplicate is told to wait for a holder whose lease isn't over: it mostly ends
/// long before that, and the lease is for the case that its process has died.
const HOLDER_ENDS: Duration = Duration::from_secs(2);

/// The result of inspecting an operation that an earlier transaction left.
enum TakeOver<O> {
    /// Its lease was over, and is this request's now.
    Taken(LeasedOperation<O>),
    /// Its holder is at work, and has this much of its lease left.
    Held(Duration),
    /// It has ended, or another process was faster.
    Gone,
}

impl<E: ExternalEffect> Phases<E> {
    /// Runs a verb in phases, at most once for the request's account and key, and answers every
    /// duplicate with the first one's outcome. As with [`Idempotency::run`], a disconnect cancels
    /// nothing.
    ///
    /// [`Idempotency::run`]: crate::Idempotency::run
    pub async fn run<B: Begin>(&self, request: Request, begin: B) -> Outcome {
        let begin = Arc::new(begin);
        // For as long as the request lasts: it may lead again after it has waited for another
        // process.
        let may_begin = Arc::new(AtomicBool::new(true));
        self.idempotency
            .lead_or_follow(request.unsealed(), |_, request, leadership| {
                let (this, begin) = (self.clone(), Arc::clone(&begin));
                let may_begin = Arc::clone(&may_begin);
                Box::pin(async move {
                    let led = this.lead(&request, &*begin, &may_begin, &leadership, |_| ());
                    let conclusion = led.await;
                    conclude(&request, &leadership, conclusion)
                })
            })
            .await
    }

    /// Leads. `began` is told after each first transaction whether something held it up.
    pub(crate) async fn lead<B: Begin>(
        &self,
        request: &Request,
        begin: &B,
        may_begin: &AtomicBool,
        leadership: &Leadership,
        mut began: impl FnMut(bool) + Send,
    ) -> Outcome {
        let first = FirstPhase {
            phases: self,
            begin,
            may_begin,
        };
        for _ in 0..ROUNDS_MAX {
            // The first transaction commits what will be asked, and a lease on the key, before
            // anything is sent. After a crash, another process knows what may have been asked.
            let until = self.idempotency.answered_by();
            let led = self.idempotency.lead(request, &first, leadership, until);
            let led = led.await;
            began(matches!(
                led,
                Verdict::Answered(Outcome::InUse { .. } | Outcome::Failed(_))
            ));
            let leased = match led {
                Verdict::Pending(leased) => leased,
                // The key is in flight: of a process that works on it, or of one that is gone.
                Verdict::Answered(Outcome::Unfinished) => {
                    match self.bounded(self.take_over(request)).await {
                        Ok(TakeOver::Taken(leased)) => leased,
                        Ok(TakeOver::Held(left)) => {
                            let retry_after = Some(left.min(HOLDER_ENDS));
                            return Outcome::InUse { retry_after };
                        }
                        Ok(TakeOver::Gone) => continue,
                        // "Busy" would say that nothing was done, and that isn't known of this
                        // operation.
                        Err(failure) => return Outcome::Failed(in_doubt(failure)),
                    }
                }
                Verdict::Answered(conclusion) => return conclusion,
            };
            // No transaction is open during the call: it may take seconds, and would hold locks.
            let taken_over = leased.lease.taken_over;
            match self.call_and_complete(leased).await.conclusion(taken_over) {
                Some(conclusion) => return conclusion,
                // Another process completes the key. This request reads the outcome, and must not
                // begin the operation a second time if the key is gone by then.
                None => may_begin.store(false, Ordering::Relaxed),
            }
        }
        Outcome::IN_USE
    }

    /// Takes the operation over that holds the request's key, if its lease is over. Of many at once
    /// one succeeds.
    async fn take_over(&self, request: &Request) -> Result<TakeOver<E::Operation>, Failure> {
        let mut connection = self.idempotency.pool.acquire(request.account_id).await?;
        let since = Instant::now();
        let mut tx = connection.open(BEGIN_DURABLE).await?;
        let taken = match lease::read(&mut tx, request).await? {
            None => TakeOver::Gone,
            // The key was released and claimed by another request since this one read it.
            Some(found) if !found.belongs_to(request)? => TakeOver::Gone,
            Some(found) if !found.is_over => TakeOver::Held(lease::wait(found.seconds_left)),
            Some(found) => {
                let lease = Lease {
                    account_id: request.account_id,
                    key: request.key.as_str().to_owned(),
                    kind: E::KIND,
                    operation: found.operation,
                    token: Uuid::new_v4(),
                    since,
                    in_doubt: true,
                    taken_over: true,
                };
                match lease::take_over(&mut tx, &lease, found.token, &self.lease).await? {
                    Some(until) => TakeOver::Taken(self.read(&mut tx, lease, until).await?),
                    None => TakeOver::Gone,
                }
            }
        };
        commit(tx).await?;
        connection.release();
        Ok(taken)
    }
}

/// What the claiming transaction does for a verb in phases.
struct FirstPhase<'a, E, B> {
    phases: &'a Phases<E>,
    begin: &'a B,
    /// No more once this request has begun an operation and lost it: that operation's outcome
    /// counts, and this request must not begin another one.
    may_begin: &'a AtomicBool,
}

impl<E: ExternalEffect, B: Begin> Work for FirstPhase<'_, E, B> {
    type Pending = LeasedOperation<E::Operation>;

    async fn work(
        &self,
        tx: &mut GuardedConnection,
        request: &Request,
        began: Instant,
    ) -> Result<Verdict<Reply, Self::Pending>, Rejection> {
        if !self.may_begin.load(Ordering::Relaxed) {
            let released = "another process released the operation of this request";
            return Err(Rejection::Failed(Failure::unavailable(released)));
        }
        let lease = Lease::new(request, E::KIND, Uuid::now_v7(), began);
        match self.begin.begin(tx, lease.operation).await? {
            Verdict::Answered(reply) => Ok(Verdict::Answered(reply)),
            Verdict::Pending(resource_id) => {
                let effect = &self.phases.effect;
                let operation = effect.read(tx, lease.account_id, lease.operation).await?;
                // Last: after an error that was swallowed, this statement fails.
                let length = &self.phases.lease;
                let leased_until = lease::take(tx, &lease, length, resource_id.as_deref()).await?;
                Ok(Verdict::Pending(LeasedOperation {
                    lease,
                    leased_until,
                    operation,
                }))
            }
        }
    }
}
