//! The keys that this process is working on, in front of the database.
//!
//! Promise: duplicates of a request in flight take no database connection, so a storm of retries
//! of one key can't starve the others. This is a courtesy, not the guard: correctness rests on the
//! unique index alone, and an empty map changes speed, never an effect. Leaders and seated followers are
//! limited, so that a database which hangs doesn't fill the process.
//!
//! The first request with a key becomes its *leader*, the others *follow* it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::watch, time::Instant};
use uuid::Uuid;

use crate::{
    Failure, IdempotencyKey, InProgressLimit, InProgressLimits, RECLAIM_PAUSE, Record, Request,
    jittered,
};

/// Followers of one key with a seat; a client with more retries in the air than this is broken.
///
/// A follower without a seat waits for the leader's claim and not for its work: a claim takes
/// moments, and duplicates of a completed key are replayed however many come together.
const SEATS_PER_KEY: usize = 1_000;

/// Followers of one account with a seat, so that one tenant can't fill the process with waiters.
const SEATS_PER_ACCOUNT: usize = 4_000;

/// Followers with a seat in all.
const SEATS: usize = 16_000;

/// How far the leader is.
#[derive(Debug, Clone)]
enum Progress {
    /// It may only be replaying: whether it executes is not known yet.
    Claiming,
    /// The key is its own and the work runs.
    Executing,
    /// The record exists without an outcome: the owner of the key is known.
    Recorded,
    /// It ended; the entry is out of the map already.
    Done(Conclusion),
}

/// How a leader ended, as its followers may use it.
#[derive(Debug, Clone)]
pub(crate) enum Conclusion {
    /// The outcome is committed; `replayed` if an earlier request had stored it.
    Stored {
        /// The committed record.
        record: Arc<Record>,
        /// Whether the leader itself met it as a duplicate.
        replayed: bool,
        /// Whether the leader ended what an earlier request had begun.
        taken_over: bool,
    },
    /// The leader's request differs from the one that the key belongs to.
    Reused,
    /// Another process holds the key.
    HeldElsewhere,
    /// The key's record is the leader's, and is committed without an outcome.
    Unfinished,
    /// Not executed, or not known to be: 5xx.
    Failed(Failure),
}

/// What a follower is to do.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Answer with the leader's conclusion.
    Share(Conclusion),
    /// Answer that the key is in use.
    InUse,
    /// Another process had the key a moment ago: begin again.
    AskAgain,
    /// The leader's end says nothing about this request: begin again.
    StartOver,
}

/// A request's place among those with its key.
pub(crate) enum Place {
    /// No other request is working on the key: do it.
    Leader(Leadership),
    /// Another request is working on it.
    Follower(Follower),
    /// No other request works on the key, and too many requests are in progress for it to begin.
    OverLimit(InProgressLimit),
}

/// What requests and records are kept under in memory: the account and the key.
pub(crate) type EntryId = (Uuid, IdempotencyKey);

struct InFlightEntry {
    request: Request,
    since: Instant,
    seats: Arc<AtomicUsize>,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct State {
    /// By account, so that a look at one account's requests walks no other's.
    entries: HashMap<Uuid, HashMap<IdempotencyKey, InFlightEntry>>,
    /// Leaders that a limit counts, by account and in all.
    counted_by_account: HashMap<Uuid, usize>,
    counted: usize,
    seats_by_account: HashMap<Uuid, usize>,
    seats: usize,
}

/// How much this process has in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightCounts {
    /// Keys that it works on.
    pub keys: usize,
    /// Duplicates that may wait for the end of the work on them.
    pub waiters: usize,
}

impl State {
    fn remove(&mut self, (account_id, key): &EntryId) {
        if let Entry::Occupied(mut of_account) = self.entries.entry(*account_id) {
            of_account.get_mut().remove(key);
            if of_account.get().is_empty() {
                of_account.remove();
            }
        }
        if is_counted(key) {
            self.counted = self.counted.saturating_sub(1);
            take_one(&mut self.counted_by_account, *account_id);
        }
    }

    /// Counts a request that is about to lead, unless a limit is met.
    fn count(&mut self, request: &Request, limits: InProgressLimits) -> Option<InProgressLimit> {
        if !is_counted(&request.key) {
            return None;
        }
        let of_account = self.counted_by_account.get(&request.account_id).copied();
        if of_account.unwrap_or_default() >= limits.per_account {
            return Some(InProgressLimit::Account);
        }
        if self.counted >= limits.in_all {
            return Some(InProgressLimit::All);
        }
        self.counted += 1;
        *self
            .counted_by_account
            .entry(request.account_id)
            .or_default() += 1;
        None
    }
}

