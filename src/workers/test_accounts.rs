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

use charge_once_service::retention::{Batch, Rows, Stop, Walk};
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::{
    domain::ids::AccountId,
    idempotency,
    store::test_accounts::{self, Ended},
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
pub struct Closing(Walk<Ended>);

impl Closing {
    /// Each batch has a deadline, and is followed by a rest of so many times what it took.
    pub fn new(deadline: Duration, rest: u32) -> Self {
        Self(Walk::new(deadline, rest))
    }

    /// Removes batches until `until`, the end of the round, or an account that fails. The
    /// connection is in doubt then, and the next call goes on with the next account. Adds to
    /// `closed`. After an error no account can be chosen.
    pub async fn go_on(
        &mut self,
        connection: &mut PgConnection,
        closed: &mut Closed,
        until: Instant,
    ) -> Result<Stop<Ended, sqlx::Error>, sqlx::Error> {
        let mut left = Left { connection, closed };
        let stop = self.0.go_on(&mut left, until).await?;
        closed.failed_accounts = self.0.failed_accounts();
        Ok(stop)
    }
}

/// What accounts that have ended have left.
struct Left<'a> {
    connection: &'a mut PgConnection,
    closed: &'a mut Closed,
}

impl Rows for Left<'_> {
    type Account = Ended;
    type Part = ();
    type Cursor = ();
    type Error = sqlx::Error;
    const TIMED_OUT: fn() -> sqlx::Error = || sqlx::Error::PoolTimedOut;

    async fn accounts(&mut self, behind: Option<Ended>) -> Result<Vec<Ended>, sqlx::Error> {
        test_accounts::list_ended(self.connection, behind.unwrap_or(Ended::FIRST)).await
    }

    fn parts(&self) -> Result<Vec<()>, sqlx::Error> {
        Ok(vec![()])
    }

    async fn remove_batch(
        &mut self,
        Ended { id: account, .. }: Ended,
        (): &(),
        _: Option<()>,
    ) -> Result<Batch<()>, sqlx::Error> {
        let mut tx = self.connection.begin().await?;
        if !test_accounts::lock_ended(&mut tx, account).await? {
            tx.rollback().await?;
            return Ok(Batch {
                rows: 0,
                next: None,
            });
        }
        let mut rows = idempotency::forget(&mut tx, account.0, None).await?.rows;
        if rows == 0 {
            rows = test_accounts::delete_batch(&mut tx, account).await?;
        }
        if rows == 0 {
            charge_once_postgres::api_keys::close_account(&mut tx, account.0).await?;
        }
        tx.commit().await?;
        if rows == 0 {
            self.closed.accounts += 1;
            // The account's own row was changed.
            return Ok(Batch {
                rows: 1,
                next: None,
            });
        }
        self.closed.rows += rows;
        let next = Some(());
        Ok(Batch { rows, next })
    }
}
