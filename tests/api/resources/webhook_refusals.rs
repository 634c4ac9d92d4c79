//! Receivers that say how they want to be treated: gone for good, or not now. And receivers that
//! read the headers of Standard Webhooks.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::support::{
    prelude::*,
    webhook_receiver::Received,
    webhooks::{DELIVERIES, endpoint, sent_at, told, verifies},
};

async fn status(client: &Client, endpoint: &Endpoint) -> Value {
    let path = format!("/webhook_endpoints/{}", endpoint.id);
    client.get(&path).await.json()["status"].take()
}

#[tokio::test]
async fn a_receiver_that_is_gone_disables_its_endpoint_until_it_is_enabled_again() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let client = &server.client;
    let stays = Endpoint::at(client, "http://127.0.0.1:9/").await;
    client.charge("key-1").await;
    receiver.next().await.answer(410).await;
    let failed = |delivery: &Value| delivery["status"] == "failed";
    let delivery = endpoint.newest_delivery(client, "it fails", failed).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    delivery["attempts"][0].assert_shows(json!({
        "response_status": 410,
        "error": "the receiver is gone: nothing more is sent to this URL",
    }));
    assert_eq!(delivery["next_attempt"], Value::Null);
    assert_eq!(status(client, &endpoint).await, "disabled");
    assert_eq!(status(client, &stays).await, "enabled");
    client.charge("key-2").await;
    assert_eq!(endpoint.deliveries(client).await.len(), 1);
    endpoint.disable(client, false).await;
    client.charge("key-3").await;
    let received = receiver.next().await;
    assert_eq!(received.event()["request"]["idempotency_key"], "key-3");
    received.answer(200).await;
    endpoint.newest_succeeds(client).await;
    assert_eq!(status(client, &endpoint).await, "enabled");
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn a_word_of_the_old_url_does_not_disable_an_endpoint_that_has_moved() {
    let (_server, client) = TestServer::with_client(QUICK).await;
    let (mut old, mut new) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&client, &old.url()).await;
    client.charge("key-1").await;
    let under_way = old.next().await;
    let path = format!("/webhook_endpoints/{}", endpoint.id);
    client.post_new(&path, &json!({"url": new.url()})).await;
    under_way.answer(410).await;
    let failed = |delivery: &Value| delivery["status"] == "failed";
    endpoint.newest_delivery(&client, "it fails", failed).await;
    assert_eq!(status(&client, &endpoint).await, "enabled");
    client.charge("key-2").await;
    new.next().await.answer(200).await;
}

/// Seconds from the failure of the first attempt to the next one, where it was answered so.
async fn pause(client: &Client, receiver: &mut Receiver, answer: u16, header: &str) -> i64 {
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    let key = uuid::Uuid::now_v7().to_string();
    client.charge(&key).await;
    receiver.next().await.answer_with(answer, header).await;
    let waits = |delivery: &Value| delivery["next_attempt"].is_i64();
    let delivery = endpoint.newest_delivery(client, "it waits", waits).await;
    endpoint.disable(client, true).await;
    delivery["next_attempt"].as_i64().unwrap() - delivery["attempts"][0]["at"].as_i64().unwrap()
}

#[tokio::test]
async fn retry_after_puts_the_next_attempt_off_within_the_plan() {
    let plan = [("WEBHOOK_RETRY_MIN", "60s"), ("WEBHOOK_RETRY_MAX", "1h")];
    let (_server, client) = TestServer::with_client(&quick_but(&plan)).await;
    let mut receiver = Receiver::start().await;
    let date = chrono::Utc::now() + chrono::TimeDelta::seconds(900);
    let date = date.format("Retry-After: %a, %d %b %Y %H:%M:%S GMT\r\n");
    let date = date.to_string();
    let past = "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n";
    // Between sending and storing lies a moment.
    for (answer, header, from, to) in [
        (429, "Retry-After: 600\r\n", 600, 610),
        (503, "Retry-After: 600\r\n", 600, 610),
        (503, &*date, 880, 910),
        // Not earlier than planned, and not later than the longest pause of the plan.
        (429, "Retry-After: 1\r\n", 60, 130),
        (503, "Retry-After: 99999999999\r\n", 3600, 3610),
        // Where it means nothing, or can't be read.
        (500, "Retry-After: 600\r\n", 60, 130),
        (503, "Retry-After: soon\r\n", 60, 130),
        (503, past, 60, 130),
        (503, "", 60, 130),
    ] {
        let pause = pause(&client, &mut receiver, answer, header).await;
        assert!((from..=to).contains(&pause), "{answer} {header}: {pause}");
    }
}

