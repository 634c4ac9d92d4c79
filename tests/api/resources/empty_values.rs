//! Empty values: `x=` in a form, and `""` and `null` in JSON. Clients send them where a variable
//! isn't set, so none may decide about money, and none is ignored.
//!
//! The parameters come from the OpenAPI document: a new one is tried too.

use crate::support::{
    openapi::{document, operations, resolve, with_ids},
    prelude::*,
    resources::{attached, customer},
};

/// The names that lead to each parameter of a schema, and what it says of the parameter.
fn parameters<'a>(document: &'a Value, schema: &'a Value) -> Vec<(Vec<String>, &'a Value)> {
    let schema = resolve(document, schema);
    let mut found = Vec::new();
    for of in schema["oneOf"].as_array().into_iter().flatten() {
        found.extend(parameters(document, of));
    }
    if schema["items"].is_object() {
        let of_items = parameters(document, &schema["items"]).into_iter();
        found.extend(
            of_items.map(|(names, schema)| ([vec!["0".to_owned()], names].concat(), schema)),
        );
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.push((vec![name.clone()], resolve(document, property)));
        let below = parameters(document, property).into_iter();
        found.extend(below.map(|(names, schema)| ([vec![name.clone()], names].concat(), schema)));
    }
    found
}

/// `body` with `value` at the end of `names`.
fn with(mut body: Value, names: &[String], value: Value) -> Value {
    let mut at = &mut body;
    for name in names {
        if !at.is_object() && !at.is_array() {
            *at = if name == "0" { json!([{}]) } else { json!({}) };
        }
        at = if at.is_array() {
            &mut at[0]
        } else {
            &mut at[name.as_str()]
        };
    }
    *at = value;
    body
}

