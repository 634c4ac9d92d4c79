//! Add-on: one transaction for many requests, for commands that name the rows they need and decide
//! from them in memory.
//!
//! Promise: a batch changes what a request costs, and nothing else. Every key is claimed by the
//! unique index; outcomes are matched by account and key; no request is answered before COMMIT; and
//! a request that a batch can't serve runs as by [`Idempotency::run`], with the same decision.
//!
//! ```text
//! BEGIN                   the transaction's time, after the last member has joined
//! look                    where any member reads: completed keys are replays, which lock nothing
//! read                    locks and reads rows, a statement for each table, in 3 rounds at most
//! decide each member      in memory: it sees what the members before it have changed
//! INSERT … ON CONFLICT    all keys, with their outcomes: what returns is claimed
//! SELECT                  the keys that were not free: replays and reuses
//! write                   what the winners have changed, a statement for each table
//! COMMIT
//! ```
//!
//! The steps of [`Phases`](crate::Phases) are members too, by [`SharedPhases`]: a first step claims
//! its key with a lease instead of an outcome, and a last one ends its lease before it reads.
//!
//! A claim can be lost after other members have seen what its request would change. Then nothing is
//! written, and all members run alone.
//!
//! Batches form by themselves: while one is prepared, the next gathers, and it is prepared while
//! that one commits. No timer, and no wait when idle. A batch of one takes three round trips
//! less than a request alone.

mod alone;
mod claims;
mod decide;
mod held_rows;
mod member;
mod observer;
mod phased;
mod prepare;
mod queue;
mod transaction;

use std::{future::Future, sync::Arc, time::Duration};

use chrono::Utc;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tracing::{Span, field::Empty};

use crate::{
    Failure, Idempotency, Outcome, Rejection, Request, RunAgain, conclude,
    in_flight::Leadership,
    observer::Unobserved,
    trace::{self, trace_span},
};
use alone::Alone;
use held_rows::HeldRows;
use member::{Decider, Ended, Member, Stage};
use queue::{Queue, Taken};
use transaction::Batch;

pub use decide::{Decide, Decision, Rows, read_rounds, transaction_time};
pub use observer::{BatchObserver, RanAlone};
pub use phased::{Begun, FirstVerdict, SharedBegin, SharedEffect, SharedPhases};

/// How long a worker waits for its turn, while another one prepares a batch: longer than a claim
/// waits for a key, so that a batch which hangs holds up no other.
const TURN_WAIT: Duration = Duration::from_millis(25);

/// How batches run.
#[derive(Debug, Clone, Copy)]
pub struct BatchSettings {
    /// Connections of their own, beside the pool: 2. More of them make smaller batches. With 0, no
    /// requests share a transaction: each is a batch of one, on a connection of the pool.
    pub connections: u32,
    /// The longest that a batch may take until it commits: 1 second. Then its requests run alone.
    /// It takes half of [`Settings::database_deadline`](crate::Settings::database_deadline) at
    /// most, which leaves COMMIT the other half. A batch of one has the whole deadline, as a
    /// request alone.
    pub prepare_limit: Duration,
}

impl BatchSettings {
    fn prepare_limit_within(&self, database_deadline: Duration) -> Duration {
        self.prepare_limit.min(database_deadline / 2)
    }
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            connections: 2,
            prepare_limit: Duration::from_secs(1),
        }
    }
}

/// Runs commands in batches. Cheap to clone; all clones share the batches.
pub struct Batches<R: Rows> {
    shared: Arc<Shared<R>>,
    /// `None`: every batch is one request.
    queue: Option<Arc<OpenQueue<R>>>,
}

impl<R: Rows> Clone for Batches<R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            queue: self.queue.clone(),
        }
    }
}

/// What the batches, and the requests that want to join them, have in common.
struct Shared<R: Rows> {
    idempotency: Idempotency,
    observer: Arc<dyn BatchObserver>,
    /// [`BatchSettings::prepare_limit`], and never more than half of the deadline.
    prepare_limit: Duration,
    queue: Queue<Member<R>>,
    turns: Arc<Semaphore>,
    held_rows: HeldRows<R::Name>,
    alone: Alone,
}

