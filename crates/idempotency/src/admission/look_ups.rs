//! Look-ups of the keys of requests that may not begin: a key that has a record is answered by it.
//!
//! Promise: a look takes no longer than [`LOOK_UP_WAIT`], however the database is doing. One task
//! at a time reads, the records of many keys with one statement.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::LOOK_UPS;
use crate::{
    Connections, Outcome, Request,
    claim::{self, Found},
    lock,
    transaction::compare,
};

/// How long a request that is to be refused waits for what a record of its key says. Reads take
/// less than a hundredth of it.
pub(super) const LOOK_UP_WAIT: Duration = Duration::from_millis(250);

/// Keys whose records are read with one statement: few, because a reply may have a hundred
/// kilobytes.
const BATCH_KEYS: usize = 32;

/// Keys that wait for their statement. What comes beyond them is refused without a look.
const WAITING_KEYS_MAX: usize = 2_048;

/// How long no request looks after a look without an answer: the database is slower than its
/// clients' patience, and each look that is cut off costs a connection.
const NO_LOOK_UPS_FOR: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones share what waits.
#[derive(Debug, Clone, Default)]
pub(super) struct LookUps(Arc<Mutex<LookUpsState>>);

#[derive(Debug, Default)]
struct LookUpsState {
    waiting: VecDeque<LookUp>,
    is_read: bool,
    none_until: Option<Instant>,
}

/// A request, and where its outcome goes, if its key's record tells one.
#[derive(Debug)]
struct LookUp {
    request: Request,
    answer: oneshot::Sender<Option<Outcome>>,
}

/// Records by account and key.
type Records = HashMap<(Uuid, String), Found>;

impl LookUps {
    /// What the key's record says, if there is one and the database tells in time.
    pub(super) async fn recorded_outcome(
        &self,
        connections: Connections,
        request: Request,
    ) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = lock(&self.0);
            let is_paused = state.none_until.is_some_and(|until| Instant::now() < until);
            if is_paused || state.waiting.len() >= WAITING_KEYS_MAX {
                return None;
            }
            state.waiting.push_back(LookUp { request, answer });
            if !std::mem::replace(&mut state.is_read, true) {
                tokio::spawn(self.clone().read_all(connections));
            }
        }
        timeout(LOOK_UP_WAIT, answered).await.ok()?.ok()?
    }

    /// Reads until no request waits. While it reads, the next requests gather.
    async fn read_all(self, connections: Connections) {
        while let Some(batch) = self.next_batch() {
            // In a task of its own: if it panics, this one goes on reading.
            let answering = tokio::spawn(answer_all(connections.clone(), batch));
            match answering.await {
                Ok(Ok(())) => {}
                Ok(Err(cause)) => self.pause(&cause),
                Err(error) => self.pause(&error.to_string()),
            }
        }
    }

    /// Taken before the statement: a request that comes while it runs may be about what is
    /// committed later.
    fn next_batch(&self) -> Option<Vec<LookUp>> {
        let mut state = lock(&self.0);
        let taken = state.waiting.len().min(BATCH_KEYS);
        state.is_read = taken > 0;
        let batch = state.waiting.drain(..taken);
        // A request that waits no longer needs no answer.
        let batch = batch
            .filter(|look_up| !look_up.answer.is_closed())
            .collect();
        (taken > 0).then_some(batch)
    }

    /// Lets no request look for a while, and refuses those that wait for it.
    fn pause(&self, cause: &str) {
        let mut state = lock(&self.0);
        state.none_until = Some(Instant::now() + NO_LOOK_UPS_FOR);
        // Without an answer, a request is told that there is none.
        state.waiting.clear();
        drop(state);
        tracing::warn!(%cause, "refused requests are not looked up for a moment");
    }
}

/// Fails where the database tells nothing in time. Without an answer, a request is told that its
/// key has no record.
async fn answer_all(connections: Connections, batch: Vec<LookUp>) -> Result<(), String> {
    let found = match timeout(LOOK_UP_WAIT, read(&connections, &batch)).await {
        Ok(found) => found.map_err(|error| error.to_string())?,
        Err(_) => return Err("no answer in time".to_owned()),
    };
    for LookUp { request, answer } in batch {
        let id = (request.account_id, request.key.as_str().to_owned());
        let outcome = found.get(&id).and_then(|found| outcome_of(&request, found));
        drop(answer.send(outcome));
    }
    Ok(())
}

async fn read(connections: &Connections, wanted: &[LookUp]) -> Result<Records, sqlx::Error> {
    if wanted.is_empty() {
        return Ok(Records::new());
    }
    let mut connection = connections.acquire(LOOK_UPS).await?;
    let requests: Vec<_> = wanted.iter().map(|look_up| &look_up.request).collect();
    let found = claim::read_all(&mut connection, &requests).await?;
    connection.release();
    Ok(found)
}

/// What a record says about a request that is not begun. `None`: nothing, the request was never
/// executed.
fn outcome_of(request: &Request, found: &Found) -> Option<Outcome> {
    match found {
        Found::Completed(record) => {
            let compared = compare(request, Arc::clone(record));
            Some(compared.unwrap_or_else(Outcome::Failed))
        }
        // The first request may be at work elsewhere, or in doubt: to say that nothing was executed
        // would be a guess.
        Found::Unfinished(record) if record.is_of(request).ok()? => Some(Outcome::IN_USE),
        Found::Unfinished(_) => Some(Outcome::Reused),
        Found::Expired(_) => None,
    }
}
