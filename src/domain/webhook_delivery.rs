//! The delivery of one event to one endpoint.

pub use charge_once_webhooks::{Attempt, DeliveryStatus};
use chrono::{DateTime, Utc};

use super::ids::{EventId, WebhookDeliveryId, WebhookEndpointId};

/// The delivery of an event to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// Which one.
    pub id: WebhookDeliveryId,
    /// Where it goes.
    pub endpoint: WebhookEndpointId,
    /// What it carries.
    pub event: EventId,
    /// What happened, as the event says.
    pub event_type: String,
    /// How far it is.
    pub status: DeliveryStatus,
    /// The oldest first.
    pub attempts: Vec<Attempt>,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When the endpoint took it.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When the next attempt is made at the earliest. `None` while one is made, and if there will
    /// be none.
    pub next_attempt_at: Option<DateTime<Utc>>,
}
