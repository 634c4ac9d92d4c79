//! The requests that clients make up: right ones and wrong ones, in both dialects and encodings.

use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha12Rng;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    history::{Request, TAG},
    intents,
};

/// What a sold item takes from.
pub(crate) const STOCKED: [&str; 4] = ["stock-0", "stock-1", "stock-2", "stock-3"];

/// How many of each stocked item there are at the start: more than an hour sells.
pub(crate) const INITIAL_STOCK: i64 = 100_000_000;

/// An item that clients fight over, and how many of it there are.
pub(crate) const SCARCE: (&str, i64) = ("scarce", 40);

pub(crate) const SOLD_OUT: &str = "sold-out";

/// Items whose level is set again and again, and which are never sold.
const COUNTED: [&str; 3] = ["counted-0", "counted-1", "counted-2"];

pub(crate) struct Card {
    token: &'static str,
    pub(crate) last4: &'static str,
    pub(crate) is_declined: bool,
}

const fn approved(token: &'static str, last4: &'static str) -> Card {
    Card {
        token,
        last4,
        is_declined: false,
    }
}

const fn declined(token: &'static str, last4: &'static str) -> Card {
    Card {
        token,
        last4,
        is_declined: true,
    }
}

/// The card that most requests use.
pub(crate) const VISA: &str = "tok_visa";

/// The card whose answer takes two seconds, in which its request holds its key.
pub(crate) const SLOW: &str = "tok_slow";

const CARDS: [Card; 7] = [
    approved(VISA, "4242"),
    approved("tok_mastercard", "4444"),
    approved("tok_amex", "0005"),
    declined("tok_chargeDeclined", "0002"),
    declined("tok_chargeDeclinedInsufficientFunds", "9995"),
    declined("tok_chargeDeclinedProcessingError", "0119"),
    approved(SLOW, "4242"),
];

const CUSTOMERS: u32 = 20;

/// Orders with a `client_order_id` of their own choose one of so many.
const NATURAL_KEYS: u32 = 500;

/// What a client knows of an object that exists.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) account: usize,
    pub(crate) id: String,
    pub(crate) amount: i64,
    /// The customer that it belongs to, or is to belong to.
    pub(crate) customer: Option<String>,
}

/// What the answer to a request must be, as far as the request alone decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expected {
    /// It depends on what else happens.
    Any,
    /// 400, and nothing is written: it can't be decoded, or names a parameter that doesn't exist.
    Refused,
    /// 404, and nothing is written: what it is about is another account's.
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    CreateCharge,
    CaptureCharge,
    UpdateCharge,
    CreateRefund,
    UpdateRefund,
    CreateOrder,
    UpdateOrder,
    PayOrder,
    CancelOrder,
    CreateCheckout,
    SetInventory,
    CreateCustomer,
    CreateMethod,
    AttachMethod,
    DetachMethod,
    CreateIntent,
    ConfirmIntent,
    UpdateIntent,
    CaptureIntent,
    CancelIntent,
    RefundIntent,
    CreateSetup,
    /// Gives a key up.
    AbandonKey,
}

/// What several different requests for one key may be: all but those that say nothing and would be
/// the same.
const RIVALS: [Verb; 10] = [
    Verb::CreateCharge,
    Verb::CreateCharge,
    Verb::CaptureCharge,
    Verb::CreateRefund,
    Verb::CreateOrder,
    Verb::PayOrder,
    Verb::CreateCheckout,
    Verb::SetInventory,
    Verb::CreateIntent,
    Verb::ConfirmIntent,
];

/// Shares in a hundred.
const SHARES: [(Verb, u32); 22] = [
    (Verb::CreateCharge, 22),
    (Verb::CreateRefund, 10),
    (Verb::CreateOrder, 9),
    (Verb::PayOrder, 7),
    (Verb::CaptureCharge, 5),
    (Verb::CreateCheckout, 6),
    (Verb::UpdateCharge, 3),
    (Verb::UpdateRefund, 1),
    (Verb::UpdateOrder, 1),
    (Verb::CancelOrder, 3),
    (Verb::SetInventory, 2),
    (Verb::CreateCustomer, 2),
    (Verb::CreateMethod, 3),
    (Verb::AttachMethod, 3),
    (Verb::DetachMethod, 2),
    (Verb::CreateIntent, 9),
    (Verb::ConfirmIntent, 4),
    (Verb::UpdateIntent, 2),
    (Verb::CaptureIntent, 2),
    (Verb::CancelIntent, 1),
    (Verb::RefundIntent, 2),
    (Verb::CreateSetup, 1),
];

