//! The OpenAPI document, as a value.

use charge_once::http::openapi;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::{Client, charge};

pub fn document() -> Value {
    serde_json::to_value(openapi::document()).unwrap()
}

/// Every operation: path, method, and what the document says about it.
pub fn operations(document: &Value) -> Vec<(String, Method, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (name, method) in [
            ("get", Method::GET),
            ("put", Method::PUT),
            ("post", Method::POST),
            ("delete", Method::DELETE),
        ] {
            if let Some(operation) = item.get(name) {
                operations.push((path.clone(), method, operation));
            }
        }
    }
    assert!(operations.len() >= 10, "{}", operations.len());
    operations
}

/// Follows a `$ref` inside the document.
pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document
            .pointer(reference.trim_start_matches('#'))
            .expect(reference),
        None => schema,
    }
}

/// Puts ids of new objects in the place of those in a documented path and body.
pub async fn with_ids(client: &Client, path: &str, example: &Value) -> (String, Value) {
    let key = || uuid::Uuid::now_v7().to_string();
    let mut body = charge();
    body["capture"] = (!path.ends_with("/capture")).into();
    let charge = client.post("/charges", &key(), &body).await.id();
    let mut example = example.clone();
    if example.get("charge").is_some() {
        example["charge"] = charge.clone().into();
    }
    if example.get("customer").is_some_and(is_id) {
        example["customer"] = client
            .post("/customers", &key(), &json!({}))
            .await
            .id()
            .into();
    }
    let collection = path.trim_start_matches("/v1").split('/').nth(1);
    let id = match (path.contains("{id}"), collection.unwrap_or_default()) {
        (false, _) => String::new(),
        (true, "charges") => charge,
        (true, "refunds") => {
            let refund = json!({"charge": charge, "amount": 1});
            client.post("/refunds", &key(), &refund).await.id()
        }
        (true, "orders") => {
            let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
            client.post("/orders", &key(), &order).await.id()
        }
        (true, "customers") => client.post("/customers", &key(), &json!({})).await.id(),
        (true, "payment_methods") if path.ends_with("/attach") => "pm_card_visa".to_owned(),
        (true, "payment_methods") => {
            let customer = client.post("/customers", &key(), &json!({})).await.id();
            let attach = "/payment_methods/pm_card_visa/attach";
            let customer = json!({"customer": customer});
            client.post(attach, &key(), &customer).await.id()
        }
        (true, "payment_intents") => {
            let manual = path.ends_with("/capture");
            let intent = json!({
                "amount": 2000, "currency": "usd", "payment_method_types": ["card"],
                "payment_method": "pm_card_visa", "confirm": manual,
                "capture_method": if manual { "manual" } else { "automatic" },
            });
            client.post("/payment_intents", &key(), &intent).await.id()
        }
        (true, "setup_intents") => {
            let setup = json!({"payment_method": "pm_card_visa", "payment_method_types": ["card"]});
            client.post("/setup_intents", &key(), &setup).await.id()
        }
        (true, "webhook_endpoints") => {
            let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
            client
                .post("/webhook_endpoints", &key(), &endpoint)
                .await
                .id()
        }
        (true, other) => panic!("no object for {other}"),
    };
    let path = path.replace("{id}", &id).replace("{sku}", "mug");
    (path, example)
}

/// Whether an example names an object of this service, and not a client's own.
fn is_id(example: &Value) -> bool {
    example
        .as_str()
        .is_some_and(|text| text.starts_with("cus_"))
}
