//! Replies as they are, compared with the OpenAPI document.

use crate::support::{
    openapi::{document, resolve},
    prelude::*,
    records::hold_key,
};

/// Every header of the reply is documented, and every one that is documented as required is there.
fn assert_headers_are_documented(document: &Value, documented: &Value, answer: &Answer) {
    let documented: BTreeMap<String, bool> = documented["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, header)| {
            let required = resolve(document, header)["required"] == json!(true);
            (name.to_lowercase(), required)
        })
        .collect();
    // HTTP's own, and those that every reply has, for browsers and caches.
    let undocumented = [
        "content-type",
        "content-length",
        "date",
        "connection",
        "cache-control",
        "content-security-policy",
        "referrer-policy",
        "x-content-type-options",
    ];
    let observed: BTreeSet<&str> = answer
        .headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| !undocumented.contains(name))
        .collect();
    for name in &observed {
        assert!(documented.contains_key(*name), "{name}: {answer:?}");
    }
    for (name, required) in documented {
        let is_there = observed.contains(name.as_str());
        assert!(!required || is_there, "{name} is missing: {answer:?}");
    }
}

#[tokio::test]
async fn every_answer_that_is_observed_is_documented_with_its_code() {
    let server = TestServer::start().await;
    let client = &server.client;
    let document = document();
    let mut slow_body = charge();
    slow_body["unknown"] = 1.into();
    let held = hold_key(&server.database, "held").await;
    for (path, template) in [("/charges", "/charges"), ("/orders", "/orders")] {
        let key = |name: &str| format!("{name}{}", path.replace('/', "-"));
        let card = json!({"a": "4242424242424242"});
        let mut answers = vec![
            ("post", client.post(path, "held", &charge()).await),
            ("post", client.post(path, &key("reused"), &json!({})).await),
            ("post", client.post(path, &key("reused"), &charge()).await),
            (
                "post",
                client
                    .post(&format!("/v1{path}"), &key("reused"), &json!({}))
                    .await,
            ),
            ("post", client.post(path, &key("unknown"), &slow_body).await),
            ("post", client.post(path, &key("unknown"), &json!({})).await),
            ("post", client.post(path, &key("missing"), &json!({})).await),
            ("post", client.post(path, "a b", &charge()).await),
            ("post", client.post(path, &key("card"), &card).await),
            (
                "post",
                Answer::of(client.request(Method::POST, path).json(&charge())).await,
            ),
            (
                "post",
                client
                    .post_waiting(1, path, &key("waiting"), &json!({}))
                    .await,
            ),
            (
                "post",
                client
                    .post_raw(path, &key("raw"), "application/json", b"{")
                    .await,
            ),
            (
                "post",
                client.post_raw(path, &key("raw"), "text/plain", b"{").await,
            ),
            (
                "post",
                client
                    .post_raw(path, &key("raw"), "application/json", &vec![b' '; 70_000])
                    .await,
            ),
            (
                "post",
                client
                    .with_api_key("sk_test_nobody")
                    .post(path, "k", &charge())
                    .await,
            ),
            ("post", Answer::of(client.bare(Method::POST, path)).await),
            ("get", client.get(path).await),
            ("get", client.get(&format!("{path}?limit=0")).await),
            ("get", client.get(&format!("{path}?page=1")).await),
            (
                "get",
                client
                    .get(&format!("{path}?customer=4242424242424242"))
                    .await,
            ),
            ("get", Answer::of(client.bare(Method::GET, path)).await),
        ];
        if path == "/charges" {
            let mistyped = json!({"number": "4242424242424241", "exp_month": 1, "exp_year": 2030});
            let body = json!({"amount": 1, "currency": "usd", "source": mistyped});
            answers.push(("post", client.post(path, &key("mistyped"), &body).await));
            for (source, amount) in [
                ("tok_visa", 1),
                ("tok_chargeDeclined", 1),
                ("tok_outage", 1),
                ("tok_visa", 100_000_000),
            ] {
                let body = json!({"amount": amount, "currency": "usd", "source": source});
                answers.push((
                    "post",
                    client
                        .post(path, &key(&format!("{source}{amount}")), &body)
                        .await,
                ));
            }
        }
        for (method, answer) in &answers {
            let responses = &document["paths"][template][method]["responses"];
            let documented = resolve(&document, &responses[answer.status.as_str()]);
            assert!(
                documented.is_object(),
                "{method} {path}: {} is not documented",
                answer.status
            );
            if !answer.status.is_success() {
                let description = documented["description"].as_str().unwrap();
                let code = answer.code();
                assert!(
                    description.split(", ").any(|known| known == code),
                    "{method} {path}: {code} is not in {description}"
                );
            }
            assert_headers_are_documented(&document, documented, answer);
        }
        for method in ["get", "post"] {
            let responses = &document["paths"][template][method]["responses"];
            let limited = resolve(&document, &responses["429"]);
            assert_eq!(limited["description"], "rate_limited", "{method} {path}");
            let header = &limited["headers"]["Retry-After"];
            assert!(header.is_object(), "{method} {path}");
        }
        let missing = client.get(&format!("{path}/nobody")).await;
        let responses = &document["paths"][format!("{path}/{{id}}")]["get"]["responses"];
        let documented = resolve(&document, &responses[missing.status.as_str()]);
        assert!(documented.is_object());
        assert_headers_are_documented(&document, documented, &missing);
    }
    held.rollback().await.unwrap();
}

