//! Add-on: one transaction for many requests, for commands that decide without reading.
//!
//! Promise: a batch changes what a request costs, and nothing else. Every key is claimed by the unique
//! index; outcomes are matched by account and key; no request is answered before COMMIT; and a request
//! that a batch can't serve runs alone, by [`Idempotency::run`].
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
//! Batches form by themselves: while one commits, the next gathers. No timer, and no wait when idle. A
//! batch of one takes two round trips less than a request alone.

mod alone;
mod claims;
mod queue;

use std::{future::Future, sync::Arc, time::Duration};

use alone::Alone;
use chrono::{DateTime, Utc};
use queue::Queue;
use sqlx::PgConnection;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    Command, Failure, Idempotency, Outcome, Record, Rejection, Reply, Request,
    claim::{self, Found},
    conclude,
    in_flight::{Conclusion, Leadership},
    reply::is_rolled_back,
    transaction::compare,
};

/// The longest that a batch may take until it commits. Then its members run alone, and have most of
/// their time left.
const PREPARE_LIMIT: Duration = Duration::from_secs(1);

/// What an application writes for one request: rows that are decided, of whatever tables.
pub trait Rows: Send + Sized + 'static {
    /// Writes the rows of many requests, with a statement for each table rather than for each row. It
    /// neither begins nor commits, and fails if a row is not written.
    fn write(
        tx: &mut PgConnection,
        rows: Vec<Self>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A command that can decide from its parameters and the time alone.
///
/// Its [`Command::execute`] does the same in a transaction of its own: for requests that a batch can't
/// serve.
pub trait Decide: Command {
    /// What it writes.
    type Rows: Rows;

    /// Decides, without a side effect: it may be asked again. `now` is the transaction's time, which
    /// `now()` says in it. A failure decides nothing: the request runs alone, and may end otherwise.
    fn decide(&self, now: DateTime<Utc>) -> Result<Decision<Self::Rows>, Rejection>;

    /// How much it asks for, in bytes, to bound what one batch writes.
    fn weight(&self) -> usize;
}

/// A definite outcome, before anything is written.
#[derive(Debug)]
pub struct Decision<R> {
    /// The answer to save.
    pub reply: Reply,
    /// What to write with it; nothing for a refusal.
    pub rows: Option<R>,
}

/// Runs commands in batches. Cheap to clone; all clones share the batches.
pub struct Batches<R: Rows> {
    idempotency: Idempotency,
    queue: Arc<OpenQueue<R>>,
    alone: Alone,
}

impl<R: Rows> Clone for Batches<R> {
    fn clone(&self) -> Self {
        Self {
            idempotency: self.idempotency.clone(),
            queue: Arc::clone(&self.queue),
            alone: self.alone.clone(),
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

/// A request in a batch. Dropped without an answer, it runs alone: that is how it ends wherever a batch
/// fails before COMMIT.
struct Member<R> {
    request: Request,
    decide: Decider<R>,
    leadership: Arc<Leadership>,
    joined: Instant,
    answer: oneshot::Sender<Ended>,
}

/// Decides for a command of any type.
type Decider<R> = Box<dyn Fn(DateTime<Utc>) -> Result<Decision<R>, Rejection> + Send>;

/// How a request left its batch.
enum Ended {
    Concluded(Conclusion),
    /// It takes more than a batch does, and did no harm to this one.
    Undecided,
}

/// A member with its outcome.
struct Decided<R> {
    member: Member<R>,
    decision: Decision<R>,
}

impl<R: Rows> Batches<R> {
    /// Runs batches of commands for `idempotency`, each on one of so many connections of its own beside
    /// the pool. Panics outside a Tokio runtime.
    pub fn new(idempotency: &Idempotency, connections: u32) -> Self {
        let queue = Queue::new();
        for _ in 0..connections.max(1) {
            idempotency
                .runtime
                .spawn(work(idempotency.clone(), queue.clone()));
        }
        Self {
            idempotency: idempotency.clone(),
            queue: Arc::new(OpenQueue(queue)),
            alone: Alone::with(idempotency.pool.pool().options().get_max_connections()),
        }
    }

    /// Runs `command` at most once for the request's account and key, as [`Idempotency::run`] does, in
    /// one transaction with others.
    pub async fn run<C: Decide<Rows = R>>(&self, request: Request, command: C) -> Outcome {
        let command = Arc::new(command);
        self.idempotency
            .lead_or_follow(request, |_, request, leadership| {
                let (this, command) = (self.clone(), Arc::clone(&command));
                async move {
                    let leadership = Arc::new(leadership);
                    let conclusion = this.lead(&request, command, &leadership).await;
                    conclude(&request, &leadership, conclusion)
                }
            })
            .await
    }

    /// How many requests wait for a batch now. For display only.
    pub fn waiting(&self) -> usize {
        self.queue.0.len()
    }

    async fn lead<C: Decide<Rows = R>>(
        &self,
        request: &Request,
        command: Arc<C>,
        leadership: &Arc<Leadership>,
    ) -> Conclusion {
        let until = self.idempotency.answered_by();
        let account = request.account_id;
        let execute = self
            .idempotency
            .execute(request, &*command, leadership, until);
        if !self.alone.holds(account) {
            let (answer, answered) = oneshot::channel();
            let (deciding, bytes) = (Arc::clone(&command), command.weight());
            let member = Member {
                request: request.clone(),
                decide: Box::new(move |now| deciding.decide(now)),
                leadership: Arc::clone(leadership),
                joined: Instant::now(),
                answer,
            };
            if !self.queue.0.push(account, bytes, member) {
                let full = "too many requests wait for a batch";
                return Conclusion::Failed(Failure::unavailable(full));
            }
            match answered.await {
                Ok(Ended::Concluded(conclusion)) => return conclusion,
                Ok(Ended::Undecided) => return execute.await,
                // The batch failed. It is not known yet which of its members is to blame.
                Err(_) => {}
            }
        }
        self.alone.run(account, until, execute).await
    }
}

/// Runs batches until the queue is closed.
async fn work<R: Rows>(idempotency: Idempotency, queue: Queue<Member<R>>) {
    let mut connection = None;
    while let Some(members) = queue.next().await {
        let batch = Batch {
            idempotency: idempotency.clone(),
            connection,
        };
        // In a task of its own: a panic ends this batch, whose members run alone, and not the worker.
        let ended = tokio::spawn(batch.run(members)).await;
        connection = ended.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "a batch panicked");
            None
        });
    }
}

/// One transaction.
struct Batch {
    idempotency: Idempotency,
    /// That of the batch before, if it is clean: no transaction is open on it.
    connection: Option<PgConnection>,
}

impl Batch {
    /// Runs the batch. Returns the connection if it is clean.
    async fn run<R: Rows>(mut self, members: Vec<Member<R>>) -> Option<PgConnection> {
        let members = self.in_time(members);
        let committed_by = Instant::now() + self.idempotency.settings.database_deadline;
        let prepared_by = committed_by.min(Instant::now() + PREPARE_LIMIT);
        let begun = timeout_at(prepared_by, self.begin()).await;
        // Dropped, the members run alone, and find out themselves what is wrong.
        let (mut connection, now) = begun.ok()?.ok()?;
        let preparing = self.prepare(&mut connection, now, members);
        let won = match timeout_at(prepared_by, preparing).await {
            Ok(Ok(won)) if won.is_empty() => return rolled_back(connection).await,
            Ok(Ok(won)) => won,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a batch failed; its requests run alone");
                return rolled_back(connection).await;
            }
            Err(_) => return None,
        };
        let unknown = match timeout_at(committed_by, claims::commit(&mut connection)).await {
            Ok(Ok(())) => {
                for (member, record) in won {
                    member.conclude(Conclusion::Stored {
                        record: Arc::new(record),
                        replayed: false,
                    });
                }
                return Some(connection);
            }
            Ok(Err(error)) if is_rolled_back(&error) => return rolled_back(connection).await,
            Ok(Err(error)) => Failure::of_commit(error),
            Err(_) => Failure::deadline(true),
        };
        for (member, _) in won {
            member.conclude(Conclusion::Failed(unknown.clone()));
        }
        None
    }

    /// Those that have not waited too long. A request alone waits as long for a connection.
    fn in_time<R>(&self, members: Vec<Member<R>>) -> Vec<Member<R>> {
        let patience = self.idempotency.pool.pool().options().get_acquire_timeout();
        let (late, in_time): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|member| member.joined.elapsed() > patience);
        for member in late {
            let overloaded = "no batch had room for the request in time";
            member.conclude(Conclusion::Failed(Failure::unavailable(overloaded)));
        }
        in_time
    }

    /// Begins a transaction: on the connection of the last batch, or on a new one where that is dead.
    async fn begin(&mut self) -> Result<(PgConnection, DateTime<Utc>), sqlx::Error> {
        if let Some(mut connection) = self.connection.take()
            && let Ok(now) = claims::begin(&mut connection).await
        {
            return Ok((connection, now));
        }
        let options = self.idempotency.pool.pool().connect_options();
        let mut connection = claims::connect(&options).await?;
        let now = claims::begin(&mut connection).await?;
        Ok((connection, now))
    }

    /// Everything but COMMIT. Returns the members whose keys were free, with their records; the others
    /// have their answer, or run alone.
    async fn prepare<R: Rows>(
        &self,
        tx: &mut PgConnection,
        now: DateTime<Utc>,
        members: Vec<Member<R>>,
    ) -> Result<Vec<(Member<R>, Record)>, sqlx::Error> {
        let mut decided = Vec::new();
        for member in members {
            let decision = match (member.decide)(now) {
                Ok(decision) => decision,
                Err(Rejection::Refused(reply)) => Decision { reply, rows: None },
                Err(Rejection::Failed(_)) => {
                    member.end(Ended::Undecided);
                    continue;
                }
            };
            decided.push(Decided { member, decision });
        }
        if decided.is_empty() {
            return Ok(Vec::new());
        }
        // No two of them share a key: in this process only one request with a key leads.
        decided.sort_by_cached_key(|one| claims::id(&one.member.request));
        let claiming: Vec<_> = decided
            .iter()
            .map(|one| (&one.member.request, &one.decision.reply))
            .collect();
        let mut claimed = claims::insert(tx, &claiming, &self.idempotency.retention).await?;

        let (mut won, mut lost, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for Decided { member, decision } in decided {
            match claimed.remove(&claims::id(&member.request)) {
                Some(expires_at) => {
                    member.leadership.executing();
                    rows.extend(decision.rows);
                    let record = record(&member.request, decision.reply, now, expires_at);
                    won.push((member, record));
                }
                None => lost.push(member),
            }
        }
        if !lost.is_empty() {
            answer_lost(tx, lost).await?;
        }
        if !rows.is_empty() {
            R::write(tx, rows).await?;
        }
        Ok(won)
    }
}

