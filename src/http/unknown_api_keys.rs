//! Looks up API keys that are not known to be an account's, many with one statement.
//!
//! Promise: however many keys strangers try, looking them up uses one connection of the pool, and
//! asks the database at most once every [`PAUSE`]. A key that comes alone is looked up at once.

use std::{collections::HashMap, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{database::Database, domain::account::Account, idempotency::Failure, store};

/// Between the beginnings of two statements. Short for an account whose key is not known yet, and
/// long against the statement, which takes a fraction of a millisecond.
const PAUSE: Duration = Duration::from_millis(5);

/// Keys in one statement. With [`PAUSE`], more than 50,000 keys a second are looked up.
const BATCH_KEYS: usize = 256;

/// Hands keys to the task that looks them up. The task ends with the last clone.
#[derive(Clone)]
pub(super) struct UnknownApiKeys {
    look_ups: mpsc::Sender<LookUp>,
}

struct LookUp {
    hash: [u8; 32],
    answer: oneshot::Sender<Found>,
}

type Found = Result<Option<Account>, Failure>;

impl UnknownApiKeys {
    /// Keys are looked up in `database`. Panics outside a Tokio runtime.
    pub(super) fn of(database: Database) -> Self {
        let (look_ups, waiting) = mpsc::channel(BATCH_KEYS);
        tokio::spawn(look_up_all(database, waiting));
        Self { look_ups }
    }

    /// The account that the unrevoked key with this hash speaks for.
    pub(super) async fn find_account(&self, hash: [u8; 32]) -> Found {
        let (answer, answered) = oneshot::channel();
        let ended = || Failure::internal("the task that looks API keys up has ended");
        let sent = self.look_ups.send(LookUp { hash, answer }).await;
        sent.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn look_up_all(database: Database, mut waiting: mpsc::Receiver<LookUp>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_KEYS).await > 0 {
        let next = Instant::now() + PAUSE;
        // A client that left needs no answer.
        batch.retain(|look_up| !look_up.answer.is_closed());
        let found = find(
            &database,
            batch.iter().map(|look_up| look_up.hash).collect(),
        )
        .await;
        for LookUp { hash, answer } in batch.drain(..) {
            let account = found.as_ref().map(|accounts| accounts.get(&hash).copied());
            drop(answer.send(account.map_err(Failure::clone)));
        }
        tokio::time::sleep_until(next).await;
    }
}

async fn find(
    database: &Database,
    hashes: Vec<[u8; 32]>,
) -> Result<HashMap<[u8; 32], Account>, Failure> {
    let found = database.read(move |connection| {
        Box::pin(async move { store::api_keys::find_accounts(connection, &hashes).await })
    });
    Ok(found.await?)
}