/// A part of a larger request belongs to what that one has begun, so it is neither counted nor refused.
fn is_counted(key: &IdempotencyKey) -> bool {
    !key.is_reserved()
}

/// Takes one from an account's count, and forgets an account without any.
fn take_one(counts: &mut HashMap<Uuid, usize>, account_id: Uuid) {
    if let Entry::Occupied(mut of_account) = counts.entry(account_id) {
        *of_account.get_mut() = of_account.get().saturating_sub(1);
        if *of_account.get() == 0 {
            of_account.remove();
        }
    }
}

/// The map. Cheap to clone; all clones are one map.
#[derive(Clone)]
pub(crate) struct InFlight {
    state: Arc<Mutex<State>>,
    limits: InProgressLimits,
    leaders: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            limits: InProgressLimits::NONE,
            leaders: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        }
    }

    /// The same map, with limits on what begins.
    pub(crate) fn limited_to(self, limits: InProgressLimits) -> Self {
        Self { limits, ..self }
    }

    /// Leads if no other request here has the key, else follows.
    pub(crate) fn join(&self, request: &Request) -> Place {
        let id = request.entry_id();
        let mut state = self.lock();
        let is_led = |of_account: &HashMap<_, _>| of_account.contains_key(&request.key);
        if !state.entries.get(&request.account_id).is_some_and(is_led)
            && let Some(limit) = state.count(request, self.limits)
        {
            return Place::OverLimit(limit);
        }
        let State {
            entries,
            seats_by_account,
            seats,
            ..
        } = &mut *state;
        let of_account = entries.entry(request.account_id).or_default();
        match of_account.entry(request.key.clone()) {
            Entry::Vacant(vacant) => {
                let progress = watch::Sender::new(Progress::Claiming);
                self.leaders.send_modify(|leaders| *leaders += 1);
                vacant.insert(InFlightEntry {
                    request: request.clone(),
                    since: Instant::now(),
                    seats: Arc::default(),
                    progress: progress.clone(),
                });
                Place::Leader(Leadership {
                    in_flight: self.clone(),
                    id,
                    progress,
                })
            }
            Entry::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                let of_account = seats_by_account.get(&request.account_id).copied();
                let is_free = entry.seats.load(Ordering::Relaxed) < SEATS_PER_KEY
                    && of_account.unwrap_or_default() < SEATS_PER_ACCOUNT
                    && *seats < SEATS;
                let seat = is_free.then(|| {
                    entry.seats.fetch_add(1, Ordering::Relaxed);
                    *seats_by_account.entry(request.account_id).or_default() += 1;
                    *seats += 1;
                    Seat {
                        in_flight: self.clone(),
                        account_id: request.account_id,
                        of_key: Arc::clone(&entry.seats),
                    }
                });
                Place::Follower(Follower {
                    same_request: entry.request.fingerprint == request.fingerprint,
                    progress: entry.progress.subscribe(),
                    stopping: self.stopping.subscribe(),
                    seat,
                })
            }
        }
    }

    /// The request that this process works on under a key, if there is one.
    pub(crate) fn look_up(&self, account_id: Uuid, key: &IdempotencyKey) -> Option<Request> {
        self.lock()
            .entries
            .get(&account_id)?
            .get(key)
            .map(|entry| entry.request.clone())
    }

    /// The requests of an account that this process works on and that are `wanted`, in the order they
    /// came.
    pub(crate) fn of_account(
        &self,
        account_id: Uuid,
        wanted: impl Fn(&Request) -> bool,
    ) -> Vec<Request> {
        let mut found: Vec<_> = self
            .lock()
            .entries
            .get(&account_id)
            .into_iter()
            .flat_map(HashMap::values)
            .filter(|entry| wanted(&entry.request))
            .map(|entry| (entry.since, entry.request.clone()))
            .collect();
        found.sort_by(|(one_since, one), (other_since, other)| {
            (one_since, one.key.as_str()).cmp(&(other_since, other.key.as_str()))
        });
        found.into_iter().map(|(_, request)| request).collect()
    }

    pub(crate) fn counts(&self) -> InFlightCounts {
        // A borrow locks `leaders` until the end of its statement. In one statement with the lock of
        // the map, it would wait for `join`, which waits for `leaders` while it has the map.
        let keys = *self.leaders.borrow();
        let waiters = self.lock().seats;
        InFlightCounts { keys, waiters }
    }

    /// Ends every wait, now and from now on.
    pub(crate) fn end_waits(&self) {
        self.stopping.send_replace(true);
    }

    /// Resolves when no leader is left.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as this map, so the wait can't fail.
        let _ = self
            .leaders
            .subscribe()
            .wait_for(|leaders| *leaders == 0)
            .await;
    }

    /// Sleeps until `until`, or less when the process is stopping. `false`: stop waiting.
    pub(crate) async fn pause(&self, until: Instant) -> bool {
        let mut stopping = self.stopping.subscribe();
        tokio::select! {
            () = tokio::time::sleep_until(until) => true,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        }
    }

    /// The lock is never held across an await, and never taken by code that has borrowed `leaders`.
    /// No code under it panics; if it did, the map would still be whole, and refusing every request
    /// forever would help no client.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leader's entry. Dropped without a conclusion, by a panic, it concludes as failed.
