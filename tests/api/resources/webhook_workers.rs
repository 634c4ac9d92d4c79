//! The workers that send webhooks: how replicas share the deliveries, and what a crash leaves
//! behind.

use futures_util::future::join_all;
use sqlx::{Postgres, Transaction};

use crate::support::{
    harness::LOCK_WAITS,
    prelude::*,
    webhooks::{PENDING, being_told, delete, everything_is_delivered, hold_back, let_go},
};

/// The worker looks by itself when it starts, and never again during a test.
const SELDOM: (&str, &str) = ("WEBHOOK_POLL_INTERVAL", "1h");

/// Receives events of these types, in any order.
async fn receives(receiver: &mut Receiver, types: &[&str]) {
    let mut left = types.to_vec();
    while !left.is_empty() {
        let received = receiver.next().await;
        let event = received.event();
        let at = left.iter().position(|one| event["type"] == *one);
        left.remove(at.unwrap_or_else(|| panic!("not among {left:?}: {event}")));
        received.answer(200).await;
    }
}

#[tokio::test]
async fn what_a_replica_commits_is_sent_at_once_and_not_when_it_looks_again() {
    let mut receiver = Receiver::start().await;
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 5}]});
    // Each way in which events are committed.
    for batch in ["on", "off"] {
        let server = TestServer::start_with(&quick_but(&[SELDOM, ("BATCH", batch)])).await;
        let client = &server.client;
        Endpoint::at(client, &receiver.url()).await;
        let charge = client.charge("key-1").await;
        receives(&mut receiver, &["charge.succeeded"]).await;
        let refund = json!({"charge": charge.id()});
        assert_eq!(client.post("/refunds", "key-2", &refund).await.status, 201);
        receives(&mut receiver, &["refund.created", "charge.refunded"]).await;
        assert_eq!(client.post("/orders", "key-3", &order).await.status, 201);
        receives(&mut receiver, &["order.created"]).await;
        stock(client, "mug", 2).await;
        let made = client.post("/checkouts", "key-4", &checkout()).await;
        assert_eq!(made.status, 201);
        let steps = "order.created charge.succeeded order.paid checkout.completed";
        receives(&mut receiver, &steps.split(' ').collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn what_is_completed_in_phases_is_sent_at_once_with_and_without_a_client() {
    let mut receiver = Receiver::start().await;
    let processor = Processor::start().await;
    let url = processor.url();
    let variables = [
        SELDOM,
        ("PROCESSOR_URL", &*url),
        ("PROCESSOR_TIMEOUT", "3s"),
    ];
    let server = TestServer::start_with(&quick_but(&variables)).await;
    Endpoint::at(&server.client, &receiver.url()).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    receives(&mut receiver, &["charge.succeeded"]).await;
    let fault = json!({"fault": "drop_after", "count": 1});
    processor.set_fault(fault).await;
    assert_eq!(server.client.charge("key-2").await.status, 503);
    receives(&mut receiver, &["charge.succeeded"]).await;
}

#[tokio::test]
async fn an_endpoint_that_never_answers_delays_neither_the_others_nor_requests() {
    // Two connections, so that deliveries that held them would be felt.
    let variables = quick_but(&[("WEBHOOK_TIMEOUT", "60s"), ("POOL_CONNECTIONS", "2")]);
    let server = TestServer::start_with(&variables).await;
    let client = &server.client;
    let (mut stuck, mut lively) = (Receiver::start().await, Receiver::start().await);
    Endpoint::at(client, &stuck.url()).await;
    // More than one replica sends at once.
    let many = (0..70)
        .map(|number| async move { client.charge_until_definite(&format!("key-{number}")).await });
    for answer in join_all(many).await {
        assert_eq!(answer.status, 201);
    }
    let mut held = stuck.several(4).await;
    Endpoint::at(client, &lively.url()).await;
    client.charge("another").await;
    lively.next().await.answer(200).await;
    assert!(stuck.arrived().is_none(), "four at once are enough");
    // The other endpoint's delivery is marked.
    server.database.comes_to(PENDING, 71).await;
    // A place that is free again is used.
    held.remove(0).answer(200).await;
    stuck.next().await;
}

#[tokio::test]
async fn an_account_whose_endpoints_never_answer_delays_no_other_account() {
    let (server, client) = TestServer::with_client(&quick_but(&[("WEBHOOK_TIMEOUT", "60s")])).await;
    let (mut stuck, mut lively) = (Receiver::start().await, Receiver::start().await);
    // As many as an account may have.
    for _ in 0..16 {
        Endpoint::at(&client, &stuck.url()).await;
    }
    for number in 0..5 {
        client.charge(&format!("key-{number}")).await;
    }
    let mut held = stuck.several(64).await;
    let other = client_of_account(&server, "other").await;
    let endpoint = Endpoint::at(&other, &lively.url()).await;
    other.charge("key-1").await;
    lively.next().await.answer(200).await;
    endpoint.newest_succeeds(&other).await;
    assert!(
        stuck.arrived().is_none(),
        "four at once for each are enough"
    );
    // A place that is free again is used.
    held.remove(0).answer(200).await;
    stuck.next().await;
}

#[tokio::test]
async fn two_replicas_share_the_work_and_deliver_nothing_twice() {
    let database = TestDatabase::create().await;
    let replicas = [
        ServerProcess::start(&database, QUICK),
        ServerProcess::start(&database, QUICK),
    ];
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&replicas[0].client, &receiver.url()).await;
    for number in 0..20 {
        let client = &replicas[number % 2].client;
        assert_eq!(client.charge(&format!("key-{number}")).await.status, 201);
    }
    // One replica sends four at once to an endpoint, so eight are the work of two.
    let mut held = receiver.several(8).await;
    let mut events = BTreeSet::new();
    for _ in 0..20 {
        let received = match held.pop() {
            Some(received) => received,
            None => receiver.next().await,
        };
        assert!(events.insert(received.event_id()), "delivered twice");
        received.answer(200).await;
    }
    everything_is_delivered(&database).await;
    assert!(receiver.arrived().is_none());
    let path = format!("/webhook_endpoints/{}/deliveries?limit=100", endpoint.id);
    let deliveries = replicas[1].client.get(&path).await.json();
    for delivery in deliveries["data"].as_array().unwrap() {
        let attempts = delivery["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{delivery}");
    }
}

#[tokio::test]
async fn a_delivery_that_another_replica_is_claiming_is_passed_over() {
    let server = TestServer::start_with(&quick_but(&[SELDOM])).await;
    let (client, database) = (&server.client, &server.database);
    hold_back(database).await;
    let mut receiver = Receiver::start().await;
    Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    client.charge("key-2").await;
    let mut other_replica = database.pool.begin().await.unwrap();
    let first: uuid::Uuid = sqlx::query_scalar(
        "SELECT event_id FROM webhook_deliveries ORDER BY next_attempt_at LIMIT 1 FOR UPDATE",
    )
    .fetch_one(&mut *other_replica)
    .await
    .unwrap();
    let_go(database).await;
    let replica = ServerProcess::start(database, QUICK);
    let received = receiver.next().await;
    let first = charge_once::domain::ids::EventId(first).to_string();
    assert_ne!(received.event_id(), first);
    received.answer(200).await;
    other_replica.rollback().await.unwrap();
    let received = receiver.next().await;
    assert_eq!(received.event_id(), first);
    received.answer(200).await;
    everything_is_delivered(database).await;
    drop(replica);
}

#[tokio::test]
async fn an_endpoint_whose_deliveries_are_all_being_claimed_is_passed_over() {
    let server = TestServer::start_with(&quick_but(&[SELDOM])).await;
    let (client, database) = (&server.client, &server.database);
    hold_back(database).await;
    let (claimed, mut receiver) = (Receiver::start().await, Receiver::start().await);
    Endpoint::at(client, &claimed.url()).await;
    client.charge("key-1").await;
    let other_replica = hold_deliveries(database).await;
    Endpoint::at(client, &receiver.url()).await;
    client.charge("key-2").await;
    let_go(database).await;
    let replica = ServerProcess::start(database, QUICK);
    receiver.next().await.answer(200).await;
    other_replica.rollback().await.unwrap();
    drop(replica);
}

/// Holds every delivery, so that marking one has to wait.
async fn hold_deliveries(database: &TestDatabase) -> Transaction<'static, Postgres> {
    let sql = "SELECT FROM webhook_deliveries FOR UPDATE";
    database.holding(sql).await
}

