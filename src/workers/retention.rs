//! Removes events with their deliveries, operations that have their answer, and logged requests, when they
//! are older than they are kept.
//!
//! Promise: what is still at work stays, an event with a pending delivery or an operation without an
//! answer. Charges, orders, refunds and checkouts with their steps are never removed.
//!
//! It walks from account to account. Ids carry their time, so an account's oldest rows are the first ones
//! of its primary key, and no further index is needed. Many replicas may walk at once.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::{
    config,
    domain::ids::AccountId,
    store::{self, old_rows::Age},
};

/// What was removed.
#[derive(Debug, Default)]
pub struct Removed {
    /// Events; their deliveries are not counted.
    pub events: u64,
    /// Operations.
    pub operations: u64,
    /// Rows of the request log.
    pub requests: u64,
    /// Whether all accounts have been visited since the last whole round.
    pub is_whole_round: bool,
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
    /// The last account of this round.
    account: Uuid,
}

impl Retention {
    /// Each batch has a deadline, and is followed by a rest of so many times what it took.
    pub fn new(kept: config::Retention, deadline: Duration, rest: u32) -> Self {
        Self {
            kept,
            deadline,
            rest,
            account: Uuid::nil(),
        }
    }

    /// Goes on from the account where the last call stopped, until `until` or the end of the round. After
    /// an error the connection is in doubt, and the next call repeats the account.
    pub async fn go_on(
        &mut self,
        connection: &mut PgConnection,
        until: Instant,
    ) -> Result<Removed, sqlx::Error> {
        let mut removed = Removed::default();
        loop {
            let accounts = store::api_keys::list_accounts(connection, self.account);
            let accounts = in_time(self.deadline, accounts).await?;
            if accounts.is_empty() {
                self.account = Uuid::nil();
                removed.is_whole_round = true;
                return Ok(removed);
            }
            for account in accounts {
                for (table, kept, count) in [
                    (Table::Events, self.kept.events, &mut removed.events),
                    (
                        Table::Operations,
                        self.kept.operations,
                        &mut removed.operations,
                    ),
                    (
                        Table::RequestLog,
                        self.kept.request_log,
                        &mut removed.requests,
                    ),
                ] {
                    let Some(kept) = kept else { continue };
                    let age = Age::above(kept).map_err(sqlx::Error::Encode)?;
                    let account = AccountId(account);
                    *count += self.clear(connection, table, account, &age, until).await?;
                }
                if Instant::now() >= until {
                    return Ok(removed);
                }
                self.account = account;
            }
        }
    }

    /// Removes the old rows of one account, batch by batch.
    async fn clear(
        &self,
        connection: &mut PgConnection,
        table: Table,
        account: AccountId,
        age: &Age,
        until: Instant,
    ) -> Result<u64, sqlx::Error> {
        let mut removed = 0;
        let mut after = Some(Uuid::nil());
        while let Some(from) = after.take()
            && Instant::now() < until
        {
            let began = Instant::now();
            let batch = remove_batch(connection, table, account, from, age);
            let (rows, next) = in_time(self.deadline, batch).await?;
            removed += rows;
            after = next;
            if rows > 0 {
                sleep(began.elapsed() * self.rest).await;
            }
        }
        Ok(removed)
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
        Table::Events => store::events::find_old(&mut tx, account, after, age).await?,
        Table::Operations => store::operations::find_old(&mut tx, account, after, age).await?,
        Table::RequestLog => store::request_log::find_old(&mut tx, account, after, age).await?,
    };
    let removed = match table {
        _ if old.ready.is_empty() => 0,
        Table::Events => store::events::delete_all(&mut tx, account, &old.ready).await?,
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
