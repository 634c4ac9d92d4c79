//! Removes events with their deliveries, operations that have their answer, logged requests, and
//! replies of receivers of webhooks, when they are older than they are kept.
//!
//! Promise: what is still at work stays, an event with a pending delivery or an operation without
//! an answer. Charges, orders, refunds and checkouts with their steps are never removed. No account
//! holds up another one: neither one with more old rows than time, nor one whose rows can't be
//! removed.
//!
//! Ids carry their time, so an account's oldest rows are the first ones of its primary key, and no
//! further index is needed. Many replicas may walk at once.

use std::time::Duration;

use charge_once_service::request_log::{delete_minutes, delete_requests};
pub use charge_once_service::retention::Round;
use charge_once_service::retention::{Batch, Rows, Walk};
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    config,
    domain::ids::AccountId,
    store::{
        old_rows::{Age, OldRows},
        operations,
    },
    webhooks::{self, deliveries},
};

/// What was removed.
#[derive(Debug, Default)]
pub struct Removed {
    /// Events; their deliveries are not counted.
    pub events: u64,
    /// Operations.
    pub operations: u64,
    /// Rows of the request log, and replies of receivers of webhooks.
    pub requests: u64,
    /// What became of the round.
    pub round: Round,
    /// Accounts that failed in this round so far, or in the round before, if those were more. The
    /// next round visits them again.
    pub failed_accounts: u64,
    /// The last of them, and why.
    pub last_failure: Option<(AccountId, sqlx::Error)>,
}

/// Why a walk stopped.
pub type Stop = charge_once_service::retention::Stop<AccountId, sqlx::Error>;

/// Walks through all accounts, again and again.
pub struct Retention {
    kept: config::RetentionTimes,
    walk: Walk<AccountId>,
}

impl Retention {
    /// Each batch has a deadline, and is followed by a rest of so many times what it took.
    pub fn new(kept: config::RetentionTimes, deadline: Duration, rest: u32) -> Self {
        let walk = Walk::new(deadline, rest);
        Self { kept, walk }
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
        let mut old = AgedRows {
            connection,
            kept: self.kept,
            removed,
        };
        let stop = self.walk.go_on(&mut old, until).await?;
        removed.failed_accounts = self.walk.failed_accounts();
        Ok(stop)
    }
}

/// A table that is walked through.
#[derive(Clone, Copy)]
enum Table {
    Events,
    Operations,
    RequestLog,
    WebhookReplies,
}

/// Rows of all accounts that are older than they are kept.
struct AgedRows<'a> {
    connection: &'a mut PgConnection,
    kept: config::RetentionTimes,
    removed: &'a mut Removed,
}

impl Rows for AgedRows<'_> {
    type Account = AccountId;
    type Part = (Table, Age);
    type Cursor = Uuid;
    type Error = sqlx::Error;
    const TIMED_OUT: fn() -> sqlx::Error = || sqlx::Error::PoolTimedOut;

    async fn accounts(&mut self, behind: Option<AccountId>) -> Result<Vec<AccountId>, sqlx::Error> {
        let behind = behind.map_or(Uuid::nil(), |account| account.0);
        let accounts =
            charge_once_postgres::api_keys::list_accounts(self.connection, behind).await?;
        Ok(accounts.into_iter().map(AccountId).collect())
    }

    fn parts(&self) -> Result<Vec<(Table, Age)>, sqlx::Error> {
        let kept = [
            (Table::Events, self.kept.events),
            (Table::Operations, self.kept.operations),
            (Table::RequestLog, self.kept.request_log),
            (Table::WebhookReplies, self.kept.request_log),
        ];
        let kept = kept
            .into_iter()
            .filter_map(|(table, kept)| Some((table, kept?)));
        let aged = kept.map(|(table, kept)| Ok((table, Age::above(kept)?)));
        let aged: Result<_, _> = aged.collect();
        aged.map_err(sqlx::Error::Encode)
    }

    async fn remove_batch(
        &mut self,
        account: AccountId,
        (table, age): &(Table, Age),
        from: Option<Uuid>,
    ) -> Result<Batch<Uuid>, sqlx::Error> {
        let after = from.unwrap_or_default();
        let mut tx = self.connection.begin().await?;
        let old = match table {
            Table::Events => OldRows::of(
                webhooks::old_events(&mut tx, account.0, after, age.below, &age.kept).await?,
            ),
            Table::Operations => operations::find_old(&mut tx, account, after, age).await?,
            Table::RequestLog => {
                // Minutes are fewer than requests: one batch for each batch of those is enough.
                delete_minutes(&mut tx, account.0, &age.kept).await?;
                OldRows::of_request_log(&mut tx, account, after, age).await?
            }
            Table::WebhookReplies => {
                let (below, kept) = (age.below, &age.kept);
                let old = deliveries::old_replies(&mut tx, account.0, after, below, kept).await?;
                OldRows::of(old)
            }
        };
        let (ready, removed) = (&old.ready, &mut *self.removed);
        let rows = match table {
            _ if ready.is_empty() => 0,
            Table::Events => webhooks::delete_events(&mut tx, account.0, ready).await?,
            Table::Operations => operations::delete_all(&mut tx, account, ready).await?,
            Table::RequestLog => delete_requests(&mut tx, account.0, ready).await?,
            Table::WebhookReplies => {
                deliveries::delete_replies(&mut tx, account.0, ready, &age.kept).await?
            }
        };
        tx.commit().await?;
        *match table {
            Table::Events => &mut removed.events,
            Table::Operations => &mut removed.operations,
            Table::RequestLog | Table::WebhookReplies => &mut removed.requests,
        } += rows;
        let next = old.next;
        Ok(Batch { rows, next })
    }
}