/// The pairs of a form that says what `value` does.
fn pairs(name: &str, value: &Value, into: &mut Vec<(String, String)>) {
    let below = |of: &str| match name {
        "" => of.to_owned(),
        name => format!("{name}[{of}]"),
    };
    match value {
        Value::Object(members) => {
            for (of, value) in members {
                pairs(&below(of), value, into);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                pairs(&below(&at.to_string()), value, into);
            }
        }
        Value::String(text) => into.push((name.to_owned(), text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            into.push((name.to_owned(), value.to_string()));
        }
    }
}

/// Sends `body` with an empty value, in each of the three ways.
async fn send_empty(
    client: &Client,
    (method, path): (&Method, &str),
    (body, names): (&Value, &[String]),
    way: usize,
) -> Answer {
    let empty = if way == 2 { Value::Null } else { json!("") };
    let body = with(body.clone(), names, empty);
    let (media_type, bytes) = if way == 0 {
        let mut form = Vec::new();
        pairs("", &body, &mut form);
        let mut written = url::form_urlencoded::Serializer::new(String::new());
        (FORM, written.extend_pairs(form).finish())
    } else {
        (JSON, body.to_string())
    };
    let key = uuid::Uuid::now_v7().to_string();
    let sent = client.send_raw(method.clone(), path, &key, media_type, bytes.as_bytes());
    sent.await
}

/// Whether a refusal names the parameter, or what it belongs to.
fn names_it(answer: &Answer, names: &[String]) -> bool {
    let (status, code, param) = answer.refusal();
    let param = param.unwrap_or_default();
    status == 400
        && code.starts_with("parameter_")
        && param.split('[').next() == Some(&names[0])
        && (names.len() > 1 || param == names[0])
}

/// An object of which everything is known that an update can change; its path.
async fn whole(client: &Client, pattern: &str) -> String {
    let address = json!({"city": "Berlin", "line1": "Main Street 1", "country": "DE"});
    let parcel = json!({"address": address, "name": "Jenny", "phone": "1", "carrier": "DHL"});
    let metadata = json!({"order": "6735"});
    let body = match pattern {
        "/charges/{id}" => json!({
            "amount": 2000, "currency": "usd", "description": "mugs", "metadata": metadata,
            "receipt_email": "jenny@example.com",
        }),
        "/payment_intents/{id}" => json!({
            "amount": 2000, "currency": "usd", "description": "mugs", "metadata": metadata,
            "receipt_email": "jenny@example.com", "customer": customer(client).await,
            "payment_method": "pm_card_visa", "setup_future_usage": "off_session",
            "shipping": parcel, "statement_descriptor_suffix": "MUGS",
        }),
        "/setup_intents/{id}" => json!({
            "customer": customer(client).await, "description": "mugs", "metadata": metadata,
            "payment_method": "pm_card_visa",
        }),
        "/customers/{id}" => json!({
            "address": address, "description": "mugs", "email": "jenny@example.com",
            "metadata": metadata, "name": "Jenny", "phone": "1", "preferred_locales": ["de"],
            "shipping": {"address": address, "name": "Jenny", "phone": "1"},
        }),
        "/webhook_endpoints/{id}" => json!({
            "url": "https://example.com/", "enabled_events": ["*"], "description": "mugs",
            "metadata": metadata, "standard_webhooks": true,
        }),
        _ => {
            let (path, _) = with_ids(client, pattern, &json!({})).await;
            let mut known = json!({"metadata": metadata});
            if pattern.starts_with("/payment_methods") {
                known["allow_redisplay"] = "always".into();
                known["billing_details"] = json!({
                    "address": address, "email": "jenny@example.com", "name": "Jenny", "phone": "1",
                });
            }
            assert_eq!(client.post_new(&path, &known).await.status, 200, "{path}");
            return path;
        }
    };
    let collection = pattern.trim_end_matches("/{id}");
    let made = client.post_new(collection, &body).await;
    assert_eq!(made.status, 201, "{pattern}: {}", made.json());
    let path = format!("{collection}/{}", made.id());
    if collection == "/customers" {
        let method = attached(client, "pm_card_visa", &made.id()).await;
        let settings = json!({"invoice_settings": {"default_payment_method": method}});
        assert_eq!(client.post_new(&path, &settings).await.status, 200);
    }
    path
}

#[tokio::test]
async fn each_empty_value_in_an_update_changes_the_object_or_is_refused_by_name() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let document = document();
    let mut count = 0;
    for (pattern, method, operation) in operations(&document) {
        if method != Method::POST || !pattern.ends_with("/{id}") {
            continue;
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let (mut path, mut is_whole) = (String::new(), false);
        for (names, _) in parameters(&document, schema) {
            count += usize::from(names.len() == 1);
            for way in 0..3 {
                if !is_whole {
                    path = whole(&client, &pattern).await;
                }
                let before = client.get(&path).await.body;
                let nothing = json!({});
                let sent = (&nothing, &*names);
                let answer = send_empty(&client, (&method, &path), sent, way).await;
                let after = client.get(&path).await.body;
                let told = answer.json();
                is_whole = answer.status != 200;
                match is_whole {
                    true => assert!(names_it(&answer, &names), "{pattern} {names:?}: {told}"),
                    false => assert_ne!(before, after, "{pattern} {names:?} is ignored"),
                }
            }
        }
    }
    assert!(count >= 48, "{count}");
}

/// Identifiers of what is charged or refunded, and when the money is taken.
const ABOUT_MONEY: &str = "source payment_method charge payment_intent capture_method";

#[tokio::test]
async fn no_amount_quantity_boolean_or_id_of_what_is_charged_is_empty() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let document = document();
    let mut count = 0;
    for (pattern, method, operation) in operations(&document) {
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let example = &resolve(&document, body)["example"];
        // Nothing is charged: on a create, it is absent, and the update unsets it.
        let is_stored =
            ["/customers", "/setup_intents", "/setup_intents/{id}"].contains(&&*pattern);
        for (names, schema) in parameters(&document, body) {
            let is_about_money = ABOUT_MONEY
                .split(' ')
                .any(|name| name == names[names.len() - 1])
                && !is_stored;
            let is_number = ["integer", "boolean"].contains(&schema["type"].as_str().unwrap_or(""));
            if !is_number && !is_about_money {
                continue;
            }
            for way in 0..3 {
                let path = pattern.replace("{sku}", "mug");
                let sent = (example, &*names);
                let answer = send_empty(&server.client, (&method, &path), sent, way).await;
                let told = answer.json();
                let is_named = names_it(&answer, &names);
                assert!(is_named, "{method} {path} {names:?}: {told}");
            }
            count += 1;
        }
    }
    assert!(count >= 30, "{count}");
    for list in ["/charges", "/refunds"] {
        let listed = server.client.get(list).await.json();
        assert_eq!(listed["data"], json!([]), "{list}");
    }
}

