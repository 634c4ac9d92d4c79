//! What comes back.
//!
//! Promise: what a newer service adds to an object is ignored, so that an old client reads it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::requests::Metadata;

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Charge {
    /// `ch_…`
    pub id: String,
    /// Minor units.
    pub amount: i64,
    /// Minor units taken.
    pub amount_captured: i64,
    /// Minor units given back.
    pub amount_refunded: i64,
    /// Whether the money was taken.
    pub captured: bool,
    /// Unix seconds.
    pub created: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// Your own reference.
    pub customer: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Why it failed.
    pub failure_code: Option<String>,
    /// Your own names.
    pub metadata: Metadata,
    /// The order that it pays.
    pub order: Option<String>,
    /// Whether the money is promised or taken.
    pub paid: bool,
    /// Where the receipt goes.
    pub receipt_email: Option<String>,
    /// Whether all of it was given back.
    pub refunded: bool,
    /// On the card statement.
    pub statement_descriptor: Option<String>,
    /// `succeeded`, `pending` or `failed`.
    pub status: String,
}

/// A refund.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refund {
    /// `re_…`
    pub id: String,
    /// Minor units.
    pub amount: i64,
    /// `ch_…`
    pub charge: String,
    /// Unix seconds.
    pub created: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// Your own names.
    pub metadata: Metadata,
    /// The intent of its charge.
    pub payment_intent: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// `succeeded`, …
    pub status: String,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Customer {
    /// `cus_…`
    pub id: String,
    /// Where they live.
    pub address: Option<Address>,
    /// Unix seconds; `None` of a customer who was deleted, as is all else but the id.
    pub created: Option<i64>,
    /// Whether they were deleted.
    #[serde(default)]
    pub deleted: bool,
    /// For people.
    pub description: Option<String>,
    /// As it was sent.
    pub email: Option<String>,
    /// Your own names.
    #[serde(default)]
    pub metadata: Metadata,
    /// A person's or a company's.
    pub name: Option<String>,
    /// As it was sent.
    pub phone: Option<String>,
    /// What invoices would be paid with.
    pub invoice_settings: Option<InvoiceSettings>,
}

/// What invoices would be paid with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct InvoiceSettings {
    /// `pm_…`
    pub default_payment_method: Option<String>,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Address {
    /// A city, town or village.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Two letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// Street and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line1: Option<String>,
    /// Apartment, floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line2: Option<String>,
    /// Also called a ZIP code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub postal_code: Option<String>,
    /// A state, province or region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PaymentMethod {
    /// `pm_…`
    pub id: String,
    /// `unspecified`, `limited` or `always`.
    pub allow_redisplay: String,
    /// Who the bill goes to.
    pub billing_details: BillingDetails,
    /// All that is kept of the card.
    pub card: Card,
    /// Unix seconds.
    pub created: i64,
    /// Whose it is: `cus_…`
    pub customer: Option<String>,
    /// Your own names.
    pub metadata: Metadata,
}

/// Who a bill goes to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BillingDetails {
    /// Where they live.
    pub address: Address,
    /// As it was sent.
    pub email: Option<String>,
    /// As it was sent.
    pub name: Option<String>,
    /// As it was sent.
    pub phone: Option<String>,
}

/// All that is kept of a card.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Card {
    /// `visa`, …
    pub brand: String,
    /// 1 to 12.
    pub exp_month: i64,
    /// Four digits.
    pub exp_year: i64,
    /// Equal for two methods of the same card.
    pub fingerprint: String,
    /// The last four digits of its number.
    pub last4: String,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Order {
    /// `or_…`
    pub id: String,
    /// The sum, in minor units.
    pub amount: i64,
    /// The charge that paid it.
    pub charge: Option<String>,
    /// Your own id.
    pub client_order_id: Option<String>,
    /// Unix seconds.
    pub created: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// Your own reference.
    pub customer: Option<String>,
    /// The lines.
    pub items: Vec<Item>,
    /// Your own names.
    pub metadata: Metadata,
    /// `open`, `paid`, `canceled` or `refunded`.
    pub status: String,
}

/// A line of an order or a checkout.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Item {
    /// Quantity times unit amount.
    pub amount: i64,
    /// For people.
    pub description: Option<String>,
    /// How many.
    pub quantity: i64,
    /// Your stock-keeping unit.
    pub sku: Option<String>,
    /// Minor units each.
    pub unit_amount: i64,
}

