//! What is refused at once because too many requests are in progress.
//!
//! Promise: a request that is refused here was never claimed, so its key is as free as before, and it is
//! told so within [`LOOK_UP_WAIT`], however the database is doing. Duplicates of a request in progress are
//! not counted and still follow it. A key that has a record is still answered by it. One task reads the
//! records, many with one statement, on one connection at a time: [`FairPool`] keeps one from new work.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};
use uuid::Uuid;

use crate::{
    Failure, FairPool, Idempotency, Outcome, Request,
    claim::{self, Found},
    fair_pool::LOOK_UPS,
    in_flight::{Conclusion, EntryId},
};

/// How long a request that is to be refused waits for what a record of its key says. Reads take less than a
/// hundredth of it.
const LOOK_UP_WAIT: Duration = Duration::from_millis(250);

/// Keys whose records are read with one statement: few, because a reply may have a hundred kilobytes.
const BATCH_KEYS: usize = 32;

/// Keys that wait for their statement. What comes beyond them is refused without a look. Duplicates of a key
/// share its look; the server's connections bound how many there are.
const WAITING_KEYS_MAX: usize = 2_048;

/// How long no request looks after a look without an answer: the database is slower than its clients' patience,
/// and each look that is cut off costs a connection.
const NO_LOOK_UPS_FOR: Duration = Duration::from_secs(1);

/// How many requests may be in progress in this process, from the moment that they begin to wait for a connection
/// until they have an outcome. Duplicates are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InProgressLimits {
    /// Of one account.
    pub per_account: usize,
    /// In all.
    pub in_all: usize,
}

impl InProgressLimits {
    /// No limits.
    pub const NONE: Self = Self {
        per_account: usize::MAX,
        in_all: usize::MAX,
    };
}

/// The limit that a refused request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgressLimit {
    /// [`InProgressLimits::per_account`]
    Account,
    /// [`InProgressLimits::in_all`]
    All,
}

/// Hands requests to the task that looks for their records. Cheap to clone; the task ends with the last clone.
#[derive(Clone)]
pub(crate) struct LookUps {
    /// The keys that wait, each once.
    keys: mpsc::Sender<EntryId>,
    waiting: Waiting,
    none_until: Arc<Mutex<Option<Instant>>>,
}

/// A request, and where its outcome goes, if its key's record tells one.
struct LookUp {
    request: Request,
    answer: oneshot::Sender<Option<Outcome>>,
}

/// The requests that wait for a look, by key.
type Waiting = Arc<Mutex<HashMap<EntryId, Vec<LookUp>>>>;

impl LookUps {
    /// Looks for records by connections of `pool`. Panics outside a Tokio runtime.
    pub(crate) fn by(pool: FairPool) -> Self {
        let (keys, asked) = mpsc::channel(WAITING_KEYS_MAX);
        let (waiting, none_until) = (Waiting::default(), Arc::default());
        let reader = Reader {
            pool,
            asked,
            waiting: Arc::clone(&waiting),
            none_until: Arc::clone(&none_until),
        };
        tokio::spawn(reader.read_all());
        Self {
            keys,
            waiting,
            none_until,
        }
    }

    /// What the key's record says, if there is one and the database tells in time.
    async fn recorded_outcome(&self, request: &Request) -> Option<Outcome> {
        let paused_until = *lock(&self.none_until);
        if paused_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        {
            let id = request.entry_id();
            let request = request.clone();
            let mut waiting = lock(&self.waiting);
            match waiting.get_mut(&id) {
                Some(of_key) => of_key.push(LookUp { request, answer }),
                None => {
                    self.keys.try_send(id.clone()).ok()?;
                    waiting.insert(id, vec![LookUp { request, answer }]);
                }
            }
        }
        timeout(LOOK_UP_WAIT, answered).await.ok()?.ok()?
    }
}

/// The task that looks for records.
struct Reader {
    pool: FairPool,
    asked: mpsc::Receiver<EntryId>,
    waiting: Waiting,
    none_until: Arc<Mutex<Option<Instant>>>,
}

/// Records by account and key.
type Records = HashMap<(Uuid, String), Found>;