impl Verb {
    /// Whether each execution of it that succeeds or is declined leaves an event. A level leaves
    /// none, and neither does what changes only words, or nothing.
    pub(crate) fn leaves_an_event(self) -> bool {
        !matches!(
            self,
            Self::SetInventory
                | Self::CreateMethod
                | Self::AttachMethod
                | Self::UpdateIntent
                | Self::AbandonKey
        )
    }

    pub(crate) fn any(random: &mut ChaCha12Rng) -> Self {
        let mut at = random.random_range(0..100);
        for (verb, share) in SHARES {
            if at < share {
                return verb;
            }
            at -= share;
        }
        Self::CreateCharge
    }

    pub(crate) fn of_rival(random: &mut ChaCha12Rng) -> Self {
        RIVALS.choose(random).copied().unwrap_or(Self::CreateCharge)
    }

    /// A request of this verb. `object` is what it is about, if it is about one.
    pub(crate) fn request(
        self,
        random: &mut ChaCha12Rng,
        tag: &str,
        object: Option<&Known>,
    ) -> Option<Request> {
        let (method, path, mut parameters) = self.parameters(random, tag, object)?;
        let has_natural_key = parameters.get("client_order_id").is_some();
        let mut expected = Expected::Any;
        // Refused by the command, and stored: a parameter that doesn't exist.
        if random.random_ratio(1, 25)
            && let Some(parameters) = parameters.as_object_mut()
        {
            parameters.insert("surprise".to_owned(), json!(tag));
            expected = Expected::Refused;
        }
        let (media_type, mut body) = match random.random_ratio(1, 3) {
            true => ("application/x-www-form-urlencoded", form(&parameters)),
            false => ("application/json", parameters.to_string()),
        };
        // Stored as well: a body that ends too early, or with half an escape.
        if random.random_ratio(1, 60) {
            match media_type {
                "application/json" => drop(body.pop()),
                _ => body.push_str("&customer=%4"),
            }
            expected = Expected::Refused;
        }
        let dialect = if random.random_ratio(1, 2) { "/v1" } else { "" };
        Some(Request {
            method,
            path: format!("{dialect}{path}"),
            media_type,
            body,
            verb: self,
            parameters,
            about: object.map(|object| object.id.clone()),
            expected,
            tag: tag.to_owned(),
            is_tagged: matches!(
                self,
                Self::CreateCharge
                    | Self::CreateRefund
                    | Self::CreateOrder
                    | Self::CreateCheckout
                    | Self::CreateCustomer
                    | Self::CreateMethod
                    | Self::CreateIntent
                    | Self::RefundIntent
                    | Self::CreateSetup
            ),
            is_repeatable: has_natural_key
                || matches!(
                    self,
                    Self::UpdateCharge
                        | Self::UpdateRefund
                        | Self::UpdateOrder
                        | Self::SetInventory
                        | Self::UpdateIntent
                        | Self::AbandonKey
                ),
            wait: random.random_ratio(1, 3).then(|| random.random_range(0..3)),
        })
    }

    /// The method, the path without its prefix, and the parameters.
    fn parameters(
        self,
        random: &mut ChaCha12Rng,
        tag: &str,
        object: Option<&Known>,
    ) -> Option<(Method, String, Value)> {
        let tagged = json!({ TAG: tag });
        let request = match (self, object) {
            (Self::CreateCharge, _) => {
                let mut body = json!({
                    "amount": random.random_range(100..100_000), "currency": currency(random),
                    "source": card(random), "capture": random.random_ratio(4, 5),
                    "metadata": tagged,
                });
                let described = random.random_ratio(1, 2);
                add(&mut body, "description", described, format!("for {tag}"));
                add_customer(&mut body, random);
                (Method::POST, "/charges".to_owned(), body)
            }
            (Self::CaptureCharge, Some(Known { id, amount, .. })) => {
                let body = match random.random_ratio(1, 2) {
                    true => json!({}),
                    false => json!({ "amount": random.random_range(1..=*amount) }),
                };
                (Method::POST, format!("/charges/{id}/capture"), body)
            }
            (Self::UpdateCharge, Some(Known { id, .. })) => {
                let body = json!({"description": tag});
                (Method::POST, format!("/charges/{id}"), body)
            }
            (Self::UpdateRefund | Self::UpdateOrder, Some(Known { id, .. })) => {
                let is_order = self == Self::UpdateOrder;
                let noun = if is_order { "orders" } else { "refunds" };
                // Added to what is there, the tag among it.
                let body = json!({"metadata": {"note": tag}});
                (Method::POST, format!("/{noun}/{id}"), body)
            }
            (Self::CreateRefund, Some(charge)) => {
                let body = new_refund(random, tagged, charge);
                (Method::POST, "/refunds".to_owned(), body)
            }
            (Self::CreateOrder, _) => {
                let mut body = json!({
                    "currency": currency(random), "metadata": tagged,
                    "items": [{"quantity": random.random_range(1..5),
                               "unit_amount": random.random_range(100..5000)}],
                });
                // A natural key, which orders under several keys of the header fight over.
                let natural = format!("order-{}", random.random_range(0..NATURAL_KEYS));
                let is_natural = random.random_ratio(1, 4);
                add(&mut body, "client_order_id", is_natural, natural);
                add_customer(&mut body, random);
                (Method::POST, "/orders".to_owned(), body)
            }
            (Self::PayOrder, Some(Known { id, .. })) => {
                let body = json!({ "source": card(random) });
                (Method::POST, format!("/orders/{id}/pay"), body)
            }
            (Self::CancelOrder, Some(Known { id, .. })) => {
                (Method::POST, format!("/orders/{id}/cancel"), json!({}))
            }
            (Self::CreateCheckout, _) => {
                let sku = match random.random_range(0..10) {
                    0 => SOLD_OUT,
                    1 | 2 => SCARCE.0,
                    _ => one_of(random, &STOCKED),
                };
                let mut body = json!({
                    "currency": currency(random), "source": card(random), "metadata": tagged,
                    "items": [{"sku": sku, "quantity": random.random_range(1..4),
                               "unit_amount": random.random_range(100..5000)}],
                });
                add_customer(&mut body, random);
                (Method::POST, "/checkouts".to_owned(), body)
            }
            (Self::SetInventory, _) => {
                let sku = one_of(random, &COUNTED);
                let body = json!({ "quantity": random.random_range(0..1000) });
                (Method::PUT, format!("/inventory/{sku}"), body)
            }
            (Self::AbandonKey, Some(Known { id, .. })) => {
                let path = format!("/idempotency-keys/{id}/abandon");
                (Method::POST, path, json!({}))
            }
            (_, _) => intents::parameters(self, random, tag, object)?,
        };
        Some(request)
    }
}

