//! Looks up API keys that are not known to be an account's, many with one statement.
//!
//! Promise: however many keys strangers try, looking them up uses one connection, and asks the
//! database at most once every [`PAUSE`]. A key that comes alone is looked up at once.

use std::time::Duration;

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{Account, Database, KeyHash, Refusal};

/// Between the beginnings of two statements. Short for an account whose key is not known yet, and
/// long against the statement, which takes a fraction of a millisecond.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// Keys in one statement. With [`PAUSE`], more than 50,000 keys a second are looked up.
pub(crate) const BATCH_KEYS: usize = 256;

/// Hands keys to the task that looks them up. The task ends with the last clone.
pub(crate) struct UnknownKeys<E> {
    look_ups: mpsc::Sender<LookUp<E>>,
}

struct LookUp<E> {
    hash: KeyHash,
    answer: oneshot::Sender<Result<Option<Account>, E>>,
}

impl<E: Clone + Send + 'static> UnknownKeys<E> {
    /// Keys are looked up in `database`. Panics outside a Tokio runtime.
    pub(crate) fn of(database: impl Database<Error = E>) -> Self {
        let (look_ups, waiting) = mpsc::channel(BATCH_KEYS);
        tokio::spawn(look_up_all(database, waiting));
        Self { look_ups }
    }

    /// The account that the unrevoked key with this hash speaks for.
    pub(crate) async fn find_account(&self, hash: KeyHash) -> Result<Option<Account>, Refusal<E>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.look_ups.send(LookUp { hash, answer }).await;
        sent.map_err(|_| Refusal::Ended)?;
        let found = answered.await.map_err(|_| Refusal::Ended)?;
        found.map_err(Refusal::LookUp)
    }
}

impl<E> Clone for UnknownKeys<E> {
    fn clone(&self) -> Self {
        Self {
            look_ups: self.look_ups.clone(),
        }
    }
}

async fn look_up_all<D: Database>(database: D, mut waiting: mpsc::Receiver<LookUp<D::Error>>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_KEYS).await > 0 {
        let next = Instant::now() + PAUSE;
        // A client that left needs no answer.
        batch.retain(|look_up| !look_up.answer.is_closed());
        let hashes = batch.iter().map(|look_up| look_up.hash).collect();
        let found = database.find(hashes, None).await;
        for LookUp { hash, answer } in batch.drain(..) {
            let account = found.as_ref().map(|accounts| accounts.get(&hash).copied());
            drop(answer.send(account.map_err(Clone::clone)));
        }
        tokio::time::sleep_until(next).await;
    }
}
