//! The accounts whose requests run alone for a while.
//!
//! Promise: an account that holds up batches, with keys that another replica holds or with rows
//! that are refused, holds up few.

use std::{collections::HashMap, future::Future, sync::Mutex, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

use super::RanAlone;
use crate::{Outcome, lock};

/// How long an account's requests run alone after one of them could not be completed.
const ALONE_FOR: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Alone(Mutex<HashMap<Uuid, AccountState>>);

#[derive(Default)]
struct AccountState {
    /// Its requests whose batch failed and that are not concluded: it is not known yet whether they
    /// are to blame.
    fallen: usize,
    until: Option<Instant>,
}

impl AccountState {
    fn is_held(&self, now: Instant) -> bool {
        self.fallen > 0 || self.until.is_some_and(|until| now < until)
    }
}

impl Alone {
    /// Whether the account's next request runs alone: because some fell out of a batch and it is
    /// not known yet why, or because one of them could not be completed within the last second.
    pub(super) fn holds(&self, account: Uuid) -> bool {
        lock(&self.0)
            .get(&account)
            .is_some_and(|state| state.is_held(Instant::now()))
    }

    pub(super) async fn run(
        &self,
        account: Uuid,
        because: RanAlone,
        request: impl Future<Output = Outcome>,
    ) -> Outcome {
        let running = self.enter(account, because);
        let conclusion = request.await;
        running.leave(matches!(
            conclusion,
            Outcome::InUse { .. } | Outcome::Failed(_)
        ));
        conclusion
    }

    /// A request of the account runs alone until what is returned is left or dropped.
    pub(super) fn enter(&self, account: Uuid, because: RanAlone) -> Running<'_> {
        let fell = usize::from(because == RanAlone::BatchFailed);
        lock(&self.0).entry(account).or_default().fallen += fell;
        Running {
            alone: self,
            account,
            fell,
            held_up: false,
        }
    }
}

/// A request that runs alone, until it is dropped.
pub(super) struct Running<'a> {
    alone: &'a Alone,
    account: Uuid,
    fell: usize,
    held_up: bool,
}

impl Running<'_> {
    /// Ends, and says whether something held the request up.
    pub(super) fn leave(mut self, held_up: bool) {
        self.held_up = held_up;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut accounts = lock(&self.alone.0);
        let state = accounts.entry(self.account).or_default();
        state.fallen -= self.fell;
        if self.held_up {
            state.until = Some(now + ALONE_FOR);
        }
        // Few accounts run alone at a time.
        accounts.retain(|_, state| state.is_held(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Uuid = Uuid::from_u128(1);

    #[tokio::test]
    async fn an_account_is_held_until_all_that_fell_are_concluded_and_by_nothing_else() {
        let alone = Alone::default();
        let mut more = None;
        let fell = async {
            assert!(alone.holds(ALICE));
            // More come, and run alone because of the one that fell.
            more = Some(alone.enter(ALICE, RanAlone::AccountHeldUp));
            Outcome::Reused
        };
        let _ = alone.run(ALICE, RanAlone::BatchFailed, fell).await;
        assert!(more.is_some() && !alone.holds(ALICE));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_whose_request_is_held_up_runs_alone_for_a_second() {
        let alone = Alone::default();
        let held_up = async { Outcome::IN_USE };
        let _ = alone.run(ALICE, RanAlone::AccountHeldUp, held_up).await;
        assert!(alone.holds(ALICE));
        tokio::time::advance(ALONE_FOR).await;
        assert!(!alone.holds(ALICE));
    }
}
