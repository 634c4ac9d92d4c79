//! Payment intents to begin with, in each of their statuses.

use crate::support::{prelude::*, replies::with};

/// Statuses that an intent reaches where the processor is simulated.
pub const STATUSES: [&str; 6] = [
    "requires_payment_method",
    "requires_confirmation",
    "requires_action",
    "requires_capture",
    "succeeded",
    "canceled",
];

/// An intent of 20.00 for cards alone, so that no address to return to is needed.
pub fn terms() -> Value {
    json!({"amount": 2000, "currency": "usd", "payment_method_types": ["card"]})
}

pub fn terms_with(more: Value) -> Value {
    with(terms(), &more)
}

pub async fn create(client: &Client, more: Value) -> Answer {
    client.post_new("/payment_intents", &terms_with(more)).await
}

/// A new intent whose card is charged at once.
pub async fn paid_with(client: &Client, method: &str, more: Value) -> Answer {
    let mut body = more;
    body["confirm"] = true.into();
    body["payment_method"] = method.into();
    create(client, body).await
}

pub async fn standing(client: &Client, status: &str) -> String {
    let visa = "pm_card_visa";
    let manual = json!({"capture_method": "manual"});
    let answer = match status {
        "requires_payment_method" => create(client, json!({})).await,
        "requires_confirmation" => create(client, json!({"payment_method": visa})).await,
        "requires_action" => paid_with(client, "pm_card_authenticationRequired", json!({})).await,
        "requires_capture" => paid_with(client, visa, manual).await,
        "succeeded" => paid_with(client, visa, json!({})).await,
        "canceled" => {
            let id = create(client, json!({})).await.id();
            act(client, &id, "cancel", json!({})).await
        }
        _ => unreachable!("{status}"),
    };
    assert!(answer.status.is_success(), "{}", answer.json());
    assert_eq!(answer.json()["status"], status);
    answer.id()
}

pub async fn retrieve(client: &Client, id: &str) -> Value {
    client.get(&format!("/payment_intents/{id}")).await.json()
}

/// `POST /payment_intents/{id}/{verb}` under a new key; an update if the verb is empty.
pub async fn act(client: &Client, id: &str, verb: &str, body: Value) -> Answer {
    client.post_new(&path(id, verb), &body).await
}

pub fn path(id: &str, verb: &str) -> String {
    let path = format!("/payment_intents/{id}/{verb}");
    path.trim_end_matches('/').to_owned()
}

/// The types of an account's events, the oldest first.
pub async fn events(client: &Client) -> Vec<String> {
    let events = client.get("/events?limit=100").await.json();
    let types = events["data"].as_array().unwrap().iter().rev();
    let types = types.map(|event| event["type"].as_str().unwrap().to_owned());
    types.collect()
}