/// What a receiver does by the specification of Standard Webhooks.
fn verifies_as_standard(secret: &str, received: &Received) -> bool {
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap());
    let header = |name: &str| &*received.headers[name];
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.unwrap()).unwrap();
    mac.update(header("webhook-id").as_bytes());
    mac.update(b".");
    mac.update(header("webhook-timestamp").as_bytes());
    mac.update(b".");
    mac.update(&received.body);
    let expected = BASE64.encode(mac.finalize().into_bytes());
    header("webhook-signature")
        .split(' ')
        .any(|one| one.strip_prefix("v1,") == Some(&expected))
}

#[tokio::test]
async fn the_headers_of_standard_webhooks_are_sent_where_they_are_asked_for() {
    let (_server, client) = TestServer::with_client(QUICK).await;
    let mut receiver = Receiver::start().await;
    let mut body = endpoint(&receiver.url());
    body["standard_webhooks"] = true.into();
    let endpoint = Endpoint::with(&client, &body).await;
    let path = format!("/webhook_endpoints/{}", endpoint.id);
    assert_eq!(client.get(&path).await.json()["standard_webhooks"], true);
    client.charge("key-1").await;
    let first = receiver.next().await;
    let id = first.event_id();
    assert_eq!(first.headers["webhook-id"], id);
    let at = sent_at(&first).to_string();
    assert_eq!(first.headers["webhook-timestamp"], at);
    assert!(verifies_as_standard(&endpoint.secret, &first));
    let another = format!("whsec_{}", "A".repeat(32));
    assert!(!verifies_as_standard(&another, &first));
    assert!(verifies(&endpoint.secret, first.signature(), &first.body));
    first.answer(500).await;
    let second = receiver.next().await;
    assert_eq!(second.headers["webhook-id"], id, "of all attempts");
    assert!(verifies_as_standard(&endpoint.secret, &second));
    second.answer(200).await;
    let body = json!({"standard_webhooks": false});
    client.post_new(&path, &body).await;
    client.charge("key-2").await;
    let without = receiver.next().await;
    let is_standard = |name: &String| name.starts_with("webhook-");
    let headers = &without.headers;
    assert!(!headers.keys().any(is_standard), "{headers:?}");
    without.answer(200).await;
}

#[tokio::test]
async fn an_endpoint_may_list_what_happens_at_stripe_only_and_sees_that_it_is_never_sent() {
    let (server, client) = TestServer::with_client(QUICK).await;
    let mut receiver = Receiver::start().await;
    let events = [
        "invoice.paid",
        "charge.succeeded",
        "customer.subscription.deleted",
    ];
    let body = json!({"url": receiver.url(), "enabled_events": events});
    let endpoint = Endpoint::with(&client, &body).await;
    let path = format!("/webhook_endpoints/{}", endpoint.id);
    let shown = client.get(&path).await.json();
    shown.assert_shows(json!({"enabled_events": events, "never_sent": [events[0], events[2]]}));
    let update = json!({"enabled_events": ["charge.succeeded"]});
    let updated = client.post_new(&path, &update).await;
    assert_eq!(updated.json()["never_sent"], json!([]));
    for wrong in ["invoice.stolen", "invoice.*", "Invoice.paid"] {
        let update = json!({"enabled_events": ["invoice.paid", wrong]});
        let refused = client.post_new(&path, &update).await;
        assert_eq!(refused.refusal().2.as_deref(), Some("enabled_events[1]"));
    }
    client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    server.database.comes_to(DELIVERIES, 1).await;
}
