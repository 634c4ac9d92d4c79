//! What SDKs read of an event besides its object: the version of the API that it names, and what
//! changed.

use std::collections::HashMap;

use crate::support::{
    prelude::*,
    resources::{charge_with, uncaptured},
    webhooks::{endpoint, told},
};

/// The version of events whose request named none.
const DEFAULT: &str = "2026-10-28.endive";

async fn post_with_version(client: &Client, path: &str, version: &str, body: &Value) -> Answer {
    let key = Uuid::now_v7().to_string();
    post_under(&key, client, path, version, body).await
}

async fn post_under(key: &str, client: &Client, path: &str, version: &str, body: &Value) -> Answer {
    let request = client.request(Method::POST, path).json(body);
    let request = request.header("idempotency-key", key);
    Answer::of(request.header("stripe-version", version)).await
}

/// The newest event of a type.
async fn newest(client: &Client, event_type: &str) -> Value {
    let path = format!("/events?type={event_type}&limit=1");
    client.get(&path).await.json()["data"][0].take()
}

#[tokio::test]
async fn an_event_names_the_version_that_its_request_named_or_else_the_default() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for (version, shown) in [
        ("2024-04-10", "2024-04-10"),
        ("2025-03-31.basil", "2025-03-31.basil"),
        ("2026-10-28.preview; feature=v1", "2026-10-28.preview"),
    ] {
        for path in ["/charges", "/v1/charges"] {
            let created = post_with_version(&client, path, version, &charge()).await;
            assert_eq!(created.status, 201, "{version}");
            let event = newest(&client, "charge.succeeded").await;
            assert_eq!(event["data"]["object"]["id"], created.id());
            assert_eq!(event["api_version"], shown, "{path}");
        }
    }
    client.charge("key-1").await;
    let event = newest(&client, "charge.succeeded").await;
    assert_eq!(event["api_version"], DEFAULT);
}

#[tokio::test]
async fn a_version_that_is_none_is_refused_and_the_key_stays_free() {
    let (server, client) = TestServer::with_client(&[]).await;
    for version in ["latest", "2024-4-10", "2024-04-10.Basil", ""] {
        let refused = post_with_version(&client, "/charges", version, &charge()).await;
        let expected = refusal("parameter_invalid", "Stripe-Version");
        assert_eq!(refused.refusal(), expected, "{version}");
    }
    assert_eq!(server.database.records().await, 0);
}

/// A retry may come from a process with another release of the SDK.
#[tokio::test]
async fn a_retry_with_another_version_is_the_same_request() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let first = post_under("key-1", &client, "/charges", "2024-04-10", &charge()).await;
    assert_eq!(first.status, 201, "{}", first.json());
    let again = post_under("key-1", &client, "/charges", DEFAULT, &charge()).await;
    again.assert_replays(&first);
    let event = newest(&client, "charge.succeeded").await;
    assert_eq!(event["api_version"], "2024-04-10");
}

#[tokio::test]
async fn an_endpoint_with_a_version_gets_every_event_in_it_and_in_every_attempt() {
    let (_server, client) = TestServer::with_client(QUICK).await;
    let (mut versioned, mut other) = (Receiver::start().await, Receiver::start().await);
    let mut body = endpoint(&versioned.url());
    body["api_version"] = "2025-03-31.basil".into();
    let versioned_endpoint = Endpoint::with(&client, &body).await;
    let other_endpoint = Endpoint::at(&client, &other.url()).await;
    for (endpoint, version) in [
        (&versioned_endpoint, json!("2025-03-31.basil")),
        (&other_endpoint, Value::Null),
    ] {
        let path = format!("/v1/webhook_endpoints/{}", endpoint.id);
        assert_eq!(client.get(&path).await.json()["api_version"], version);
    }
    post_with_version(&client, "/charges", "2024-04-10", &charge()).await;
    let shown = newest(&client, "charge.succeeded").await;
    assert_eq!(shown["api_version"], "2024-04-10");
    for (receiver, version) in [
        (&mut versioned, "2025-03-31.basil"),
        (&mut other, "2024-04-10"),
    ] {
        let first = receiver.next().await;
        let mut event = first.event();
        assert_eq!(event["api_version"], version);
        let of_object = &event["data"]["object_version"];
        assert_eq!(first.headers["event-object-version"], of_object.to_string());
        let bytes = first.body.clone();
        first.answer(500).await;
        let second = receiver.next().await;
        assert_eq!(second.body, bytes, "{version}");
        second.answer(200).await;
        event["api_version"] = shown["api_version"].clone();
        assert_eq!(event["data"], shown["data"]);
    }
}

