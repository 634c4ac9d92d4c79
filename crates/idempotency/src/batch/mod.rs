//! Add-on: one transaction for many requests, for commands that decide without reading.
//!
//! Promise: a batch changes what a request costs, and nothing else. Every key is claimed by the
//! unique index; outcomes are matched by account and key; no request is answered before COMMIT; and
//! a request that a batch can't serve runs as by [`Idempotency::run`], with the same decision.
//!
//! ```text
//! BEGIN                   the transaction's time, after the last member has joined
//! decide each member      pure: from its parameters and that time
//! INSERT … ON CONFLICT    all keys, with their outcomes: what returns is claimed
//! SELECT                  the keys that were not free: replays and reuses
//! INSERT …                the rows of the claims that were won
//! COMMIT
//! ```
//!
//! Batches form by themselves: while one is prepared, the next gathers, and it is prepared while
//! that one commits. No timer, and no wait when idle. A batch of one takes two round trips less
//! than a request alone.

mod alone;
mod claims;
mod member;
mod observer;
mod queue;
mod transaction;

use std::{future::Future, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tracing::{Span, field::Empty};

use crate::{
    Command, Failure, Idempotency, Outcome, Rejection, Reply, Request, RunAgain, conclude,
    in_flight::Leadership,
    observer::Unobserved,
    trace::{self, trace_span},
};
use alone::Alone;
use member::{Ended, Member};
use queue::{Queue, Taken};
use transaction::Batch;

pub use member::{Decision, Rows};
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

/// A command that can decide from its parameters and the time alone. Such a command is a
/// [`Command`], too: requests that a batch can't serve run in a transaction of their own.
pub trait Decide: Send + Sync + 'static {
    /// What it writes.
    type Rows: Rows;

    /// Decides, without a side effect: it may be asked again. `now` is the transaction's time,
    /// which `now()` says in it. A failure decides nothing: the request runs alone, and may end
    /// otherwise.
    fn decide(&self, now: DateTime<Utc>) -> Result<Decision<Self::Rows>, Rejection>;

    /// Decides in a transaction of the request's own, where a command may read and wait as in
    /// [`Command::execute`]. It may also write: what it has written itself is not among the rows
    /// that it returns. A command for which [`Decide::decide`] always suffices doesn't write this.
    fn decide_alone(
        &self,
        tx: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> impl Future<Output = Result<Decision<Self::Rows>, Rejection>> + Send {
        let _ = tx;
        async move { self.decide(now) }
    }

    /// How much it asks for, in bytes, to bound what one batch writes.
    fn weight(&self) -> usize;
}

/// The same decision, and the same rows, in a transaction that has claimed the key already.
impl<D: Decide> Command for D {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let now = claims::now(tx).await?;
        let Decision { reply, rows } = self.decide_alone(tx, now).await?;
        if let Some(rows) = rows {
            D::Rows::write(tx, vec![rows]).await?;
        }
        Ok(reply)
    }
}

/// Runs commands in batches. Cheap to clone; all clones share the batches.
pub struct Batches<R: Rows> {
    idempotency: Idempotency,
    /// `None`: every batch is one request.
    queue: Option<Arc<OpenQueue<R>>>,
    alone: Alone,
    observer: Arc<dyn BatchObserver>,
}

impl<R: Rows> Clone for Batches<R> {
    fn clone(&self) -> Self {
        Self {
            idempotency: self.idempotency.clone(),
            queue: self.queue.clone(),
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
        let prepare_limit = settings.prepare_limit_within(idempotency.settings.database_deadline);
        for _ in 0..settings.connections {
            let worker = Worker {
                idempotency: idempotency.clone(),
                prepare_limit,
                queue: queue.clone(),
                turns: Arc::clone(&turns),
                observer: Arc::clone(&observer),
            };
            idempotency.runtime.spawn(worker.work());
        }
        Self {
            idempotency: idempotency.clone(),
            queue: (settings.connections > 0).then(|| Arc::new(OpenQueue(queue))),
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

    /// Runs one request as a batch, on a connection of the pool. `None`: it must run as one that
    /// reads, locks and decides.
    async fn lead_batch_of_one<C: Decide<Rows = R>>(
        &self,
        request: &Request,
        command: &Arc<C>,
        leadership: &Arc<Leadership>,
        until: Instant,
    ) -> Option<Outcome> {
        if let Err(Rejection::Failed(_)) = command.decide(Utc::now()) {
            // It decides nothing in the transaction either, which is not begun for that.
            self.observer.ran_alone(RanAlone::Undecided);
            return None;
        }
        let deciding = Arc::clone(command);
        let (member, answered) = Member::new(request, deciding, leadership, Span::none());
        let batch = transaction::run_one(&self.idempotency, &*self.observer, member, until);
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
