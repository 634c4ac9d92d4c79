//! What is published: the OpenAPI document, Swagger UI, the page of errors, health.

use std::collections::{BTreeMap, BTreeSet};

use charge_once::{api::error::ErrorCode, domain::test_cards::TEST_CARDS, http::openapi};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    checkouts::stock,
    harness::{Answer, Client, TestServer, charge},
    records::hold_key,
};

fn document() -> Value {
    serde_json::to_value(openapi::document()).unwrap()
}

/// Every operation: path, method, and what the document says about it.
fn operations(document: &Value) -> Vec<(String, Method, &Value)> {
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
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document
            .pointer(reference.trim_start_matches('#'))
            .expect(reference),
        None => schema,
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn follow(document: &Value, value: &Value) {
        resolve(document, value);
        match value {
            Value::Object(members) => members.values().for_each(|value| follow(document, value)),
            Value::Array(items) => items.iter().for_each(|value| follow(document, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    for part in ["paths", "components"] {
        follow(&document, &document[part]);
    }
}

#[tokio::test]
async fn the_committed_document_is_the_generated_and_the_served_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(committed, document(), "run `make openapi`");
    let server = TestServer::start().await;
    assert_eq!(server.client.get("/openapi.json").await.json(), committed);
}

/// A body as a form, written as the document says: `metadata[order_id]=6735` where a member's style
/// is deepObject, one pair for each element of another list. An object without a style would be
/// written otherwise, and refused.
fn as_form(body: &Value, encoding: &Value) -> String {
    fn write(form: &mut form_urlencoded::Serializer<'_, String>, name: &str, value: &Value) {
        match value {
            Value::Object(members) => {
                for (member, value) in members {
                    write(form, &format!("{name}[{member}]"), value);
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    write(form, &format!("{name}[{index}]"), value);
                }
            }
            Value::String(text) => drop(form.append_pair(name, text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                form.append_pair(name, &value.to_string());
            }
        }
    }
    let mut form = form_urlencoded::Serializer::new(String::new());
    for (name, value) in body.as_object().unwrap() {
        if encoding[name] == json!({"style": "deepObject", "explode": true}) {
            write(&mut form, name, value);
            continue;
        }
        assert!(!value.is_object(), "{name} has no encoding");
        for value in value.as_array().unwrap_or(&vec![value.clone()]) {
            write(&mut form, name, value);
        }
    }
    form.finish()
}

#[tokio::test]
async fn every_documented_example_request_works_in_both_encodings_and_dialects() {
    let server = TestServer::start().await;
    // What the example of a checkout sells.
    stock(&server.client, "mug", 100).await;
    let document = document();
    let mut tried = 0;
    for (path, method, operation) in operations(&document) {
        let Some(body) = operation.get("requestBody") else {
            continue;
        };
        for (media_type, content) in body["content"].as_object().unwrap() {
            let schema = resolve(&document, &content["schema"]);
            let example = &schema["example"];
            assert!(
                example.is_object(),
                "{method} {path} has no example as {media_type}"
            );
            for prefix in ["", "/v1"] {
                tried += 1;
                let path = format!("{prefix}{path}");
                let (path, example) = with_ids(&server.client, &path, example).await;
                let written = match media_type.as_str() {
                    "application/json" => example.to_string(),
                    "application/x-www-form-urlencoded" => as_form(&example, &content["encoding"]),
                    other => panic!("{method} {path} takes {other}"),
                };
                let answer = server
                    .client
                    .send_raw(
                        method.clone(),
                        &path,
                        &format!("{tried}"),
                        media_type,
                        written.as_bytes(),
                    )
                    .await;
                let documented = operation["responses"].get(answer.status.as_str());
                assert!(answer.status.is_success(), "{path}: {}", answer.json());
                assert!(documented.is_some(), "{path}: {}", answer.status);
            }
        }
    }
    assert!(tried >= 40, "{tried}");
}

#[tokio::test]
async fn a_body_may_be_left_out_where_no_parameter_is_required() {
    let server = TestServer::start().await;
    let document = document();
    let mut optional = 0;
    for (path, method, operation) in operations(&document) {
        let Some(body) = operation.get("requestBody") else {
            continue;
        };
        let (path, _) = with_ids(&server.client, &path, &json!({})).await;
        let request = server.client.request(method, &path);
        let answer = Answer::of(request.header("idempotency-key", path.as_str())).await;
        let is_required = body["required"] == json!(true);
        assert_eq!(is_required, answer.status == 400, "{path}: {answer:?}");
        optional += usize::from(!is_required);
    }
    assert!(optional >= 6, "{optional}");
}

#[test]
fn a_list_of_texts_has_brackets_in_a_form() {
    let document = document();
    for (path, _, operation) in operations(&document) {
        let content = &operation["requestBody"]["content"];
        let expand = |media_type: &str, name: &str| {
            let schema = resolve(&document, &content[media_type]["schema"]);
            schema["properties"].get(name).is_some()
        };
        assert_eq!(
            expand("application/json", "expand"),
            expand("application/x-www-form-urlencoded", "expand[]"),
            "{path}"
        );
        assert!(
            !expand("application/x-www-form-urlencoded", "expand"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn metadata_is_bounded_as_documented() {
    let server = TestServer::start().await;
    let document = document();
    let documented = &document["components"]["schemas"]["Metadata"];
    let limit = |pointer: &str| {
        let limit = documented.pointer(pointer).and_then(Value::as_u64);
        usize::try_from(limit.expect(pointer)).unwrap()
    };
    let (keys, key, value) = (
        limit("/maxProperties"),
        limit("/propertyNames/maxLength"),
        limit("/additionalProperties/maxLength"),
    );
    let of_size = |keys: usize, key: usize, value: usize| -> Value {
        let named = |index| (format!("{index:0>key$}"), "ü".repeat(value).into());
        Value::Object((0..keys).map(named).collect())
    };
    let cases = [
        (of_size(keys, 2, 1), 201),
        (of_size(keys + 1, 2, 1), 400),
        (of_size(1, key, value), 201),
        (of_size(1, key + 1, value), 400),
        (of_size(1, key, value + 1), 400),
    ];
    for (index, (metadata, status)) in cases.into_iter().enumerate() {
        let mut body = charge();
        body["metadata"] = metadata;
        let answer = server
            .client
            .post("/charges", &format!("key-{index}"), &body)
            .await;
        assert_eq!(answer.status, status, "{index}: {}", answer.json());
    }
    // One description for all requests.
    for name in ["CreateCharge", "CreateOrder"] {
        let member = &document["components"]["schemas"][name]["properties"]["metadata"];
        assert_eq!(member, &json!({"$ref": "#/components/schemas/Metadata"}));
    }
}

/// Puts ids of new objects in the place of those in a documented path and body.
async fn with_ids(client: &Client, path: &str, example: &Value) -> (String, Value) {
    let key = || uuid::Uuid::now_v7().to_string();
    let mut body = charge();
    body["capture"] = (!path.ends_with("/capture")).into();
    let charge = client.post("/charges", &key(), &body).await.id();
    let mut example = example.clone();
    if example.get("charge").is_some() {
        example["charge"] = charge.clone().into();
    }
    let (collection, _) = path.trim_start_matches("/v1").split_at(4);
    let id = match (path.contains("{id}"), collection) {
        (false, _) => String::new(),
        (true, "/cha") => charge,
        (true, "/ref") => {
            let refund = json!({"charge": charge, "amount": 1});
            client.post("/refunds", &key(), &refund).await.id()
        }
        (true, "/ord") => {
            let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
            client.post("/orders", &key(), &order).await.id()
        }
        (true, other) => panic!("no object for {other}"),
    };
    let path = path.replace("{id}", &id).replace("{sku}", "mug");
    (path, example)
}

#[tokio::test]
async fn every_test_card_has_an_example_that_is_answered_as_it_says() {
    let server = TestServer::start().await;
    let document = document();
    let charges = &document["paths"]["/charges"]["post"]["requestBody"]["content"];
    let examples = charges["application/json"]["examples"].as_object().unwrap();
    assert_eq!(examples.len(), TEST_CARDS.len());
    for (token, example) in examples {
        let answer = server.client.post_new("/charges", &example["value"]).await;
        let said = match answer.status.as_u16() {
            201 => "succeeds".to_owned(),
            402 => format!("402 {}", answer.code()),
            status => status.to_string(),
        };
        let summary = example["summary"].as_str().unwrap();
        assert!(
            summary.starts_with(&format!("{token}: {said}")),
            "{summary}: {said}"
        );
    }
}

#[test]
fn every_post_and_put_requires_an_idempotency_key_and_shows_one_of_its_own() {
    let is_mutating = |method: &Method| [Method::POST, Method::PUT].contains(method);
    let document = document();
    let mut shown = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let parameters = operation["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let key = parameters
            .iter()
            .find(|parameter| parameter["name"] == "Idempotency-Key");
        let Some(key) = key else {
            assert!(!is_mutating(&method), "{method} {path}");
            continue;
        };
        assert!(is_mutating(&method), "{method} {path}");
        assert_eq!(
            (&key["in"], &key["required"]),
            (&json!("header"), &json!(true))
        );
        let example = key["example"].as_str().unwrap_or_default();
        assert!(charge_once::idempotency::IdempotencyKey::parse(example.as_bytes()).is_ok());
        // Tried one after the other in Swagger UI, one key for two operations would be a reuse.
        assert!(shown.insert(example.to_owned()), "{path}: {example}");
    }
}

#[test]
fn every_error_reply_is_described_once() {
    let document = document();
    let mut named = BTreeSet::new();
    for (path, _, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            if status.starts_with('2') {
                continue;
            }
            let reference = response["$ref"].as_str().expect(&path);
            assert_eq!(response.as_object().unwrap().len(), 1, "{path} {status}");
            named.insert(reference.to_owned());
        }
    }
    let described = document["components"]["responses"].as_object().unwrap();
    assert_eq!(named.len(), described.len());
    assert!(described.len() <= 32, "{}", described.len());
}

#[test]
fn both_ways_to_authenticate_are_described_and_only_health_needs_none() {
    let document = document();
    let schemes = &document["components"]["securitySchemes"];
    for name in ["bearer", "basic"] {
        let hint = schemes[name]["description"].as_str().unwrap();
        assert!(hint.contains("sk_test_"), "{hint}");
        assert_eq!(
            schemes[name],
            json!({"type": "http", "scheme": name, "description": hint})
        );
    }
    assert_eq!(document["security"], json!([{"bearer": []}, {"basic": []}]));
    for (path, _, operation) in operations(&document) {
        let is_open = operation.get("security") == Some(&json!([{}]));
        assert_eq!(
            is_open,
            ["/livez", "/readyz"].contains(&path.as_str()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn only_health_is_not_served_under_v1_too() {
    let server = TestServer::start().await;
    let document = document();
    let urls = |servers: &Value| -> Vec<Value> {
        let servers = servers.as_array().unwrap();
        servers.iter().map(|server| server["url"].clone()).collect()
    };
    assert_eq!(urls(&document["servers"]), ["/", "/v1"]);
    for (path, method, operation) in operations(&document) {
        let only_at_the_root = operation
            .get("servers")
            .is_some_and(|servers| urls(servers) == ["/"]);
        let answer = Answer::of(server.client.bare(method, &format!("/v1{path}"))).await;
        assert_eq!(only_at_the_root, answer.status == 404, "{path}: {answer:?}");
    }
}

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
    let observed: BTreeSet<&str> = answer
        .headers
        .keys()
        .map(|name| name.as_str())
        .filter(|name| !["content-type", "content-length", "date", "connection"].contains(name))
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

#[tokio::test]
async fn swagger_ui_is_served_with_its_files_and_needs_no_other_host() {
    let server = TestServer::start().await;
    let page = Answer::of(server.client.bare(Method::GET, "/swagger-ui/")).await;
    assert_eq!(page.status, 200);
    let html = String::from_utf8(page.body.clone()).unwrap();
    assert!(!html.contains("https://"), "{html}");
    let scripts: Vec<_> = html
        .split("src=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().trim_start_matches("./"))
        .collect();
    assert!(!scripts.is_empty(), "{html}");
    for script in scripts {
        let answer = server.client.get(&format!("/swagger-ui/{script}")).await;
        assert_eq!(answer.status, 200, "{script}");
        assert!(
            answer
                .header("content-type")
                .unwrap()
                .contains("javascript"),
            "{script}"
        );
        assert!(!answer.body.is_empty(), "{script}");
    }
    // Without its slash the page would resolve its files wrongly.
    let redirected = Answer::of(server.client.bare(Method::GET, "/swagger-ui")).await;
    assert_eq!(redirected.body, page.body);
}

#[tokio::test]
async fn every_code_has_an_anchor_on_the_errors_page_and_every_doc_url_leads_there() {
    let server = TestServer::start().await;
    let page = Answer::of(server.client.bare(Method::GET, "/errors")).await;
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let html = String::from_utf8(page.body).unwrap();
    for code in ErrorCode::ALL {
        assert_eq!(code.doc_url(), format!("/errors#{}", code.as_str()));
        let anchor = format!("id=\"{}\"", code.as_str());
        assert_eq!(html.matches(&anchor).count(), 1, "{anchor}");
        assert!(
            html.contains(&format!("<p>{}</p>", code.explanation())),
            "{anchor}"
        );
    }
    let error = server.client.get("/v1/nothing").await.json();
    let doc_url = error["error"]["doc_url"].as_str().unwrap().to_owned();
    let (path, fragment) = doc_url.split_once('#').unwrap();
    let target = Answer::of(server.client.bare(Method::GET, path)).await;
    assert_eq!(target.status, 200);
    assert!(
        String::from_utf8(target.body)
            .unwrap()
            .contains(&format!("id=\"{fragment}\""))
    );
}

#[tokio::test]
async fn health_and_the_index_need_no_api_key() {
    let server = TestServer::start().await;
    let cases = [
        ("/livez", json!({"status": "alive"})),
        ("/readyz", json!({"status": "ready"})),
    ];
    for (path, expected) in cases {
        let answer = Answer::of(server.client.bare(Method::GET, path)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()),
            (200, expected),
            "{path}"
        );
    }
    let index = Answer::of(server.client.bare(Method::GET, "/"))
        .await
        .json();
    for (_, target) in index
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "name")
    {
        let answer = Answer::of(server.client.bare(Method::GET, target.as_str().unwrap())).await;
        assert_eq!(answer.status, 200, "{target}");
    }
}