/// An order, its charge and its items, and how far it is with them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Checkout {
    /// `co_…`
    pub id: String,
    /// The sum of the items, in minor units.
    pub amount: i64,
    /// The charge, a declined one too, once there is one.
    pub charge: Option<String>,
    /// Unix seconds.
    pub created: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// Your own reference.
    pub customer: Option<String>,
    /// Why it is canceled: the code of the error that was answered.
    pub failure_code: Option<String>,
    /// Why it is canceled, for people.
    pub failure_message: Option<String>,
    /// The lines.
    pub items: Vec<Item>,
    /// Your own names.
    pub metadata: Metadata,
    /// The order, once there is one.
    pub order: Option<String>,
    /// The refund of a charge that was given back.
    pub refund: Option<String>,
    /// `in_progress`, `completed` or `canceled`.
    pub status: String,
    /// What was run, and what is to be.
    pub steps: Vec<CheckoutStep>,
}

/// One step of a checkout.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CheckoutStep {
    /// `create_order`, `create_charge`, `allocate_inventory`, `create_refund` or `cancel_order`.
    pub name: String,
    /// `pending`, `done`, `refused` or `skipped`.
    pub state: String,
    /// The id of what it made or changed, once it ended.
    pub resource: Option<String>,
    /// How often a process began to run it.
    pub attempts: i64,
}

/// One payment, through as many cards as it takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PaymentIntent {
    /// `pi_…`
    pub id: String,
    /// Minor units.
    pub amount: i64,
    /// Minor units that are promised and not taken.
    pub amount_capturable: i64,
    /// Minor units taken.
    pub amount_received: i64,
    /// Why it was canceled.
    pub cancellation_reason: Option<String>,
    /// `automatic_async`, `automatic` or `manual`.
    pub capture_method: String,
    /// What a shop's pages know it by.
    pub client_secret: String,
    /// Unix seconds.
    pub created: i64,
    /// ISO 4217, lower case.
    pub currency: String,
    /// Who pays.
    pub customer: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// The newest charge, a failed one included.
    pub latest_charge: Option<String>,
    /// Your own names.
    pub metadata: Metadata,
    /// What the card's holder has to do.
    pub next_action: Option<NextAction>,
    /// What is charged.
    pub payment_method: Option<String>,
    /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `processing`,
    /// `requires_capture`, `succeeded` or `canceled`.
    pub status: String,
}

/// A card that is made ready for later payments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SetupIntent {
    /// `seti_…`
    pub id: String,
    /// Why it was canceled.
    pub cancellation_reason: Option<String>,
    /// What a shop's pages know it by.
    pub client_secret: String,
    /// Unix seconds.
    pub created: i64,
    /// Who gets the method.
    pub customer: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Your own names.
    pub metadata: Metadata,
    /// What the card's holder has to do.
    pub next_action: Option<NextAction>,
    /// What is set up.
    pub payment_method: Option<String>,
    /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `succeeded` or
    /// `canceled`.
    pub status: String,
    /// `off_session` or `on_session`.
    pub usage: String,
}

/// What a card's holder has to do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NextAction {
    /// The page to open.
    pub redirect_to_url: RedirectToUrl,
}

/// A page that a card's holder opens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RedirectToUrl {
    /// Where the page sends the holder afterwards.
    pub return_url: Option<String>,
    /// The page.
    pub url: String,
}

/// How many of one stock-keeping unit are there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Inventory {
    /// What is left to sell.
    pub quantity: i64,
    /// Your stock-keeping unit.
    pub sku: String,
    /// When it was last set or taken from, in unix seconds.
    pub updated: i64,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// `evt_…`
    pub id: String,
    /// Unix seconds.
    pub created: i64,
    /// `charge.succeeded`, …
    #[serde(rename = "type")]
    pub event_type: String,
    /// The version of Stripe's API that its request named, or else the service's default.
    pub api_version: Option<String>,
    /// What it happened to.
    pub data: EventData,
    /// What made it happen.
    pub request: EventRequest,
}

/// What an event happened to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EventData {
    /// The object as it was right after.
    pub object: serde_json::Value,
    /// The version of the object right after, greater with each change: of two events, the one with
    /// the greater version is newer. Events of checkouts have none, nor have those of release
    /// 0.2.
    pub object_version: Option<i64>,
    /// Of a change: the members that changed, with the values that they had.
    pub previous_attributes: Option<serde_json::Value>,
}

/// The request that made an event happen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EventRequest {
    /// The `req_…` that executed.
    pub id: String,
    /// The key it executed under; `None` for a DELETE without one.
    pub idempotency_key: Option<String>,
}

/// Where events are sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WebhookEndpoint {
    /// `we_…`
    pub id: String,
    /// Unix seconds.
    pub created: i64,
    /// For people.
    pub description: Option<String>,
    /// `charge.succeeded`, …, or `*` for all.
    pub enabled_events: Vec<String>,
    /// The version of Stripe's API that events name there; `None`: that of their request.
    pub api_version: Option<String>,
    /// Your own names.
    pub metadata: Metadata,
    /// Those of the enabled events that happen at Stripe only.
    #[serde(default)]
    pub never_sent: Vec<String>,
    /// Whether the headers of Standard Webhooks are sent too.
    #[serde(default)]
    pub standard_webhooks: bool,
    /// What events are signed with: only in the answer to its creation.
    pub secret: Option<WebhookSecret>,
    /// `enabled` or `disabled`.
    pub status: String,
    /// Where.
    pub url: String,
}

