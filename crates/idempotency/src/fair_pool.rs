//! Deals the pool's connections to accounts.
//!
//! Promise: while requests of several accounts come, no account has more than half of the connections,
//! and of those that wait the one with the fewest is served next. An account that is alone may have all
//! of them. Of four or more, new work leaves one to reads and to what ends work.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::PgPool;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use crate::{
    GuardedConnection, Observer,
    kept::{Kept, Trust},
    observer::Unobserved,
};

/// How long after an account's last request others still leave it a part of the pool. The first request
/// of an account that comes back later may find every connection taken, and waits until one is given
/// back.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// Connections that transactions which claim a key leave alone: while all of those wait for locks, others
/// still read, replay, and complete what was begun. A pool of less than [`SPARING`] can't spare any.
const NOT_FOR_CLAIMS: usize = 1;

/// Connections of the smallest pool in which an account that has its share of the claims can still read.
const SPARING: usize = 4;

/// Whose connections those are that no account asked for: workers' and strangers'.
pub const NO_ACCOUNT: Uuid = Uuid::nil();

/// Whose connection reads the records of refused requests, of all accounts: it waits behind no worker.
pub(crate) const LOOK_UPS: Uuid = Uuid::max();

/// A pool whose connections are dealt to accounts. Cheap to clone; all clones share the pool.
#[derive(Debug, Clone)]
pub struct FairPool {
    kept: Kept,
    places: FairPlaces,
    /// Those of them that may be used to claim keys. Taken first.
    for_claims: FairPlaces,
    observer: Arc<dyn Observer>,
}

impl From<PgPool> for FairPool {
    fn from(pool: PgPool) -> Self {
        let places = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        // Of the share of an account, too.
        let (for_claims, share_of_claims) = match places {
            SPARING.. => (places - NOT_FOR_CLAIMS, half(places) - NOT_FOR_CLAIMS),
            _ => (places, half(places)),
        };
        Self {
            kept: Kept::of(pool),
            places: FairPlaces::new(places, places),
            for_claims: FairPlaces::shared(for_claims, for_claims, share_of_claims),
            observer: Arc::new(Unobserved),
        }
    }
}

impl FairPool {
    /// The same pool, whose use `observer` is told of, and all that is done with this clone.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Who is told what happens.
    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// Connections that are open, and no request has.
    pub fn idle(&self) -> usize {
        self.pool().num_idle() + self.kept.idle()
    }

    /// The pool itself. What is taken from it directly counts for no account.
    pub fn pool(&self) -> &PgPool {
        self.kept.pool()
    }

    /// A connection was dead that had been alive a moment ago: the others are looked at before they are
    /// used again.
    pub(crate) fn distrust(&self) {
        self.kept.distrust();
    }

    /// Closes the connections that are not in use: they know prepared statements as long as they live, and
    /// what those were prepared for has changed.
    pub(crate) fn close_idle(&self) {
        self.kept.close_idle();
    }

    /// Takes a connection for the account, or for [`NO_ACCOUNT`]. Waits as long as the pool's
    /// `acquire_timeout` allows, for the account's turn and for the connection together.
    pub async fn acquire(&self, account: Uuid) -> Result<GuardedConnection, sqlx::Error> {
        self.acquire_with(account, Trust::None).await
    }

    /// As [`FairPool::acquire`], to claim a key: for work that begins again where the connection turns out
    /// to be dead.
    pub(crate) async fn acquire_to_claim(
        &self,
        account: Uuid,
    ) -> Result<GuardedConnection, sqlx::Error> {
        self.acquire_with(account, Trust::UsedJustNow).await
    }

    async fn acquire_with(
        &self,
        account: Uuid,
        trust: Trust,
    ) -> Result<GuardedConnection, sqlx::Error> {
        let asked = Instant::now();
        let deadline = asked + self.pool().options().get_acquire_timeout();
        let acquiring = async {
            let to_claim = match trust {
                Trust::UsedJustNow => Some(self.for_claims.take(account).await?),
                Trust::None => None,
            };
            let places = (self.places.take(account).await?, to_claim);
            let observer = Arc::clone(&self.observer);
            GuardedConnection::acquire(&self.kept, trust, places, observer).await
        };
        let acquired = timeout_at(deadline, acquiring)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let timed_out = matches!(acquired, Err(sqlx::Error::PoolTimedOut));
        if acquired.is_ok() || timed_out {
            let waited = asked.elapsed();
            self.observer.waited_for_connection(waited, timed_out);
        }
        acquired
    }
}

/// What an account has of some places at most while others ask.
fn half(places: usize) -> usize {
    (places / 2).max(1)
}

/// Places that are dealt to accounts. Cheap to clone; all clones are the same places.
#[derive(Debug, Clone)]
pub(crate) struct FairPlaces {
    shares: Arc<Mutex<Shares<oneshot::Sender<Place>>>>,
}

impl FairPlaces {
    /// So many places, of which one account may have `for_one` while no other asks.
    pub(crate) fn new(places: usize, for_one: usize) -> Self {
        Self::shared(places, for_one, half(places))
    }

