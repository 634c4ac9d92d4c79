//! What the worker does in the database, each step in one short transaction.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::Body;
use crate::{
    Claimed, Commit, ReadyEndpoint, Turn,
    queue::{self, Ended, lock_uncanceled, mark_canceled},
};

/// Deliveries that are made ready, canceled, or failed unsent, in one step: some tens of
/// milliseconds, in which nothing else is claimed.
const ROWS_AT_ONCE: i64 = 500;

/// Deleted endpoints whose deliveries are canceled in one step.
const CANCELED_AT_ONCE: i64 = 64;

/// Whether a batch has as many rows as it may have, so that there may be more.
pub(super) fn is_full(rows: u64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= ROWS_AT_ONCE)
}

/// Makes some deliveries ready whose time has come, and returns how many.
pub(super) async fn make_ready(connection: &mut PgConnection) -> sqlx::Result<u64> {
    let mut tx = connection.begin().await?;
    let rows = queue::make_ready(&mut tx, ROWS_AT_ONCE).await?;
    tx.commit().await?;
    Ok(rows)
}

/// Cancels some of what is pending for deleted endpoints. `true` if nothing is left to cancel.
pub(super) async fn cancel(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let mut tx = connection.begin().await?;
    let deleted = lock_uncanceled(&mut tx, CANCELED_AT_ONCE).await?;
    if !deleted.is_empty() {
        let rows = queue::cancel(&mut tx, &deleted, ROWS_AT_ONCE).await?;
        if !is_full(rows) {
            mark_canceled(&mut tx, &deleted, true).await?;
        }
    }
    tx.commit().await?;
    Ok(deleted.is_empty())
}

/// Finds endpoints with something ready. An event that was being written while its endpoint was
/// deleted, and canceled, is found here: the endpoint is canceled once more.
pub(super) async fn look(
    connection: &mut PgConnection,
    after: Option<(Uuid, Uuid)>,
    limit: i32,
) -> sqlx::Result<Vec<ReadyEndpoint>> {
    let found = queue::ready_endpoints(connection, after, limit).await?;
    let deleted: Vec<_> = found
        .iter()
        .filter(|endpoint| endpoint.is_deleted)
        .map(|endpoint| (endpoint.account_id, endpoint.endpoint_id))
        .collect();
    if !deleted.is_empty() {
        let mut tx = connection.begin().await?;
        mark_canceled(&mut tx, &deleted, false).await?;
        tx.commit().await?;
    }
    Ok(found)
}

/// One short transaction: stores how attempts ended, and claims what these turns allow. In the
/// order of the turns, and of the events. What is to be sent has its body, unless it can't be
/// written.
pub(super) async fn mark_and_claim(
    connection: &mut PgConnection,
    ended: &[Ended],
    claim: Uuid,
    lease: Duration,
    turns: &[Turn],
    body: Body,
    commit: Commit,
) -> sqlx::Result<Vec<(Claimed, Option<Vec<u8>>)>> {
    let mut tx = connection.begin().await?;
    if !ended.is_empty() {
        let marked = queue::finish(&mut tx, ended).await?;
        let late = (ended.len() as u64).saturating_sub(marked);
        if late > 0 {
            tracing::warn!(late, "attempts ended after their claims; others count");
        }
        queue::disable_gone(&mut tx, ended).await?;
    }
    let mut claimed = Vec::new();
    if !turns.is_empty() {
        claimed = queue::claim(&mut tx, claim, lease, turns, ROWS_AT_ONCE).await?;
    }
    commit(tx).await?;
    let with_body = |one: Claimed| {
        let is_sent = one.is_due && !one.is_disabled;
        let written = is_sent.then(|| body(&one.event)).transpose();
        if let Err(error) = &written {
            tracing::error!(%error, event = %one.event.id, "an event can't be written");
        }
        (one, written.unwrap_or_default())
    };
    Ok(claimed.into_iter().map(with_body).collect())
}
