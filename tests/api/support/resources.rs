//! Charges, orders and customers to begin with.

use crate::support::prelude::*;

/// Sends an ordinary charge with some parameters set, under a key of its own.
pub async fn charge_with(client: &Client, changes: &[(&str, Value)]) -> Answer {
    let mut body = charge();
    for (name, value) in changes {
        body[*name] = value.clone();
    }
    client.post_new("/charges", &body).await
}

/// Promises 20.00 and takes nothing; the charge's id.
pub async fn uncaptured(client: &Client) -> String {
    let mut body = charge();
    body["capture"] = false.into();
    created(client, "/charges", &body).await
}

async fn created(client: &Client, path: &str, body: &Value) -> String {
    let answer = client.post_new(path, body).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    answer.id()
}

/// It was created at `path` with an id of its kind, and is read there in both dialects. Its path
/// without a dialect.
pub async fn assert_is_created(
    client: &Client,
    created: &Answer,
    path: &str,
    kind: &str,
) -> String {
    assert_eq!(created.status, 201, "{}", created.json());
    let id = created.id();
    assert!(id.starts_with(kind) && id.len() == kind.len() + 26, "{id}");
    let location = format!("{path}/{id}");
    assert_eq!(created.header("location"), Some(&*location));
    let own = location.trim_start_matches("/v1");
    for dialect in ["", "/v1"] {
        let read = client.get(&format!("{dialect}{own}")).await;
        assert_eq!((read.status.as_u16(), read.json()), (200, created.json()));
    }
    own.to_owned()
}

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
    created(client, "/orders", &body).await
}

pub async fn customer(client: &Client) -> String {
    created(client, "/customers", &json!({})).await
}

pub async fn method(client: &Client, token: &str) -> String {
    let body = json!({"type": "card", "card": {"token": token}});
    created(client, "/payment_methods", &body).await
}

/// Attaches a payment method, or a new one of a template.
pub async fn attach(client: &Client, method: &str, customer: &str) -> Answer {
    let path = format!("/payment_methods/{method}/attach");
    client.post_new(&path, &json!({"customer": customer})).await
}

/// As [`attach`] does; the id of the method that is the customer's now.
pub async fn attached(client: &Client, method: &str, customer: &str) -> String {
    let answer = attach(client, method, customer).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.id()
}

pub async fn detach(client: &Client, method: &str) -> Answer {
    let path = format!("/payment_methods/{method}/detach");
    client.post_new(&path, &json!({})).await
}

/// The types of all events so far, the oldest first, and what each is about.
pub async fn happened(client: &Client) -> Vec<(String, String)> {
    let list = client.get("/events?limit=100").await.json();
    let events = list["data"].as_array().unwrap().iter().rev();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = events.map(|event| (text(&event["type"]), text(&event["data"]["object"]["id"])));
    events.collect()
}
