//! Removes what test accounts leave behind.
//!
//! Promise: a test account that ended loses all of its rows, in batches that commit one by one, and
//! is then closed. Only an account with `test_until` is ever touched, and none with a key in
//! flight. No account holds up another one: neither one with more rows than time, nor one whose
//! rows can't be removed.
//!
//! The row of the account is locked in each batch, so replicas never work on one account at the
//! same time. What is left to do is what is left in the tables: after a crash, the next batch goes
//! on.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::retention::{BATCHES_PER_VISIT, in_time};
use crate::{
    domain::ids::AccountId,
    idempotency,
    store::test_accounts::{self, Place},
};

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Accounts that have nothing left, and are closed.
    pub accounts: u64,
    /// Rows; those of `checkout_steps` are not counted.
    pub rows: u64,
    /// Accounts that failed in this round so far, or in the round before, if those were more. The
    /// next round visits them again.
    pub failed_accounts: u64,
    /// The last of them, and why.
    pub last_failure: Option<(AccountId, String)>,
}

/// Walks through the accounts that have ended, again and again.
pub struct Closing {
    deadline: Duration,
    rest: u32,
    /// Where the next batch looks for an account.
    from: Place,
    /// Batches of the visit so far.
    batches: u32,
    /// Whether an account of this round may have more to remove.
    is_more_left: bool,
    /// Accounts that failed in this round, and in the round before.
    failed: u64,
    failed_before: u64,
}

impl Closing {
    /// Each batch has a deadline, and is followed by a rest of so many times what it took.
    pub fn new(deadline: Duration, rest: u32) -> Self {
        Self {
            deadline,
            rest,
            from: Place::FIRST,
            batches: 0,
            is_more_left: false,
            failed: 0,
            failed_before: 0,
        }
    }

    /// Removes batches until `until`, until nothing is left to do, or until an account fails, which
    /// it returns. The connection is in doubt then, and the next call goes on with the next
    /// account. Adds to `closed`. After an error no account can be chosen.
    pub async fn go_on(
        &mut self,
        connection: &mut PgConnection,
        closed: &mut Closed,
        until: Instant,
    ) -> Result<Option<(AccountId, sqlx::Error)>, sqlx::Error> {
        let failed = self.walk(connection, closed, until).await?;
        closed.failed_accounts = self.failed.max(self.failed_before);
        Ok(failed)
    }

    async fn walk(
        &mut self,
        connection: &mut PgConnection,
        closed: &mut Closed,
        until: Instant,
    ) -> Result<Option<(AccountId, sqlx::Error)>, sqlx::Error> {
        while Instant::now() < until {
            let began = Instant::now();
            let mut chosen = None;
            let removing = remove_batch(connection, self.from, &mut chosen);
            let removed = in_time(self.deadline, removing).await;
            let Some(account) = chosen else {
                removed?;
                if self.end_round() {
                    continue;
                }
                break;
            };
            match removed {
                Ok(Batch::Removed(rows)) => {
                    closed.rows += rows;
                    self.stay_with(account);
                }
                Ok(Batch::Closed) => {
                    closed.accounts += 1;
                    self.pass(account);
                }
                Err(error) => {
                    self.failed += 1;
                    self.pass(account);
                    sleep(began.elapsed() * self.rest).await;
                    return Ok(Some((AccountId(account.id), error)));
                }
            }
            sleep(began.elapsed() * self.rest).await;
        }
        Ok(None)
    }

    /// The next batch is of the same account, unless its visit has lasted long enough.
    fn stay_with(&mut self, account: Place) {
        if self.from != account {
            self.batches = 0;
            self.from = account;
        }
        self.batches += 1;
        if self.batches >= BATCHES_PER_VISIT {
            self.is_more_left = true;
            self.pass(account);
        }
    }

    fn pass(&mut self, account: Place) {
        self.from = account.next();
        self.batches = 0;
    }

    /// The next batch begins a new round. Whether there is something left for it.
    fn end_round(&mut self) -> bool {
        self.from = Place::FIRST;
        self.failed_before = std::mem::take(&mut self.failed);
        std::mem::take(&mut self.is_more_left)
    }
}

enum Batch {
    /// So many rows of an account went.
    Removed(u64),
    /// An account had nothing left, or there was none: other replicas may work on all that are
    /// left.
    Closed,
}

/// One transaction. Tells which account it has chosen, if any is to be closed from a place on.
async fn remove_batch(
    connection: &mut PgConnection,
    from: Place,
    chosen: &mut Option<Place>,
) -> Result<Batch, sqlx::Error> {
    let mut tx = connection.begin().await?;
    *chosen = test_accounts::lock_ended(&mut tx, from).await?;
    let Some(Place { id, .. }) = *chosen else {
        tx.rollback().await?;
        return Ok(Batch::Closed);
    };
    let account = AccountId(id);
    let mut rows = idempotency::forget(&mut tx, account.0, None).await?.rows;
    if rows == 0 {
        rows = test_accounts::delete_batch(&mut tx, account).await?;
    }
    if rows == 0 {
        charge_once_api_keys::close_account(&mut tx, account.0).await?;
    }
    tx.commit().await?;
    Ok(match rows {
        0 => Batch::Closed,
        rows => Batch::Removed(rows),
    })
}
