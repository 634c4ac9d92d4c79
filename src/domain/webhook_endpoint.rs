//! Where an account wants its events sent.

use chrono::{DateTime, Utc};

use super::{ids::WebhookEndpointId, metadata::Metadata};

/// How many endpoints an account may have: each multiplies what an event costs to write.
pub const ENDPOINTS_MAX: i64 = 16;

/// Stands for every type of event, those to come included.
pub const EVERY_EVENT: &str = "*";

/// A webhook endpoint that is to be made.
#[derive(Debug, Clone)]
pub struct NewWebhookEndpoint {
    /// As the client wrote it. `check_url` refuses text that parsing would change.
    pub url: String,
    /// [`EVERY_EVENT`], or names of [`EventType`](super::event::EventType)s.
    pub enabled_events: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
}

/// A webhook endpoint. Its secret is read where something is signed, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// Which one.
    pub id: WebhookEndpointId,
    /// Where events are sent.
    pub url: String,
    /// [`EVERY_EVENT`], or types of events.
    pub enabled_events: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether nothing is sent there for now.
    pub disabled: bool,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}
