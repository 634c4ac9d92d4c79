//! Charges and orders to begin with.

use serde_json::{Value, json};

use crate::support::harness::{Answer, Client, charge};

/// Sends an ordinary charge with some parameters set, under a key of its own.
pub async fn charge_with(client: &Client, changes: &[(&str, Value)]) -> Answer {
    let mut body = charge();
    for (name, value) in changes {
        body[*name] = value.clone();
    }
    client
        .post("/charges", &uuid::Uuid::now_v7().to_string(), &body)
        .await
}

/// Promises 20.00 and takes nothing; the charge's id.
pub async fn uncaptured(client: &Client) -> String {
    let mut body = charge();
    body["capture"] = false.into();
    let answer = client.post_new("/charges", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    answer.id()
}

/// What the charge says about its money.
pub fn money(charge: &Value) -> Value {
    json!([
        charge["captured"],
        charge["amount_captured"],
        charge["amount_refunded"],
        charge["refunded"],
    ])
}

/// An order of 24.00; its id.
pub async fn open_order(client: &Client) -> String {
    let body = json!({
        "currency": "eur", "customer": "cus-7", "items": [{"quantity": 2, "unit_amount": 1200}],
    });
    let answer = client.post_new("/orders", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    answer.id()
}