/// Closes the queue when it is dropped, so that its workers end.
struct OpenQueue<R: Rows>(Arc<Shared<R>>);

impl<R: Rows> Drop for OpenQueue<R> {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl<R: Rows> Batches<R> {
    /// Runs batches of commands for `idempotency`. Panics outside a Tokio runtime.
    pub fn new(idempotency: &Idempotency, settings: BatchSettings) -> Self {
        Self::observed(idempotency, settings, Arc::new(Unobserved))
    }

    /// Runs batches as [`Batches::new`] does, and tells `observer` what happens to them.
    pub fn observed(
        idempotency: &Idempotency,
        settings: BatchSettings,
        observer: Arc<dyn BatchObserver>,
    ) -> Self {
        // A request alone waits as long for a connection.
        let patience = idempotency.pool.pool().options().get_acquire_timeout();
        let shared = Arc::new(Shared {
            idempotency: idempotency.clone(),
            observer,
            prepare_limit: settings.prepare_limit_within(idempotency.settings.database_deadline),
            queue: Queue::new(patience),
            turns: Arc::new(Semaphore::new(1)),
            held_rows: HeldRows::default(),
            alone: Alone::default(),
        });
        for _ in 0..settings.connections {
            idempotency.runtime.spawn(Arc::clone(&shared).work());
        }
        let open = || Arc::new(OpenQueue(Arc::clone(&shared)));
        let queue = (settings.connections > 0).then(open);
        Self { shared, queue }
    }

    /// Runs `command` at most once for the request's account and key, as [`Idempotency::run`] does,
    /// in one transaction with others.
    pub async fn run<C: Decide<Rows = R>>(&self, request: Request, command: C) -> Outcome {
        let command = Arc::new(command);
        let idempotency = &self.shared.idempotency;
        let running = idempotency.lead_or_follow(request, |_, request, leadership| {
            let (this, command) = (self.clone(), Arc::clone(&command));
            Box::pin(async move {
                let leadership = Arc::new(leadership);
                let conclusion = this.lead(&request, command, &leadership).await;
                conclude(&request, &leadership, conclusion)
            })
        });
        running.await
    }

    /// How many requests wait for a batch now. For display only.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }

    async fn lead<C: Decide<Rows = R>>(
        &self,
        request: &Request,
        command: Arc<C>,
        leadership: &Arc<Leadership>,
    ) -> Outcome {
        let idempotency = &self.shared.idempotency;
        let until = idempotency.answered_by();
        let mut because = RanAlone::Undecided;
        if command.is_shared() {
            let joining = (Arc::clone(&command) as _, Stage::Whole, command.weight());
            match self.join(request, joining, leadership, until).await {
                Ok(Ended::Concluded(conclusion)) => return conclusion,
                // No step of phases is run here.
                Ok(Ended::Undecided | Ended::Begun(_) | Ended::LeaseLost) => {}
                Err(why) => because = why,
            }
        }
        // In a box: nearly every request is concluded by its batch and pays for none of this state.
        let execute = idempotency.execute(request, &*command, leadership, until);
        self.run_alone(request, because, Box::pin(execute)).await
    }

    /// Runs a step of a request in a batch, by itself where no requests share transactions. After
    /// an error, or undecided, the request is to run in a transaction of its own.
    async fn join(
        &self,
        request: &Request,
        (command, step, bytes): (Arc<dyn Decider<R>>, Stage, usize),
        leadership: &Arc<Leadership>,
        until: Instant,
    ) -> Result<Ended, RanAlone> {
        let deciding = (command, step);
        if self.queue.is_none() {
            return Box::pin(self.join_none(request, deciding, leadership, until)).await;
        }
        let account = request.account_id;
        if self.shared.alone.holds(account) {
            return Err(RanAlone::AccountHeldUp);
        }
        let span = trace_span!("wait for batch", "idempotency.requests" = Empty);
        let (member, answered) = Member::new(request, deciding, leadership, span.clone());
        if !self.shared.queue.push(account, bytes, member) {
            let full = Failure::unavailable("too many requests wait for a batch");
            return Ok(Ended::Concluded(Outcome::Failed(full)));
        }
        match trace::step(span, timeout_at(until, answered), how_batch_ended).await {
            // An error: the batch failed. It is not known yet which of its members is to blame.
            Ok(answered) => answered.map_err(|_| RanAlone::BatchFailed),
            // Each step of a batch has a limit, so this one is stuck, and may still commit.
            Err(_) => {
                let stuck = "no answer from a batch in time, the outcome is unknown";
                Ok(Ended::Concluded(Outcome::Failed(Failure {
                    is_unknown: true,
                    ..Failure::unavailable(stuck)
                })))
            }
        }
    }

