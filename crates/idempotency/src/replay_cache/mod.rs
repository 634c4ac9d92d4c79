//! Add-on: completed records in memory, so that a replay costs no statement.
//!
//! Promise: what is answered from memory is what the database would answer at that moment.
//!
//! Why that holds:
//!
//! - Only what is committed gets in: a record that was read, or one whose COMMIT was acknowledged.
//! - A completed record is immutable until it expires. The sweep and a takeover, of this replica or any
//!   other, wait until the database's clock has passed its `expires_at`. So an entry is right for as long as
//!   that clock can't have passed it; [`database_clock`] says so on the safe side, or says that it doesn't
//!   know, and then the database is asked.
//! - An entry answers its own account and key, and its own request: the fingerprint is compared, as with a
//!   record that was read. Another request with the key is a reuse.
//! - What is not in memory is asked of the database. It alone decides who executes: an empty memory, as
//!   after a restart, changes speed and nothing else.
//!
//! Where a record is deleted by hand before it expires, or a backup is restored, the processes restart.

mod database_clock;

use std::{future::Future, mem::size_of, num::NonZeroU64, sync::Arc};

use moka::sync::Cache;
use uuid::Uuid;

use crate::{
    Idempotency, IdempotencyKey, Outcome, Record, Request, in_flight::Conclusion,
    transaction::compare,
};
use database_clock::DatabaseClock;

/// What an entry takes beside its record, in bytes: the key, and what the cache keeps to find it and to
/// choose what it forgets. Measured with a million small entries.
const ENTRY_OVERHEAD: usize = 300;

/// Completed records, by account and key. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct ReplayCache {
    records: Cache<(Uuid, IdempotencyKey), Arc<Record>>,
    clock: DatabaseClock,
}

impl ReplayCache {
    /// Keeps about so many bytes of the records that `idempotency` writes and reads. What is rarely asked
    /// for goes first.
    pub fn new(idempotency: &Idempotency, bytes: NonZeroU64) -> Self {
        Self {
            records: Cache::builder()
                .max_capacity(bytes.get())
                .weigher(|(_, key): &(Uuid, IdempotencyKey), record: &Arc<Record>| {
                    let bytes = ENTRY_OVERHEAD + key.as_str().len() + size_of_record(record);
                    u32::try_from(bytes).unwrap_or(u32::MAX)
                })
                // To have the room again. Whether a record is alive, only its own expiry says.
                .time_to_live(idempotency.settings.retention)
                .build(),
            clock: DatabaseClock::new(idempotency.pool.clone(), idempotency.runtime.clone()),
        }
    }

    /// Answers from memory, or else with `execute`, and remembers what it stored: one of the ways to run a
    /// request at most once.
    pub async fn run<F: Future<Output = Outcome>>(
        &self,
        request: Request,
        execute: impl FnOnce(Request) -> F,
    ) -> Outcome {
        if let Some(outcome) = self.look_up(&request) {
            return outcome;
        }
        let id = (request.account_id, request.key.clone());
        let outcome = execute(request).await;
        if let Outcome::Stored { record, .. } = &outcome {
            self.records.insert(id, Arc::clone(record));
        }
        outcome
    }

    /// What the request's key stands for: a replay, or a reuse. `None`: only the database knows.
    pub fn look_up(&self, request: &Request) -> Option<Outcome> {
        let id = (request.account_id, request.key.clone());
        let record = self.records.get(&id)?;
        if record.expires_at <= self.clock.latest()? {
            return None;
        }
        match compare(request, record).ok()? {
            Conclusion::Stored { record, replayed } => Some(Outcome::Stored { record, replayed }),
            Conclusion::Reused => Some(Outcome::Reused),
            Conclusion::HeldElsewhere | Conclusion::Unfinished | Conclusion::Failed(_) => None,
        }
    }

    /// How many bytes the records take now, about. For display only.
    pub fn bytes(&self) -> u64 {
        self.records.weighted_size()
    }
}

/// About how many bytes a record takes.
fn size_of_record(record: &Record) -> usize {
    let reply = &record.reply;
    let headers = reply.headers.iter();
    size_of::<Record>()
        + reply.body.len()
        + headers
            .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len())
            .sum::<usize>()
        + reply.resource_id.as_ref().map_or(0, String::len)
        + record.request_id.len()
        + record.method.len()
        + record.path.len()
        + record.label.as_ref().map_or(0, String::len)
        + record.fingerprint.len()
}
