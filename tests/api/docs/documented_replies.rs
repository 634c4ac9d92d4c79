//! Replies as they are, compared with the OpenAPI document.

use crate::support::prelude::*;

/// Every header of the reply is documented, and every one that is documented as required is there.
fn assert_headers_are_documented(document: &Value, documented: &Value, answer: &Answer) {
    let documented = documented["headers"].as_object().unwrap().iter();
    let documented: BTreeMap<_, _> = documented
        .map(|(name, header)| (name.to_lowercase(), resolve(document, header)))
        .collect();
    // HTTP's own, and those that every reply has, for browsers and caches.
    let undocumented = "content-type content-length date connection cache-control \
                        content-security-policy referrer-policy vary x-content-type-options";
    for name in answer.headers.keys().map(|name| name.as_str()) {
        let is_known =
            documented.contains_key(name) || undocumented.split(' ').any(|it| it == name);
        assert!(is_known, "{name}: {answer:?}");
    }
    for (name, header) in documented {
        let is_there = header["required"] != true || answer.headers.contains_key(&name);
        assert!(is_there, "{name} is missing: {answer:?}");
    }
}

/// An operation's replies have this one, with its code and its headers.
fn assert_is_documented(document: &Value, responses: &Value, answer: &Answer) {
    let documented = resolve(document, &responses[answer.status.as_str()]);
    assert!(documented.is_object(), "not documented: {answer:?}");
    if !answer.status.is_success() {
        for (form, schema) in [(JSON, "Error"), ("application/problem+json", "Problem")] {
            let schema = format!("#/components/schemas/{schema}");
            assert_eq!(documented["content"][form]["schema"]["$ref"], schema);
        }
        let description = documented["description"].as_str().unwrap();
        let is_known = description.split(", ").any(|known| known == answer.code());
        assert!(is_known, "not in {description}: {answer:?}");
    }
    assert_headers_are_documented(document, documented, answer);
}

#[tokio::test]
async fn every_answer_that_is_observed_is_documented_with_its_code() {
    let server = TestServer::start().await;
    let client = &server.client;
    let document = document();
    let mut slow_body = charge();
    slow_body["unknown"] = 1.into();
    let held = hold_key(&server.database, "held").await;
    let stranger = client.with_api_key("sk_test_nobody");
    for path in ["/charges", "/orders"] {
        let key = |name: &str| format!("{name}{}", path.replace('/', "-"));
        let post = async |name: &str, body: Value| client.post(path, &key(name), &body).await;
        let raw =
            async |kind: &str, body: &[u8]| client.post_raw(path, &key("raw"), kind, body).await;
        let get = async |query: &str| client.get(&format!("{path}{query}")).await;
        let v1 = format!("/v1{path}");
        let nothing = json!({});
        let mut posts = vec![
            client.post(path, "held", &charge()).await,
            post("reused", json!({})).await,
            post("reused", charge()).await,
            client.post(&v1, &key("reused"), &nothing).await,
            post("unknown", slow_body.clone()).await,
            post("unknown", json!({})).await,
            post("missing", json!({})).await,
            client.post(path, "a b", &charge()).await,
            post("card", json!({"a": "4242424242424242"})).await,
            Answer::of(client.request(Method::POST, path).json(&charge())).await,
            client
                .post_waiting(1, path, &key("waiting"), &nothing)
                .await,
            raw(JSON, b"{").await,
            raw("text/plain", b"{").await,
            raw(JSON, &[b' '; 70_000]).await,
            stranger.post(path, "k", &charge()).await,
            Answer::of(client.bare(Method::POST, path)).await,
        ];
        let gets = vec![
            get("").await,
            get("?limit=0").await,
            get("?page=1").await,
            get("?customer=4242424242424242").await,
            Answer::of(client.bare(Method::GET, path)).await,
        ];
        if path == "/charges" {
            let mistyped = json!({"number": "4242424242424241", "exp_month": 1, "exp_year": 2030});
            for (number, source, amount) in [
                (1, mistyped, 1),
                (2, "tok_visa".into(), 1),
                (3, "tok_chargeDeclined".into(), 1),
                (4, "tok_outage".into(), 1),
                (5, "tok_visa".into(), 100_000_000),
            ] {
                let body = json!({"amount": amount, "currency": "usd", "source": source});
                posts.push(post(&format!("source{number}"), body).await);
            }
        }
        for (method, answers) in [("post", &posts), ("get", &gets)] {
            for answer in answers {
                let responses = &document["paths"][path][method]["responses"];
                assert_is_documented(&document, responses, answer);
            }
        }
        for method in ["get", "post"] {
            let responses = &document["paths"][path][method]["responses"];
            let limited = resolve(&document, &responses["429"]);
            assert_eq!(limited["description"], "rate_limited", "{method} {path}");
            let header = &limited["headers"]["Retry-After"];
            assert!(header.is_object(), "{method} {path}");
        }
        let missing = client.get(&format!("{path}/nobody")).await;
        let responses = &document["paths"][format!("{path}/{{id}}")]["get"]["responses"];
        assert_is_documented(&document, responses, &missing);
    }
    held.rollback().await.unwrap();
}

#[tokio::test]
async fn the_objects_have_exactly_the_documented_members() {
    let server = TestServer::start().await;
    let document = document();
    let client = &server.client;
    let post = async |path: &str, body: Value| client.post_new(path, &body).await.json();
    let delete = async |path: &str| {
        let request = client.request(Method::DELETE, path);
        Answer::of(request).await.json()
    };
    let first = async |path: &str| client.get(path).await.json()["data"][0].take();
    let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
    let charge = client.charge("key-1").await.id();
    let expanded = format!("/charges/{charge}?expand[]=refunds");
    let endpoint = json!({"url": "https://example.invalid/", "enabled_events": ["order.created"]});
    let endpoint = post("/webhook_endpoints", endpoint).await;
    let path = format!("/webhook_endpoints/{}", endpoint["id"].as_str().unwrap());
    let deliveries = format!("{path}/deliveries");
    let customer = post("/customers", json!({})).await;
    let of_customer = format!("/customers/{}", customer["id"].as_str().unwrap());
    let method = json!({"type": "card", "card": {"token": "tok_visa"}});
    let intent = json!({"amount": 2000, "currency": "usd"});
    let setup = json!({"payment_method": "pm_card_visa"});
    let level = json!({"quantity": 1});
    let level = client.put("/inventory/mug", "key-2", &level).await;
    let objects = [
        ("Refund", post("/refunds", json!({"charge": charge})).await),
        ("Charge", client.get(&expanded).await.json()),
        ("Order", post("/orders", order).await),
        ("Inventory", level.json()),
        ("PaymentIntent", post("/payment_intents", intent).await),
        ("SetupIntent", post("/setup_intents", setup).await),
        ("Event", first("/events?limit=1").await),
        ("WebhookEndpoint", endpoint),
        ("WebhookDelivery", first(&deliveries).await),
        ("DeletedWebhookEndpoint", delete(&path).await),
        ("Customer", customer),
        ("DeletedCustomer", delete(&of_customer).await),
        ("PaymentMethod", post("/payment_methods", method).await),
        (
            "IdempotencyKey",
            client.get("/idempotency-keys/key-1").await.json(),
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
