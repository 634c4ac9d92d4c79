//! Places that are dealt to accounts.
//!
//! Promise: while requests of several accounts come, no account has more than its share of the
//! places, and of those that wait the one with the fewest is served next. An account that is alone
//! may have all of them.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use super::LOOK_UPS;
use crate::{NO_ACCOUNT, lock};

/// How long after an account's last request others still leave it a part of the places. The first
/// request of an account that comes back later may find all of them taken, and waits until one is
/// given back.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones are the same places.
#[derive(Debug, Clone)]
pub(super) struct FairPlaces(Arc<Mutex<Shares<oneshot::Sender<FairPlace>>>>);

impl FairPlaces {
    /// While others ask, no account has more than `share` of them.
    pub(super) fn new(places: usize, share: usize) -> Self {
        Self(Arc::new(Mutex::new(Shares::new(places, share))))
    }

    /// Remembers that the account asked for something else that the places are part of.
    pub(super) fn note(&self, account: Uuid) {
        lock(&self.0).note(account, Instant::now());
    }

    /// Takes a place for the account, in its turn.
    pub(super) async fn take(&self, account: Uuid) -> FairPlace {
        let waiting = {
            let mut shares = lock(&self.0);
            if shares.take(account, Instant::now()) {
                return FairPlace::of(&self.0, account);
            }
            let (sender, waiting) = oneshot::channel();
            shares.wait(account, sender);
            waiting
        };
        // Every sender is kept until it is served, so there is no other case.
        waiting.await.unwrap_or_else(|_| FairPlace {
            shares: Arc::clone(&self.0),
            account: None,
        })
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct FairPlace {
    shares: Arc<Mutex<Shares<oneshot::Sender<FairPlace>>>>,
    /// Whose it is. `None`: it was given back.
    account: Option<Uuid>,
}

impl FairPlace {
    fn of(shares: &Arc<Mutex<Shares<oneshot::Sender<Self>>>>, account: Uuid) -> Self {
        Self {
            shares: Arc::clone(shares),
            account: Some(account),
        }
    }
}

impl Drop for FairPlace {
    fn drop(&mut self) {
        // A loop and no recursion: the next thousands in the queue may have given up, and each of
        // them gives its place back too.
        let mut unwanted = Vec::new();
        let mut next = self.account.take();
        while let Some(account) = next {
            let served = lock(&self.shares).give_back(account, Instant::now());
            for (account, waiter) in served {
                if let Err(mut place) = waiter.send(Self::of(&self.shares, account)) {
                    unwanted.extend(place.account.take());
                }
            }
            next = unwanted.pop();
        }
    }
}

/// Who has how many places, and who waits for one. It knows no clock.
#[derive(Debug)]
struct Shares<W> {
    places: usize,
    share: usize,
    taken: usize,
    accounts: HashMap<Uuid, Account<W>>,
    /// Those that wait: by what they have, and then by when they began to wait.
    waiting: BTreeSet<(usize, u64, Uuid)>,
    next_number: u64,
    /// The account that asked last, and when another one did last.
    latest: Option<(Uuid, Instant)>,
    before: Option<Instant>,
}

/// An account that has places, or waits for some.
#[derive(Debug)]
struct Account<W> {
    taken: usize,
    /// The place in the queue of its oldest waiter.
    number: u64,
    waiters: VecDeque<W>,
}

impl<W> Shares<W> {
    fn new(places: usize, share: usize) -> Self {
        Self {
            places,
            share,
            taken: 0,
            accounts: HashMap::new(),
            waiting: BTreeSet::new(),
            next_number: 0,
            latest: None,
            before: None,
        }
    }

    /// Takes a place for an account that asks at `now`, if one is free that it may have.
    fn take(&mut self, account: Uuid, now: Instant) -> bool {
        self.note(account, now);
        let limit = self.limit(account, now);
        let entry = self.entry(account);
        if !entry.waiters.is_empty() || entry.taken >= limit || self.taken >= self.places {
            self.forget(account);
            return false;
        }
        self.entry(account).taken += 1;
        self.taken += 1;
        true
    }

    /// Queues an account that was refused.
    fn wait(&mut self, account: Uuid, waiter: W) {
        let number = self.next_number;
        self.next_number += 1;
        let entry = self.entry(account);
        entry.waiters.push_back(waiter);
        if entry.waiters.len() == 1 {
            entry.number = number;
            let place = (entry.taken, number, account);
            self.waiting.insert(place);
        }
    }

    /// Takes a place back, and returns who has one now.
    fn give_back(&mut self, account: Uuid, now: Instant) -> Vec<(Uuid, W)> {
        self.taken -= 1;
        self.change(account, |entry| entry.taken -= 1);
        let mut served = Vec::new();
        while self.taken < self.places {
            // Where the one with the fewest may have no more, no other one may.
            let Some((taken, _, account)) = self.waiting.first().copied() else {
                break;
            };
            if taken >= self.limit(account, now) {
                break;
            }
            let mut waiter = None;
            let number = self.next_number;
            self.next_number += 1;
            self.change(account, |entry| {
                waiter = entry.waiters.pop_front();
                entry.taken += 1;
                // Behind those that have as many, and have waited for longer.
                entry.number = number;
            });
            self.taken += 1;
            served.extend(waiter.map(|waiter| (account, waiter)));
        }
        served
    }

    fn limit(&self, account: Uuid, now: Instant) -> usize {
        let others_asked = match self.latest {
            Some((latest, at)) if latest != account => Some(at),
            Some(_) => self.before,
            None => None,
        };
        let is_alone = others_asked.is_none_or(|at| now.duration_since(at) >= REMEMBERED_FOR);
        if is_alone { self.places } else { self.share }
    }

    /// Remembers that an account asked. What no account asked for leaves an account alone.
    fn note(&mut self, account: Uuid, now: Instant) {
        if [NO_ACCOUNT, LOOK_UPS].contains(&account) {
            return;
        }
        if let Some((latest, at)) = self.latest
            && latest != account
        {
            self.before = Some(at);
        }
        self.latest = Some((account, now));
    }

    fn entry(&mut self, account: Uuid) -> &mut Account<W> {
        self.accounts.entry(account).or_insert(Account {
            taken: 0,
            number: 0,
            waiters: VecDeque::new(),
        })
    }

    /// Changes an account, and its place among those that wait.
    fn change(&mut self, account: Uuid, change: impl FnOnce(&mut Account<W>)) {
        let entry = self.entry(account);
        let before = (entry.taken, entry.number, account);
        change(entry);
        let after = (entry.taken, entry.number, account);
        let waits = !entry.waiters.is_empty();
        self.waiting.remove(&before);
        if waits {
            self.waiting.insert(after);
        }
        self.forget(account);
    }

    /// Forgets an account that has nothing and waits for nothing.
    fn forget(&mut self, account: Uuid) {
        if let Some(entry) = self.accounts.get(&account)
            && entry.taken == 0
            && entry.waiters.is_empty()
        {
            self.accounts.remove(&account);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::{future::poll_fn, pin::Pin, task::Poll};

    use super::*;

    const MALLORY: Uuid = Uuid::from_u128(1);
    const ALICE: Uuid = Uuid::from_u128(2);
    const BOB: Uuid = Uuid::from_u128(3);

    /// A pool of ten, of which Mallory has as many as he may, and waits for `waiting` more.
    fn crowded_by_mallory(now: Instant, waiting: usize) -> (Shares<usize>, usize) {
        let mut shares = Shares::new(10, 5);
        let taken = (0..20).take_while(|_| shares.take(MALLORY, now)).count();
        for number in 0..waiting {
            shares.wait(MALLORY, number);
        }
        (shares, taken)
    }

    async fn begins_to_wait(taking: &mut Pin<Box<impl Future<Output = FairPlace>>>) {
        let is_pending = poll_fn(|cx| Poll::Ready(taking.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending, "it has a place");
    }

    /// A waiter that gave up gives its place back as soon as it is served. Thousands in a row must
    /// not nest on one stack.
    #[tokio::test]
    async fn a_place_finds_its_way_past_any_number_that_wait_no_longer() {
        let places = FairPlaces::new(1, 1);
        let taken = places.take(MALLORY).await;
        for account in 0..20_000 {
            begins_to_wait(&mut Box::pin(places.take(Uuid::from_u128(account)))).await;
        }
        let mut waits = Box::pin(places.take(ALICE));
        begins_to_wait(&mut waits).await;
        drop(taken);
        drop(waits.await);
        assert_eq!(lock(&places.0).taken, 0);
    }

    #[test]
    fn an_account_that_is_alone_may_have_the_whole_pool() {
        let now = Instant::now();
        let (mut shares, taken) = crowded_by_mallory(now, 1);
        assert_eq!(taken, 10);
        // Workers ask all the time, and leave it alone.
        assert!(!shares.take(NO_ACCOUNT, now));
        assert_eq!(shares.give_back(MALLORY, now), [(MALLORY, 0)]);
    }

    #[test]
    fn while_others_ask_an_account_has_its_share_of_the_pool() {
        let now = Instant::now();
        let mut shares: Shares<usize> = Shares::new(10, 5);
        assert!(shares.take(ALICE, now));
        let taken = |shares: &mut Shares<usize>, now| {
            (0..20).take_while(|_| shares.take(MALLORY, now)).count()
        };
        assert_eq!(taken(&mut shares, now), 5);
        assert!(shares.take(ALICE, now), "there is room for others");
        // She has not asked for a while.
        let later = now + REMEMBERED_FOR;
        assert_eq!(taken(&mut shares, later), 3);
    }

    #[test]
    fn the_account_that_has_the_fewest_is_served_first() {
        let now = Instant::now();
        let (mut shares, _) = crowded_by_mallory(now, 20);
        for (account, number) in [(ALICE, 100), (BOB, 200), (ALICE, 101)] {
            assert!(!shares.take(account, now));
            shares.wait(account, number);
        }
        let served: Vec<_> = (0..5)
            .flat_map(|_| shares.give_back(MALLORY, now))
            .collect();
        // Mallory still has more than his share, and waits until he doesn't.
        assert_eq!(served, [(ALICE, 100), (BOB, 200), (ALICE, 101)]);
        assert_eq!(shares.give_back(MALLORY, now), [(MALLORY, 0)]);
    }

    #[test]
    fn those_that_wait_have_the_whole_pool_again_when_the_others_are_gone() {
        let now = Instant::now();
        let mut shares = Shares::new(4, 2);
        assert!(shares.take(ALICE, now));
        assert!(shares.take(MALLORY, now) && shares.take(MALLORY, now));
        for number in 0..3 {
            assert!(!shares.take(MALLORY, now));
            shares.wait(MALLORY, number);
        }
        assert!(shares.give_back(ALICE, now).is_empty());
        let later = now + REMEMBERED_FOR;
        let served = shares.give_back(MALLORY, later);
        assert_eq!(served, [(MALLORY, 0), (MALLORY, 1), (MALLORY, 2)]);
    }

    #[test]
    fn nobody_overtakes_a_waiter_of_the_same_account() {
        let now = Instant::now();
        let (mut shares, _) = crowded_by_mallory(now, 0);
        assert!(!shares.take(MALLORY, now));
        shares.wait(MALLORY, 7);
        assert_eq!(shares.give_back(MALLORY, now), [(MALLORY, 7)]);
    }

    #[test]
    fn an_account_without_connections_is_forgotten() {
        let now = Instant::now();
        let mut shares: Shares<usize> = Shares::new(1, 1);
        assert!(shares.take(ALICE, now));
        assert!(!shares.take(BOB, now));
        shares.wait(BOB, 1);
        assert_eq!(shares.give_back(ALICE, now), [(BOB, 1)]);
        assert!(shares.give_back(BOB, now).is_empty());
        assert!(shares.accounts.is_empty() && shares.waiting.is_empty() && shares.taken == 0);
    }
}
