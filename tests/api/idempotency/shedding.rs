//! Too many requests in progress: new ones are refused at once, and everything else goes on.

use tokio::time::Instant;

use crate::support::{
    harness::LOCK_WAITS,
    metrics::Scrape,
    postgres_proxy::{NetworkFault, PostgresProxy},
    prelude::*,
};

/// What is in progress, paused in the database.
const STUCK: &str = "stuck-%";

/// "At once", on a machine that has other things to do. Every limit inside the server is far
/// longer.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The limits of these tests and of [`PATIENT`], and others.
fn with<'a>(variables: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    // The first value of a variable counts.
    [variables, PATIENT].concat()
}

/// Sends a charge that is refused because too many are in progress.
async fn assert_is_shed(client: &Client, key: &str) {
    let sent = Instant::now();
    let answer = client.charge(key).await;
    assert_eq!(error(&answer), (503, "service_unavailable".into()));
    assert!(sent.elapsed() < AT_ONCE, "{:?}", sent.elapsed());
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("stripe-should-retry"), Some("true"));
    assert!(!answer.is_replay());
}

#[tokio::test]
async fn beyond_the_limits_requests_are_refused_at_once_while_replays_and_reads_go_on() {
    for replay_cache in [FORGETFUL, ("REPLAY_CACHE", "32MiB")] {
        let database = TestDatabase::create().await;
        let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
        // Three claim keys at a time, and the fourth connection is left for the rest.
        let variables = with(&[
            replay_cache,
            ("POOL_CONNECTIONS", "4"),
            ("IN_PROGRESS_LIMIT", "3"),
            ("IN_PROGRESS_LIMIT_PER_ACCOUNT", "1"),
        ]);
        let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
        let client = &server.client;
        let second = client_of_account(&server, "second").await;
        let third = client_of_account(&server, "third").await;
        let fourth = client_of_account(&server, "fourth").await;
        let done = client.charge("done").await;
        assert_eq!(done.status, 201);

        let mut stuck = vec![client.charging("stuck-1")];
        pause.is_reached().await;
        assert_is_shed(client, "key-1").await;
        // Others are served.
        assert_eq!(second.charge("key-1").await.status, 201);

        stuck.push(second.charging("stuck-2"));
        pause.is_reached_by(2).await;
        stuck.push(third.charging("stuck-3"));
        pause.is_reached_by(3).await;
        assert_is_shed(client, "key-1").await;
        assert_is_shed(&fourth, "key-1").await;
        // A look-up that is slow on a busy machine stops those of the next second.
        client.charge_until_definite("done").await;
        for _ in 0..3 {
            client.charge("done").await.assert_replays(&done);
        }
        let reused = client.post("/charges", "done", &another_charge()).await;
        assert_eq!(reused.code(), "idempotency_key_reused");
        let duplicate = client.charge("stuck-1").await;
        assert_eq!(duplicate.code(), "idempotency_key_in_use", "it is followed");
        let path = format!("/charges/{}", done.id());
        assert_eq!(client.get(&path).await.status, 200);
        assert_eq!(client.get("/charges").await.status, 200);
        let shed = client.get("/idempotency-keys/key-1").await;
        assert_eq!(shed.status, 404, "nothing is stored");

        let scrape = Scrape::of(&scraper).await;
        for (scope, expected) in [("account", 2.0), ("all", 1.0)] {
            let series = format!("charge_once_shed_requests_total{{scope=\"{scope}\"}}");
            assert_eq!(scrape.value(&series), expected, "{}", scrape.text);
        }

        pause.release().await;
        for answer in stuck {
            assert_eq!(answer.await.unwrap().status, 201);
        }
        for client in [client, &fourth] {
            let retried = client.charge("key-1").await;
            assert!(retried.status == 201 && !retried.is_replay(), "{retried:?}");
        }
        assert_eq!(server.database.charges().await, 7);
        assert_eq!(server.database.records().await, 7);
    }
}

#[tokio::test]
async fn beyond_the_limits_the_answer_of_a_card_s_holder_is_refused_and_may_be_sent_again() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
    let variables = with(&[("IN_PROGRESS_LIMIT_PER_ACCOUNT", "1")]);
    let server = TestServer::start_on(database, &variables).await;
    let body = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "payment_method_types": ["card"],
    });
    let page = page_of(&server.client.post_new("/setup_intents", &body).await);
    let stuck = server.client.charging("stuck-1");
    pause.is_reached().await;
    let refused = press(&page, "complete").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("refresh"), Some("3"));
    assert!(refused.header("retry-after").is_some());
    pause.release().await;
    assert_eq!(stuck.await.unwrap().status, 201);
    assert_eq!(press(&page, "complete").await.status, 200);
}

/// A client that lost many replies asks for all of them again.
#[tokio::test]
async fn beyond_the_limits_hundreds_of_duplicates_are_replayed_together() {
    const KEYS: usize = 20;
    const DUPLICATES: usize = 300;
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
    let variables = with(&[FORGETFUL, ("IN_PROGRESS_LIMIT", "1"), ("POOL_WAIT", "10s")]);
    let server = ServerProcess::start(&database, &variables);
    let client = &server.client;
    let mut originals = Vec::new();
    for number in 0..KEYS {
        originals.push(client.charge(&format!("done-{number}")).await);
    }
    let stuck = client.charging("stuck-1");
    pause.is_reached().await;
    let mut replays = JoinSet::new();
    for number in (0..KEYS).cycle().take(DUPLICATES) {
        let client = client.clone();
        replays.spawn(async move {
            let key = format!("done-{number}");
            let first = client.charge(&key).await;
            let is_refused = first.status == 503;
            let replay = match is_refused {
                true => client.charge_until_definite(&key).await,
                false => first,
            };
            (number, replay, is_refused)
        });
    }
    let mut refused = 0;
    while let Some(replay) = replays.join_next().await {
        let (number, replay, is_refused) = replay.unwrap();
        replay.assert_replays(&originals[number]);
        refused += usize::from(is_refused);
    }
    // Where the machine has no time for the database, some are told to try again.
    assert!(refused < DUPLICATES / 10, "{refused} were refused");
    assert_is_shed(client, "key-1").await;
    pause.release().await;
    assert_eq!(stuck.await.unwrap().status, 201);
}

