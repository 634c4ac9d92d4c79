//! Events as clients see them and as webhooks carry them.

use charge_once_strict_params::{
    Field, ValueKind,
    schema::{reference, text},
};
use serde::{Serialize, Serializer, ser::Error};
use serde_json::value::RawValue;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use crate::{
    domain::{event::EventType, ids::EventId},
    webhooks::Event,
};

impl ValueKind for EventType {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, charge_once_strict_params::Error> {
        let Some(text) = field.fields.text(field.name, usize::MAX)? else {
            return Ok(None);
        };
        let known = Self::parse(&text).map(Some);
        known.ok_or_else(|| field.invalid("Must be a type of event."))
    }

    fn schema() -> RefOr<Schema> {
        reference::<Self>()
    }
}

impl PartialSchema for EventType {
    fn schema() -> RefOr<Schema> {
        let types = Self::ALL.iter().map(|event_type| event_type.as_str());
        text().enum_values(Some(types)).into()
    }
}

impl ToSchema for EventType {}

/// An event, as clients see it and as webhooks carry it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// `evt_…`
    #[schema(example = "evt_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `event`.
    #[schema(example = "event")]
    pub object: &'static str,
    /// Always null: there is one version of this API.
    #[schema(required = true, value_type = Option<String>)]
    pub api_version: (),
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// What it happened to.
    pub data: EventDataView,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Deliveries to webhook endpoints that are still to be made.
    #[schema(example = 0)]
    pub pending_webhooks: i64,
    /// The request that made it happen.
    pub request: EventRequestView,
    /// What happened.
    #[serde(rename = "type")]
    #[schema(example = "charge.succeeded")]
    pub event_type: String,
}

/// What an event happened to.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = EventData)]
pub struct EventDataView {
    /// The charge, refund, order or checkout as it was right after the change.
    #[serde(serialize_with = "as_it_was_shown")]
    #[schema(value_type = Object)]
    pub object: String,
}

/// The JSON text itself, and not a string that holds it.
fn as_it_was_shown<S: Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let json: &RawValue = serde_json::from_str(json).map_err(S::Error::custom)?;
    json.serialize(serializer)
}

/// The request that made an event happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = EventRequest)]
pub struct EventRequestView {
    /// The `req_…` that executed.
    #[schema(example = "req_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// The key it executed under; null for a DELETE and for the form of a holder's page, which need
    /// none.
    #[schema(required = true, example = "8e03978e-40d5-43dd-bc93-6894a57f9324")]
    pub idempotency_key: Option<String>,
}

/// The key of an event, if a client sent it: a DELETE has none, and that of a holder's page begins
/// with a comma, which no client can send.
pub fn key_of_client(key: String) -> Option<String> {
    let is_sent = !key.is_empty() && !key.starts_with(',');
    is_sent.then_some(key)
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        Self {
            id: EventId(event.id).to_string(),
            object: "event",
            api_version: (),
            created: event.created_at.timestamp(),
            data: EventDataView {
                object: event.object,
            },
            livemode: false,
            pending_webhooks: event.pending_webhooks,
            request: EventRequestView {
                id: event.request_id,
                idempotency_key: key_of_client(event.idempotency_key),
            },
            event_type: event.event_type,
        }
    }
}