impl Reader {
    /// Reads until no request can ask any more. While it reads, the next requests gather.
    async fn read_all(mut self) {
        let mut keys = Vec::new();
        while self.asked.recv_many(&mut keys, BATCH_KEYS).await > 0 {
            // Before the statement: a request that comes while it runs may be about what is committed later.
            let mut batch: Vec<Vec<LookUp>> = {
                let mut waiting = lock(&self.waiting);
                let taken = keys.drain(..).filter_map(|id| waiting.remove(&id));
                taken.collect()
            };
            // A request that waits no longer needs no answer.
            batch.retain_mut(|of_key| {
                of_key.retain(|look_up| !look_up.answer.is_closed());
                !of_key.is_empty()
            });
            if batch.is_empty() {
                continue;
            }
            let wanted = batch.iter().filter_map(|of_key| of_key.first());
            let wanted = wanted.map(|look_up| look_up.request.clone()).collect();
            let reading = read(self.pool.clone(), wanted);
            // In a task of its own: a panic fails these look-ups, and not all that come after them.
            let found = match tokio::spawn(timeout(LOOK_UP_WAIT, reading)).await {
                Ok(Ok(Ok(found))) => found,
                Ok(Ok(Err(error))) => self.pause(&error.to_string()),
                Ok(Err(_)) => self.pause("no answer in time"),
                Err(panicked) => self.pause(&panicked.to_string()),
            };
            for LookUp { request, answer } in batch.into_iter().flatten() {
                let id = (request.account_id, request.key.as_str().to_owned());
                let outcome = found.get(&id).and_then(|found| outcome_of(&request, found));
                drop(answer.send(outcome));
            }
        }
    }

    /// Lets no request look for a while, and refuses those that wait for it. Nothing was found.
    fn pause(&mut self, cause: &str) -> Records {
        *lock(&self.none_until) = Some(Instant::now() + NO_LOOK_UPS_FOR);
        // Without an answer, a request is told that there is none.
        let mut waiting = lock(&self.waiting);
        while self.asked.try_recv().is_ok() {}
        waiting.clear();
        drop(waiting);
        tracing::warn!(%cause, "refused requests are not looked up for a moment");
        Records::new()
    }
}

async fn read(pool: FairPool, wanted: Vec<Request>) -> Result<Records, sqlx::Error> {
    let mut connection = pool.acquire(LOOK_UPS).await?;
    let found = claim::read_all(&mut connection, &wanted.iter().collect::<Vec<_>>()).await?;
    connection.release();
    Ok(found)
}

/// What a record says about a request that is not begun. `None`: nothing, the request was never executed.
fn outcome_of(request: &Request, found: &Found) -> Option<Outcome> {
    match found {
        Found::Completed(record) => Outcome::of(request, Arc::clone(record)),
        // The first request may be at work elsewhere, or in doubt: to say that nothing was executed
        // would be a guess.
        Found::Unfinished(row) => match row.compare(request).ok()? {
            Conclusion::Reused => Some(Outcome::Reused),
            Conclusion::Unfinished => Some(Outcome::InUse),
            Conclusion::Stored { .. } | Conclusion::HeldElsewhere | Conclusion::Failed(_) => None,
        },
        Found::Expired => None,
    }
}

/// Nothing in here panics halfway through a change.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Idempotency {
    /// The same, with limits on the requests in progress. Beyond them a request is answered at once with a
    /// [`Failure`] of the kind [`Unavailable`](crate::FailureKind::Unavailable), unless its key has a record.
    /// All clones count together, and each one keeps to the limits it has.
    #[must_use]
    pub fn limited_to(self, limits: InProgressLimits) -> Self {
        Self {
            in_flight: self.in_flight.limited_to(limits),
            ..self
        }
    }

    /// Answers a request that met a limit: from its key's record, or else with a failure.
    pub(crate) async fn shed(&self, request: &Request, limit: InProgressLimit) -> Outcome {
        if let Some(outcome) = self.look_ups.recorded_outcome(request).await {
            return outcome;
        }
        self.pool.observer().shed(limit);
        let cause = match limit {
            InProgressLimit::Account => "too many requests of the account are in progress",
            InProgressLimit::All => "too many requests are in progress",
        };
        let failure = Failure::unavailable(cause);
        tracing::warn!(request_id = request.request_id, %cause, "not begun");
        Outcome::Failed(failure)
    }
}