#[tokio::test]
async fn a_refusal_is_at_once_when_the_database_says_nothing() {
    let database = TestDatabase::create().await;
    let proxy = PostgresProxy::in_front_of(&database.url).await;
    let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
    let variables = with(&[FORGETFUL, ("IN_PROGRESS_LIMIT", "1"), ("POOL_WAIT", "5s")]);
    let server = TestServer::start_through(database, &proxy.url, &variables).await;
    let done = server.client.charge("done").await;
    let stuck = server.client.charging("stuck-1");
    pause.is_reached().await;
    proxy.inject(NetworkFault::Stalled);
    let mut refused = JoinSet::new();
    for number in 0..50 {
        let client = server.client.clone();
        refused.spawn(async move { assert_is_shed(&client, &format!("key-{number}")).await });
    }
    while let Some(ended) = refused.join_next().await {
        ended.unwrap();
    }
    proxy.inject(NetworkFault::None);
    let replay = server.client.charge_until_definite("done").await;
    replay.assert_replays(&done);
    stuck.abort();
}

#[tokio::test]
async fn reads_have_a_connection_however_many_requests_wait_for_locks() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
    let variables = with(&[("POOL_CONNECTIONS", "4"), ("WORKERS", "1")]);
    let server = TestServer::start_on(database, &variables).await;
    let client = &server.client;
    let done = client.charge("done").await;
    let stuck =
        ["stuck-1", "stuck-2", "stuck-3", "stuck-4", "stuck-5"].map(|key| client.charging(key));
    pause.is_reached_by(3).await;
    client.let_earlier_requests_arrive().await;
    for _ in 0..10 {
        let path = format!("/charges/{}", done.id());
        assert_eq!(client.get(&path).await.status, 200);
    }
    pause.release().await;
    for answer in stuck {
        // Those that waited for a connection may have given up.
        let status = answer.await.unwrap().status.as_u16();
        assert!([201, 503].contains(&status), "{status}");
    }
}

/// A record without an outcome belongs to a request that may have been executed.
#[tokio::test]
async fn of_a_key_in_doubt_no_refusal_says_that_it_was_not_begun() {
    let processor = Processor::start().await;
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Claiming, &database, STUCK).await;
    let url = processor.url();
    let variables = with(&[("PROCESSOR_URL", &url), ("IN_PROGRESS_LIMIT", "1")]);
    let server = TestServer::start_on(database, &variables).await;
    let client = &server.client;
    processor.set_fault(json!({"fault": "drop_after"})).await;
    assert_eq!(client.charge("in-doubt").await.status, 503);
    // The reconciler would end it.
    let later = "UPDATE idempotency_leases SET recover_after = now() + interval '1 hour'";
    let put_off = sqlx::query(later).execute(&server.database.pool).await;
    assert_eq!(put_off.unwrap().rows_affected(), 1);
    let stuck = client.charging("stuck-1");
    pause.is_reached().await;
    assert_is_shed(client, "key-1").await;
    let same = client.charge("in-doubt").await;
    assert_eq!(same.code(), "idempotency_key_in_use");
    let reused = client.post("/charges", "in-doubt", &another_charge()).await;
    assert_eq!(reused.code(), "idempotency_key_reused");
    pause.release().await;
    assert_eq!(stuck.await.unwrap().status, 201);
}

#[tokio::test]
async fn a_duplicate_that_waited_for_another_replica_is_told_so_when_its_place_is_taken() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, STUCK).await;
    let other = ServerProcess::start(&database, PATIENT);
    let held = other.client.charging("stuck-1");
    pause.is_reached().await;
    let server = TestServer::start_on(database, &with(&[("IN_PROGRESS_LIMIT", "1")])).await;
    let client = &server.client;
    let duplicate = client.sending_and_waiting(20, "/charges", "stuck-1", charge());
    let holds = || async { server.database.count(LOCK_WAITS).await > 0 };
    eventually("the duplicate waits for the other replica", holds).await;
    // While the duplicate pauses between two looks, its place is free.
    let client = server.client.clone();
    let takes_the_place = tokio::spawn(async move {
        loop {
            let answer = client.charge("stuck-2").await;
            if answer.status != 503 {
                return answer;
            }
        }
    });
    pause.is_reached_by(2).await;
    assert_eq!(duplicate.await.unwrap().code(), "idempotency_key_in_use");
    pause.release().await;
    for answer in [held, takes_the_place] {
        assert_eq!(answer.await.unwrap().status, 201);
    }
}

#[tokio::test]
async fn a_checkout_counts_once_and_none_of_its_steps_is_refused() {
    let server = TestServer::start_with(&[("IN_PROGRESS_LIMIT", "1")]).await;
    stock(&server.client, "mug", 2).await;
    let made = server.client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert_eq!(made.json()["status"], json!("completed"));
}