pub(crate) struct Leadership {
    in_flight: InFlight,
    id: EntryId,
    progress: watch::Sender<Progress>,
}

impl Leadership {
    /// The key is claimed: from here on duplicates know that the work runs.
    pub(crate) fn executing(&self) {
        self.advance(Progress::Executing);
    }

    /// The record is committed without an outcome: from here on another request is a reuse.
    pub(crate) fn recorded(&self) {
        self.advance(Progress::Recorded);
    }

    /// A fresh attempt claims again.
    pub(crate) fn claiming(&self) {
        self.advance(Progress::Claiming);
    }

    /// A batch may go on after its members were told that it is stuck: what is done stays done.
    fn advance(&self, progress: Progress) {
        self.progress.send_if_modified(|current| {
            let goes_on = !matches!(current, Progress::Done(_));
            if goes_on {
                *current = progress;
            }
            goes_on
        });
    }

    /// Tells the followers, after the definite outcome and never before.
    pub(crate) fn conclude(&self, conclusion: Conclusion) {
        // Once: after that the entry of the key is another leader's.
        if matches!(*self.progress.borrow(), Progress::Done(_)) {
            return;
        }
        // Out of the map first: a request that comes now asks the database, which knows the
        // outcome.
        self.in_flight.lock().remove(&self.id);
        self.progress.send_replace(Progress::Done(conclusion));
        self.in_flight
            .leaders
            .send_modify(|leaders| *leaders = leaders.saturating_sub(1));
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.conclude(Conclusion::Failed(Failure::internal("the work panicked")));
    }
}

/// A duplicate of a request that is in flight here.
pub(crate) struct Follower {
    same_request: bool,
    progress: watch::Receiver<Progress>,
    stopping: watch::Receiver<bool>,
    seat: Option<Seat>,
}

/// Lets a follower wait for the work. Taken for as long as it lives, however it ends.
struct Seat {
    in_flight: InFlight,
    account_id: Uuid,
    of_key: Arc<AtomicUsize>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The leader's own counter: by now the key may have another leader.
        self.of_key.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.in_flight.lock();
        state.seats = state.seats.saturating_sub(1);
        take_one(&mut state.seats_by_account, self.account_id);
    }
}

impl Follower {
    /// Waits for the leader: until `claimed_by` for it to have claimed (the same request only: the
    /// leader may be replaying), and until `patience` for it to be done, if it has a seat. Another
    /// request need not wait for the end of what is recorded. Holds no connection.
    pub(crate) async fn follow(mut self, claimed_by: Instant, patience: Instant) -> Verdict {
        let patience = match self.seat {
            Some(_) => patience,
            None => Instant::now(),
        };
        if self.same_request {
            let claimed = self.wait_for(claimed_by.max(patience), |progress| {
                !matches!(progress, Progress::Claiming)
            });
            if !claimed.await {
                return Verdict::InUse;
            }
        }
        let same_request = self.same_request;
        let tells = move |progress: &Progress| match progress {
            Progress::Done(_) => true,
            Progress::Recorded => !same_request,
            Progress::Claiming | Progress::Executing => false,
        };
        if !self.wait_for(patience, tells).await {
            return Verdict::InUse;
        }
        let progress = self.progress.borrow().clone();
        match progress {
            Progress::Done(conclusion) => {
                let verdict = self.judge(conclusion);
                // A thousand that begin again at once would ask without a pause.
                if matches!(verdict, Verdict::AskAgain) && !self.pause(patience).await {
                    return Verdict::InUse;
                }
                verdict
            }
            Progress::Recorded if !same_request => Verdict::Share(Conclusion::Reused),
            Progress::Claiming | Progress::Executing | Progress::Recorded => Verdict::InUse,
        }
    }

