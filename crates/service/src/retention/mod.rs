//! This module removes many rows from a live database: account by account, in small batches that
//! commit one by one. After each batch, also a failed one, it rests for a multiple of the batch's
//! time.
//!
//! ```rust
//! use std::time::Duration;
//!
//! use charge_once_service::retention::{Batch, Round, Rows, Stop, Walk};
//! use tokio::time::Instant;
//!
//! /// Old rows of two accounts, which a database would have.
//! struct Log([u64; 2]);
//!
//! impl Rows for Log {
//!     type Account = usize;
//!     type Part = ();
//!     type Cursor = ();
//!     type Error = &'static str;
//!     const TIMED_OUT: fn() -> Self::Error = || "the database was silent";
//!
//!     async fn accounts(&mut self, behind: Option<usize>) -> Result<Vec<usize>, Self::Error> {
//!         Ok((behind.map_or(0, |account| account + 1)..2).collect())
//!     }
//!
//!     fn parts(&self) -> Result<Vec<()>, Self::Error> {
//!         Ok(vec![()])
//!     }
//!
//!     /// Here, BEGIN, DELETE of 500 rows, and COMMIT.
//!     async fn remove_batch(
//!         &mut self,
//!         account: usize,
//!         _: &(),
//!         _: Option<()>,
//!     ) -> Result<Batch<()>, Self::Error> {
//!         let left = self.0.get_mut(account).ok_or("no such account")?;
//!         let rows = (*left).min(500);
//!         *left -= rows;
//!         Ok(Batch { rows, next: (*left > 0).then_some(()) })
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let mut log = Log([1_200, 70]);
//!     // Kept from one call to the next: it knows where it stopped.
//!     let mut walk = Walk::new(Duration::from_secs(5), 0);
//!     let until = Instant::now() + Duration::from_secs(60);
//!     assert!(matches!(walk.go_on(&mut log, until).await, Ok(Stop::At(Round::Whole))));
//!     assert_eq!(log.0, [0, 0]);
//! }
//! ```
//!
//! - A visit removes at most 25 batches of a table from an account. What is left, or fails, waits
//!   for the next round.
//! - A walk stops when its time is up, and goes on behind the last account.
//! - `remove_batch` needs an index that begins with the account. With UUIDv7, the primary key is
//!   enough.
//! - With `FOR UPDATE SKIP LOCKED`, many replicas walk at once.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How many batches of a part one visit removes at most: ten seconds or so, with their rests. What
/// is left then is for the next round.
const BATCHES_PER_VISIT: u32 = 25;

/// The rows to remove, and the connection to remove them by.
pub trait Rows: Send {
    /// An account, with its place in the order of the walk.
    type Account: Copy + Send;
    /// Usually a table, and how old its rows must be.
    type Part: Send + Sync;
    /// Where a batch begins among the rows of an account and a part.
    type Cursor: Copy + Send;
    /// Usually that of the database.
    type Error: Send;
    /// Why an exchange fails that took longer than its deadline. Its connection is in doubt.
    const TIMED_OUT: fn() -> Self::Error;

    /// Some accounts behind `behind`, or the first ones, in their order. None: there are no more.
    fn accounts(
        &mut self,
        behind: Option<Self::Account>,
    ) -> impl Future<Output = Result<Vec<Self::Account>, Self::Error>> + Send;

    /// What a visit removes of an account, one after the other.
    fn parts(&self) -> Result<Vec<Self::Part>, Self::Error>;

    /// One transaction: removes the next rows, from `from` on or the first ones.
    fn remove_batch(
        &mut self,
        account: Self::Account,
        part: &Self::Part,
        from: Option<Self::Cursor>,
    ) -> impl Future<Output = Result<Batch<Self::Cursor>, Self::Error>> + Send;
}

/// What one transaction did.
#[derive(Debug, Clone, Copy)]
pub struct Batch<C> {
    /// How many rows it removed or changed.
    pub rows: u64,
    /// Where the next batch begins; `None` if there is none.
    pub next: Option<C>,
}

/// A walk through all accounts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// It goes on where it stopped.
    #[default]
    GoesOn,
    /// It is over, and some accounts may have more to remove.
    Over,
    /// It is over, and nothing is left to remove.
    Whole,
    /// It is over, and the rows of some accounts could not be removed.
    Failed,
}

/// Why a walk stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop<A, E> {
    /// The time was up, or the round is over.
    At(Round),
    /// The rows of this account can't be removed, and the connection is in doubt. The next call
    /// goes on with the next account.
    Failed(A, E),
}

