//! Checkouts with a card processor across a network.

use crate::support::{
    checkouts::{across_a_network, checkout_of, level, two_replicas, until_definite_under},
    prelude::*,
    processor::{self, REMEDY},
    program::resolve,
};

/// Sends a checkout and kills the server before `step`. What runs next has nothing in flight but
/// the client's key.
async fn killed_before(step: &str, database: &TestDatabase, server: ServerProcess, body: &Value) {
    let keys = format!(",/checkouts/%/{step}%");
    let mut pause = PausePoint::at(Stage::Claiming, database, &keys).await;
    let sending = server.client.sending_in_vain("/checkouts", "key-1", body);
    pause.is_reached().await;
    server.kill();
    pause.release().await;
    sending.await.unwrap();
    database.expire_leases().await;
}

/// The charge was made by a processor across the network. charge-once is started again without
/// PROCESSOR_URL, with nothing in `charge-once operations list`: what was charged there must not be
/// given back by the simulation here.
#[tokio::test]
async fn money_that_a_processor_took_is_not_given_back_by_the_simulation() {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let url = processor.url();
    let server = ServerProcess::start(&database, &[("PROCESSOR_URL", &url)]);
    stock(&server.client, "mug", 1).await;
    killed_before("create_refund", &database, server, &checkout()).await;
    let unfinished = "SELECT count(*) FROM operations WHERE completed_at IS NULL";
    assert_eq!(database.count(unfinished).await, 0, "nothing comes first");
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &[]);
    let mut answer = server.client.post("/checkouts", "key-1", &checkout()).await;
    // The reconciler may hold it at this moment.
    while answer.status == 409 {
        database.expire_leases().await;
        answer = server.client.post("/checkouts", "key-1", &checkout()).await;
    }
    assert_eq!(answer.status, 503, "{answer:?}");
    let should_retry = answer.header("stripe-should-retry");
    assert_eq!(should_retry, Some("false"), "{answer:?}");
    let listed = server.client.get("/checkouts").await.json();
    let charge = listed["data"][0]["charge"].as_str().unwrap();
    let [_, captured, _, refunded] = processor.sums(charge).await;
    let said = "SELECT coalesce(sum(amount_refunded), 0)::bigint FROM charges";
    assert_eq!(
        (captured - refunded, database.count(said).await),
        (2400, 0),
        "kept by the processor, and said to be given back, with {answer:?}"
    );
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(text.contains(REMEDY), "{text}");
}

/// The other way round: the charge was simulated, and the processor doesn't know it.
#[tokio::test]
async fn money_that_was_simulated_is_not_asked_back_from_a_processor() {
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[]);
    stock(&server.client, "mug", 1).await;
    killed_before("create_refund", &database, server, &checkout()).await;
    let processor = Processor::start().await;
    let url = processor.url();
    let server = ServerProcess::start(&database, &[("PROCESSOR_URL", &url)]);
    for _ in 0..3 {
        let waits = server.client.post("/checkouts", "key-1", &checkout()).await;
        assert!([409, 503].contains(&waits.status.as_u16()), "{waits:?}");
        database.expire_leases().await;
    }
    assert_eq!(processor.lines().await, 0);
    assert_eq!(database.count("SELECT count(*) FROM refunds").await, 0);
    drop(server);
    let server = ServerProcess::start(&database, &[]);
    database.expire_leases().await;
    let answer = until_definite_under(&server.client, "key-1").await;
    assert_eq!(answer.code(), "out_of_stock");
    assert_eq!(database.count("SELECT count(*) FROM refunds").await, 1);
}

/// Sends the checkout, of which an operation stays in doubt for a day. Returns that operation's id.
async fn in_doubt_for_a_day(server: &TestServer) -> Uuid {
    let failed = server.client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(failed.status, 503);
    server.database.a_day_later().await
}