    /// The table of what a leader's end means for a duplicate.
    fn judge(&self, conclusion: Conclusion) -> Verdict {
        match conclusion {
            // Another request with the key of a committed record: reuse, known for certain.
            Conclusion::Stored { .. } | Conclusion::Unfinished if !self.same_request => {
                Verdict::Share(Conclusion::Reused)
            }
            Conclusion::Stored { .. } | Conclusion::Unfinished => Verdict::Share(conclusion),
            Conclusion::HeldElsewhere => Verdict::AskAgain,
            Conclusion::Reused | Conclusion::Failed(_) if self.same_request => {
                Verdict::Share(conclusion)
            }
            // What went wrong for the leader's request says nothing about a different one.
            Conclusion::Reused | Conclusion::Failed(_) => Verdict::StartOver,
        }
    }

    /// Pauses as its leader does, with its seat. `false`: there is no time for it, or the process is stopping.
    async fn pause(&mut self, patience: Instant) -> bool {
        let again = Instant::now() + jittered(RECLAIM_PAUSE);
        if again >= patience {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep_until(again) => true,
            _ = self.stopping.wait_for(|stopping| *stopping) => false,
        }
    }

    /// `false`: the time is over, or the process is stopping.
    async fn wait_for(&mut self, until: Instant, reached: impl FnMut(&Progress) -> bool) -> bool {
        let mut reached = reached;
        // What has happened already counts even when there is no time to wait.
        if reached(&self.progress.borrow()) {
            return true;
        }
        if until <= Instant::now() {
            return false;
        }
        tokio::select! {
            outcome = self.progress.wait_for(reached) => outcome.is_ok(),
            () = tokio::time::sleep_until(until) => false,
            _ = self.stopping.wait_for(|stopping| *stopping) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test may stop at the first surprise"
    )]

    use super::*;
    use crate::{FingerprintInput, Parameters};

    fn request(account: u128, key: &str) -> Request {
        let nothing = Parameters::Canonical(b"{}");
        let input = FingerprintInput {
            method: "POST",
            path: "/",
            query: nothing,
            media_type: "json",
            parameters: nothing,
        };
        let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
        Request::new(Uuid::from_u128(account), key, &input)
    }

    fn step(account: u128) -> Request {
        let (account, path) = (Uuid::from_u128(account), "/step".to_owned());
        Request::reserved(account, path, "req_1".to_owned(), Default::default()).unwrap()
    }

    fn lead(in_flight: &InFlight, request: &Request) -> Leadership {
        match in_flight.join(request) {
            Place::Leader(leadership) => leadership,
            Place::Follower(_) | Place::OverLimit(_) => panic!("{request:?} doesn't lead"),
        }
    }

    /// The lock is held meanwhile, so what one account has in flight must not be another one's wait.
    #[test]
    fn a_look_at_an_account_visits_no_request_of_another() {
        let in_flight = InFlight::new();
        let others = (0..100).map(|number| request(1, &format!("key-{number}")));
        let _others: Vec<_> = others.map(|other| lead(&in_flight, &other)).collect();
        let _own = lead(&in_flight, &request(2, "own"));
        let visited = std::cell::RefCell::new(Vec::new());
        in_flight.of_account(Uuid::from_u128(2), |request| {
            visited.borrow_mut().push(request.key.as_str().to_owned());
            true
        });
        assert_eq!(visited.into_inner(), ["own"]);
    }

    fn limit_met(in_flight: &InFlight, request: &Request) -> Option<InProgressLimit> {
        match in_flight.join(request) {
            Place::OverLimit(limit) => Some(limit),
            Place::Leader(_) | Place::Follower(_) => None,
        }
    }

    #[test]
    fn what_is_in_progress_is_limited_by_account_and_in_all_until_it_ends() {
        let in_flight = InFlight::new().limited_to(InProgressLimits {
            per_account: 2,
            in_all: 3,
        });
        let first = lead(&in_flight, &request(1, "a"));
        let _second = lead(&in_flight, &request(1, "b"));
        let third = request(1, "c");
        assert_eq!(
            limit_met(&in_flight, &third),
            Some(InProgressLimit::Account)
        );
        assert_eq!(limit_met(&in_flight, &request(1, "a")), None, "it follows");
        assert_eq!(
            limit_met(&in_flight, &step(1)),
            None,
            "a part is no request"
        );
        let _other = lead(&in_flight, &request(2, "a"));
        let refused = limit_met(&in_flight, &request(2, "b"));
        assert_eq!(refused, Some(InProgressLimit::All));
        first.conclude(Conclusion::Reused);
        first.conclude(Conclusion::Reused);
        drop(first);
        let third = lead(&in_flight, &third);
        let refused = limit_met(&in_flight, &request(1, "d"));
        assert_eq!(
            refused,
            Some(InProgressLimit::Account),
            "one end is one place"
        );
        drop(third);
    }

