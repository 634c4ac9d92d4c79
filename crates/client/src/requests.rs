//! What is asked for.
//!
//! Promise: what is left out is not sent, so that the service's defaults hold.

use std::collections::BTreeMap;

use serde::Serialize;

use super::objects::Address;

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
    /// `ch_…`; empty if the intent is named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub charge: String,
    /// `pi_…`, whose charge is given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_intent: Option<String>,
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

/// A card that is to be made ready for later payments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewSetupIntent {
    /// Whether it is tried at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// Who gets it: `cus_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// `pm_…`, or a test card such as `pm_card_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
    /// Where its holder returns to, with `confirm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
    /// `off_session`, which is the service's default, or `on_session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<String>,
}

/// A change to a setup intent: what is `None` stays, what is empty is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SetupIntentUpdate {
    /// Who gets the method: `cus_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// `pm_…`, or a test card such as `pm_card_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
}

/// An attempt to set a card up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SetupConfirmation {
    /// `pm_…`, or a test card such as `pm_card_visa`; `None` for what the setup intent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
    /// Where the card's holder returns to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
}

/// Giving the setup of a card up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SetupCancellation {
    /// `abandoned`, `requested_by_customer` or `duplicate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_reason: Option<String>,
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

/// An address, as a customer or a payment method is given it. What is `None` is none.
pub type NewAddress = Address;

/// Where goods go, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewShipping {
    /// Where they go.
    pub address: NewAddress,
    /// Who gets them.
    pub name: String,
    /// For the carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
}

/// What invoices would be paid with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewInvoiceSettings {
    /// `pm_…`, attached to the customer.
    pub default_payment_method: String,
}

/// A new customer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewCustomer {
    /// Where they live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NewAddress>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Several customers may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// A person's or a company's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `pm_…`, or a test card such as `pm_card_visa`: it is attached to the customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
    /// In any notation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// IETF language tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_locales: Option<Vec<String>>,
    /// Where goods go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shipping: Option<NewShipping>,
}

/// A change to a customer: what is `None` stays, and what is empty is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CustomerUpdate {
    /// Replaces the whole address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NewAddress>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Several customers may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// What invoices would be paid with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invoice_settings: Option<NewInvoiceSettings>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// A person's or a company's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In any notation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// IETF language tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_locales: Option<Vec<String>>,
    /// Replaces the whole shipping address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shipping: Option<NewShipping>,
}

/// A new payment method, of a test card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewPaymentMethod {
    /// Always `card`.
    #[serde(rename = "type")]
    pub method_type: &'static str,
    /// The card.
    pub card: NewCard,
    /// Who the bill goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_details: Option<NewBillingDetails>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

impl NewPaymentMethod {
    /// Of a test token, such as `tok_visa`.
    pub fn new(token: impl Into<String>) -> Self {
        Self {
            method_type: "card",
            card: NewCard {
                token: token.into(),
            },
            billing_details: None,
            metadata: Metadata::new(),
        }
    }
}

/// A card as a new payment method names it: by a token only, because requests may be kept on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewCard {
    /// A test token.
    pub token: String,
}

/// Who a bill goes to. In an update, what is `None` stays, and what is empty is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewBillingDetails {
    /// Where they live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NewAddress>,
    /// As a person writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// A person's or a company's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In any notation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
}

/// A change to a payment method of a customer: what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PaymentMethodUpdate {
    /// `unspecified`, `limited` or `always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_redisplay: Option<String>,
    /// Who the bill goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_details: Option<NewBillingDetails>,
    /// The card's new expiry date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardUpdate>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// The new expiry date of a card.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CardUpdate {
    /// 1 to 12.
    pub exp_month: i64,
    /// Four digits.
    pub exp_year: i64,
}

/// A new payment intent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewPaymentIntent {
    /// Minor units.
    pub amount: i64,
    /// ISO 4217.
    pub currency: String,
    /// `automatic_async`, which is the service's default, `automatic` or `manual`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture_method: Option<String>,
    /// Whether it is confirmed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<bool>,
    /// Who pays: `cus_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// With `confirm`: the card's holder isn't there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_session: Option<bool>,
    /// `pm_…`, or a test card such as `pm_card_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
    /// Where the card's holder returns to, with `confirm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
    /// `off_session` or `on_session`: the customer keeps the method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_future_usage: Option<String>,
}

impl NewPaymentIntent {
    /// One that waits for a method.
    pub fn new(amount: i64, currency: impl Into<String>) -> Self {
        Self {
            amount,
            currency: currency.into(),
            ..Self::default()
        }
    }
}

/// A change to a payment intent: what is `None` stays, what is empty is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PaymentIntentUpdate {
    /// Minor units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    /// Who pays: `cus_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Your own names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// `pm_…`, or a test card such as `pm_card_visa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
}

/// How a payment intent is confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Confirmation {
    /// The card's holder isn't there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_session: Option<bool>,
    /// `pm_…`, or a test card such as `pm_card_visa`; `None` for what the intent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_method: Option<String>,
    /// Where the card's holder returns to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_url: Option<String>,
}

/// How much of a payment intent is captured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct IntentCapture {
    /// Minor units; `None` for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_to_capture: Option<i64>,
}

/// Why a payment intent is canceled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Cancellation {
    /// `duplicate`, `fraudulent`, `requested_by_customer` or `abandoned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_reason: Option<String>,
}

/// A fault that acts on a test account's requests by itself: on those of `route`, or on webhooks
/// about `event`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NewFaultPlan {
    /// `POST /refunds`, `/refunds/{id}`, or `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// A type of event, or `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// `reply_lost`, `503`, `webhook_twice`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// How long a delay is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// It acts on the first N.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<i64>,
    /// It acts on every Nth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<i64>,
    /// The chance that it acts, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,
    /// Makes the chance the same each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// It acts at most this often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<i64>,
}