/// A person resolves the charge of a checkout, and the checkout continues from there.
#[tokio::test]
async fn a_checkout_goes_on_from_what_a_person_resolved() {
    for (word, status, lines) in [
        ("done", 201, 0),
        ("declined", 402, 0),
        ("not-executed", 201, 1),
    ] {
        let (server, processor) = across_a_network().await;
        let client = &server.client;
        stock(client, "mug", 5).await;
        processor.set_fault(json!({"fault": "drop_before"})).await;
        let id = in_doubt_for_a_day(&server).await;
        resolve(&server.database, &processor, id, word).succeeded();
        let answer = client.post("/checkouts", "key-1", &checkout()).await;
        assert_eq!(answer.status, status, "{word}: {answer:?}");
        assert_eq!(processor.lines().await, lines, "{word}");
        assert_eq!(server.database.charges().await, 1, "{word}");
        let made = checkout_of(client, "key-1").await;
        assert_ne!(made["status"], "in_progress", "{word}");
        server.stop().await;
    }
}

/// A person says that a checkout's refund was declined, returns the money elsewhere, and says that
/// too: before another refund is asked for, or after that one was refused as well.
#[tokio::test]
async fn both_words_about_a_refund_are_kept_and_the_last_one_counts() {
    for another_was_refused in [false, true] {
        let (server, processor) = across_a_network().await;
        let client = &server.client;
        stock(client, "mug", 1).await;
        let fault = json!({"fault": "drop_before", "verb": "refund"});
        processor.set_fault(fault).await;
        let id = in_doubt_for_a_day(&server).await;
        resolve(&server.database, &processor, id, "declined").succeeded();
        let an_hour_passes = async || {
            let earlier = "UPDATE checkouts SET refund_refused_at = now() - interval '1 hour'";
            server.database.execute(earlier).await;
            client.post("/checkouts", "key-1", &checkout()).await
        };
        if another_was_refused {
            let listed = client.get("/checkouts").await.json();
            let charge = listed["data"][0]["charge"].as_str().unwrap();
            let elsewhere = processor::refund(charge, 2400);
            assert!(processor.put(Uuid::now_v7(), &elsewhere).await.is_some());
            assert_eq!(an_hour_passes().await.status, 503);
        }
        let lines = processor.lines().await;
        resolve(&server.database, &processor, id, "done").succeeded();
        assert_eq!(an_hour_passes().await.code(), "out_of_stock");
        assert_eq!(processor.lines().await, lines, "nothing is sent");
        assert_eq!(checkout_of(client, "key-1").await["status"], "canceled");
        let words = "SELECT operation_id, resolution FROM manual_resolutions ORDER BY resolved_at";
        let words = sqlx::query_as(words).fetch_all(&server.database.pool);
        let words: Vec<(Uuid, String)> = words.await.unwrap();
        assert_eq!(words, [(id, "declined".into()), (id, "done".into())]);
        server.stop().await;
    }
}

/// The first one of two late holders is across the network when its parent is overtaken: it
/// completes after the other one has answered, or before, and one charge is made.
#[tokio::test]
async fn a_late_step_across_the_network_and_its_overtaker_charge_once() {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let [late, prompt] = two_replicas(&database, &processor).await;
    let late_answer = json!({"fault": "delay_after", "milliseconds": 3000, "verb": "authorize"});
    processor.set_fault(late_answer).await;
    let send = |client: &Client| client.sending_and_waiting(20, "/checkouts", "key-1", checkout());
    let first = send(&late.client);
    processor.delays(1).await;
    // Both leases are over, the client's key's and its step's, while the first one still waits.
    database.expire_leases().await;
    let second = send(&prompt.client);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.body, second.body);
    assert_eq!(database.charges().await, 1);
    assert_eq!(level(&late.client, "mug").await, 3);
    assert_eq!(processor.lines().await, 1);
    let events = "SELECT count(*) - count(DISTINCT type) FROM events";
    assert_eq!(database.count(events).await, 0, "no event twice");
    late.stop().await;
    prompt.stop().await;
}
