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
mod prepare;
mod queue;
mod transaction;

use std::{sync::Arc, time::Duration};

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
use member::{Ended, Member};
use queue::{Queue, Taken};
use transaction::Batch;

pub use decide::{Decide, Decision, Rows, read_rounds, transaction_time};
pub use observer::{BatchObserver, RanAlone};

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
    idempotency: Idempotency,
    /// `None`: every batch is one request.
    queue: Option<Arc<OpenQueue<R>>>,
    held_rows: HeldRows<R::Name>,
    alone: Alone,
    observer: Arc<dyn BatchObserver>,
}

impl<R: Rows> Clone for Batches<R> {
    fn clone(&self) -> Self {
        Self {
            idempotency: self.idempotency.clone(),
            queue: self.queue.clone(),
            held_rows: self.held_rows.clone(),
            alone: self.alone.clone(),
            observer: Arc::clone(&self.observer),
        }
    }
}

/// A queue that is closed when it is dropped, so that its workers end.
struct OpenQueue<R>(Queue<Member<R>>);

impl<R> Drop for OpenQueue<R> {
    fn drop(&mut self) {
        self.0.close();
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
        let queue = Queue::new(patience);
        let turns = Arc::new(Semaphore::new(1));
        let held_rows = HeldRows::default();
        let prepare_limit = settings.prepare_limit_within(idempotency.settings.database_deadline);
        for _ in 0..settings.connections {
            let worker = Worker {
                idempotency: idempotency.clone(),
                prepare_limit,
                queue: queue.clone(),
                turns: Arc::clone(&turns),
                held_rows: held_rows.clone(),
                observer: Arc::clone(&observer),
            };
            idempotency.runtime.spawn(worker.work());
        }
        Self {
            idempotency: idempotency.clone(),
            queue: (settings.connections > 0).then(|| Arc::new(OpenQueue(queue))),
            held_rows,
            alone: Alone::default(),
            observer,
        }
    }

    /// Runs `command` at most once for the request's account and key, as [`Idempotency::run`] does,
    /// in one transaction with others.
    pub async fn run<C: Decide<Rows = R>>(&self, request: Request, command: C) -> Outcome {
        let command = Arc::new(command);
        self.idempotency
            .lead_or_follow(request, |_, request, leadership| {
                let (this, command) = (self.clone(), Arc::clone(&command));
                Box::pin(async move {
                    let leadership = Arc::new(leadership);
                    let conclusion = this.lead(&request, command, &leadership).await;
                    conclude(&request, &leadership, conclusion)
                })
            })
            .await
    }

    /// How many requests wait for a batch now. For display only.
    pub fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.0.len())
    }

    async fn lead<C: Decide<Rows = R>>(
        &self,
        request: &Request,
        command: Arc<C>,
        leadership: &Arc<Leadership>,
    ) -> Outcome {
        let until = self.idempotency.answered_by();
        let account = request.account_id;
        // In boxes: nearly every request is concluded by its batch and pays for none of this state.
        let execute = || {
            let idempotency = &self.idempotency;
            Box::pin(idempotency.execute(request, &*command, leadership, until))
        };
        if !command.is_shared() {
            self.observer.ran_alone(RanAlone::Undecided);
            return execute().await;
        }
        let Some(queue) = &self.queue else {
            let decided = self.lead_batch_of_one(request, &command, leadership, until);
            return match Box::pin(decided).await {
                Some(conclusion) => conclusion,
                None => execute().await,
            };
        };
        let mut because = RanAlone::AccountHeldUp;
        if !self.alone.holds(account) {
            because = RanAlone::BatchFailed;
            let bytes = command.weight();
            let span = trace_span!("wait for batch", "idempotency.requests" = Empty);
            let deciding = Arc::clone(&command);
            let (member, answered) = Member::new(request, deciding, leadership, span.clone());
            if !queue.0.push(account, bytes, member) {
                let full = "too many requests wait for a batch";
                return Outcome::Failed(Failure::unavailable(full));
            }
            match trace::step(span, timeout_at(until, answered), how_batch_ended).await {
                Ok(Ok(Ended::Concluded(conclusion))) => return conclusion,
                Ok(Ok(Ended::Undecided)) => {
                    self.observer.ran_alone(RanAlone::Undecided);
                    return execute().await;
                }
                // The batch failed. It is not known yet which of its members is to blame.
                Ok(Err(_)) => {}
                // Each step of a batch has a limit, so this one is stuck, and may still commit.
                Err(_) => {
                    let stuck = "no answer from a batch in time, the outcome is unknown";
                    return Outcome::Failed(Failure {
                        is_unknown: true,
                        ..Failure::unavailable(stuck)
                    });
                }
            }
        }
        self.observer.ran_alone(because);
        self.alone.run(account, because, execute()).await
    }

    /// Runs one request as a batch, on a connection of the pool. `None`: it must run in a
    /// transaction that claims its key first.
    async fn lead_batch_of_one<C: Decide<Rows = R>>(
        &self,
        request: &Request,
        command: &Arc<C>,
        leadership: &Arc<Leadership>,
        until: Instant,
    ) -> Option<Outcome> {
        let rows = R::default();
        if command.reads(&rows).is_empty()
            && let Err(Rejection::Failed(_)) = command.decide(&rows, Utc::now())
        {
            // It decides nothing in the transaction either, which is not begun for that.
            self.observer.ran_alone(RanAlone::Undecided);
            return None;
        }
        let deciding = Arc::clone(command);
        let (member, answered) = Member::new(request, deciding, leadership, Span::none());
        let (idempotency, observer) = (&self.idempotency, &*self.observer);
        let batch = transaction::run_one(idempotency, observer, &self.held_rows, member, until);
        let because = match batch.await {
            Ok(()) => match answered.await {
                Ok(Ended::Concluded(conclusion)) => return Some(conclusion),
                Ok(Ended::Undecided) | Err(_) => RanAlone::Undecided,
            },
            Err(failure) if failure.run_again == RunAgain::Never => {
                return Some(Outcome::Failed(failure));
            }
            Err(_) => RanAlone::BatchFailed,
        };
        self.observer.ran_alone(because);
        None
    }
}

/// What the span of a request's wait for its batch says; `None`: the batch failed, or is stuck.
fn how_batch_ended<E, L>(answered: &Result<Result<Ended, E>, L>) -> Option<&'static str> {
    match answered {
        Ok(Ok(Ended::Concluded(Outcome::Failed(_))) | Err(_)) | Err(_) => None,
        Ok(Ok(Ended::Concluded(_))) => Some("concluded"),
        Ok(Ok(Ended::Undecided)) => Some("undecided"),
    }
}

/// Runs one batch after the other.
struct Worker<R: Rows> {
    idempotency: Idempotency,
    prepare_limit: Duration,
    queue: Queue<Member<R>>,
    turns: Arc<Semaphore>,
    held_rows: HeldRows<R::Name>,
    observer: Arc<dyn BatchObserver>,
}

impl<R: Rows> Worker<R> {
    /// Runs batches until the queue is closed, in turns with the other workers.
    async fn work(self) {
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
                idempotency: self.idempotency.clone(),
                observer: Arc::clone(&self.observer),
                held_rows: self.held_rows.clone(),
                connection,
                prepare_limit: self.prepare_limit,
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
