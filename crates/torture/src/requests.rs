//! The requests that clients make up: right ones and wrong ones, in both dialects and encodings.

use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha12Rng;
use reqwest::Method;
use serde_json::{Value, json};

use crate::history::{Request, TAG};

/// What a sold item takes from.
pub(crate) const STOCKED: [&str; 4] = ["stock-0", "stock-1", "stock-2", "stock-3"];

/// How many of each stocked item there are at the start: more than an hour sells.
pub(crate) const INITIAL_STOCK: i64 = 100_000_000;

/// An item that clients fight over, and how many of it there are.
pub(crate) const SCARCE: (&str, i64) = ("scarce", 40);

/// An item that there is none of.
pub(crate) const SOLD_OUT: &str = "sold-out";

/// Items whose level is set again and again, and which are never sold.
const COUNTED: [&str; 3] = ["counted-0", "counted-1", "counted-2"];

/// Cards, most of which succeed.
const CARDS: [&str; 10] = [
    "tok_visa",
    "tok_visa",
    "tok_visa",
    "tok_visa",
    "tok_mastercard",
    "tok_amex",
    "tok_visa",
    "tok_chargeDeclined",
    "tok_chargeDeclinedInsufficientFunds",
    "tok_chargeDeclinedProcessingError",
];

/// Orders with a `client_order_id` of their own choose one of so many.
const NATURAL_KEYS: u32 = 500;

/// What a client knows of an object that exists.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) account: usize,
    pub(crate) id: String,
    pub(crate) amount: i64,
}

/// A verb, and its share of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    CreateCharge,
    CaptureCharge,
    UpdateCharge,
    CreateRefund,
    CreateOrder,
    PayOrder,
    CancelOrder,
    CreateCheckout,
    SetInventory,
}

/// Shares in a hundred.
const SHARES: [(Verb, u32); 9] = [
    (Verb::CreateCharge, 34),
    (Verb::CreateRefund, 16),
    (Verb::CreateOrder, 12),
    (Verb::PayOrder, 10),
    (Verb::CaptureCharge, 8),
    (Verb::CreateCheckout, 8),
    (Verb::UpdateCharge, 5),
    (Verb::CancelOrder, 4),
    (Verb::SetInventory, 3),
];

impl Verb {
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

    /// A request of this verb. `object` is what it is about, if it is about one.
    pub(crate) fn request(
        self,
        random: &mut ChaCha12Rng,
        tag: &str,
        object: Option<&Known>,
    ) -> Option<Request> {
        let (method, path, mut body) = self.parameters(random, tag, object)?;
        let has_natural_key = body.get("client_order_id").is_some();
        // Refused by the command, and stored: a parameter that doesn't exist.
        if random.random_ratio(1, 25)
            && let Some(parameters) = body.as_object_mut()
        {
            parameters.insert("shipping".to_owned(), json!(tag));
        }
        let (media_type, body) = match random.random_ratio(1, 3) {
            true => ("application/x-www-form-urlencoded", form(&body)),
            false => ("application/json", body.to_string()),
        };
        let dialect = if random.random_ratio(1, 2) { "/v1" } else { "" };
        Some(Request {
            method,
            path: format!("{dialect}{path}"),
            media_type,
            body,
            tag: tag.to_owned(),
            is_tagged: matches!(
                self,
                Self::CreateCharge | Self::CreateRefund | Self::CreateOrder | Self::CreateCheckout
            ),
            is_repeatable: has_natural_key
                || matches!(self, Self::UpdateCharge | Self::SetInventory),
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
        let request = match self {
            Self::CreateCharge => {
                let body = json!({
                    "amount": random.random_range(100..100_000), "currency": "usd",
                    "source": card(random), "capture": random.random_ratio(4, 5),
                    "metadata": tagged,
                });
                (Method::POST, "/charges".to_owned(), body)
            }
            Self::CaptureCharge => {
                let Known { id, amount, .. } = object?;
                let body = match random.random_ratio(1, 2) {
                    true => json!({}),
                    false => json!({ "amount": random.random_range(1..=*amount) }),
                };
                (Method::POST, format!("/charges/{id}/capture"), body)
            }
            Self::UpdateCharge => {
                let id = &object?.id;
                (
                    Method::POST,
                    format!("/charges/{id}"),
                    json!({"description": tag}),
                )
            }
            Self::CreateRefund => {
                let Known { id, amount, .. } = object?;
                // Sometimes all of it, as releasing an authorization must be.
                let part = match random.random_ratio(1, 4) {
                    true => *amount,
                    false => random.random_range(1..=amount / 2 + 1),
                };
                let body = json!({"charge": id, "amount": part, "metadata": tagged});
                (Method::POST, "/refunds".to_owned(), body)
            }
            Self::CreateOrder => {
                let mut body = json!({
                    "currency": "usd", "metadata": tagged,
                    "items": [{"quantity": random.random_range(1..5),
                               "unit_amount": random.random_range(100..5000)}],
                });
                // A natural key, which orders under several keys of the header fight over.
                if random.random_ratio(1, 4)
                    && let Some(parameters) = body.as_object_mut()
                {
                    let natural = format!("order-{}", random.random_range(0..NATURAL_KEYS));
                    parameters.insert("client_order_id".to_owned(), json!(natural));
                }
                (Method::POST, "/orders".to_owned(), body)
            }
            Self::PayOrder => {
                let id = &object?.id;
                let body = json!({ "source": card(random) });
                (Method::POST, format!("/orders/{id}/pay"), body)
            }
            Self::CancelOrder => {
                let id = &object?.id;
                (Method::POST, format!("/orders/{id}/cancel"), json!({}))
            }
            Self::CreateCheckout => {
                let sku = match random.random_range(0..10) {
                    0 => SOLD_OUT,
                    1 | 2 => SCARCE.0,
                    _ => one_of(random, &STOCKED),
                };
                let body = json!({
                    "currency": "usd", "source": card(random), "metadata": tagged,
                    "items": [{"sku": sku, "quantity": random.random_range(1..4),
                               "unit_amount": random.random_range(100..5000)}],
                });
                (Method::POST, "/checkouts".to_owned(), body)
            }
            Self::SetInventory => {
                let sku = one_of(random, &COUNTED);
                let body = json!({ "quantity": random.random_range(0..1000) });
                (Method::PUT, format!("/inventory/{sku}"), body)
            }
        };
        Some(request)
    }
}

fn card(random: &mut ChaCha12Rng) -> &'static str {
    // The slow one holds its key for two seconds.
    if random.random_ratio(1, 100) {
        return "tok_slow";
    }
    one_of(random, &CARDS)
}

fn one_of(random: &mut ChaCha12Rng, all: &[&'static str]) -> &'static str {
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
