//! The requests about customers, payment methods and intents that clients make up.

use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha12Rng;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    history::{Request, TAG},
    requests::{Expected, Known, Verb, add, currency, one_of},
};

/// Test cards. Each use of one makes a payment method of its own.
const GOOD: [&str; 3] = ["pm_card_visa", "pm_card_mastercard", "pm_card_amex"];
const DECLINED: [&str; 3] = [
    "pm_card_chargeDeclined",
    "pm_card_chargeDeclinedInsufficientFunds",
    "pm_card_chargeCustomerFail",
];
const AUTHENTICATED: [&str; 3] = [
    "pm_card_authenticationRequired",
    "pm_card_threeDSecure2Required",
    "pm_card_threeDSecureRequiredChargeDeclined",
];

/// Where the holder of a card goes after the page of its authentication. Nothing listens there.
const RETURN_URL: &str = "https://shop.test/back";

/// Verbs that meet at one intent whose money is promised.
pub(crate) const OF_A_PROMISE: [Verb; 4] = [
    Verb::CaptureIntent,
    Verb::CaptureIntent,
    Verb::CancelIntent,
    Verb::CancelIntent,
];

/// Verbs that meet at one intent that nothing was paid for.
pub(crate) const OF_A_WISH: [Verb; 5] = [
    Verb::ConfirmIntent,
    Verb::ConfirmIntent,
    Verb::ConfirmIntent,
    Verb::CancelIntent,
    Verb::UpdateIntent,
];

/// Verbs that meet at one payment method of a customer.
pub(crate) const OF_A_CARD: [Verb; 3] =
    [Verb::DetachMethod, Verb::CreateIntent, Verb::CreateIntent];

/// Whether a request for an intent leads to a promise, or to a wish.
pub(crate) fn suits(request: &Request, is_promise: bool) -> bool {
    let text = |name| request.parameters.get(name).and_then(Value::as_str);
    let is_confirmed = request.parameters.get("confirm").is_some();
    let is_good = text("payment_method").is_some_and(|card| GOOD.contains(&card));
    let suits = match is_promise {
        true => is_confirmed && is_good && text("capture_method") == Some("manual"),
        false => !is_confirmed,
    };
    suits && request.expected == Expected::Any
}

/// Method, path without prefix, and parameters. `None`: the verb needs an object, or is not here.
pub(crate) fn parameters(
    verb: Verb,
    random: &mut ChaCha12Rng,
    tag: &str,
    object: Option<&Known>,
) -> Option<(Method, String, Value)> {
    let tagged = json!({ TAG: tag });
    let (path, body) = match (verb, object) {
        (Verb::CreateCustomer, _) => ("/customers".to_owned(), new_customer(random, tag)),
        (Verb::CreateMethod, _) => {
            let token = one_of(random, &["tok_visa", "tok_visa", "tok_chargeCustomerFail"]);
            let body = json!({ "type": "card", "card": {"token": token}, "metadata": tagged });
            ("/payment_methods".to_owned(), body)
        }
        (Verb::AttachMethod, Some(Known { id, customer, .. })) => {
            let body = json!({ "customer": customer.as_ref()? });
            (format!("/payment_methods/{id}/attach"), body)
        }
        (Verb::DetachMethod, Some(Known { id, .. })) => {
            (format!("/payment_methods/{id}/detach"), json!({}))
        }
        (Verb::CreateIntent, _) => {
            let body = new_intent(random, tagged, object);
            ("/payment_intents".to_owned(), body)
        }
        (Verb::ConfirmIntent, Some(Known { id, .. })) => {
            let mut body = json!({ "return_url": RETURN_URL });
            // Sometimes with the method that it has, if it has one.
            let (names_one, card) = (random.random_ratio(4, 5), card(random).to_owned());
            add(&mut body, "payment_method", names_one, card);
            (format!("/payment_intents/{id}/confirm"), body)
        }
        (Verb::UpdateIntent, Some(Known { id, .. })) => {
            let mut body = json!({ "description": tag });
            let pays = random.random_ratio(1, 3);
            add(&mut body, "payment_method", pays, card(random).to_owned());
            (format!("/payment_intents/{id}"), body)
        }
        (Verb::CaptureIntent, Some(Known { id, amount, .. })) => {
            let body = match random.random_ratio(1, 2) {
                true => json!({}),
                false => json!({ "amount_to_capture": random.random_range(1..=*amount) }),
            };
            (format!("/payment_intents/{id}/capture"), body)
        }
        (Verb::CancelIntent, Some(Known { id, .. })) => {
            let mut body = json!({});
            let reason = one_of(random, &["abandoned", "duplicate"]).to_owned();
            let has_one = random.random_ratio(1, 2);
            add(&mut body, "cancellation_reason", has_one, reason);
            (format!("/payment_intents/{id}/cancel"), body)
        }
        (Verb::RefundIntent, Some(Known { id, amount, .. })) => {
            let part = random.random_range(1..=amount / 2 + 1);
            let body = json!({ "payment_intent": id, "amount": part, "metadata": tagged });
            ("/refunds".to_owned(), body)
        }
        (Verb::CreateSetup, _) => {
            let mut body = json!({
                "confirm": true, "payment_method": card(random), "return_url": RETURN_URL,
                "metadata": tagged,
            });
            if let Some(Known { id, .. }) = object {
                add(&mut body, "customer", true, id.clone());
            }
            ("/setup_intents".to_owned(), body)
        }
        (_, _) => return None,
    };
    Some((Method::POST, path, body))
}

/// A customer, sometimes with a card.
fn new_customer(random: &mut ChaCha12Rng, tag: &str) -> Value {
    let mut body = json!({
        "email": format!("{tag}@shop.test"), "name": "Ann Bo", "metadata": { TAG: tag },
    });
    let (keeps, card) = (random.random_ratio(1, 2), one_of(random, &GOOD).to_owned());
    add(&mut body, "payment_method", keeps, card);
    body
}

/// An intent of `method` and its customer, if there is one, and of a test card otherwise.
fn new_intent(random: &mut ChaCha12Rng, tagged: Value, method: Option<&Known>) -> Value {
    let mut body = json!({
        "amount": random.random_range(100..100_000), "currency": currency(random),
        "metadata": tagged,
    });
    let capture = random.random_ratio(1, 2);
    add(&mut body, "capture_method", capture, "manual".to_owned());
    let token = || card(random).to_owned();
    let id = method.map_or_else(token, |method| method.id.clone());
    let confirms = random.random_ratio(2, 3);
    // What it is about is always named: another account's is then refused.
    let names_one = confirms || method.is_some() || random.random_ratio(1, 2);
    add(&mut body, "payment_method", names_one, id);
    if let Some(customer) = method.and_then(|method| method.customer.clone()) {
        add(&mut body, "customer", true, customer);
    }
    if confirms && let Some(parameters) = body.as_object_mut() {
        parameters.insert("confirm".to_owned(), json!(true));
        parameters.insert("return_url".to_owned(), json!(RETURN_URL));
        if random.random_ratio(1, 8) {
            parameters.insert("off_session".to_owned(), json!(true));
        }
    }
    body
}

fn card(random: &mut ChaCha12Rng) -> &'static str {
    let cards: &[&'static str] = match random.random_range(0..100) {
        0..60 => &GOOD,
        60..80 => &DECLINED,
        _ => &AUTHENTICATED,
    };
    cards.choose(random).copied().unwrap_or_default()
}