/// Walks through all accounts, again and again.
#[derive(Debug)]
pub struct Walk<A> {
    deadline: Duration,
    rest: u32,
    /// The last account that this round has visited.
    account: Option<A>,
    /// Accounts that failed in this round, and in the round before.
    failed: u64,
    failed_before: u64,
    /// Whether an account of this round may have more to remove.
    is_more_left: bool,
    /// Until when the batch that failed is followed by its rest.
    rests_until: Option<Instant>,
}

impl<A: Copy + Send> Walk<A> {
    /// Each exchange with the database has a deadline: one that is silent must not stop the worker.
    /// Each batch is followed by a rest of so many times what it took.
    pub fn new(deadline: Duration, rest: u32) -> Self {
        Self {
            deadline,
            rest,
            account: None,
            failed: 0,
            failed_before: 0,
            is_more_left: false,
            rests_until: None,
        }
    }

    /// Accounts that failed in this round so far, or in the round before, if those were more. The
    /// next round visits them again.
    pub fn failed_accounts(&self) -> u64 {
        self.failed.max(self.failed_before)
    }

    /// Goes on with the account after the last one, until `until`, the end of the round, or an
    /// account that fails. After an error the accounts can't be listed, and the connection is in
    /// doubt.
    ///
    /// The rest behind a batch that fails is taken by the next call. Its transaction may still hold
    /// locks until its connection is closed, which is the caller's part.
    pub async fn go_on<R: Rows<Account = A>>(
        &mut self,
        rows: &mut R,
        until: Instant,
    ) -> Result<Stop<A, R::Error>, R::Error> {
        if let Some(rested) = self.rests_until.take() {
            sleep_until(rested.min(until)).await;
        }
        loop {
            let listed = timeout(self.deadline, rows.accounts(self.account)).await;
            let accounts = listed.unwrap_or_else(|_| Err(R::TIMED_OUT()))?;
            if accounts.is_empty() {
                return Ok(Stop::At(self.end_round()));
            }
            for account in accounts {
                if Instant::now() >= until {
                    return Ok(Stop::At(Round::GoesOn));
                }
                self.account = Some(account);
                match self.visit(rows, account, until).await {
                    Ok(is_more_left) => self.is_more_left |= is_more_left,
                    Err(error) => {
                        self.failed += 1;
                        return Ok(Stop::Failed(account, error));
                    }
                }
            }
        }
    }

    /// The next call begins a new round.
    fn end_round(&mut self) -> Round {
        let ended = match (self.failed, self.is_more_left) {
            (_, true) => Round::Over,
            (0, false) => Round::Whole,
            (_, false) => Round::Failed,
        };
        self.account = None;
        self.failed_before = std::mem::take(&mut self.failed);
        self.is_more_left = false;
        ended
    }

