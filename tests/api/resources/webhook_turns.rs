//! Whose webhooks are sent when: a backlog, a silent endpoint and a deleted one delay no other, and
//! what the workers read does not grow with what is pending.

use charge_once::{
    domain::{
        event::EventType,
        ids::{EventId, WebhookEndpointId},
    },
    webhooks::{NewEvent, Turn, claim, emit, endpoints, make_ready, ready_endpoints},
};

use crate::support::{
    prelude::*,
    records::rows_read,
    webhook_receiver::Received,
    webhooks::{
        PENDING, acknowledge_all, add_accounts, add_backlog, delete, everything_is_delivered,
        hold_back, let_go, told,
    },
};

/// No attempt times out during a test.
const HANGS: (&str, &str) = ("WEBHOOK_TIMEOUT", "60s");

/// A server that sends nothing.
async fn lazy() -> TestServer {
    let server = TestServer::start_with(QUICK).await;
    hold_back(&server.database).await;
    server
}

#[tokio::test]
async fn an_account_with_a_backlog_delays_no_other_account() {
    let server = TestServer::start_with(QUICK).await;
    let (busy, quiet) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&server.client, &busy.url()).await;
    acknowledge_all(busy);
    server.client.charge("key-1").await;
    endpoint.newest_succeeds(&server.client).await;
    let other = client_of_account(&server, "other").await;
    let others = Endpoint::at(&other, &quiet.url()).await;
    acknowledge_all(quiet);
    add_backlog(&server.database, &endpoint, 20_000).await;
    let has_begun = || async { server.database.count(PENDING).await < 20_000 };
    eventually("the backlog is being sent", has_begun).await;
    other.charge("key-1").await;
    others.newest_succeeds(&other).await;
    let left = server.database.count(PENDING).await;
    assert!(left > 1000, "the event waited for the backlog: {left} left");
}

#[tokio::test]
async fn a_silent_endpoint_with_a_backlog_delays_no_other_of_its_account() {
    let (server, client) = TestServer::with_client(&quick_but(&[HANGS])).await;
    let (mut silent, mut lively) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&client, &silent.url()).await;
    client.charge("key-1").await;
    add_backlog(&server.database, &endpoint, 2000).await;
    let _held = silent.several(4).await;
    Endpoint::at(&client, &lively.url()).await;
    for number in 2..=20 {
        client.charge(&format!("key-{number}")).await;
        lively.next().await.answer(200).await;
    }
    assert!(silent.arrived().is_none(), "four at once are enough");
}

#[tokio::test]
async fn first_attempts_begin_in_the_order_of_the_events() {
    let server = lazy().await;
    let mut receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    for number in 0..12 {
        server.client.charge(&format!("key-{number}")).await;
    }
    let database = server.stop().await;
    let_go(&database).await;
    // Their order in the table says nothing.
    let sql = "CREATE TABLE moved AS SELECT * FROM webhook_deliveries;
         DELETE FROM webhook_deliveries;
         INSERT INTO webhook_deliveries SELECT * FROM moved ORDER BY event_id DESC;
         DROP TABLE moved";
    database.execute(sql).await;
    let events = sqlx::query_scalar("SELECT id FROM events ORDER BY id");
    let events: Vec<Uuid> = events.fetch_all(&database.pool).await.unwrap();
    let events: Vec<_> = events.iter().map(|id| EventId(*id).to_string()).collect();
    let replica = ServerProcess::start(&database, QUICK);
    let mut held = receiver.several(4).await;
    let mut seen: BTreeSet<_> = held.iter().map(Received::event_id).collect();
    // Four are under way at once, the oldest. Each acknowledgment makes room for two more.
    for begun in [4, 6, 8, 10, 12] {
        assert!(seen.iter().eq(&events[..begun]), "{seen:?} of {events:?}");
        if begun < 12 {
            held.pop().unwrap().answer(200).await;
            let more = receiver.several(2).await;
            seen.extend(more.iter().map(Received::event_id));
            held.extend(more);
        }
    }
    drop(replica);
}

