//! The accounts whose requests run alone for a while.
//!
//! Promise: an account that holds up batches, with keys that another replica holds or with rows that are
//! refused, holds up few. What falls out of batches uses half of the pool at most, and one account half of
//! that, so that others who fell out with it find a place at once.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{Failure, fair_pool::FairPlaces, in_flight::Conclusion};

/// How long an account's requests run alone after one of them could not be completed.
const ALONE_FOR: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Alone {
    accounts: Arc<Mutex<HashMap<Uuid, State>>>,
    places: FairPlaces,
}

#[derive(Default)]
struct State {
    /// Its requests that fell out of a batch and are not concluded.
    fallen: usize,
    until: Option<Instant>,
}

/// Why a request runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its batch failed. Until it is concluded, it is not known whether it is to blame.
    ItsBatchFailed,
    /// Its account runs alone.
    ItsAccount,
}

impl Alone {
    /// What runs alone uses half of so many connections.
    pub(super) fn with(pool_connections: u32) -> Self {
        let places = usize::try_from(pool_connections / 2).unwrap_or(1).max(1);
        Self {
            accounts: Arc::default(),
            places: FairPlaces::new(places, places.div_ceil(2)),
        }
    }

    /// Whether the account's next request runs alone: because some fell out of a batch and it is not
    /// known yet why, or because one of them could not be completed within the last second.
    pub(super) fn holds(&self, account: Uuid) -> bool {
        self.lock()
            .get(&account)
            .is_some_and(|state| state.is_held(Instant::now()))
    }

    /// Runs a request of the account alone.
    pub(super) async fn run(
        &self,
        account: Uuid,
        cause: Cause,
        until: Instant,
        request: impl Future<Output = Conclusion>,
    ) -> Conclusion {
        let mut running = Running::of(self, account, cause);
        let Ok(Ok(_place)) = timeout_at(until, self.places.take(account)).await else {
            let overloaded = "too many requests can't run in a batch";
            return Conclusion::Failed(Failure::unavailable(overloaded));
        };
        let conclusion = request.await;
        running.held_up = matches!(
            conclusion,
            Conclusion::HeldElsewhere | Conclusion::Failed(_)
        );
        conclusion
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, State>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_held(&self, now: Instant) -> bool {
        self.fallen > 0 || self.until.is_some_and(|until| now < until)
    }
}

/// A request that runs alone, until it is dropped.
struct Running<'a> {
    alone: &'a Alone,
    account: Uuid,
    cause: Cause,
    held_up: bool,
}

impl<'a> Running<'a> {
    fn of(alone: &'a Alone, account: Uuid, cause: Cause) -> Self {
        if cause == Cause::ItsBatchFailed {
            alone.lock().entry(account).or_default().fallen += 1;
        }
        Self {
            alone,
            account,
            cause,
            held_up: false,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut accounts = self.alone.lock();
        let state = accounts.entry(self.account).or_default();
        if self.cause == Cause::ItsBatchFailed {
            state.fallen -= 1;
        }
        if self.held_up {
            state.until = Some(now + ALONE_FOR);
        }
        // Few accounts run alone at a time.
        accounts.retain(|_, state| state.is_held(now));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const ALICE: Uuid = Uuid::from_u128(1);

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// Runs a request that ends when it is told how.
    fn running(alone: &Alone, cause: Cause) -> (oneshot::Sender<Conclusion>, Ending) {
        let (end, ended) = oneshot::channel();
        let alone = alone.clone();
        let ending = tokio::spawn(async move {
            let request = async { ended.await.unwrap_or(Conclusion::Reused) };
            alone.run(ALICE, cause, later(), request).await
        });
        (end, ending)
    }

    type Ending = tokio::task::JoinHandle<Conclusion>;

    #[tokio::test]
    async fn an_account_is_held_until_all_that_fell_are_concluded_and_by_nothing_else() {
        let alone = Alone::with(10);
        let (fell, ending) = running(&alone, Cause::ItsBatchFailed);
        while !alone.holds(ALICE) {
            tokio::task::yield_now().await;
        }
        // More come, and run alone because of the one that fell.
        let (_never, _) = running(&alone, Cause::ItsAccount);
        assert!(fell.send(Conclusion::Reused).is_ok());
        assert!(ending.await.is_ok());
        assert!(!alone.holds(ALICE));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_whose_request_is_held_up_runs_alone_for_a_second() {
        let alone = Alone::with(10);
        let held_up = async { Conclusion::HeldElsewhere };
        let _ = alone.run(ALICE, Cause::ItsAccount, later(), held_up).await;
        assert!(alone.holds(ALICE));
        tokio::time::advance(ALONE_FOR).await;
        assert!(!alone.holds(ALICE));
    }
}
