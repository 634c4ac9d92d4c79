//! Removes events with their deliveries, operations that have their answer, and logged requests,
//! when they are older than they are kept.
//!
//! Promise: what is still at work stays, an event with a pending delivery or an operation without
//! an answer. Charges, orders, refunds and checkouts with their steps are never removed. No account
//! holds up another one: neither one with more old rows than time, nor one whose rows can't be
//! removed.
//!
//! It walks from account to account, and removes some batches at each visit. Ids carry their time,
//! so an account's oldest rows are the first ones of its primary key, and no further index is
//! needed. Many replicas may walk at once.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::{
    config,
    domain::ids::AccountId,
    store::{
        self,
        old_rows::{Age, OldRows},
    },
    webhooks,
};

/// How many batches of a table one visit removes at most: ten seconds or so, with their rests. What
/// is left then is for the next round.
pub(super) const BATCHES_PER_VISIT: u32 = 25;

/// What was removed.
#[derive(Debug, Default)]
pub struct Removed {
    /// Events; their deliveries are not counted.
    pub events: u64,
    /// Operations.
    pub operations: u64,
    /// Rows of the request log.
    pub requests: u64,
    /// What became of the round.
    pub round: Round,
    /// Accounts that failed in this round so far, or in the round before, if those were more. The
    /// next round visits them again.
    pub failed_accounts: u64,
    /// The last of them, and why.
    pub last_failure: Option<(AccountId, sqlx::Error)>,
}

/// A walk through all accounts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// It goes on where it stopped.
    #[default]
    GoesOn,
    /// It is over, and some accounts may have more to remove.
    Over,
    /// It is over, and nothing is left that is older than it is kept.
    Whole,
    /// It is over, and the rows of some accounts could not be removed.
    Failed,
}

/// Why a walk stopped.
pub enum Stop {
    /// The time was up, or the round is over.
    At(Round),
    /// The rows of this account can't be removed, and the connection is in doubt. The next call
    /// goes on with the next account.
    Failed(AccountId, sqlx::Error),
}

/// The tables that are walked through.
#[derive(Clone, Copy)]
enum Table {
    Events,
    Operations,
    RequestLog,
}

/// Walks through all accounts, again and again.
pub struct Retention {
    kept: config::Retention,
    deadline: Duration,
    rest: u32,
    /// The last account that this round has visited.
    account: Uuid,
    /// Accounts that failed in this round.
    failed: u64,
    /// Accounts that failed in the round before.
    failed_before: u64,
    /// Whether an account of this round may have more to remove.
    is_more_left: bool,
}

impl Retention {
    /// Each batch has a deadline, and is followed by a rest of so many times what it took.
    pub fn new(kept: config::Retention, deadline: Duration, rest: u32) -> Self {
        Self {
            kept,
            deadline,
            rest,
            account: Uuid::nil(),
            failed: 0,
            failed_before: 0,
            is_more_left: false,
        }
    }

    /// Goes on with the account after the last one, until `until`, the end of the round, or an
    /// account that fails. Adds to `removed`. After an error the accounts can't be listed, and the
    /// connection is in doubt.
    pub async fn go_on(
        &mut self,
        connection: &mut PgConnection,
        removed: &mut Removed,
        until: Instant,
    ) -> Result<Stop, sqlx::Error> {
        let stop = self.walk(connection, removed, until).await?;
        removed.failed_accounts = self.failed.max(self.failed_before);
        Ok(stop)
    }

    async fn walk(
        &mut self,
        connection: &mut PgConnection,
        removed: &mut Removed,
        until: Instant,
    ) -> Result<Stop, sqlx::Error> {
        loop {
            let accounts = store::api_keys::list_accounts(connection, self.account);
            let accounts = in_time(self.deadline, accounts).await?;
            if accounts.is_empty() {
                return Ok(Stop::At(self.end_round()));
            }
            for account in accounts {
                if Instant::now() >= until {
                    return Ok(Stop::At(Round::GoesOn));
                }
                self.account = account;
                let visit = self.visit(connection, removed, AccountId(account), until);
                match visit.await {
                    Ok(is_more_left) => self.is_more_left |= is_more_left,
                    Err(error) => {
                        self.failed += 1;
                        return Ok(Stop::Failed(AccountId(account), error));
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
        self.account = Uuid::nil();
        self.failed_before = std::mem::take(&mut self.failed);
        self.is_more_left = false;
        ended
    }

    /// Removes the oldest rows of one account, until `until`. Returns whether it may have more to
    /// remove.
    async fn visit(
        &self,
        connection: &mut PgConnection,
        removed: &mut Removed,
        account: AccountId,
        until: Instant,
    ) -> Result<bool, sqlx::Error> {
        let kept = self.kept;
        let mut is_more_left = false;
        for (table, kept, count) in [
            (Table::Events, kept.events, &mut removed.events),
            (Table::Operations, kept.operations, &mut removed.operations),
            (Table::RequestLog, kept.request_log, &mut removed.requests),
        ] {
            let Some(kept) = kept else { continue };
            let age = Age::above(kept).map_err(sqlx::Error::Encode)?;
            let mut after = Some(Uuid::nil());
            // Those that only pass over rows that are still at work don't count.
            let mut batches = 0;
            while batches < BATCHES_PER_VISIT
                && let Some(from) = after
            {
                let began = Instant::now();
                if began >= until {
                    break;
                }
                let batch = remove_batch(connection, table, account, from, &age);
                let (rows, next) = in_time(self.deadline, batch).await?;
                *count += rows;
                after = next;
                if rows > 0 {
                    batches += 1;
                }
                // What only reads and locks costs others as much. An account that has nothing needs
                // no rest.
                if rows > 0 || after.is_some() {
                    sleep(began.elapsed() * self.rest).await;
                }
            }
            is_more_left |= batches > 0 && after.is_some();
        }
        Ok(is_more_left)
    }
}

/// One transaction: how many rows it removed, and where the next batch begins.
async fn remove_batch(
    connection: &mut PgConnection,
    table: Table,
    account: AccountId,
    after: Uuid,
    age: &Age,
) -> Result<(u64, Option<Uuid>), sqlx::Error> {
    let mut tx = connection.begin().await?;
    let old = match table {
        Table::Events => OldRows::of(
            webhooks::old_events(&mut tx, account.0, after, age.below, &age.kept).await?,
        ),
        Table::Operations => store::operations::find_old(&mut tx, account, after, age).await?,
        Table::RequestLog => store::request_log::find_old(&mut tx, account, after, age).await?,
    };
    let removed = match table {
        _ if old.ready.is_empty() => 0,
        Table::Events => webhooks::delete_events(&mut tx, account.0, &old.ready).await?,
        Table::Operations => store::operations::delete_all(&mut tx, account, &old.ready).await?,
        Table::RequestLog => store::request_log::delete_all(&mut tx, account, &old.ready).await?,
    };
    tx.commit().await?;
    Ok((removed, old.next))
}

/// Bounds one exchange with the database: a server that is silent must not stop the worker.
pub(super) async fn in_time<T>(
    deadline: Duration,
    exchange: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(deadline, exchange)
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