/// A refund of a part of a charge, or of all of it, as releasing an authorization must be.
fn new_refund(random: &mut ChaCha12Rng, tagged: Value, charge: &Known) -> Value {
    let Known { id, amount, .. } = charge;
    let part = match random.random_ratio(1, 4) {
        true => *amount,
        false => random.random_range(1..=amount / 2 + 1),
    };
    let mut body = json!({"charge": id, "amount": part, "metadata": tagged});
    let reason = one_of(random, &["duplicate", "requested_by_customer"]).to_owned();
    add(&mut body, "reason", random.random_ratio(1, 2), reason);
    body
}

/// Adds a parameter, now and then.
pub(crate) fn add(parameters: &mut Value, name: &str, is_added: bool, value: String) {
    if is_added && let Some(parameters) = parameters.as_object_mut() {
        parameters.insert(name.to_owned(), json!(value));
    }
}

fn add_customer(parameters: &mut Value, random: &mut ChaCha12Rng) {
    let customer = format!("customer-{}", random.random_range(0..CUSTOMERS));
    add(parameters, "customer", random.random_ratio(1, 2), customer);
}

pub(crate) fn currency(random: &mut ChaCha12Rng) -> &'static str {
    one_of(random, &["usd", "usd", "usd", "eur"])
}

fn card(random: &mut ChaCha12Rng) -> &'static str {
    match random.random_range(0..100) {
        0 => SLOW,
        1..70 => one_of(
            random,
            &[VISA, VISA, VISA, VISA, "tok_mastercard", "tok_amex"],
        ),
        _ => one_of(
            random,
            &[
                "tok_chargeDeclined",
                "tok_chargeDeclinedInsufficientFunds",
                "tok_chargeDeclinedProcessingError",
            ],
        ),
    }
}

pub(crate) fn card_of(parameters: &Value) -> Option<&'static Card> {
    let token = parameters.get("source")?.as_str()?;
    CARDS.iter().find(|card| card.token == token)
}

pub(crate) fn one_of(random: &mut ChaCha12Rng, all: &[&'static str]) -> &'static str {
    all.choose(random).copied().unwrap_or_default()
}

/// Parameters in bracketed form names, as Stripe's SDKs send them.
fn form(parameters: &Value) -> String {
    fn flatten(name: &str, value: &Value, into: &mut form_urlencoded::Serializer<'_, String>) {
        let below = |member: &str| match name {
            "" => member.to_owned(),
            name => format!("{name}[{member}]"),
        };
        match value {
            Value::Object(members) => {
                for (member, value) in members {
                    flatten(&below(member), value, into);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    flatten(&below(&index.to_string()), value, into);
                }
            }
            Value::String(text) => {
                into.append_pair(name, text);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                into.append_pair(name, &value.to_string());
            }
        }
    }
    let mut serializer = form_urlencoded::Serializer::new(String::new());
    flatten("", parameters, &mut serializer);
    serializer.finish()
}
