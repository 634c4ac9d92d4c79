//! Fault plans about webhooks.

use crate::support::{
    accounts::client_of_test_account,
    prelude::*,
    webhooks::{quick_but, told},
};

/// Plans a fault of webhooks, with these parameters as well.
async fn plan(client: &Client, fault: &str, parameters: Value) {
    let mut body = json!({"event": "charge.succeeded", "fault": fault});
    let given = parameters.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(given);
    let planned = client.post_new("/test/faults", &body).await;
    assert_eq!(planned.status, 201, "{}", planned.json());
}

/// How many attempts the only plan was about, and on how many it acted.
async fn counts(client: &Client) -> (i64, i64) {
    let plans = client.get("/test/faults").await.json();
    let count = |name: &str| plans["data"][0][name].as_i64().unwrap();
    (count("matched"), count("acted"))
}

fn key(received: &Received) -> String {
    let event = received.event();
    let key = event["request"]["idempotency_key"].as_str();
    key.unwrap().to_owned()
}

#[tokio::test]
async fn a_webhook_is_delivered_twice() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[FAULTS])).await;
    let client = &server.client;
    plan(client, "webhook_twice", json!({})).await;
    client.charge("key-1").await;
    let first = receiver.next().await;
    let event = first.event_id();
    first.answer(200).await;
    let second = receiver.next().await;
    assert_eq!(second.event_id(), event);
    let delivery = endpoint.deliveries(client).await.remove(0);
    delivery.assert_shows(json!({"status": "pending", "delivered": null}));
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    second.answer(202).await;
    let delivery = endpoint.newest_succeeds(client).await;
    let attempts = delivery["attempts"].as_array().unwrap();
    let statuses = attempts.iter().map(|one| one["response_status"].clone());
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 202]);
    assert!(attempts.iter().all(|one| one["error"].is_null()));
    assert_eq!(counts(client).await, (1, 1));
    // The plan was about the first one.
    client.charge("key-2").await;
    receiver.next().await.answer(200).await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(counts(client).await, (2, 1));
}

#[tokio::test]
async fn a_webhook_is_late_once_and_its_retries_are_not() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[FAULTS])).await;
    let client = &server.client;
    plan(client, "webhook_late", json!({"every": 1, "seconds": 1})).await;
    let began = Instant::now();
    client.charge("key-1").await;
    let first = receiver.next().await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    let delivery = endpoint.deliveries(client).await.remove(0);
    delivery.assert_shows(json!({"status": "pending", "attempts": []}));
    first.answer(500).await;
    receiver.next().await.answer(200).await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(counts(client).await, (1, 1));
}

#[tokio::test]
async fn a_webhook_comes_behind_a_later_one() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[FAULTS])).await;
    let client = &server.client;
    plan(client, "webhook_out_of_order", json!({"seconds": 30})).await;
    client.charge("key-1").await;
    let put_off = |delivery: &Value| {
        let next = delivery["next_attempt"].as_i64().unwrap_or_default();
        next > delivery["created"].as_i64().unwrap() + 20
    };
    endpoint
        .newest_delivery(client, "it is put off", put_off)
        .await;
    client.charge("key-2").await;
    let later = receiver.next().await;
    assert_eq!(key(&later), "key-2");
    later.answer(200).await;
    // Half a minute later.
    let sql = "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE status = 'pending'";
    server.database.execute(sql).await;
    let earlier = receiver.next().await;
    assert_eq!(key(&earlier), "key-1");
    earlier.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(counts(client).await, (2, 1));
}

#[tokio::test]
async fn a_webhook_is_lost_and_counts_as_delivered() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[FAULTS])).await;
    let client = &server.client;
    plan(client, "webhook_lost", json!({})).await;
    client.charge("key-1").await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(receiver.connections(), 0);
    assert!(delivery["delivered"].is_i64());
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    delivery["attempts"][0].assert_shows(json!({
        "response_status": 200,
        "error": "not sent: a planned fault lost it",
    }));
    client.charge("key-2").await;
    let received = receiver.next().await;
    assert_eq!(key(&received), "key-2");
    received.answer(200).await;
}

#[tokio::test]
async fn a_plan_acts_on_no_other_account_and_on_no_other_event() {
    let (server, mut receiver, endpoint) = told(&quick_but(&[FAULTS])).await;
    let client = &server.client;
    let test = client_of_test_account(client).await;
    plan(&test, "webhook_lost", json!({"event": "*", "percent": 100})).await;
    plan(client, "webhook_lost", json!({"event": "refund.created"})).await;
    client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(delivery["attempts"][0]["error"], Value::Null);
    for planner in [client, &test] {
        assert_eq!(counts(planner).await, (0, 0));
    }
    // It does act on its own.
    let own = Endpoint::at(&test, &receiver.url()).await;
    test.charge("key-1").await;
    own.newest_succeeds(&test).await;
    assert_eq!(counts(&test).await, (1, 1));
    assert_eq!(receiver.connections(), 1);
    // Nor on an account that is for tests no longer.
    let statement = "UPDATE accounts SET test_until = NULL";
    let updated = sqlx::query(statement).execute(&server.database.pool).await;
    updated.unwrap();
    test.charge("key-2").await;
    receiver.next().await.answer(200).await;
}

#[tokio::test]
async fn a_server_without_faults_looks_at_no_plan() {
    let database = TestDatabase::create().await;
    let without_workers = [FAULTS, ("BACKGROUND", "off")];
    let with = TestServer::start_on(database.clone(), &quick_but(&without_workers)).await;
    plan(&with.client, "webhook_lost", json!({})).await;
    let without = TestServer::start_on(database, QUICK).await;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&without.client, &receiver.url()).await;
    without.client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&without.client).await;
    assert_eq!(counts(&with.client).await, (0, 0));
}