#[tokio::test]
async fn deleting_an_endpoint_cancels_what_is_pending_and_nothing_more_is_sent() {
    // No retry is due while the test runs: what waits for one is canceled all the same.
    let pauses = [("WEBHOOK_RETRY_MIN", "1h"), ("WEBHOOK_RETRY_MAX", "2h")];
    let variables = [&pauses[..], &[HANGS]].concat();
    let server = TestServer::start_with(&quick_but(&variables)).await;
    let (client, database) = (&server.client, &server.database);
    let (mut gone, mut stays) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &gone.url()).await;
    client.charge("key-1").await;
    let mut held = gone.several(1).await;
    // More than one batch that is ready, and more than one that waits for a retry.
    add_backlog(database, &endpoint, 1200).await;
    held.extend(gone.several(3).await);
    let sql =
        "UPDATE webhook_deliveries SET ready = false, next_attempt_at = now() + interval '1 h'
          WHERE id IN (SELECT id FROM webhook_deliveries WHERE ready LIMIT 600)";
    database.execute(sql).await;
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    // All but the attempts under way are canceled.
    database.comes_to(PENDING, 4).await;
    held.remove(0).answer(500).await;
    for received in held {
        received.answer(200).await;
    }
    everything_is_delivered(database).await;
    Endpoint::at(client, &stays.url()).await;
    client.charge("key-2").await;
    stays.next().await.answer(200).await;
    assert_eq!(gone.connections(), 4);
    let ends = "SELECT count(*) FROM webhook_deliveries
                 WHERE status = 'failed' AND jsonb_array_length(attempts) = 0";
    assert_eq!(database.count(ends).await, 1197);
    let canceled = "SELECT count(*) FROM webhook_endpoints WHERE canceled_at IS NOT NULL";
    assert_eq!(database.count(canceled).await, 1);
}

#[tokio::test]
async fn an_event_that_was_being_written_while_its_endpoint_was_deleted_is_canceled_too() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(client).await;
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    let canceled = "SELECT count(*) FROM webhook_endpoints WHERE canceled_at IS NOT NULL";
    database.comes_to(canceled, 1).await;
    add_backlog(database, &endpoint, 3).await;
    everything_is_delivered(database).await;
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn an_endpoint_that_was_deleted_after_it_was_found_gets_nothing() {
    let server = lazy().await;
    let endpoint = Endpoint::at(&server.client, "https://example.invalid/").await;
    server.client.charge("key-1").await;
    let database = server.stop().await;
    let_go(&database).await;
    let mut tx = database.pool.begin().await.unwrap();
    let found = ready_endpoints(&mut tx, None, 10).await.unwrap()[0];
    let id = WebhookEndpointId::parse(&endpoint.id).unwrap();
    assert_eq!((found.endpoint_id, found.is_deleted), (id.0, false));
    let turn = Turn {
        account_id: found.account_id,
        endpoint_id: found.endpoint_id,
        places: 4,
    };
    endpoints::delete(&mut tx, found.account_id, id.0)
        .await
        .unwrap();
    let lease = Duration::from_secs(60);
    let claimed = claim(&mut tx, Uuid::new_v4(), lease, &[turn], 500).await;
    assert!(claimed.unwrap().is_empty());
    assert!(ready_endpoints(&mut tx, None, 10).await.unwrap()[0].is_deleted);
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn a_backlog_that_is_due_at_a_disabled_endpoint_fails_in_batches_and_says_why() {
    let server = TestServer::start_with(&quick_but(&[HANGS])).await;
    let (client, database) = (&server.client, &server.database);
    let (mut paused, mut lively) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &paused.url()).await;
    client.charge("key-1").await;
    let mut held = paused.several(1).await;
    // More than two batches.
    add_backlog(database, &endpoint, 1200).await;
    held.extend(paused.several(3).await);
    endpoint.disable(client, true).await;
    Endpoint::at(client, &lively.url()).await;
    client.charge("key-2").await;
    lively.next().await.answer(200).await;
    // A place that is free again is where the worker meets what is due.
    for received in held {
        received.answer(200).await;
    }
    everything_is_delivered(database).await;
    assert_eq!(paused.connections(), 4);
    let unsent = "SELECT count(*) FROM webhook_deliveries
                   WHERE status = 'failed' AND jsonb_array_length(attempts) = 1
                     AND attempts->0->>'error' = 'not sent: the endpoint is disabled'";
    assert_eq!(database.count(unsent).await, 1197);
}

