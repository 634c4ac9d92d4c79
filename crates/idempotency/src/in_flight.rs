//! The keys that this process is working on, in front of the database.
//!
//! Promise: duplicates of a request in flight take no database connection, so a storm of retries of
//! one key can't starve the others. This is a courtesy, not the guard: correctness rests on the
//! unique index alone, and an empty map changes speed, never an effect.
//!
//! The first request with a key becomes its *leader*, the others *follow* it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{sync::watch, time::Instant};
use uuid::Uuid;

use crate::{Failure, IdempotencyKey, Outcome, RECLAIM_PAUSE, Request, jittered, lock};

/// How far the leader is.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// It may only be replaying: whether it executes is not known yet.
    Claiming,
    /// The key is its own and the work runs.
    Executing,
    /// The record exists without an outcome: the owner of the key is known, and from here on
    /// another request is a reuse.
    Recorded,
    /// It ended; the entry is out of the map already. [`Outcome::InUse`] says of a leader that
    /// another process holds the key.
    Done(Outcome),
}

/// A request's place among those with its key.
pub(crate) enum Place {
    Leader(Leadership),
    Follower(Follower),
}

/// What requests and records are kept under in memory: the account and the key.
pub(crate) type EntryId = (Uuid, IdempotencyKey);

/// A request that leads.
pub(crate) struct InFlightEntry {
    pub(crate) request: Request,
    #[allow(dead_code, reason = "an add-on lists requests in this order")]
    pub(crate) since: Instant,
    progress: watch::Sender<Progress>,
}

/// The map. Cheap to clone; all clones are one map.
#[derive(Clone)]
pub(crate) struct InFlight {
    entries: Arc<Mutex<BTreeMap<EntryId, InFlightEntry>>>,
    /// Told whenever a leader has ended.
    ended: watch::Sender<()>,
    /// Each wait has a receiver: `inspect` takes their number for that of the waiters.
    pub(crate) stopping: watch::Sender<bool>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            entries: Arc::default(),
            ended: watch::Sender::new(()),
            stopping: watch::Sender::new(false),
        }
    }

    /// Leads if no other request here has the key, else follows.
    pub(crate) fn join(&self, request: &Request) -> Place {
        match self.lock().entry(request.entry_id()) {
            Entry::Vacant(vacant) => {
                let (id, progress) = (vacant.key().clone(), watch::Sender::new(Progress::Claiming));
                vacant.insert(InFlightEntry {
                    request: request.clone(),
                    since: Instant::now(),
                    progress: progress.clone(),
                });
                Place::Leader(Leadership {
                    in_flight: self.clone(),
                    id,
                    progress,
                })
            }
            Entry::Occupied(occupied) => Place::Follower(Follower {
                same_request: occupied.get().request.fingerprint == request.fingerprint,
                progress: occupied.get().progress.subscribe(),
                stopping: self.stopping.subscribe(),
            }),
        }
    }

    /// Resolves when no leader is left.
    pub(crate) async fn drained(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as this map, so the wait can't fail.
        let _ = ended.wait_for(|()| self.lock().is_empty()).await;
    }

    /// Sleeps until `until`, or less when the process is stopping. `false`: stop waiting.
    pub(crate) async fn pause(&self, until: Instant) -> bool {
        sleep(until, &mut self.stopping.subscribe()).await
    }

    /// If code under it panicked, the map would still be whole, and refusing every request forever
    /// would help no client.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<EntryId, InFlightEntry>> {
        lock(&self.entries)
    }
}

/// `false`: the process is stopping.
async fn sleep(until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep_until(until) => true,
        _ = stopping.wait_for(|stopping| *stopping) => false,
    }
}

/// The leader's entry. Dropped without a conclusion, by a panic, it concludes as failed.
pub(crate) struct Leadership {
    in_flight: InFlight,
    id: EntryId,
    progress: watch::Sender<Progress>,
}

impl Leadership {
    /// Tells the followers how far it is. A batch may go on after its members were told that it is
    /// stuck: what is done stays done.
    pub(crate) fn advance(&self, progress: Progress) {
        self.progress.send_if_modified(|current| {
            let goes_on = !matches!(current, Progress::Done(_));
            if goes_on {
                *current = progress;
            }
            goes_on
        });
    }