/// What events are signed with. It shows itself only where [`WebhookSecret::reveal`] is called, so
/// that no log line can hold it by accident.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct WebhookSecret(String);

impl WebhookSecret {
    /// `whsec_…`, as signatures are checked with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// The delivery of an event to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WebhookDelivery {
    /// `whd_…`
    pub id: String,
    /// Those that ended, the oldest first.
    pub attempts: Vec<WebhookAttempt>,
    /// Unix seconds.
    pub created: i64,
    /// When the endpoint took it, in unix seconds.
    pub delivered: Option<i64>,
    /// `we_…`
    pub endpoint: String,
    /// `evt_…`
    pub event: String,
    /// `charge.succeeded`, …
    pub event_type: String,
    /// Unix seconds, at the earliest.
    pub next_attempt: Option<i64>,
    /// `pending`, `succeeded` or `failed`.
    pub status: String,
}

/// One attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WebhookAttempt {
    /// When it began, in unix seconds.
    pub at: i64,
    /// What the endpoint answered.
    pub response_status: Option<u16>,
    /// Why there is no answer that counts.
    pub error: Option<String>,
    /// Milliseconds.
    pub duration_ms: i64,
}

/// What the service knows about a key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KeyStatus {
    /// The key.
    pub key: String,
    /// `completed`, `abandoned` (it was given up), `expired` (its outcome is no longer kept),
    /// `in_flight`, or `in_doubt`: an attempt may have been executed.
    pub status: String,
    /// Of its request.
    pub method: Option<String>,
    /// Of its request.
    pub path: Option<String>,
    /// Of its request: SHA-256, in hexadecimal.
    pub fingerprint: Option<String>,
    /// The status that every retry gets.
    pub response_status: Option<u16>,
    /// The id of what was made.
    pub resource: Option<String>,
    /// The `req_…` that executed.
    pub request: Option<String>,
    /// What it is linked to.
    pub workflow: Option<String>,
    /// Unix seconds; `None` while nothing of it is committed.
    pub created: Option<i64>,
    /// Unix seconds.
    pub expires: Option<i64>,
}

/// An account for one test. It has no `Debug`, which would show the key.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct TestAccount {
    /// `acct_…`
    pub id: String,
    /// Only this answer has it.
    pub api_key: String,
    /// Unix seconds.
    pub expires_at: i64,
}

/// Which faults act on which requests of a test account, or on its webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FaultPlan {
    /// `flt_…`
    pub id: String,
    /// On how many it has acted.
    pub acted: i64,
    /// The type of event that it is about.
    pub event: Option<String>,
    /// It acts on every Nth.
    pub every: Option<i64>,
    /// `reply_lost`, `503`, …
    pub fault: String,
    /// It acts on the first N.
    pub first: Option<i64>,
    /// How many it was about.
    pub matched: i64,
    /// The chance that it acts, in percent.
    pub percent: Option<i64>,
    /// The route that it is about.
    pub route: Option<String>,
    /// The seed of the chance.
    pub seed: i64,
}

/// What is wrong with the client that uses a test account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Report {
    /// On how many requests a fault acted.
    pub faults: usize,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// There may be older requests than this one: `before` of the next report.
    pub next: Option<String>,
    /// How many requests it is about.
    pub requests: usize,
    /// In one line.
    pub summary: String,
}

/// One thing that is wrong with a client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Finding {
    /// What to change.
    pub change: String,
    /// How many requests show it.
    pub count: usize,
    /// The webhook that the client answered: `evt_…`
    pub event: Option<String>,
    /// What it made.
    pub objects: Vec<String>,
    /// The requests that show it, the oldest first: ten at most.
    pub requests: Vec<SentRequest>,
    /// `critical`, `warning` or `note`.
    pub severity: String,
    /// In one sentence.
    pub title: String,
    /// `double_effect`, `no_key`, …
    #[serde(rename = "type")]
    pub finding_type: String,
    /// Why it matters.
    pub why: String,
}

/// A request that a client sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SentRequest {
    /// `req_…`
    pub id: String,
    /// When it came, in unix milliseconds.
    pub at: i64,
    /// Milliseconds.
    pub duration: u64,
    /// The fault that acted on it.
    pub fault: Option<String>,
    /// Its key.
    pub idempotency_key: Option<String>,
    /// Its method.
    pub method: String,
    /// `executed`, `replayed`, `unanswered`, …
    pub outcome: String,
    /// Its path.
    pub path: String,
    /// Of its reply; `None`: the client got none.
    pub status: Option<u16>,
}
