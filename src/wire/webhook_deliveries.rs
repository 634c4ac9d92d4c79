//! Deliveries to webhook endpoints as clients see them.

use serde::Serialize;

use crate::{
    domain::ids::{EventId, WebhookDeliveryId, WebhookEndpointId},
    webhooks::{Attempt, Delivery},
};

/// One attempt that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = WebhookAttempt)]
pub struct AttemptView {
    /// When it began, in unix seconds: the `t` of its signature.
    #[schema(example = 1_795_000_000)]
    pub at: i64,
    /// What the endpoint answered; null if it didn't.
    #[schema(required = true, example = 200)]
    pub response_status: Option<u16>,
    /// Why there is no answer that counts; null if the status says enough.
    #[schema(required = true, example = "timed out")]
    pub error: Option<String>,
    /// Milliseconds.
    #[schema(example = 84)]
    pub duration_ms: i64,
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at,
            response_status: attempt.response_status,
            error: attempt.error.clone(),
            duration_ms: attempt.duration_ms,
        }
    }
}

/// The delivery of an event to an endpoint, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = WebhookDelivery)]
pub struct WebhookDeliveryView {
    /// `whd_…`
    #[schema(example = "whd_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `webhook_delivery`.
    #[schema(example = "webhook_delivery")]
    pub object: &'static str,
    /// The oldest first.
    pub attempts: Vec<AttemptView>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// When the endpoint took it, in unix seconds.
    #[schema(required = true, example = 1_795_000_001)]
    pub delivered: Option<i64>,
    /// `we_…`
    #[schema(example = "we_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub endpoint: String,
    /// `evt_…`
    #[schema(example = "evt_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub event: String,
    /// What happened.
    #[schema(example = "charge.succeeded")]
    pub event_type: String,
    /// Unix seconds, at the earliest; null while an attempt is made, and if there will be none.
    #[schema(required = true)]
    pub next_attempt: Option<i64>,
    /// `pending`, `succeeded` or `failed`.
    #[schema(example = "succeeded")]
    pub status: &'static str,
}

impl From<&Delivery> for WebhookDeliveryView {
    fn from(delivery: &Delivery) -> Self {
        Self {
            id: WebhookDeliveryId(delivery.id).to_string(),
            object: "webhook_delivery",
            attempts: delivery.attempts.iter().map(AttemptView::from).collect(),
            created: delivery.created_at.timestamp(),
            delivered: delivery.delivered_at.map(|at| at.timestamp()),
            endpoint: WebhookEndpointId(delivery.endpoint_id).to_string(),
            event: EventId(delivery.event_id).to_string(),
            event_type: delivery.event_type.clone(),
            next_attempt: delivery.next_attempt_at.map(|at| at.timestamp()),
            status: delivery.status.as_str(),
        }
    }
}