    /// Runs one step of a request as a batch, on a connection of the pool.
    async fn join_none(
        &self,
        request: &Request,
        (command, step): (Arc<dyn Decider<R>>, Stage),
        leadership: &Arc<Leadership>,
        until: Instant,
    ) -> Result<Ended, RanAlone> {
        let rows = R::default();
        if command.reads(&rows).is_empty()
            && let Err(Rejection::Failed(_)) = command.decide(&rows, Utc::now())
        {
            // It decides nothing in the transaction either, which is not begun for that.
            return Ok(Ended::Undecided);
        }
        let (member, answered) = Member::new(request, (command, step), leadership, Span::none());
        match transaction::run_one(&self.shared, member, until).await {
            Ok(()) => answered.await.map_err(|_| RanAlone::Undecided),
            Err(failure) if failure.run_again == RunAgain::Never => {
                Ok(Ended::Concluded(Outcome::Failed(failure)))
            }
            Err(_) => Err(RanAlone::BatchFailed),
        }
    }

    async fn run_alone(
        &self,
        request: &Request,
        because: RanAlone,
        running: impl Future<Output = Outcome>,
    ) -> Outcome {
        let shared = &*self.shared;
        shared.observer.ran_alone(because);
        match because {
            RanAlone::Undecided => running.await,
            RanAlone::BatchFailed | RanAlone::AccountHeldUp => {
                shared.alone.run(request.account_id, because, running).await
            }
        }
    }
}

/// What the span of a request's wait for its batch says; `None`: the batch failed, or is stuck.
fn how_batch_ended<E, L>(answered: &Result<Result<Ended, E>, L>) -> Option<&'static str> {
    match answered {
        Ok(Ok(Ended::Concluded(Outcome::Failed(_))) | Err(_)) | Err(_) => None,
        Ok(Ok(Ended::Concluded(_))) => Some("concluded"),
        Ok(Ok(Ended::Begun(_))) => Some("begun"),
        Ok(Ok(Ended::LeaseLost)) => Some("lease_lost"),
        Ok(Ok(Ended::Undecided)) => Some("undecided"),
    }
}

impl<R: Rows> Shared<R> {
    /// Runs one batch after the other until the queue is closed, in turns with other workers.
    async fn work(self: Arc<Self>) {
        let mut connection = None;
        loop {
            // Two batches that are prepared at once are two small ones, and cost more than a large
            // one.
            let turn = timeout(TURN_WAIT, Arc::clone(&self.turns).acquire_owned()).await;
            let Some(Taken {
                batch: members,
                late,
            }) = self.queue.next().await
            else {
                return;
            };
            for member in late {
                let overloaded = "no batch had room for the request in time";
                member.conclude(Outcome::Failed(Failure::unavailable(overloaded)));
            }
            if members.is_empty() {
                continue;
            }
            let batch = Batch {
                shared: Arc::clone(&self),
                connection,
                turn: turn.ok().and_then(Result::ok),
            };
            // In a task of its own: a panic ends this batch, whose members run alone, and not the
            // worker.
            let ended = tokio::spawn(batch.run(members)).await;
            connection = ended.unwrap_or_else(|panicked| {
                tracing::error!(%panicked, "a batch panicked");
                None
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_leaves_commit_half_of_the_deadline() {
        let settings = BatchSettings::default();
        for (deadline, limit) in [(5_000, 1_000), (2_000, 1_000), (1_200, 600), (0, 0)] {
            assert_eq!(
                settings.prepare_limit_within(Duration::from_millis(deadline)),
                Duration::from_millis(limit)
            );
        }
    }
}
