//! What the pages about webhooks are made of.

use std::{collections::HashMap, ops::Range};

use charge_once_console::{
    Attempted, Delivery, FoundDeliveries, Refusal, WantedDeliveries, WebhookEndpoint,
};
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{AccountPages, below, rows, uuid};
use crate::{
    database::PgConnection,
    domain::ids::*,
    webhooks::{
        self, DeliveryStatus, Slice,
        deliveries::{self, DeliveryFilter},
        endpoints, retry_failed, retry_now,
    },
    wire::webhook_endpoints::{ENDPOINTS_MAX, WebhookEndpointView},
};

/// Deliveries of a story, an event or an endpoint that are shown.
pub(super) const DELIVERIES_MAX: i64 = 200;

impl AccountPages {
    pub(super) async fn searched_deliveries(
        &self,
        account: AccountId,
        wanted: &WantedDeliveries,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Option<FoundDeliveries>, Refusal> {
        let status = wanted.status.as_deref().and_then(DeliveryStatus::parse);
        let endpoint = wanted.endpoint.as_deref();
        let endpoint_id = endpoint.and_then(uuid::<WebhookEndpointId>);
        let is_unknown = endpoint.is_some() && endpoint_id.is_none();
        let Some(below) = below::<WebhookDeliveryId>(before).filter(|_| !is_unknown) else {
            return Ok(None);
        };
        let filter = DeliveryFilter {
            status,
            endpoint_id,
        };
        let app = self.of(account).await?;
        let found = app.snapshot(account, move |connection| {
            Box::pin(async move {
                let (id, limit) = (account.0, rows(limit));
                let found = deliveries::search(&mut *connection, id, filter, below, limit).await?;
                let ended_at = match rows(found.len()) < limit {
                    true => deliveries::searched_to(connection, id, below).await?,
                    false => None,
                };
                Ok((found, ended_at))
            })
        });
        let (found, ended_at) = found.await?;
        Ok(Some(FoundDeliveries {
            deliveries: found.into_iter().map(delivery).collect(),
            ended_at: ended_at.map(|id| WebhookDeliveryId(id).to_string()),
        }))
    }

    pub(super) async fn attempted_delivery(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<(Delivery, Vec<Attempted>)>, Refusal> {
        let Some(id) = WebhookDeliveryId::parse(id) else {
            return Ok(None);
        };
        let app = self.of(account).await?;
        let found = app.snapshot(account, move |connection| {
            Box::pin(async move {
                let found = deliveries::find(&mut *connection, account.0, id.0).await?;
                let replies = deliveries::replies(connection, account.0, id.0).await?;
                Ok(found.map(|found| (found, replies)))
            })
        });
        let Some((found, replies)) = found.await? else {
            return Ok(None);
        };
        let mut replies: HashMap<_, _> = replies.into_iter().collect();
        let attempts = found
            .attempts
            .iter()
            .zip(1..)
            .map(|(attempt, number)| Attempted {
                at: DateTime::from_timestamp(attempt.at, 0).unwrap_or_default(),
                succeeded: attempt.succeeded(),
                answer: attempt.to_string(),
                milliseconds: attempt.duration_ms,
                reply: replies.remove(&number),
            });
        let attempts = attempts.collect();
        Ok(Some((delivery(found), attempts)))
    }

    /// The endpoints, with how their newest attempts ended.
    pub(super) async fn tallied_endpoints(
        &self,
        account: AccountId,
    ) -> Result<Vec<WebhookEndpoint>, Refusal> {
        let app = self.of(account).await?;
        let found = app.snapshot(account, move |connection| {
            Box::pin(async move {
                let all = Slice::newest(ENDPOINTS_MAX);
                let found = endpoints::list(&mut *connection, account.0, &all).await?;
                let ids: Vec<_> = found.iter().map(|endpoint| endpoint.id).collect();
                let tallies = deliveries::tallies(connection, account.0, &ids).await?;
                Ok((found, tallies))
            })
        });
        let (found, tallies) = found.await?;
        let shown = found.iter().map(|endpoint| {
            let mut tallies = tallies.iter();
            let tally = tallies.find(|tally| tally.endpoint_id == endpoint.id);
            let view = WebhookEndpointView::from(endpoint);
            WebhookEndpoint {
                id: view.id,
                url: view.url,
                enabled_events: view.enabled_events,
                never_sent: view.never_sent,
                status: view.status,
                attempts: tally.map_or(0, |tally| tally.attempts),
                succeeded: tally.map_or(0, |tally| tally.succeeded),
            }
        });
        Ok(shown.collect())
    }

    pub(super) async fn retried_deliveries(
        &self,
        account: AccountId,
        endpoint: &str,
        made: Range<Option<DateTime<Utc>>>,
        limit: usize,
    ) -> Result<Option<u64>, Refusal> {
        let Some(endpoint) = WebhookEndpointId::parse(endpoint) else {
            return Ok(None);
        };
        let app = self.of(account).await?;
        let slice = Slice {
            created_from: made.start,
            created_before: made.end,
            ..Slice::newest(rows(limit))
        };
        let retrying = app.write(account, move |tx| {
            Box::pin(async move { retry_failed(tx, account.0, endpoint.0, &slice).await })
        });
        let due = retrying.await?;
        if due > 0 {
            app.wake_webhooks.notify_one();
        }
        Ok(Some(due))
    }

    pub(super) async fn retried_delivery(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<bool>, Refusal> {
        let Some(id) = WebhookDeliveryId::parse(id) else {
            return Ok(None);
        };
        let app = self.of(account).await?;
        let retrying = app.write(account, move |tx| Box::pin(retry_now(tx, account.0, id.0)));
        let is_due = retrying.await?;
        if is_due == Some(true) {
            app.wake_webhooks.notify_one();
        }
        Ok(is_due)
    }
}

/// The deliveries of events that happened one after the other, the oldest first: among the last
/// ones of the account when the last of these events happened. A delivery's id begins with the
/// millisecond of its event's.
pub(super) async fn deliveries_of(
    connection: &mut PgConnection,
    account: AccountId,
    events: &[Uuid],
) -> Result<Vec<Delivery>, sqlx::Error> {
    let Some(last) = events.iter().max() else {
        return Ok(Vec::new());
    };
    // Greater than each id of this millisecond.
    let below = Uuid::from_u128(last.as_u128() | (u128::MAX >> 48));
    let (all, max) = (DeliveryFilter::default(), DELIVERIES_MAX);
    let mut found = deliveries::search(connection, account.0, all, below, max).await?;
    found.retain(|delivery| events.contains(&delivery.event_id));
    found.reverse();
    Ok(found.into_iter().map(delivery).collect())
}

pub(super) fn delivery(delivery: webhooks::Delivery) -> Delivery {
    Delivery {
        id: WebhookDeliveryId(delivery.id).to_string(),
        created_at: delivery.created_at,
        event_type: delivery.event_type,
        event: EventId(delivery.event_id).to_string(),
        endpoint: WebhookEndpointId(delivery.endpoint_id).to_string(),
        status: delivery.status.as_str(),
        attempts: delivery.attempts.len(),
        last_answer: delivery.attempts.last().map(ToString::to_string),
        next_attempt_at: delivery.next_attempt_at,
    }
}
