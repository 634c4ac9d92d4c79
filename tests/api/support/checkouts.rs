//! Checkouts and the inventory that they sell.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::{Answer, Client};

/// Sets what there is of `sku`.
pub async fn stock(client: &Client, sku: &str, quantity: i64) {
    let request = client
        .request(Method::PUT, &format!("/inventory/{sku}"))
        .header("idempotency-key", uuid::Uuid::now_v7().to_string())
        .json(&json!({"quantity": quantity}));
    assert_eq!(Answer::of(request).await.status, 200);
}

/// Two mugs.
pub fn checkout() -> Value {
    json!({
        "currency": "usd", "source": "tok_visa", "customer": "jenny",
        "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
        "metadata": {"cart": "7"},
    })
}

/// Two mugs, paid with `card`.
pub fn checkout_with(card: &str) -> Value {
    let mut body = checkout();
    body["source"] = card.into();
    body
}

pub async fn level(client: &Client, sku: &str) -> i64 {
    let level = client.get(&format!("/inventory/{sku}")).await;
    level.json()["quantity"].as_i64().unwrap()
}

/// `name state attempts` of each step.
pub fn steps(checkout: &Value) -> Vec<String> {
    let step = |step: &Value| {
        let text = |name: &str| step[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("name"), text("state"), step["attempts"])
    };
    checkout["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(step)
        .collect()
}

/// The checkout that the key made, whatever it answered.
pub async fn checkout_of(client: &Client, key: &str) -> Value {
    let record = client.get(&format!("/idempotency-keys/{key}")).await.json();
    let id = record["resource"].as_str().unwrap();
    client.get(&format!("/checkouts/{id}")).await.json()
}

pub async fn types_of_events(client: &Client) -> Vec<String> {
    let events = client.get("/events?limit=100").await.json();
    let types = events["data"].as_array().unwrap().iter();
    let mut types: Vec<_> = types
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    types.reverse();
    types
}

/// Repeats the checkout under one key until the reply is definite.
pub async fn until_definite_under(client: &Client, key: &str) -> Answer {
    let mut answer = client.post("/checkouts", key, &checkout()).await;
    while [409, 503].contains(&answer.status.as_u16()) {
        answer = client.post_waiting(5, "/checkouts", key, &checkout()).await;
    }
    answer
}
