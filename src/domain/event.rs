//! What is told to whoever wants to know what happened.

use serde::Serialize;
use serde_json::value::RawValue;

macro_rules! event_types {
    ($($name:ident = $text:literal: $about:literal;)+) => {
        /// What happened. The strings are for programs and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventType {
            $(#[doc = $about] $name,)+
        }

        impl EventType {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The type with this name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == name)
            }

            /// The `type` of the event.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

event_types! {
    ChargeSucceeded = "charge.succeeded": "Money was taken, or promised where `captured` is false.";
    ChargeFailed = "charge.failed": "A card was declined.";
    ChargeCaptured = "charge.captured": "Promised money was taken.";
    ChargeUpdated = "charge.updated": "A charge's description, metadata or e-mail address changed.";
    ChargeRefunded = "charge.refunded": "Some or all of a charge was given back.";
    RefundCreated = "refund.created": "A refund was made.";
    RefundFailed = "refund.failed": "The processor refused to give the money back.";
    RefundUpdated = "refund.updated": "A refund's metadata changed.";
    OrderCreated = "order.created": "An order was opened.";
    OrderUpdated = "order.updated": "An order's metadata changed.";
    OrderPaid = "order.paid": "An order got its charge.";
    OrderCanceled = "order.canceled": "An open order was closed for good.";
    OrderRefunded = "order.refunded": "All of an order's charge was given back.";
    CheckoutCompleted = "checkout.completed": "A checkout's order is paid and its items are allocated.";
    CheckoutCanceled = "checkout.canceled": "A checkout was declined or out of stock, and is undone.";
}

/// An event, as clients see it and as webhooks carry it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Event {
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
    pub data: EventData,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Deliveries to webhook endpoints that are still to be made.
    #[schema(example = 0)]
    pub pending_webhooks: i64,
    /// The request that made it happen.
    pub request: EventRequest,
    /// What happened.
    #[serde(rename = "type")]
    #[schema(example = "charge.succeeded")]
    pub event_type: String,
}

/// What an event happened to.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct EventData {
    /// The charge, refund or order as it was right after the change.
    #[schema(value_type = Object)]
    pub object: Box<RawValue>,
}

/// The request that made an event happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct EventRequest {
    /// The `req_…` that executed.
    #[schema(example = "req_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// The key it executed under.
    #[schema(example = "8e03978e-40d5-43dd-bc93-6894a57f9324")]
    pub idempotency_key: String,
}
