//! What is asked for.
//!
//! Promise: what is left out is not sent, so that the service's defaults hold.

use std::collections::BTreeMap;

use serde::Serialize;

/// Your own names for things; on an update an empty value removes a name.
pub type Metadata = BTreeMap<String, String>;

/// A new charge. Cards are given as tokens only: requests may be kept on disk, and a card number
/// must not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewCharge {
    /// Minor units.
    pub amount: i64,
    /// ISO 4217.
    pub currency: String,
    /// A test token; the service's default is `tok_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `false` only promises the money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<bool>,
    /// Your own reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// For the card statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_descriptor: Option<String>,
    /// Where the receipt goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_email: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

impl NewCharge {
    /// Of so many minor units.
    pub fn new(amount: i64, currency: impl Into<String>) -> Self {
        Self {
            amount,
            currency: currency.into(),
            ..Self::default()
        }
    }
}

/// A change to a charge: what is `None` stays, what is empty is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChargeUpdate {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where the receipt goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_email: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// A change to a refund or an order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MetadataUpdate {
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// Taking promised money.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Capture {
    /// Minor units; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
}

/// A new refund.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewRefund {
    /// `ch_…`
    pub charge: String,
    /// Minor units; `None` for what remains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    /// `duplicate`, `fraudulent` or `requested_by_customer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// A new order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewOrder {
    /// ISO 4217.
    pub currency: String,
    /// The lines.
    pub items: Vec<NewItem>,
    /// Your own reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Your own id of the order: a second key to it, which never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_order_id: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// A line of a new order or checkout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewItem {
    /// Your stock-keeping unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How many.
    pub quantity: i64,
    /// Minor units each.
    pub unit_amount: i64,
}

/// Paying an order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Payment {
    /// A test token; the service's default is `tok_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Something to be sold: an order, its charge and its items in one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewCheckout {
    /// ISO 4217.
    pub currency: String,
    /// The lines, each with a stock-keeping unit.
    pub items: Vec<NewItem>,
    /// A test token; the service's default is `tok_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Your own reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Your own names; the order gets them too.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// Where events are to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewWebhookEndpoint {
    /// https or http, and not a private address.
    pub url: String,
    /// `charge.succeeded`, …, or `*` for all.
    pub enabled_events: Vec<String>,
    /// The version of Stripe's API that events are to name there, for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Whether the headers of Standard Webhooks are sent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_webhooks: Option<bool>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// A change to a webhook endpoint: what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct WebhookEndpointUpdate {
    /// https or http, and not a private address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `charge.succeeded`, …, or `*` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_events: Option<Vec<String>>,
    /// For people; an empty one is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// `true` sends nothing there for now, `false` sends new events again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Whether the headers of Standard Webhooks are sent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_webhooks: Option<bool>,
}
