//! What is published: the OpenAPI document, Swagger UI, the page of errors, health.

use charge_once::{
    domain::{event::EventType, test_cards::TEST_CARDS},
    wire::error::ErrorCode,
};

use crate::support::{openapi::with_ids, prelude::*, resources::charge_with};

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
    for part in ["paths", "webhooks", "components"] {
        follow(&document, &document[part]);
    }
}

/// A generator of clients makes a type of each object. From an object without a name of its own, it
/// makes a second type, or one that it can't import.
#[test]
fn every_object_of_the_document_has_a_name_and_is_referred_to() {
    fn find(place: &str, value: &Value, found: &mut Vec<String>) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v)).collect(),
            Value::Array(items) => {
                let items = items.iter().zip(0..);
                items.map(|(item, at)| (at.to_string(), item)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
        if value["properties"].is_object() {
            found.push(place.to_owned());
        }
        for (name, member) in members {
            find(&format!("{place} {name}"), member, found);
        }
    }
    let document = document();
    let mut found = Vec::new();
    for part in ["paths", "webhooks"] {
        find(part, &document[part], &mut found);
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let mut within = Vec::new();
        find(name, schema, &mut within);
        // The first one is the object that has this name.
        within.retain(|place| place != name);
        found.append(&mut within);
    }
    // A form's names differ from those of JSON.
    found.retain(|place| !place.ends_with("application/x-www-form-urlencoded schema"));
    assert_eq!(found, Vec::<String>::new(), "in place of a $ref");

    let text = document.to_string();
    for (kind, components) in document["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys() {
            let reference = format!(r##""#/components/{kind}/{name}""##);
            let is_used = kind == "securitySchemes" || text.contains(&reference);
            assert!(is_used, "nothing refers to {reference}");
        }
    }
}

#[test]
fn every_type_of_event_is_described_as_a_webhook() {
    let document = document();
    let webhooks = document["webhooks"].as_object().unwrap();
    let described: BTreeSet<&str> = webhooks.keys().map(String::as_str).collect();
    let known = EventType::ALL.iter().map(|known| known.as_str()).collect();
    assert_eq!(described, known);
}