#[tokio::test]
async fn after_kill_9_between_send_and_mark_another_replica_delivers_again() {
    let database = TestDatabase::create().await;
    // A claim lives three times as long as an attempt may take.
    let variables = quick_but(&[("WEBHOOK_TIMEOUT", "1s")]);
    let victim = ServerProcess::start(&database, &variables);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&victim.client, &receiver.url()).await;
    assert_eq!(victim.client.charge("key-1").await.status, 201);
    let first = receiver.next().await;
    let event = first.event_id();
    let lock = hold_deliveries(&database).await;
    first.answer(200).await;
    // The mark waits.
    database.comes_to(LOCK_WAITS, 1).await;
    victim.kill();
    lock.rollback().await.unwrap();
    let survivor = ServerProcess::start(&database, &variables);
    let second = receiver.next().await;
    assert_eq!(second.event_id(), event);
    second.answer(200).await;
    let delivery = endpoint.newest_succeeds(&survivor.client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn an_attempt_that_ends_after_its_claim_undoes_nothing() {
    let (server, mut receiver, endpoint, late) = being_told(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    // As if the lease had run out.
    let sql = "UPDATE webhook_deliveries SET next_attempt_at = now()";
    database.execute(sql).await;
    let taken_over = receiver.next().await;
    assert_eq!(taken_over.event_id(), late.event_id());
    taken_over.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    late.answer(500).await;
    // What ended later is marked later.
    client.charge("key-2").await;
    receiver.next().await.answer(200).await;
    endpoint
        .newest_delivery(client, "the second event is delivered", |delivery| {
            delivery["event"] != delivered["event"] && delivery["status"] == "succeeded"
        })
        .await;
    assert_eq!(endpoint.deliveries(client).await.remove(1), delivered);
}

#[tokio::test]
async fn deleting_an_endpoint_does_not_wait_for_charges_nor_charges_for_it() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let endpoint = Endpoint::at(client, "https://example.invalid/").await;
    let sql = "SELECT FROM webhook_endpoints FOR KEY SHARE";
    let charging = database.holding(sql).await;
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    charging.rollback().await.unwrap();
    let endpoint = Endpoint::at(client, "https://example.invalid/").await;
    let sql = "UPDATE webhook_endpoints SET deleted_at = now(), secret = NULL";
    let deleting = database.holding(sql).await;
    assert_eq!(client.charge("key-1").await.status, 201);
    deleting.rollback().await.unwrap();
    assert_eq!(endpoint.deliveries(client).await.len(), 1);
}

#[tokio::test]
async fn deliveries_go_on_after_the_connection_was_lost_and_nothing_is_sent_twice_for_it() {
    let (server, mut receiver, endpoint, received) = being_told(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let lock = hold_deliveries(database).await;
    received.answer(200).await;
    // The mark waits.
    database.comes_to(LOCK_WAITS, 1).await;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'charge-once'";
    database.execute(sql).await;
    lock.rollback().await.unwrap();
    // Sent before and marked after: it is not sent again.
    eventually("the pool has recovered", || async {
        client.get("/charges").await.status == 200
    })
    .await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    client.charge_until_definite("key-2").await;
    receiver.next().await.answer(200).await;
    everything_is_delivered(database).await;
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_it_is_sending_and_begins_nothing_new() {
    let mut server = TestServer::start_with(QUICK).await;
    let mut receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    server.client.charge("key-1").await;
    let received = receiver.next().await;
    server.begin_stopping();
    eventually("it is stopping", || async {
        let ready = server.client.bare(reqwest::Method::GET, "/readyz");
        ready
            .send()
            .await
            .map_or(true, |reply| reply.status() == 503)
    })
    .await;
    received.answer(500).await;
    let database = server.stop().await;
    let tried_once = "SELECT count(*) FROM webhook_deliveries
                       WHERE status = 'pending' AND claim IS NULL
                         AND jsonb_array_length(attempts) = 1";
    assert_eq!(database.count(tried_once).await, 1);
    assert!(receiver.arrived().is_none());
}
