//! What the worker does in the database, each step in one short transaction.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::{
    api::events::EventView,
    domain::{
        ids::{AccountId, WebhookDeliveryId, WebhookEndpointId},
        webhook_delivery::Attempt,
        webhook_endpoint::Secret,
    },
    store::{
        self,
        webhook_queue::{Claimed, Ended, Message, Next, ReadyEndpoint, Task, Turn},
    },
};

/// Deliveries that are made ready, canceled, or failed unsent, in one step: some tens of
/// milliseconds, in which nothing else is claimed.
const ROWS_AT_ONCE: i64 = 500;

/// Deleted endpoints whose deliveries are canceled in one step.
const CANCELED_AT_ONCE: i64 = 64;

/// Whether a batch has as many rows as it may have, so that there may be more.
fn is_full(rows: u64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= ROWS_AT_ONCE)
}

/// Some deliveries that were made ready.
pub(super) struct MadeReady {
    /// Whether there were any.
    pub(super) any: bool,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Makes some deliveries ready whose time has come.
pub(super) async fn make_ready(connection: &mut PgConnection) -> Result<MadeReady, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let rows = store::webhook_queue::make_ready(&mut tx, ROWS_AT_ONCE).await?;
    tx.commit().await?;
    Ok(MadeReady {
        any: rows > 0,
        more: is_full(rows),
    })
}

/// Cancels some of what is pending for deleted endpoints. `true` if nothing is left to cancel.
pub(super) async fn cancel(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let deleted = store::webhook_endpoints::lock_uncanceled(&mut tx, CANCELED_AT_ONCE).await?;
    if !deleted.is_empty() {
        let rows = store::webhook_queue::cancel(&mut tx, &deleted, ROWS_AT_ONCE).await?;
        if !is_full(rows) {
            store::webhook_endpoints::mark_canceled(&mut tx, &deleted, true).await?;
        }
    }
    tx.commit().await?;
    Ok(deleted.is_empty())
}

/// Finds endpoints with something ready. An event that was being written while its endpoint was
/// deleted, and canceled, is found here: the endpoint is canceled once more.
pub(super) async fn look(
    connection: &mut PgConnection,
    after: Option<(AccountId, WebhookEndpointId)>,
    limit: i32,
) -> Result<Vec<ReadyEndpoint>, sqlx::Error> {
    let found = store::webhook_queue::ready_endpoints(connection, after, limit).await?;
    let deleted: Vec<_> = found
        .iter()
        .filter(|endpoint| endpoint.is_deleted)
        .map(|endpoint| (endpoint.account_id, endpoint.endpoint_id))
        .collect();
    if !deleted.is_empty() {
        let mut tx = connection.begin().await?;
        store::webhook_endpoints::mark_canceled(&mut tx, &deleted, false).await?;
        tx.commit().await?;
    }
    Ok(found)
}

/// What follows from the turn of a delivery.
pub(super) struct Turned {
    /// Whose turn it was.
    pub(super) of: (AccountId, WebhookEndpointId),
    /// What follows.
    pub(super) then: Then,
}

/// What follows from the turn of a delivery.
pub(super) enum Then {
    /// An attempt.
    Send(Sending),
    /// Its end, unsent.
    End(Ended),
    /// Nothing: it is not due.
    Wait,
}

/// What an attempt needs to know.
pub(super) struct Sending {
    /// The account that the delivery belongs to.
    pub(super) account_id: AccountId,
    /// Which it is.
    pub(super) id: WebhookDeliveryId,
    /// Where it goes.
    pub(super) endpoint_id: WebhookEndpointId,
    /// Where that is.
    pub(super) url: String,
    /// What to sign with.
    pub(super) secret: Secret,
    /// What to send.
    pub(super) body: Vec<u8>,
    /// The request that made it happen.
    pub(super) request_id: String,
    /// The trace in which the event was written.
    pub(super) traceparent: Option<String>,
    /// What to sign as its time, in unix seconds by the database's clock.
    pub(super) at: i64,
    /// How many attempts have ended.
    pub(super) attempts: i32,
    /// How long after its event it was claimed, if this is the first attempt.
    pub(super) lag: Option<Duration>,
}

/// One short transaction: stores how attempts ended, and claims what these turns allow. In the
/// order of the turns, and of the events.
pub(super) async fn mark_and_claim(
    connection: &mut PgConnection,
    ended: &[Ended],
    claim: Uuid,
    lease: Duration,
    turns: &[Turn],
) -> Result<Vec<Turned>, sqlx::Error> {
    let mut tx = connection.begin().await?;
    if !ended.is_empty() {
        let marked = store::webhook_queue::finish(&mut tx, ended).await?;
        let late = (ended.len() as u64).saturating_sub(marked);
        if late > 0 {
            tracing::warn!(late, "attempts ended after their claims; others count");
        }
    }
    let mut claimed = Vec::new();
    if !turns.is_empty() {
        let unsent_max = ROWS_AT_ONCE;
        claimed = store::webhook_queue::claim(&mut tx, claim, lease, turns, unsent_max).await?;
    }
    let turned = claimed.into_iter().map(|one| what_follows(one, claim));
    let turned = turned.collect::<Result<_, _>>()?;
    tx.commit().await?;
    Ok(turned)
}

fn what_follows(claimed: Claimed, claim: Uuid) -> Result<Turned, sqlx::Error> {
    let Claimed {
        account_id,
        id,
        endpoint_id,
        at,
        task,
    } = claimed;
    let lag_of = |message: &Message| {
        let lag = (at - message.event.created_at).to_std().unwrap_or_default();
        (message.attempts == 0).then_some(lag)
    };
    let at_seconds = at.timestamp();
    let then = match task {
        Task::Send(message) => Then::Send(Sending {
            lag: lag_of(&message),
            account_id,
            id,
            endpoint_id,
            url: message.url,
            secret: message.secret,
            request_id: message.event.request_id.clone(),
            traceparent: message.traceparent,
            body: serde_json::to_vec(&EventView::from(message.event))
                .map_err(|error| sqlx::Error::Encode(error.into()))?,
            at: at_seconds,
            attempts: message.attempts,
        }),
        Task::Fail => Then::End(Ended {
            account_id,
            id,
            claim,
            attempt: Attempt::at_disabled_endpoint(at_seconds),
            next: Next::Failed,
        }),
        Task::Wait => Then::Wait,
    };
    let of = (account_id, endpoint_id);
    Ok(Turned { of, then })
}
