//! The accounts whose requests run alone for a while.
//!
//! Promise: an account that holds up batches, with keys that another replica holds or with rows that are
//! refused, holds up few. What runs alone uses half of the pool at most.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use crate::{Failure, in_flight::Conclusion};

/// How long an account's requests run alone after one of them could not be completed.
const ALONE_FOR: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Alone {
    accounts: Arc<Mutex<HashMap<Uuid, State>>>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    /// Its requests that run alone now.
    running: usize,
    until: Option<Instant>,
}

impl Alone {
    /// What runs alone uses half of so many connections.
    pub(super) fn with(pool_connections: u32) -> Self {
        let places = usize::try_from(pool_connections / 2).unwrap_or(1).max(1);
        Self {
            accounts: Arc::default(),
            places: Arc::new(Semaphore::new(places)),
        }
    }

    /// Whether the account's next request runs alone: because one of them does so now, and it is not
    /// known yet why, or because one failed within a second.
    pub(super) fn holds(&self, account: Uuid) -> bool {
        self.lock()
            .get(&account)
            .is_some_and(|state| state.is_held(Instant::now()))
    }

    /// Runs a request of the account alone.
    pub(super) async fn run(
        &self,
        account: Uuid,
        until: Instant,
        request: impl Future<Output = Conclusion>,
    ) -> Conclusion {
        let mut running = Running::of(self, account);
        let Ok(Ok(_place)) = timeout_at(until, self.places.acquire()).await else {
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
        self.running > 0 || self.until.is_some_and(|until| now < until)
    }
}

/// A request that runs alone, until it is dropped.
struct Running<'a> {
    alone: &'a Alone,
    account: Uuid,
    held_up: bool,
}

impl<'a> Running<'a> {
    fn of(alone: &'a Alone, account: Uuid) -> Self {
        alone.lock().entry(account).or_default().running += 1;
        Self {
            alone,
            account,
            held_up: false,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut accounts = self.alone.lock();
        if let Some(state) = accounts.get_mut(&self.account) {
            state.running -= 1;
            if self.held_up {
                state.until = Some(now + ALONE_FOR);
            }
        }
        // Few accounts run alone at a time.
        accounts.retain(|_, state| state.is_held(now));
    }
}