#[tokio::test]
async fn what_a_replica_of_the_release_before_has_taken_is_not_sent_before_it_is_due() {
    let server = lazy().await;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    for number in 0..10 {
        server.client.charge(&format!("key-{number}")).await;
    }
    let database = server.stop().await;
    let_go(&database).await;
    // It claims, and puts off after a failure, without a word about `ready`. More than one claim of
    // this release finds, and in front of what is due.
    let sql = "UPDATE webhook_deliveries
            SET next_attempt_at = now() + interval '1 h',
                claim = CASE WHEN random() < 0.5 THEN gen_random_uuid() END
          WHERE event_id <> (SELECT max(event_id::text)::uuid FROM webhook_deliveries)";
    database.execute(sql).await;
    let replica = ServerProcess::start(&database, QUICK);
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&replica.client).await;
    let waiting = "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending' AND NOT ready";
    assert_eq!(database.count(waiting).await, 9);
    assert!(receiver.arrived().is_none());
    let due = "UPDATE webhook_deliveries SET next_attempt_at = now() WHERE status = 'pending'";
    database.execute(due).await;
    for _ in 0..9 {
        receiver.next().await.answer(200).await;
    }
    everything_is_delivered(&database).await;
}

#[tokio::test]
async fn thousands_of_endpoints_that_refuse_connections_delay_no_other() {
    let database = TestDatabase::create().await;
    // More than one look finds, and due again as soon as they have failed.
    add_accounts(&database, 2500, "http://127.0.0.1:1/", 1).await;
    let server = TestServer::start_on(database, QUICK).await;
    let mut receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    for number in 0..3 {
        server.client.charge(&format!("key-{number}")).await;
        receiver.next().await.answer(200).await;
    }
}

#[tokio::test]
async fn a_worker_goes_on_though_more_endpoints_have_something_than_it_can_remember() {
    let database = TestDatabase::create().await;
    let mut receiver = Receiver::start().await;
    // More for each than the places that it gets, so that none is done.
    add_accounts(&database, 10_100, &receiver.url(), 5).await;
    let variables = [
        ("WEBHOOK_ALLOW_PRIVATE", "true"),
        HANGS,
        ("WEBHOOK_POLL_INTERVAL", "2s"),
    ];
    let replica = ServerProcess::start(&database, &variables);
    // As many as endpoints get that are not known to be quick.
    let held = receiver.several(192).await;
    // More often than it takes to have looked at all of them, and in less time than so many looks.
    let marked_at_once = async {
        for (number, received) in (1..=60).zip(held) {
            received.answer(200).await;
            let succeeded = "SELECT count(*) FROM webhook_deliveries WHERE status = 'succeeded'";
            database.comes_to(succeeded, number).await;
        }
    };
    // The looks alone would take two minutes.
    let marked = tokio::time::timeout(Duration::from_secs(60), marked_at_once);
    marked.await.unwrap();
    drop(replica);
}

/// The silent ones come before it in the order of a look, and nothing of theirs ends.
#[tokio::test]
async fn a_quick_endpoint_is_served_behind_more_silent_ones_than_a_worker_can_remember() {
    let database = TestDatabase::create().await;
    let variables = [
        ("WEBHOOK_ALLOW_PRIVATE", "true"),
        HANGS,
        ("WEBHOOK_POLL_INTERVAL", "200ms"),
    ];
    let replica = ServerProcess::start(&database, &variables);
    let mut quick = Receiver::start().await;
    Endpoint::at(&replica.client, &quick.url()).await;
    replica.client.charge("key-1").await;
    quick.next().await.answer(200).await;
    everything_is_delivered(&database).await;
    let mut silent = Receiver::start().await;
    add_accounts(&database, 10_100, &silent.url(), 5).await;
    let _held = silent.several(192).await;
    replica.client.charge("key-2").await;
    quick.next().await.answer(200).await;
}