    /// Tells the followers, after the definite outcome and never before.
    pub(crate) fn conclude(&self, conclusion: Outcome) -> Outcome {
        // Once: after that the entry of the key is another leader's.
        if !matches!(*self.progress.borrow(), Progress::Done(_)) {
            // Out of the map first: a request that comes now asks the database, which knows it.
            self.in_flight.lock().remove(&self.id);
            self.progress
                .send_replace(Progress::Done(conclusion.clone()));
            self.in_flight.ended.send_replace(());
        }
        conclusion
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.conclude(Outcome::Failed(Failure::internal("the work panicked")));
    }
}

/// How a duplicate's wait for its leader ended.
#[derive(Debug)]
pub(crate) enum Followed {
    Answered(Outcome),
    /// It leads now, or follows the next leader. Another process had the key, or only the leader
    /// failed, whose request is another one.
    BeginAgain {
        is_in_use: bool,
    },
}

/// A duplicate of a request that is in flight here.
pub(crate) struct Follower {
    same_request: bool,
    progress: watch::Receiver<Progress>,
    stopping: watch::Receiver<bool>,
}

impl Follower {
    /// Waits for the leader: until `claimed_by` for it to have claimed (the same request only: the
    /// leader may be replaying), and until `patience` for it to be done. Another request need not
    /// wait for the end of what is recorded. Holds no connection.
    pub(crate) async fn follow(mut self, claimed_by: Instant, patience: Instant) -> Followed {
        let same_request = self.same_request;
        if same_request {
            let claimed = self.wait_for(claimed_by.max(patience), |progress| {
                !matches!(progress, Progress::Claiming)
            });
            if !claimed.await {
                return Followed::Answered(Outcome::IN_USE);
            }
        }
        let tells = move |progress: &Progress| match progress {
            Progress::Done(_) => true,
            Progress::Recorded => !same_request,
            Progress::Claiming | Progress::Executing => false,
        };
        if !self.wait_for(patience, tells).await {
            return Followed::Answered(Outcome::IN_USE);
        }
        let progress = self.progress.borrow().clone();
        Followed::Answered(match progress {
            Progress::Done(in_use @ Outcome::InUse { .. }) => {
                // A thousand that begin again at once would ask without a pause.
                let again = Instant::now() + jittered(RECLAIM_PAUSE);
                if again < patience && sleep(again, &mut self.stopping).await {
                    return Followed::BeginAgain { is_in_use: true };
                }
                in_use
            }
            Progress::Done(conclusion) => match self.judge(conclusion) {
                Some(outcome) => outcome,
                None => return Followed::BeginAgain { is_in_use: false },
            },
            Progress::Recorded if !same_request => Outcome::Reused,
            Progress::Claiming | Progress::Executing | Progress::Recorded => Outcome::IN_USE,
        })
    }

    /// The table of what a leader's end means for a duplicate.
    fn judge(&self, conclusion: Outcome) -> Option<Outcome> {
        match conclusion {
            Outcome::Stored { record, .. } if record.is_of_any_request() => {
                Some(Outcome::replay(record))
            }
            // Another request with the key of a committed record: reuse, known for certain.
            Outcome::Stored { .. } | Outcome::Unfinished if !self.same_request => {
                Some(Outcome::Reused)
            }
            Outcome::Stored { record, .. } => Some(Outcome::replay(record)),
            Outcome::Unfinished => Some(conclusion),
            Outcome::Reused | Outcome::Failed(_) if self.same_request => Some(conclusion),
            // What went wrong for the leader's request says nothing about a different one.
            Outcome::Reused | Outcome::Failed(_) | Outcome::InUse { .. } => None,
        }
    }

    /// `false`: the time is over, or the process is stopping.
    async fn wait_for(&mut self, until: Instant, reached: impl Fn(&Progress) -> bool) -> bool {
        // What has happened already counts even when there is no time to wait.
        if reached(&self.progress.borrow()) {
            return true;
        }
        if until <= Instant::now() {
            return false;
        }
        tokio::select! {
            outcome = self.progress.wait_for(reached) => outcome.is_ok(),
            _ = sleep(until, &mut self.stopping) => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test may stop at the first surprise"
    )]