#[tokio::test]
async fn the_version_of_an_endpoint_is_set_once() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let mut body = endpoint("https://example.com/");
    body["api_version"] = "newest".into();
    let refused = client.post_new("/webhook_endpoints", &body).await;
    assert_eq!(refused.refusal().2.as_deref(), Some("api_version"));
    body["api_version"] = DEFAULT.into();
    let created = client.post_new("/webhook_endpoints", &body).await;
    let path = format!("/webhook_endpoints/{}", created.id());
    let update = json!({"api_version": "2024-04-10"});
    let refused = client.post_new(&path, &update).await;
    assert_eq!(error(&refused), (400, "parameter_unknown".to_owned()));
    let update = client.post_new(&path, &json!({"disabled": true})).await;
    assert_eq!(update.json()["api_version"], DEFAULT);
}

/// What a replica of the release before writes has neither column.
#[tokio::test]
async fn events_of_the_release_before_are_shown_and_sent_as_they_were() {
    let (server, mut receiver, _) = told(QUICK).await;
    let client = &server.client;
    server
        .database
        .is_left_broken("an event tells of no change");
    let charge = client.charge("key-1").await.id();
    receiver.next().await.answer(200).await;
    let sql = "WITH event AS (
             INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT account_id, gen_random_uuid(), 'charge.updated', object, request_id, 'key-2'
               FROM events
             RETURNING account_id, id
         )
         INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id)
         SELECT account_id, event.id, endpoint.id, event.id
           FROM event JOIN webhook_endpoints AS endpoint USING (account_id)";
    server.database.execute(sql).await;
    let received = receiver.next().await;
    let event = received.event();
    assert_eq!(event["api_version"], Value::Null);
    assert!(event["data"].get("previous_attributes").is_none());
    assert_eq!(event["data"]["object"]["id"], charge);
    let path = format!("/events/{}", received.event_id());
    let shown = client.get(&path).await;
    assert_eq!(shown.body, received.body);
    received.answer(200).await;
}

/// Another process may complete them: what the request named is kept.
#[tokio::test]
async fn what_outlives_its_request_keeps_the_version_for_its_events() {
    let mut world = World::new().await;
    let client = world.client();
    let fault = json!({"fault": "drop_after"});
    world.processor.set_fault(fault).await;
    let body = json!({"amount": 2000, "currency": "usd", "source": "tok_visa"});
    let unknown = post_under("key-1", &client, "/charges", "2024-04-10", &body).await;
    assert_eq!(unknown.status, 503);
    world.kill_and_start();
    world.the_lease_runs_out().await;
    let client = world.client();
    let completed = client.post_waiting(10, "/charges", "key-1", &body).await;
    assert_eq!(completed.status, 201, "{}", completed.json());
    let event = newest(&client, "charge.succeeded").await;
    assert_eq!(event["api_version"], "2024-04-10");
    stock(&client, "mug", 10).await;
    let made = post_with_version(&client, "/checkouts", "2025-03-31.basil", &checkout()).await;
    assert_eq!(made.status, 201);
    for event_type in "order.created charge.succeeded order.paid checkout.completed".split(' ') {
        let event = newest(&client, event_type).await;
        assert_eq!(event["api_version"], "2025-03-31.basil", "{event_type}");
    }
    // Its beginning, three steps and its end.
    let ended = newest(&client, "checkout.completed").await;
    let version = ended["data"]["object_version"].as_i64().unwrap();
    assert!(version >= 5, "{ended}");
}

/// `data.previous_attributes` of the newest event of a type.
async fn previous(client: &Client, event_type: &str) -> Value {
    newest(client, event_type).await["data"]["previous_attributes"].take()
}

#[tokio::test]
async fn an_update_tells_what_changed_and_of_metadata_only_the_keys() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let metadata = json!({"same": "1", "changed": "2", "gone": "3"});
    let changes = [("description", json!("old")), ("metadata", metadata)];
    let created = charge_with(&client, &changes).await;
    let path = format!("/charges/{}", created.id());
    let update = json!({
        "description": "new", "receipt_email": "a@example.com",
        "metadata": {"changed": "4", "gone": "", "added": "5"},
    });
    client.post_new(&path, &update).await;
    let expected = json!({
        "description": "old", "receipt_email": null,
        "metadata": {"changed": "2", "gone": "3", "added": null},
    });
    assert_eq!(previous(&client, "charge.updated").await, expected);
    let refund = json!({"charge": created.id(), "amount": 1, "metadata": {"a": "1"}});
    let refund = client.post_new("/refunds", &refund).await.id();
    let order = open_order(&client).await;
    for (path, event_type, told) in [
        (format!("/refunds/{refund}"), "refund.updated", json!("1")),
        (format!("/orders/{order}"), "order.updated", Value::Null),
    ] {
        let body = json!({"metadata": {"a": "2"}});
        client.post_new(&path, &body).await;
        let expected = json!({"metadata": {"a": told}});
        assert_eq!(previous(&client, event_type).await, expected);
    }
}

