//! What the pages about webhooks are made of.

use std::{collections::HashMap, ops::Range};

use charge_once_console::{
    Attempted, Delivery, FoundDeliveries, Refusal, WantedDeliveries, WebhookEndpoint,
};
use charge_once_strict_params::pages::{Cursor, Page};
use chrono::{DateTime, Utc};

use super::{AccountPages, below, delivery, rows, uuid};
use crate::{
    domain::ids::{AccountId, WebhookDeliveryId, WebhookEndpointId},
    http::reads,
    webhooks::{
        DeliveryStatus, Slice,
        deliveries::{self, DeliveryFilter},
        endpoints, retry_failed,
    },
    wire::webhook_endpoints::{ENDPOINTS_MAX, WebhookEndpointView},
};

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
        let found = self
            .of(account)
            .await?
            .snapshot(account, move |connection| {
                Box::pin(async move {
                    let (id, limit) = (account.0, rows(limit));
                    let found =
                        deliveries::search(&mut *connection, id, filter, below, limit).await?;
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
        let found = self
            .of(account)
            .await?
            .snapshot(account, move |connection| {
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

    /// With how their newest attempts ended.
    pub(super) async fn tallied_endpoints(
        &self,
        account: AccountId,
    ) -> Result<Vec<WebhookEndpoint>, Refusal> {
        let found = self
            .of(account)
            .await?
            .snapshot(account, move |connection| {
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
        let page = Page {
            limit: rows(limit),
            cursor: Cursor::Start,
            created_from: made.start,
            created_before: made.end,
        };
        let slice = Slice {
            rows: page.limit,
            ..reads::slice(&page)
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
}