#[tokio::test]
async fn on_a_create_empty_text_and_objects_are_absent() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let form = "amount=2000&currency=usd&description=&customer=&metadata=&receipt_email=&shipping=\
                &setup_future_usage=&payment_method_data=&payment_method_options=&return_url=\
                &payment_method_types=";
    let client = &server.client;
    let made = client.post_raw("/v1/payment_intents", "form", FORM, form.as_bytes());
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.json());
    let null = json!({"email": "", "address": null, "shipping": "", "invoice_settings": null});
    let made = server.client.post_new("/customers", &null).await;
    assert_eq!(made.status, 201, "{}", made.json());
}

#[tokio::test]
async fn a_confirmation_and_a_capture_unset_what_an_update_does() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = json!({
        "amount": 2000, "currency": "usd", "payment_method_types": ["card"],
        "receipt_email": "jenny@example.com", "setup_future_usage": "off_session",
        "shipping": {"address": {"city": "Berlin"}}, "capture_method": "manual",
        "payment_method_options": {"card": {"request_three_d_secure": "any"}},
        "statement_descriptor_suffix": "MUGS",
    });
    let path = client.post_new("/payment_intents", &body).await.id();
    let path = format!("/payment_intents/{path}");
    let form = "payment_method=pm_card_visa&receipt_email=&setup_future_usage=&shipping=";
    let confirm = format!("{path}/confirm");
    // A charge without authentication is never a mistake in a variable's.
    for options in [
        "payment_method_options",
        "payment_method_options[card]",
        "payment_method_options[card][request_three_d_secure]",
    ] {
        let form = format!("{form}&{options}=");
        let refused = client.post_raw(&confirm, options, FORM, form.as_bytes());
        let (status, _, param) = refused.await.refusal();
        assert_eq!((status, param.as_deref()), (400, Some(options)));
    }
    let automatic = "&payment_method_options[card][request_three_d_secure]=automatic";
    let form = format!("{form}{automatic}");
    let confirmed = client.post_raw(&confirm, &confirm, FORM, form.as_bytes());
    confirmed.await.assert_shows(json!({
        "status": "requires_capture", "receipt_email": null, "setup_future_usage": null,
        "shipping": null,
    }));
    let capture = format!("{path}/capture");
    let form = b"statement_descriptor_suffix=";
    let captured = client.post_raw(&capture, &capture, FORM, form).await;
    captured.assert_shows(json!({"status": "succeeded", "statement_descriptor_suffix": null}));
}

#[tokio::test]
async fn an_empty_filter_is_refused_and_lists_no_more_than_was_asked_for() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let customer = customer(&server.client).await;
    let document = document();
    let mut count = 0;
    for (path, method, operation) in operations(&document) {
        if method != Method::GET || path.contains('{') {
            continue;
        }
        let parameters = operation["parameters"].as_array();
        let required = parameters
            .into_iter()
            .flatten()
            .filter(|one| one["required"] == true);
        let required: Vec<_> = required.filter_map(|one| one["name"].as_str()).collect();
        for parameter in parameters.into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            if parameter["in"] != "query" || name.ends_with("[]") {
                continue;
            }
            let mut query = format!("{name}=");
            for other in required.iter().filter(|other| **other != name) {
                query.push_str(&format!("&{other}={customer}"));
            }
            let refused = server.client.get(&format!("{path}?{query}")).await;
            let (status, _, param) = refused.refusal();
            assert_eq!((status, param.as_deref()), (400, Some(name)), "{path}");
            count += 1;
        }
    }
    assert!(count >= 50, "{count}");
}