impl<R> Member<R> {
    fn conclude(self, conclusion: Conclusion) {
        self.end(Ended::Concluded(conclusion));
    }

    /// Leaves the batch. The task that waits ends only with the runtime.
    fn end(self, ended: Ended) {
        drop(self.answer.send(ended));
    }
}

/// Ends a transaction that wrote nothing to keep. The connection is good if that is acknowledged.
async fn rolled_back(mut connection: PgConnection) -> Option<PgConnection> {
    let ended = timeout(PREPARE_LIMIT, claims::rollback(&mut connection)).await;
    matches!(ended, Ok(Ok(()))).then_some(connection)
}

/// Answers members whose keys have rows. A record that is expired, unfinished, or gone since is left to
/// the request alone.
async fn answer_lost<R>(tx: &mut PgConnection, lost: Vec<Member<R>>) -> Result<(), sqlx::Error> {
    let requests: Vec<_> = lost.iter().map(|member| &member.request).collect();
    let mut found = claim::read_all(tx, &requests).await?;
    for member in lost {
        match found.remove(&claims::id(&member.request)) {
            Some(Found::Completed(record)) => {
                let compared = compare(&member.request, record);
                member.conclude(compared.unwrap_or_else(Conclusion::Failed));
            }
            Some(Found::Expired | Found::Unfinished(_)) | None => member.end(Ended::Undecided),
        }
    }
    Ok(())
}

/// The record that was written for a request, as it would be read.
fn record(
    request: &Request,
    reply: Reply,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> Record {
    Record {
        reply,
        request_id: request.request_id.clone(),
        method: request.method.clone(),
        path: request.path.clone(),
        label: request.label.clone(),
        fingerprint_version: request.fingerprint.version(),
        fingerprint: request.fingerprint.bytes().to_vec(),
        created_at,
        expires_at,
    }
}