#[tokio::test]
async fn the_committed_document_is_the_generated_and_the_served_one() {
    let committed: Value = serde_json::from_str(&read("openapi/openapi.json")).unwrap();
    assert_eq!(committed, document(), "run `make generate`");
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
    let server = TestServer::start_with(&[FAULTS]).await;
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
            let place = format!("{method} {path} as {media_type}");
            assert!(example.is_object(), "{place} has no example");
            for prefix in ["", "/v1"] {
                tried += 1;
                let path = format!("{prefix}{path}");
                let (path, example) = with_ids(&server.client, &path, example).await;
                let written = match media_type.as_str() {
                    JSON => example.to_string(),
                    FORM => as_form(&example, &content["encoding"]),
                    _ => panic!("{place}"),
                };
                let (method, key) = (method.clone(), format!("{tried}"));
                let (client, body) = (&server.client, written.as_bytes());
                let sending = client.send_raw(method, &path, &key, media_type, body);
                let answer = sending.await;
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
    let server = TestServer::start_with(&[FAULTS]).await;
    let document = document();
    let mut optional = 0;
    for (path, method, operation) in operations(&document) {
        let Some(body) = operation.get("requestBody") else {
            continue;
        };
        let (path, _) = with_ids(&server.client, &path, &json!({})).await;
        let request = server.client.request(method, &path);
        let answer = Answer::of(request.header("idempotency-key", path.as_str())).await;
        // A confirmation names a method, and where the holder returns to, unless the intent does.
        if path.ends_with("/confirm") {
            continue;
        }
        // A refund names one of two parameters.
        let is_required = body["required"] == json!(true) || path == "/refunds";
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
        assert_eq!(expand(JSON, "expand"), expand(FORM, "expand[]"), "{path}");
        assert!(!expand(FORM, "expand"), "{path}");
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
    let keys = limit("/maxProperties");
    let key = limit("/propertyNames/maxLength");
    let value = limit("/additionalProperties/maxLength");
    let of_size = |keys: usize, key: usize, value: usize| -> Value {
        let named = |index| (format!("{index:0>key$}"), "ü".repeat(value).into());
        Value::Object((0..keys).map(named).collect())
    };
    for (keys, key, value, status) in [
        (keys, 2, 1, 201),
        (keys + 1, 2, 1, 400),
        (1, key, value, 201),
        (1, key + 1, value, 400),
        (1, key, value + 1, 400),
    ] {
        let metadata = [("metadata", of_size(keys, key, value))];
        let answer = charge_with(&server.client, &metadata).await;
        assert_eq!(answer.status, status, "{keys} {key} {value}: {answer:?}");
    }
    // One description for all requests.
    for name in ["CreateCharge", "CreateOrder"] {
        let member = &document["components"]["schemas"][name]["properties"]["metadata"];
        assert_eq!(member, &json!({"$ref": "#/components/schemas/Metadata"}));
    }
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
        let is_told = summary.starts_with(&format!("{token}: {said}"));
        assert!(is_told, "{summary}: {said}");
    }
}

#[test]
fn every_post_and_put_requires_an_idempotency_key_a_delete_takes_one_and_each_shows_its_own() {
    let takes_key = |method: &Method| ![Method::GET, Method::HEAD].contains(method);
    let document = document();
    let mut shown = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        let key = parameters.find(|parameter| parameter["name"] == "Idempotency-Key");
        assert_eq!(key.is_some(), takes_key(&method), "{method} {path}");
        let Some(key) = key else {
            continue;
        };
        assert_eq!(key["in"], "header", "{path}");
        assert_eq!(key["required"], method != Method::DELETE, "{path}");
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
    assert!(described.len() <= 64, "{}", described.len());
}

#[test]
fn both_ways_to_authenticate_are_described_and_only_health_and_the_policy_need_none() {
    let document = document();
    let schemes = &document["components"]["securitySchemes"];
    for name in ["bearer", "basic"] {
        let hint = schemes[name]["description"].as_str().unwrap();
        hint.must_have(&["sk_test_"]);
        let expected = json!({"type": "http", "scheme": name, "description": hint});
        assert_eq!(schemes[name], expected);
    }
    assert_eq!(document["security"], json!([{"bearer": []}, {"basic": []}]));
    for (path, _, operation) in operations(&document) {
        let is_open = operation.get("security") == Some(&json!([{}]));
        let needs_none = ["/livez", "/readyz", "/.well-known/idempotency"];
        assert_eq!(is_open, needs_none.contains(&path.as_str()), "{path}");
    }
}

#[tokio::test]
async fn only_health_and_the_policy_are_not_served_under_v1_too() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let document = document();
    let urls = |servers: &Value| -> Vec<Value> {
        let servers = servers.as_array().unwrap();
        servers.iter().map(|server| server["url"].clone()).collect()
    };
    assert_eq!(urls(&document["servers"]), ["/", "/v1"]);
    for (path, method, operation) in operations(&document) {
        let servers = operation.get("servers");
        let only_at_the_root = servers.is_some_and(|servers| urls(servers) == ["/"]);
        let answer = Answer::of(server.client.bare(method, &format!("/v1{path}"))).await;
        assert_eq!(only_at_the_root, answer.status == 404, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn swagger_ui_is_served_with_its_files_and_needs_no_other_host() {
    let server = TestServer::start().await;
    let page = Answer::of(server.client.bare(Method::GET, "/swagger-ui/")).await;
    assert_eq!(page.status, 200);
    let html = text(&page.body);
    html.must_lack(&["https://"]);
    html.must_have(&["src=\""]);
    for script in html.split("src=\"").skip(1) {
        let script = script.split('"').next().unwrap().trim_start_matches("./");
        let answer = server.client.get(&format!("/swagger-ui/{script}")).await;
        assert_eq!(answer.status, 200, "{script}");
        let kind = answer.header("content-type").unwrap();
        kind.must_have(&["javascript"]);
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
    let kind = page.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    let html = text(&page.body);
    for code in ErrorCode::ALL {
        assert_eq!(code.doc_url(), format!("/errors#{}", code.as_str()));
        let anchor = format!("id=\"{}\"", code.as_str());
        assert_eq!(html.matches(&anchor).count(), 1, "{anchor}");
        html.must_have(&[&format!("<p>{}</p>", code.explanation())]);
    }
    let error = server.client.get("/v1/nothing").await.json();
    let doc_url = error["error"]["doc_url"].as_str().unwrap();
    let (path, fragment) = doc_url.split_once('#').unwrap();
    let target = Answer::of(server.client.bare(Method::GET, path)).await;
    assert_eq!(target.status, 200);
    text(&target.body).must_have(&[&format!("id=\"{fragment}\"")]);
}

#[tokio::test]
async fn health_and_the_index_need_no_api_key() {
    let server = TestServer::start().await;
    let get = |path: &str| Answer::of(server.client.bare(Method::GET, path));
    for (path, status) in [("/livez", "alive"), ("/readyz", "ready")] {
        let answer = get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.json(), json!({"status": status}), "{path}");
    }
    let mut index = get("/").await.json();
    let targets = index.as_object_mut().unwrap();
    targets.remove("name");
    for target in targets.values() {
        let answer = get(target.as_str().unwrap()).await;
        assert_eq!(answer.status, 200, "{target}");
    }
}