/// As many deliveries as would be felt: ready ones of one endpoint, with their events, and ones
/// that wait, each of another endpoint. These have no events: what would refuse them is off.
async fn fill(database: &TestDatabase, of: (Uuid, Uuid)) {
    let sql = "SET LOCAL session_replication_role = replica";
    let mut tx = database.holding(sql).await;
    sqlx::query(
        "WITH made AS (
             INSERT INTO webhook_deliveries
                    (account_id, id, endpoint_id, event_id, ready, next_attempt_at)
             SELECT $1, gen_random_uuid(), CASE WHEN ready THEN $2 ELSE gen_random_uuid() END,
                    gen_random_uuid(), ready,
                    CASE WHEN ready THEN now() ELSE now() + interval '1 h' END
               FROM (VALUES (true), (false)) AS state (ready), generate_series(1, 5000)
             RETURNING account_id, event_id, ready
         )
         INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
         SELECT account_id, event_id, 'charge.succeeded', '{}', 'req_1', 'key-1'
           FROM made
          WHERE ready",
    )
    .bind(of.0)
    .bind(of.1)
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn what_a_worker_reads_does_not_grow_with_what_is_pending() {
    let server = lazy().await;
    let client = &server.client;
    for _ in 0..2 {
        Endpoint::at(client, "https://example.invalid/").await;
    }
    client.charge("key-1").await;
    let database = server.stop().await;
    database.is_left_broken("many events tell of one charge");
    let_go(&database).await;
    let endpoints = sqlx::query_as("SELECT account_id, id FROM webhook_endpoints ORDER BY id");
    let endpoints: Vec<(Uuid, Uuid)> = endpoints.fetch_all(&database.pool).await.unwrap();
    fill(&database, endpoints[0]).await;
    let mut tx = database.pool.begin().await.unwrap();
    let found = ready_endpoints(&mut tx, None, 1000).await.unwrap();
    let found = found.iter().map(|one| (one.account_id, one.endpoint_id));
    assert!(found.eq(endpoints.iter().copied()), "{endpoints:?}");
    let read = rows_read(&mut tx, "webhook_deliveries").await;
    assert!((1..50).contains(&read), "{read} to find the endpoints");
    assert_eq!(make_ready(&mut tx, 500).await.unwrap(), 0);
    let turn = |(account_id, endpoint_id): (Uuid, Uuid)| Turn {
        account_id,
        endpoint_id,
        places: 4,
    };
    let turns: Vec<_> = endpoints.iter().copied().map(turn).collect();
    let lease = Duration::from_secs(60);
    let claimed = claim(&mut tx, Uuid::new_v4(), lease, &turns, 500).await;
    let claimed: Vec<_> = claimed.unwrap().iter().map(|one| one.endpoint_id).collect();
    let of = |index: usize| endpoints[index].1;
    assert_eq!(claimed, [of(0), of(0), of(0), of(0), of(1)]);
    let read = rows_read(&mut tx, "webhook_deliveries").await;
    assert!((1..50).contains(&read), "{read} with the claims");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn an_event_reads_the_endpoints_that_live_however_many_were_deleted() {
    let server = lazy().await;
    server.database.is_left_broken("its events tell of nothing");
    let endpoint = Endpoint::at(&server.client, "https://example.invalid/").await;
    let database = server.stop().await;
    let_go(&database).await;
    let account = sqlx::query_scalar(
        "INSERT INTO webhook_endpoints
                (account_id, id, url, enabled_events, metadata, deleted_at, canceled_at)
         SELECT account_id, gen_random_uuid(), url, enabled_events, metadata, now(), now()
           FROM webhook_endpoints, generate_series(1, 5000)
         RETURNING account_id",
    );
    let account: Uuid = account.fetch_one(&database.pool).await.unwrap();
    let mut tx = database.pool.begin().await.unwrap();
    let new = NewEvent {
        account_id: account,
        id: Uuid::now_v7(),
        event_type: EventType::ALL[0].as_str(),
        api_version: None,
        object: "{}".to_owned(),
        object_version: None,
        previous_attributes: None,
        request_id: "req_1".to_owned(),
        idempotency_key: "key-1".to_owned(),
        traceparent: None,
    };
    emit(&mut tx, &[new]).await.unwrap();
    let read = rows_read(&mut tx, "webhook_endpoints").await;
    assert!((1..10).contains(&read), "{read}");
    tx.commit().await.unwrap();
    let id = WebhookEndpointId::parse(&endpoint.id).unwrap();
    let queued = "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1";
    let queued = sqlx::query_scalar(queued).bind(id.0);
    let queued: i64 = queued.fetch_one(&database.pool).await.unwrap();
    assert_eq!(queued, 1);
}