    /// Removes rows of one account, until `until`. Returns whether it may have more to remove.
    async fn visit<R: Rows<Account = A>>(
        &mut self,
        rows: &mut R,
        account: A,
        until: Instant,
    ) -> Result<bool, R::Error> {
        let mut is_more_left = false;
        for part in rows.parts()? {
            let (mut from, mut is_whole) = (None, false);
            // Those that only pass over rows that must stay don't count.
            let mut batches = 0;
            while batches < BATCHES_PER_VISIT && !is_whole {
                let began = Instant::now();
                if began >= until {
                    // Perhaps: this part was not looked at to its end.
                    return Ok(true);
                }
                let removing = rows.remove_batch(account, &part, from);
                let removed = timeout(self.deadline, removing).await;
                let removed = removed.unwrap_or_else(|_| Err(R::TIMED_OUT()));
                let rest = began.elapsed() * self.rest;
                let batch = removed.inspect_err(|_| {
                    // What fails is undone, which costs as much. Accounts may fail one after the
                    // other, for one cause.
                    self.rests_until = Some(Instant::now() + rest);
                })?;
                (from, is_whole) = (batch.next, batch.next.is_none());
                if batch.rows > 0 {
                    batches += 1;
                }
                // What only reads and locks costs others as much. An account that has nothing needs
                // no rest.
                if batch.rows > 0 || !is_whole {
                    sleep(rest).await;
                }
            }
            is_more_left |= batches > 0 && !is_whole;
        }
        Ok(is_more_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    /// So many rows of each of three accounts are left. A batch removes one, and takes so long.
    struct Left {
        rows: [u64; 3],
        takes: Duration,
        refuses: Option<usize>,
    }

    impl Rows for Left {
        type Account = usize;
        type Part = ();
        type Cursor = ();
        type Error = &'static str;
        const TIMED_OUT: fn() -> Self::Error = || "timed out";

        async fn accounts(&mut self, behind: Option<usize>) -> Result<Vec<usize>, Self::Error> {
            let next = behind.map_or(0, |account| account + 1);
            Ok((next..3).take(2).collect())
        }

        fn parts(&self) -> Result<Vec<()>, Self::Error> {
            Ok(vec![()])
        }

        async fn remove_batch(
            &mut self,
            account: usize,
            (): &(),
            _: Option<()>,
        ) -> Result<Batch<()>, Self::Error> {
            sleep(self.takes).await;
            if self.refuses == Some(account) {
                return Err("refused");
            }
            let left = self.rows.get_mut(account).ok_or("no such account")?;
            let rows = (*left).min(1);
            *left -= rows;
            let next = (*left > 0).then_some(());
            Ok(Batch { rows, next })
        }
    }

    fn left(rows: [u64; 3]) -> Left {
        Left {
            rows,
            takes: Duration::from_millis(100),
            refuses: None,
        }
    }

    type Stopped = Result<Stop<usize, &'static str>, &'static str>;

    fn ended(round: Round) -> Stopped {
        Ok(Stop::At(round))
    }

    fn failed(account: usize, error: &'static str) -> Stopped {
        Ok(Stop::Failed(account, error))
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn each_batch_is_followed_by_a_rest_and_a_big_account_waits_for_the_next_round() {
        let mut left = left([30, 2, 0]);
        let mut walk = Walk::new(DEADLINE, 9);
        let began = Instant::now();
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Over));
        assert_eq!(left.rows, [5, 0, 0]);
        // 27 batches of 100 ms that removed something, and the third account's.
        assert_eq!(began.elapsed().as_millis() / 100, 27 * 10 + 1);
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Whole));
        assert_eq!(left.rows, [0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_fails_is_passed_over_until_the_next_round() {
        let mut left = left([1, 1, 1]);
        left.refuses = Some(1);
        let mut walk = Walk::new(DEADLINE, 0);
        assert_eq!(walk.go_on(&mut left, later()).await, failed(1, "refused"));
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Failed));
        assert_eq!((left.rows, walk.failed_accounts()), ([0, 1, 0], 1));
        left.refuses = None;
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Whole));
        assert_eq!((left.rows, walk.failed_accounts()), ([0, 0, 0], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_call_rests_behind_a_batch_that_failed_and_ends_in_time() {
        let mut left = left([1, 1, 0]);
        left.refuses = Some(0);
        let mut walk = Walk::new(DEADLINE, 9);
        let began = Instant::now();
        assert_eq!(walk.go_on(&mut left, later()).await, failed(0, "refused"));
        // The connection can be closed at once.
        assert_eq!(began.elapsed().as_millis() / 100, 1);
        let soon = Instant::now() + Duration::from_millis(300);
        assert_eq!(walk.go_on(&mut left, soon).await, ended(Round::GoesOn));
        assert_eq!(began.elapsed().as_millis() / 100, 4);
        left.refuses = Some(1);
        assert_eq!(walk.go_on(&mut left, later()).await, failed(1, "refused"));
        let began = Instant::now();
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Failed));
        // A rest of 9 times 100 ms, and the third account's batch, which has nothing.
        assert_eq!(began.elapsed().as_millis() / 100, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_looked_at_in_time_is_left_for_the_next_round() {
        let mut left = left([0, 0, 3]);
        let mut walk = Walk::new(DEADLINE, 0);
        let soon = Instant::now() + Duration::from_millis(350);
        assert_eq!(walk.go_on(&mut left, soon).await, ended(Round::Over));
        assert_eq!(left.rows, [0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_walk_ends_in_time_and_goes_on_behind_the_last_account() {
        let mut left = left([9, 1, 1]);
        let mut walk = Walk::new(DEADLINE, 0);
        let soon = Instant::now() + Duration::from_millis(250);
        assert_eq!(walk.go_on(&mut left, soon).await, ended(Round::GoesOn));
        assert_eq!(left.rows, [6, 1, 1]);
        assert_eq!(walk.go_on(&mut left, later()).await, ended(Round::Over));
        assert_eq!(left.rows, [6, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_is_silent_fails_the_account_at_the_deadline() {
        let mut left = left([1, 1, 1]);
        left.takes = 2 * DEADLINE;
        let began = Instant::now();
        let mut walk = Walk::new(DEADLINE, 0);
        assert_eq!(walk.go_on(&mut left, later()).await, failed(0, "timed out"));
        assert!(began.elapsed() < 2 * DEADLINE);
    }
}
