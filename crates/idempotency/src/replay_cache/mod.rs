//! Add-on: completed records in memory, so that a replay costs no statement.
//!
//! Promise: what is answered from memory is what the database would answer at that moment.
//!
//! Why that holds:
//!
//! - Only stored outcomes get in: a record that was read, or one whose COMMIT was acknowledged.
//! - A completed record is immutable until it expires. The sweep and a takeover, of this replica or
//!   any other, wait until the database's clock has passed its `expires_at`. An entry is used only
//!   while that clock can't have come near: [`DatabaseClock`] knows the latest time that it can
//!   show. In the last moments of a record's life the database is asked, so a clock that is set or
//!   goes wrong by less changes nothing.
//! - An entry answers its own account and key, and its own request: the fingerprint is compared, as
//!   with a record that was read. Another request with the key is a reuse.
//! - An entry belongs to the server that was up when its request began. After a failover or a
//!   restart, which may have lost commits, nothing that was remembered before is used.
//! - What is not in memory is asked of the database. It alone decides who executes: an empty memory
//!   changes speed and nothing else.
//!
//! One case is left to the operator: a record that is deleted by hand before it expires, as by
//! restoring a backup into a running server, is remembered until the processes are restarted.

mod database_clock;

use std::{fmt, future::Future, mem::size_of, num::NonZeroU64, sync::Arc, time::Duration};

use chrono::TimeDelta;
use moka::{policy::EvictionPolicy, sync::Cache};

use crate::{
    Idempotency, Outcome, Record, Request, in_flight::EntryId, observer::Unobserved,
    transaction::compare,
};
use database_clock::{DatabaseClock, Server, Showing};

/// The last moments of a record's life, in which the database is asked: a minute, or a quarter of a
/// life that is shorter than four. Clocks that are set, or corrected quickly, differ by less.
const LAST_MOMENTS: TimeDelta = TimeDelta::minutes(1);

/// After so long a record is forgotten though it lives. It has been asked for long ago.
const REMEMBERED_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// What an entry takes beside its record, in bytes: the key, and what the cache keeps to find it
/// and to choose what it forgets. Measured with a million small entries.
const ENTRY_OVERHEAD: usize = 300;

/// Is told of look-ups in memory, under the rules of [`Observer`](crate::Observer).
pub trait ReplayCacheObserver: fmt::Debug + Send + Sync + 'static {
    /// A key was looked up among the records in memory. `found`: it was answered from there.
    fn looked_up(&self, found: bool) {
        let _ = found;
    }
}

impl ReplayCacheObserver for Unobserved {}

/// Completed records, by account and key. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct ReplayCache {
    entries: Cache<EntryId, Entry>,
    clock: DatabaseClock,
    observer: Arc<dyn ReplayCacheObserver>,
}

#[derive(Clone)]
struct Entry {
    record: Arc<Record>,
    /// The server that was up when its request began.
    server: Server,
}

impl ReplayCache {
    /// Keeps about so many bytes of the records that `idempotency` writes and reads. What was not
    /// asked for for longest goes first.
    pub fn new(idempotency: &Idempotency, bytes: NonZeroU64) -> Self {
        Self {
            entries: Cache::builder()
                .max_capacity(bytes.get())
                .weigher(|(_, key): &EntryId, Entry { record, .. }| {
                    let bytes = ENTRY_OVERHEAD + key.as_str().len() + size_of_record(record);
                    u32::try_from(bytes).unwrap_or(u32::MAX)
                })
                // A reply is most likely to be asked for again when it is new.
                .eviction_policy(EvictionPolicy::lru())
                // To have the room again. Whether a record is alive, only its own expiry says.
                .time_to_live(idempotency.settings.retention.min(REMEMBERED_MAX))
                .build(),
            clock: DatabaseClock::new(idempotency.pool.clone(), idempotency.runtime.clone()),
            observer: Arc::new(Unobserved),
        }
    }

    /// The same records, whose look-ups `observer` is told of.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn ReplayCacheObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Answers from memory, or else with `execute`, and remembers what it stored: one of the ways
    /// to run a request at most once.
    pub async fn run<F: Future<Output = Outcome>>(
        &self,
        request: Request,
        execute: impl FnOnce(Request) -> F,
    ) -> Outcome {
        let found = self.look_up(&request);
        self.observer.looked_up(found.is_some());
        if let Some(outcome) = found {
            return outcome;
        }
        let server = self.clock.showing().map(|showing| showing.server);
        let id = request.entry_id();
        let outcome = execute(request).await;
        if let (Outcome::Stored { record, .. }, Some(server)) = (&outcome, server) {
            let record = Arc::clone(record);
            self.entries.insert(id, Entry { record, server });
        }
        outcome
    }

    /// What the request's key stands for: a replay, or a reuse. `None`: only the database knows.
    pub fn look_up(&self, request: &Request) -> Option<Outcome> {
        let Entry { record, server } = self.entries.get(&request.entry_id())?;
        if !is_alive(&record, server, self.clock.showing()?) {
            return None;
        }
        compare(request, record).ok()
    }

    /// How many bytes the records take now, about. For display only.
    pub fn bytes(&self) -> u64 {
        self.entries.weighted_size()
    }
}

/// Whether a record of `server` is alive for certain, and not in its last moments.
fn is_alive(record: &Record, server: Server, showing: Showing) -> bool {
    let life = record.expires_at - record.created_at;
    showing.server == server && showing.latest < record.expires_at - LAST_MOMENTS.min(life / 4)
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

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;
    use crate::Reply;

    const BEGINNING: DateTime<Utc> = DateTime::UNIX_EPOCH;
    const SERVER: Server = Server(BEGINNING);

    fn record(life: TimeDelta) -> Record {
        Record {
            reply: Reply::raw_json(201, "{}"),
            request_id: "req_1".to_owned(),
            method: "POST".to_owned(),
            path: "/".to_owned(),
            label: None,
            fingerprint_version: 1,
            fingerprint: vec![0; 32],
            created_at: BEGINNING,
            expires_at: BEGINNING + life,
            is_sealed: false,
        }
    }

    fn at(server: Server, seconds: i64) -> Showing {
        let latest = BEGINNING + TimeDelta::seconds(seconds);
        Showing { latest, server }
    }

    #[test]
    fn in_its_last_moments_a_record_is_not_answered_from_memory() {
        let hour = record(TimeDelta::hours(1));
        assert!(is_alive(&hour, SERVER, at(SERVER, 3539)));
        assert!(!is_alive(&hour, SERVER, at(SERVER, 3540)));
        let short = record(TimeDelta::seconds(8));
        assert!(is_alive(&short, SERVER, at(SERVER, 5)));
        assert!(!is_alive(&short, SERVER, at(SERVER, 6)));
    }

    #[test]
    fn a_server_that_started_since_may_know_nothing_of_a_record() {
        let other = Server(BEGINNING + TimeDelta::seconds(1));
        let record = record(TimeDelta::hours(1));
        assert!(!is_alive(&record, SERVER, at(other, 10)));
    }
}