    #[test]
    fn a_leader_that_goes_on_after_its_end_does_not_touch_the_next_one() {
        let in_flight = InFlight::new();
        let stuck = lead(&in_flight, &request(1, "a"));
        stuck.conclude(Conclusion::Reused);
        let _next = lead(&in_flight, &request(1, "a"));
        stuck.executing();
        drop(stuck);
        assert_eq!(in_flight.counts().keys, 1);
        assert!(matches!(
            in_flight.join(&request(1, "a")),
            Place::Follower(_)
        ));
    }

    #[test]
    fn what_was_counted_is_forgotten() {
        let in_flight = InFlight::new().limited_to(InProgressLimits {
            per_account: 1,
            in_all: 1,
        });
        for account in 0..1_000 {
            let leader = lead(&in_flight, &request(account, "a"));
            let _follower = in_flight.join(&request(account, "a"));
            let _step = lead(&in_flight, &step(account));
            assert!(limit_met(&in_flight, &request(account, "b")).is_some());
            drop(leader);
        }
        let state = in_flight.lock();
        assert!(state.entries.is_empty() && state.counted_by_account.is_empty());
        assert!(state.seats_by_account.is_empty() && (state.counted, state.seats) == (0, 0));
    }

    #[tokio::test]
    async fn a_follower_of_what_is_held_elsewhere_pauses_with_its_seat() {
        let in_flight = InFlight::new();
        let leader = lead(&in_flight, &request(1, "a"));
        let Place::Follower(follower) = in_flight.join(&request(1, "a")) else {
            panic!("it leads");
        };
        leader.conclude(Conclusion::HeldElsewhere);
        let (began, long) = (Instant::now(), Instant::now() + RECLAIM_PAUSE * 600);
        let mut following = std::pin::pin!(follower.follow(long, long));
        let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut following).await;
        assert!(at_once.is_err(), "{at_once:?}");
        assert_eq!(in_flight.counts().waiters, 1);
        let verdict = following.await;
        assert!(matches!(verdict, Verdict::AskAgain), "{verdict:?}");
        assert!(began.elapsed() >= RECLAIM_PAUSE / 2);
    }

    #[test]
    fn followers_with_a_seat_are_limited_by_key_by_account_and_in_all() {
        let in_flight = InFlight::new();
        let mut kept = Vec::new();
        let mut seats = |account: u128, keys: std::ops::Range<u32>| {
            let mut taken = 0;
            for key in keys {
                let request = request(account, &key.to_string());
                kept.push(in_flight.join(&request));
                for _ in 0..=SEATS_PER_KEY {
                    let place = in_flight.join(&request);
                    if let Place::Follower(Follower { seat: Some(_), .. }) = &place {
                        taken += 1;
                        kept.push(place);
                    }
                }
            }
            taken
        };
        assert_eq!(seats(1, 0..1), SEATS_PER_KEY);
        assert_eq!(seats(1, 1..9), SEATS_PER_ACCOUNT - SEATS_PER_KEY);
        let others: usize = (2..9).map(|account| seats(account, 0..9)).sum();
        assert_eq!(others + SEATS_PER_ACCOUNT, SEATS);
        drop(kept);
        assert_eq!(in_flight.counts().waiters, 0);
    }

    /// Two locks that are taken in different orders by two threads stop both forever.
    #[test]
    fn counting_never_stops_a_request() {
        const ROUNDS: u128 = 20_000;
        let in_flight = InFlight::new();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let work = |account: u128| {
            let (in_flight, ended) = (in_flight.clone(), ended.clone());
            std::thread::spawn(move || {
                let request = request(account, "a");
                for _ in 0..ROUNDS {
                    lead(&in_flight, &request).conclude(Conclusion::Reused);
                }
                ended.send(()).unwrap();
            });
        };
        work(1);
        work(2);
        let counting = in_flight.clone();
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                assert!(counting.counts().keys <= 2);
            }
            ended.send(()).unwrap();
        });
        for _ in 0..3 {
            let end = has_ended.recv_timeout(std::time::Duration::from_secs(60));
            assert!(
                end.is_ok(),
                "a thread waits forever, or has panicked: {end:?}"
            );
        }
        assert_eq!(in_flight.counts().keys, 0);
    }
}
