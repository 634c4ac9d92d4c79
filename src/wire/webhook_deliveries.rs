//! Deliveries to webhook endpoints as clients see them.

use super::prelude::*;
use crate::webhooks::{Attempt, Delivery};

views! {
    /// One attempt that ended.
    pub struct AttemptView as WebhookAttempt from attempt: &Attempt {
        /// When it began, in unix seconds: the `t` of its signature.
        at: i64 [example = 1_795_000_000] = attempt.at;
        /// What the endpoint answered; null if it didn't.
        maybe response_status: u16 [example = 200] = attempt.response_status;
        /// Why there is no answer that counts; null if the status says enough.
        maybe error: String [example = "timed out"] = attempt.error.clone();
        /// Milliseconds.
        duration_ms: i64 [example = 84] = attempt.duration_ms;
    }

    /// The delivery of an event to an endpoint, as clients see it.
    pub struct WebhookDeliveryView as WebhookDelivery from delivery: &Delivery {
        /// `whd_…`
        id: String [example = "whd_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            WebhookDeliveryId(delivery.id).to_string();
        /// Always `webhook_delivery`.
        always object: &'static str = "webhook_delivery";
        /// The oldest first.
        attempts: Vec<AttemptView> = delivery.attempts.iter().map(AttemptView::from).collect();
        created = delivery.created_at.timestamp();
        /// When the endpoint took it, in unix seconds.
        maybe delivered: i64 [example = 1_795_000_001] =
            delivery.delivered_at.map(|at| at.timestamp());
        /// `we_…`
        endpoint: String [example = "we_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            WebhookEndpointId(delivery.endpoint_id).to_string();
        /// `evt_…`
        event: String [example = "evt_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            EventId(delivery.event_id).to_string();
        /// What happened.
        event_type: String [example = "charge.succeeded"] = delivery.event_type.clone();
        /// Unix seconds, at the earliest; null while an attempt is made, and if there will be none.
        maybe next_attempt: i64 = delivery.next_attempt_at.map(|at| at.timestamp());
        /// `pending`, `succeeded` or `failed`.
        status: &'static str [example = "succeeded"] = delivery.status.as_str();
    }
}