    /// So many places, of which one account may have `for_one` while no other asks, and else `share`.
    fn shared(places: usize, for_one: usize, share: usize) -> Self {
        Self {
            shares: Arc::new(Mutex::new(Shares::new(places, for_one, share))),
        }
    }

    /// Takes a place for the account, in its turn.
    pub(crate) async fn take(&self, account: Uuid) -> Result<Place, sqlx::Error> {
        let waiting = {
            let mut shares = lock(&self.shares);
            if shares.take(account, Instant::now()) {
                return Ok(Place::of(&self.shares, account));
            }
            let (sender, waiting) = oneshot::channel();
            shares.wait(account, sender);
            waiting
        };
        // Every sender is kept until it is served.
        waiting.await.map_err(|_| sqlx::Error::PoolClosed)
    }
}

/// The right to one connection, or to whatever the places are, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    shares: Arc<Mutex<Shares<oneshot::Sender<Place>>>>,
    /// Whose it is. `None`: it was given back.
    account: Option<Uuid>,
}

impl Place {
    fn of(shares: &Arc<Mutex<Shares<oneshot::Sender<Self>>>>, account: Uuid) -> Self {
        Self {
            shares: Arc::clone(shares),
            account: Some(account),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A loop and no recursion: the next thousands in the queue may have given up, and each of them
        // gives its place back too.
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

/// Nothing in here panics halfway through a change.
fn lock<W>(shares: &Mutex<Shares<W>>) -> MutexGuard<'_, Shares<W>> {
    shares.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who has how many connections, and who waits for one. It knows neither the pool nor time.
#[derive(Debug)]
struct Shares<W> {
    places: usize,
    /// How many an account may have while no other asks.
    for_one: usize,
    /// How many it may have while others do.
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

/// An account that has connections, or waits for some.
#[derive(Debug)]
struct Account<W> {
    taken: usize,
    /// The place in the queue of its oldest waiter.
    number: u64,
    waiters: VecDeque<W>,
}

impl<W> Shares<W> {
    fn new(places: usize, for_one: usize, share: usize) -> Self {
        Self {
            places,
            for_one,
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

    /// How many places the account may have.
    fn limit(&self, account: Uuid, now: Instant) -> usize {
        let others_asked = match self.latest {
            Some((latest, at)) if latest != account => Some(at),
            Some(_) => self.before,
            None => None,
        };
        let is_alone = others_asked.is_none_or(|at| now.duration_since(at) >= REMEMBERED_FOR);
        if is_alone { self.for_one } else { self.share }
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
        let mut shares = Shares::new(10, 10, 5);
        let taken = (0..20).take_while(|_| shares.take(MALLORY, now)).count();
        for number in 0..waiting {
            shares.wait(MALLORY, number);
        }
        (shares, taken)
    }

    async fn begins_to_wait(
        taking: &mut Pin<Box<impl Future<Output = Result<Place, sqlx::Error>>>>,
    ) {
        let is_pending = poll_fn(|cx| Poll::Ready(taking.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending, "it has a place");
    }

    /// A waiter that gave up gives its place back as soon as it is served. Thousands in a row must not nest on
    /// one stack.
    #[tokio::test]
    async fn a_place_finds_its_way_past_any_number_that_wait_no_longer() {
        let places = FairPlaces::new(1, 1);
        let taken = places.take(MALLORY).await.unwrap();
        for account in 0..20_000 {
            begins_to_wait(&mut Box::pin(places.take(Uuid::from_u128(account)))).await;
        }
        let mut waits = Box::pin(places.take(ALICE));
        begins_to_wait(&mut waits).await;
        drop(taken);
        drop(waits.await.unwrap());
        assert_eq!(lock(&places.shares).taken, 0);
    }

    fn accounts<W>(served: &[(Uuid, W)]) -> Vec<Uuid> {
        served.iter().map(|(account, _)| *account).collect()
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
    fn while_others_ask_an_account_has_half_of_the_pool() {
        let now = Instant::now();
        let mut shares: Shares<usize> = Shares::new(10, 10, 5);
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
        // Mallory still has more than his half, and waits until he doesn't.
        assert_eq!(served, [(ALICE, 100), (BOB, 200), (ALICE, 101)]);
        assert_eq!(accounts(&shares.give_back(MALLORY, now)), [MALLORY]);
    }

    #[test]
    fn those_that_wait_have_the_whole_pool_again_when_the_others_are_gone() {
        let now = Instant::now();
        let mut shares = Shares::new(4, 4, 2);
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
        let mut shares: Shares<usize> = Shares::new(1, 1, 1);
        assert!(shares.take(ALICE, now));
        assert!(!shares.take(BOB, now));
        shares.wait(BOB, 1);
        assert_eq!(shares.give_back(ALICE, now), [(BOB, 1)]);
        assert!(shares.give_back(BOB, now).is_empty());
        assert!(shares.accounts.is_empty() && shares.waiting.is_empty() && shares.taken == 0);
    }
}