#[tokio::test]
async fn captures_and_refunds_tell_what_the_charge_was_and_other_events_do_not() {
    let (_server, client) = TestServer::with_client(&[]).await;
    money_is_told(&client).await;
    let events = client.get("/events?limit=100").await.json();
    for event in events["data"].as_array().unwrap() {
        let event_type = event["type"].as_str().unwrap();
        let is_change = ["charge.captured", "charge.refunded"].contains(&event_type);
        let is_told = event["data"].get("previous_attributes").is_some();
        assert_eq!(is_told, is_change, "{event}");
    }
}

/// The processor's answer comes after the amount of a refund has begun to count.
#[tokio::test]
async fn across_a_network_captures_and_refunds_tell_the_same() {
    let world = World::new().await;
    money_is_told(&world.client()).await;
}

async fn money_is_told(client: &Client) {
    let promised = uncaptured(client).await;
    let capture = format!("/charges/{promised}/capture");
    client.post_new(&capture, &json!({"amount": 1500})).await;
    let captured = json!({"captured": false, "amount_captured": 0});
    assert_eq!(previous(client, "charge.captured").await, captured);
    for (amount, before) in [
        (500, json!({"amount_refunded": 0})),
        (1000, json!({"amount_refunded": 500, "refunded": false})),
    ] {
        let refund = json!({"charge": promised, "amount": amount});
        assert_eq!(client.post_new("/refunds", &refund).await.status, 201);
        assert_eq!(previous(client, "charge.refunded").await, before);
    }
    let released = uncaptured(client).await;
    let body = json!({"charge": released});
    client.post_new("/refunds", &body).await;
    let before = json!({"amount_refunded": 0, "refunded": false});
    assert_eq!(previous(client, "charge.refunded").await, before);
}

/// The events of each object, by its id, in the order in which they were written.
async fn by_object(client: &Client) -> HashMap<String, Vec<Value>> {
    let mut events = HashMap::<_, Vec<Value>>::new();
    let listed = client.get("/events?limit=100").await.json();
    assert_eq!(listed["has_more"], false);
    for event in listed["data"].as_array().unwrap().iter().rev() {
        let id = event["data"]["object"]["id"].as_str().unwrap().to_owned();
        events.entry(id).or_default().push(event.clone());
    }
    events
}

#[tokio::test]
async fn versions_of_an_object_grow_with_each_of_its_events() {
    let (_server, client) = TestServer::with_client(&[]).await;
    money_is_told(&client).await;
    // A customer with a default method, which both change and end.
    let with_method = json!({"payment_method": "pm_card_visa"});
    let customer = client.post_new("/customers", &with_method).await.id();
    let path = format!("/customers/{customer}");
    let method = client.get(&format!("{path}/payment_methods")).await.json();
    let method = method["data"][0]["id"].as_str().unwrap().to_owned();
    let default = json!({"invoice_settings": {"default_payment_method": method}});
    let paths = rows::<(String, Value)>(json!([
        [path.clone(), default],
        [format!("/payment_methods/{method}"), {"metadata": {"a": "1"}}],
        [format!("/payment_methods/{method}/detach"), {}],
    ]));
    for (path, body) in paths {
        assert_eq!(client.post_new(&path, &body).await.status, 200, "{path}");
    }
    client.request(Method::DELETE, &path).send().await.unwrap();
    // An intent that is declined when it is made, and one that is captured.
    let terms = |card: &str| {
        json!({"amount": 2000, "currency": "usd", "payment_method_types": ["card"],
               "capture_method": "manual", "confirm": true, "payment_method": card})
    };
    let declined = terms("pm_card_chargeDeclined");
    client.post_new("/payment_intents", &declined).await;
    let paid = terms("pm_card_visa");
    let paid = client.post_new("/payment_intents", &paid).await.id();
    let capture = format!("/payment_intents/{paid}/capture");
    client.post_new(&capture, &json!({})).await;
    // A card that is set up.
    let card = json!({"payment_method_types": ["card"], "payment_method": "pm_card_visa",
                      "confirm": true});
    client.post_new("/setup_intents", &card).await;
    let order = open_order(&client).await;
    let pay = json!({"source": "tok_visa"});
    client.post_new(&format!("/orders/{order}/pay"), &pay).await;

    let events = by_object(&client).await;
    let mut most = 0;
    for (id, events) in &events {
        let versions = events.iter().map(|event| &event["data"]["object_version"]);
        let versions: Vec<_> = versions.map(|version| version.as_i64().unwrap()).collect();
        let grow = versions[0] >= 1 && versions.is_sorted_by(|one, next| one < next);
        assert!(grow, "{id}: {versions:?}");
        most = most.max(versions.len());
    }
    assert!(most >= 4, "{most}");
}
