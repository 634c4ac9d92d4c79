//! The OpenAPI document, as a value.

use charge_once::http::openapi;

use crate::support::{
    prelude::*,
    resources::{attached, customer},
};

pub fn document() -> Value {
    serde_json::to_value(openapi::document()).unwrap()
}

/// Every operation: path, method, and what the document says about it.
pub fn operations(document: &Value) -> Vec<(String, Method, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in [
            Method::GET,
            Method::PUT,
            Method::POST,
            Method::PATCH,
            Method::DELETE,
        ] {
            if let Some(operation) = item.get(method.as_str().to_lowercase()) {
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
    let made = async |path: &str, body: Value| client.post_new(path, &body).await.id();
    let mut body = charge();
    body["capture"] = (!path.ends_with("/capture")).into();
    let charge = made("/charges", body).await;
    let mut example = example.clone();
    if example.get("charge").is_some() {
        example["charge"] = charge.clone().into();
    }
    if example.get("customer").is_some_and(is_id) {
        example["customer"] = customer(client).await.into();
    }
    let collection = path.trim_start_matches("/v1").split('/').nth(1);
    let id = match (path.contains("{id}"), collection.unwrap_or_default()) {
        (false, _) => String::new(),
        (true, "charges") => charge,
        (true, "refunds") => made("/refunds", json!({"charge": charge, "amount": 1})).await,
        (true, "orders") => {
            let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
            made("/orders", order).await
        }
        (true, "customers") => customer(client).await,
        (true, "payment_methods") if path.ends_with("/attach") => "pm_card_visa".to_owned(),
        (true, "payment_methods") => {
            attached(client, "pm_card_visa", &customer(client).await).await
        }
        (true, "payment_intents") => {
            let manual = path.ends_with("/capture");
            let intent = json!({
                "amount": 2000, "currency": "usd", "payment_method_types": ["card"],
                "payment_method": "pm_card_visa", "confirm": manual,
                "capture_method": if manual { "manual" } else { "automatic" },
            });
            made("/payment_intents", intent).await
        }
        (true, "setup_intents") => {
            let setup = json!({"payment_method": "pm_card_visa", "payment_method_types": ["card"]});
            made("/setup_intents", setup).await
        }
        (true, "webhook_endpoints") => {
            made("/webhook_endpoints", endpoint("https://example.com/")).await
        }
        (true, other) => panic!("no object for {other}"),
    };
    let path = path.replace("{id}", &id).replace("{sku}", "mug");
    (path, example)
}

/// Whether an example names an object of this service, and not a client's own.
fn is_id(example: &Value) -> bool {
    let id = example.as_str();
    id.is_some_and(|text| text.starts_with("cus_"))
}