#[tokio::test]
async fn the_objects_have_exactly_the_documented_members() {
    let server = TestServer::start().await;
    let document = document();
    let client = &server.client;
    let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
    let charge = client.charge("key-1").await.id();
    let refund = json!({"charge": charge});
    let expanded = format!("/charges/{charge}?expand[]=refunds");
    let endpoint = json!({"url": "https://example.invalid/", "enabled_events": ["order.created"]});
    let endpoint = client.post("/webhook_endpoints", "key-4", &endpoint).await;
    let path = format!("/webhook_endpoints/{}", endpoint.id());
    let customer = client.post("/customers", "key-6", &json!({})).await;
    let of_customer = format!("/customers/{}", customer.id());
    let method = json!({"type": "card", "card": {"token": "tok_visa"}});
    let intent = json!({"amount": 2000, "currency": "usd"});
    let setup = json!({"payment_method": "pm_card_visa"});
    let newest_event = || async { client.get("/events?limit=1").await.json()["data"][0].take() };
    let objects = [
        (
            "Refund",
            client.post("/refunds", "key-3", &refund).await.json(),
        ),
        ("Charge", client.get(&expanded).await.json()),
        (
            "Order",
            client.post("/orders", "key-2", &order).await.json(),
        ),
        (
            "Inventory",
            client
                .put("/inventory/mug", "key-5", &json!({"quantity": 1}))
                .await
                .json(),
        ),
        (
            "PaymentIntent",
            client
                .post("/payment_intents", "key-8", &intent)
                .await
                .json(),
        ),
        (
            "SetupIntent",
            client.post("/setup_intents", "key-9", &setup).await.json(),
        ),
        ("Event", newest_event().await),
        ("WebhookEndpoint", endpoint.json()),
        (
            "WebhookDelivery",
            client.get(&format!("{path}/deliveries")).await.json()["data"][0].take(),
        ),
        (
            "DeletedWebhookEndpoint",
            Answer::of(client.request(Method::DELETE, &path))
                .await
                .json(),
        ),
        ("Customer", customer.json()),
        (
            "DeletedCustomer",
            Answer::of(client.request(Method::DELETE, &of_customer))
                .await
                .json(),
        ),
        (
            "PaymentMethod",
            client
                .post("/payment_methods", "key-7", &method)
                .await
                .json(),
        ),
        (
            "IdempotencyKey",
            server.client.get("/idempotency-keys/key-1").await.json(),
        ),
    ];
    for (name, object) in &objects {
        let documented = &document["components"]["schemas"][name]["properties"];
        let members = |value: &Value| -> BTreeSet<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(members(object), members(documented), "{name}");
    }
}