    use super::*;
    use crate::{FingerprintInput, Parameters, Record, Reply};

    pub(crate) fn request(account: u128, path: &str) -> Request {
        let nothing = Parameters::Canonical(b"{}");
        let input = FingerprintInput {
            method: "POST",
            path,
            query: nothing,
            media_type: "json",
            parameters: nothing,
        };
        let key = IdempotencyKey::parse(b"a").unwrap();
        Request::new(Uuid::from_u128(account), key, &input)
    }

    fn lead(in_flight: &InFlight, request: &Request) -> Leadership {
        match in_flight.join(request) {
            Place::Leader(leadership) => leadership,
            Place::Follower(_) => panic!("{request:?} doesn't lead"),
        }
    }

    #[test]
    fn a_leader_that_goes_on_after_its_end_does_not_touch_the_next_one() {
        let in_flight = InFlight::new();
        let stuck = lead(&in_flight, &request(1, "/"));
        stuck.conclude(Outcome::Reused);
        let _next = lead(&in_flight, &request(1, "/"));
        stuck.advance(Progress::Executing);
        drop(stuck);
        assert_eq!(in_flight.lock().len(), 1);
        let joined = in_flight.join(&request(1, "/"));
        assert!(matches!(joined, Place::Follower(_)));
    }

    #[tokio::test]
    async fn a_follower_of_what_is_held_elsewhere_pauses() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight, &request(1, "/"));
        let Place::Follower(follower) = in_flight.join(&request(1, "/")) else {
            panic!("it leads");
        };
        leader.conclude(Outcome::IN_USE);
        let (began, long) = (Instant::now(), Instant::now() + RECLAIM_PAUSE * 600);
        let mut following = std::pin::pin!(follower.follow(long, long));
        let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut following).await;
        assert!(at_once.is_err(), "{at_once:?}");
        assert_eq!(in_flight.stopping.receiver_count(), 1);
        let answer = following.await;
        let begins_again = matches!(answer, Followed::BeginAgain { is_in_use: true });
        assert!(begins_again, "{answer:?}");
        assert!(began.elapsed() >= RECLAIM_PAUSE / 2);
    }

    #[tokio::test]
    async fn a_follower_of_another_request_is_answered_by_a_record_of_any_request_alone() {
        for version in [crate::fingerprint::OF_ANY_REQUEST, 1] {
            let in_flight = InFlight::new();
            let leader = lead(&in_flight, &request(1, "/"));
            let Place::Follower(follower) = in_flight.join(&request(1, "/other")) else {
                panic!("it leads");
            };
            let record = Record {
                reply: Reply::raw_json(409, "{}"),
                request_id: "req_1".to_owned(),
                method: "POST".to_owned(),
                path: "/".to_owned(),
                label: None,
                fingerprint_version: version,
                fingerprint: vec![0; 32],
                created_at: chrono::DateTime::UNIX_EPOCH,
                expires_at: chrono::DateTime::UNIX_EPOCH,
                is_sealed: false,
            };
            leader.conclude(Outcome::replay(Arc::new(record)));
            let now = Instant::now();
            let followed = follower.follow(now, now).await;
            let is_answered = matches!(followed, Followed::Answered(Outcome::Stored { .. }));
            assert_eq!(is_answered, version != 1, "{followed:?}");
            let is_reuse = matches!(followed, Followed::Answered(Outcome::Reused));
            assert_eq!(is_reuse, version == 1, "{followed:?}");
        }
    }

    #[tokio::test]
    async fn what_has_ended_is_forgotten() {
        let in_flight = InFlight::new();
        for account in 0..1_000 {
            let leader = lead(&in_flight, &request(account, "/"));
            let _follower = in_flight.join(&request(account, "/"));
            drop(leader);
        }
        in_flight.drained().await;
        assert!(in_flight.lock().is_empty());
        assert_eq!(in_flight.stopping.receiver_count(), 0);
    }
}
