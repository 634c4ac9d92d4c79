//! Duplicates of a request that is still running: the table in the design, row by row, over HTTP.
//! Rows that depend on who came first to the microsecond are in `followers.rs`.

use std::time::Instant;

use tokio::task::JoinHandle;

use crate::support::{
    prelude::*,
    records::{assert_nothing_stored, hold_key},
};

/// One worker thread, so that requests reach their handlers in the order they were sent.
fn one_worker() -> Vec<(&'static str, &'static str)> {
    [PATIENT, &[("WORKERS", "1")]].concat()
}

/// Sends a request in the background.
fn send(client: &Client, path: &str, body: Value, wait: u32) -> JoinHandle<Answer> {
    client.sending_and_waiting(wait, path, "key-1", body)
}

/// A server whose first request, an ordinary charge under `key-1`, is stopped.
async fn stopped_at(
    stage: Stage,
    path: &'static str,
    variables: &[(&str, &str)],
) -> (TestServer, PausePoint, JoinHandle<Answer>) {
    let server = TestServer::start_with(&[&one_worker(), variables].concat()).await;
    let mut pause = PausePoint::at(stage, &server.database, "key-1").await;
    let first = send(&server.client, path, charge(), 0);
    pause.is_reached().await;
    (server, pause, first)
}

fn assert_in_use(answer: &Answer) {
    assert_eq!(answer.status, 409, "{answer:?}");
    assert_eq!(answer.code(), "idempotency_key_in_use");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("stripe-should-retry"), Some("true"));
    assert_eq!(answer.header("idempotency-key"), Some("key-1"));
    assert!(!answer.is_replay());
}

#[tokio::test]
async fn a_duplicate_is_told_409_at_once_while_the_first_executes() {
    for stage in [Stage::Executing, Stage::Worked, Stage::Saving] {
        let (server, pause, first) = stopped_at(stage, "/charges", &[]).await;
        assert_in_use(&server.client.charge("key-1").await);
        pause.release().await;
        let first = first.await.unwrap();
        assert_eq!(first.status, 201);
        server.client.charge("key-1").await.assert_replays(&first);
        assert_eq!(server.database.charges().await, 1, "{stage:?}");
    }
}

#[tokio::test]
async fn another_request_with_a_running_key_is_told_409_and_never_that_the_key_is_reused() {
    for stage in [Stage::Claiming, Stage::Executing, Stage::Saving] {
        let (server, pause, first) = stopped_at(stage, "/charges", &[]).await;
        for path in ["/charges", "/v1/charges"] {
            let other = send(&server.client, path, another_charge(), 0);
            assert_in_use(&other.await.unwrap());
        }
        pause.release().await;
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!(server.database.charges().await, 1, "{stage:?}");
    }
}

#[tokio::test]
async fn under_v1_a_duplicate_waits_for_as_long_as_configured_and_then_gets_409() {
    let wait = [("IN_FLIGHT_WAIT_V1", "400ms")];
    let (server, pause, first) = stopped_at(Stage::Executing, "/v1/charges", &wait).await;
    let began = Instant::now();
    let duplicate = server.client.post("/v1/charges", "key-1", &charge()).await;
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(400), "{waited:?}");
    assert_in_use(&duplicate);
    assert_eq!(duplicate.header("preference-applied"), None);
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn prefer_wait_decides_how_long_a_duplicate_waits_in_both_dialects() {
    for path in ["/charges", "/v1/charges"] {
        let wait = [("IN_FLIGHT_WAIT_V1", "30s")];
        let (server, pause, first) = stopped_at(Stage::Executing, path, &wait).await;

        // Were the 0 ignored under /v1, this would wait for 30 s.
        let began = Instant::now();
        let at_once = send(&server.client, path, charge(), 0).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(15));
        assert_in_use(&at_once);
        assert_eq!(at_once.header("preference-applied"), Some("wait=0"));
        let began = Instant::now();
        let later = send(&server.client, path, charge(), 1).await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(1), "it didn't wait");
        assert_in_use(&later);
        assert_eq!(later.header("preference-applied"), Some("wait=1"));
        pause.release().await;
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!(server.database.charges().await, 1);
    }
}

#[tokio::test]
async fn waiting_duplicates_share_the_first_answer_under_their_own_request_ids() {
    for path in ["/charges", "/v1/charges"] {
        let (server, pause, first) = stopped_at(Stage::Executing, path, &[]).await;
        let waiters: Vec<_> = (0..5)
            .map(|_| send(&server.client, path, charge(), 30))
            .collect();
        server.client.let_earlier_requests_arrive().await;
        pause.release().await;
        let first = first.await.unwrap();
        assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
        assert_eq!(first.header("original-request"), first.header("request-id"));
        let id = |answer: &Answer| answer.header("request-id").unwrap().to_owned();
        let mut request_ids = BTreeSet::from([id(&first)]);
        for waiter in waiters {
            let answer = waiter.await.unwrap();
            answer.assert_replays(&first);
            assert_eq!(answer.header("preference-applied"), Some("wait=30"));
            request_ids.insert(id(&answer));
        }
        assert_eq!(request_ids.len(), 6, "every reply has one of its own");
        assert_eq!(server.database.charges().await, 1);
    }
}

#[tokio::test]
async fn another_request_that_waited_learns_that_the_key_is_reused_once_the_first_is_stored() {
    for (path, status) in [("/charges", 422), ("/v1/charges", 400)] {
        let (server, pause, first) = stopped_at(Stage::Worked, path, &[]).await;
        let other = send(&server.client, path, another_charge(), 30);
        server.client.let_earlier_requests_arrive().await;
        assert!(!other.is_finished(), "before the first one was stored");
        pause.release().await;
        assert_eq!(first.await.unwrap().status, 201);
        let other = other.await.unwrap();
        assert_eq!(other.status, status);
        assert_eq!(other.code(), "idempotency_key_reused");
        let sum = "SELECT sum(amount)::bigint FROM charges";
        assert_eq!(server.database.count(sum).await, 2000);
    }
}

#[tokio::test]
async fn duplicates_of_a_request_that_only_replays_are_replayed_and_never_told_409() {
    let server = TestServer::start_with(&one_worker()).await;
    let original = server.client.charge("key-1").await;
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, "key-1").await;
    let leader = send(&server.client, "/charges", charge(), 0);
    pause.is_reached().await;
    let duplicates: Vec<_> = (0..5)
        .map(|_| send(&server.client, "/charges", charge(), 0))
        .collect();
    server.client.let_earlier_requests_arrive().await;
    pause.release().await;
    for answer in [leader].into_iter().chain(duplicates) {
        answer.await.unwrap().assert_replays(&original);
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn duplicates_of_a_reuse_share_its_refusal() {
    let server = TestServer::start_with(&one_worker()).await;
    server.client.charge("key-1").await;
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, "key-1").await;
    let reuse = send(&server.client, "/charges", another_charge(), 0);
    pause.is_reached().await;
    let same = send(&server.client, "/charges", another_charge(), 30);
    // The request that the key belongs to: the reuse error isn't its answer.
    let owner = send(&server.client, "/charges", charge(), 30);
    server.client.let_earlier_requests_arrive().await;
    pause.release().await;
    for answer in [reuse, same] {
        assert_eq!(answer.await.unwrap().code(), "idempotency_key_reused");
    }
    let owner = owner.await.unwrap();
    assert_eq!((owner.status.as_u16(), owner.is_replay()), (201, true));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn when_the_first_one_fails_its_duplicates_get_the_same_5xx_and_nobody_runs_it_again() {
    for stage in [Stage::Executing, Stage::Worked, Stage::Saving] {
        let (server, mut pause, first) = stopped_at(stage, "/charges", &[]).await;
        let waiters: Vec<_> = (0..5)
            .map(|_| send(&server.client, "/charges", charge(), 30))
            .collect();
        server.client.let_earlier_requests_arrive().await;
        pause.break_the_paused().await;
        let first = first.await.unwrap();
        assert_eq!(first.status, 503);
        assert_eq!(first.code(), "service_unavailable");
        for waiter in waiters {
            let answer = waiter.await.unwrap();
            assert_eq!((answer.status, &answer.body), (first.status, &first.body));
            assert_eq!(answer.header("stripe-should-retry"), Some("true"));
            assert_ne!(answer.header("request-id"), first.header("request-id"));
            assert!(!answer.is_replay(), "a failure is no stored outcome");
        }
        assert_eq!(pause.arrivals().await, 1, "nobody asked for a second run");
        assert_eq!(server.database.charges().await, 0, "{stage:?}");
        assert_eq!(server.database.records().await, 0, "{stage:?}");

        // Now a request asks.
        pause.release().await;
        let retry = server.client.charge("key-1").await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false));
        assert_eq!(server.database.charges().await, 1, "{stage:?}");
    }
}

#[tokio::test]
async fn when_the_processor_is_down_another_request_with_the_key_starts_over_and_succeeds() {
    let server = TestServer::start_with(&one_worker()).await;
    let outage = charge_by("tok_outage");
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, "key-1").await;
    let first = send(&server.client, "/charges", outage.clone(), 0);
    pause.is_reached().await;
    let same = send(&server.client, "/charges", outage, 30);
    let other = send(&server.client, "/charges", charge(), 30);
    server.client.let_earlier_requests_arrive().await;
    assert_eq!(pause.arrivals().await, 1, "duplicates ask no database");
    pause.release().await;
    let (first, same) = (first.await.unwrap(), same.await.unwrap());
    assert_eq!(error(&first), (503, "service_unavailable".into()));
    assert_eq!((same.status, &same.body), (first.status, &first.body));
    assert_ne!(same.header("request-id"), first.header("request-id"));
    assert_eq!(other.await.unwrap().status, 201);
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(server.database.records().await, 1);
}

#[tokio::test]
async fn a_key_that_another_replica_holds_is_409_after_the_claims_wait_and_free_after_a_rollback() {
    let server = TestServer::start().await;
    let elsewhere = hold_key(&server.database, "key-1").await;
    let began = Instant::now();
    assert_in_use(&server.client.charge("key-1").await);
    assert!(began.elapsed() >= charge_once::idempotency::CLAIM_WAIT);
    // It isn't known whose request it is: no 422 either.
    let other = another_charge();
    assert_in_use(&server.client.post("/charges", "key-1", &other).await);
    elsewhere.rollback().await.unwrap();
    assert_nothing_stored(&server.database, "the other claim was rolled back").await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(server.database.records().await, 1);
}

#[tokio::test]
async fn who_waits_for_another_replica_executes_as_soon_as_it_rolls_back() {
    let server = TestServer::start_with(&one_worker()).await;
    let elsewhere = hold_key(&server.database, "key-1").await;
    let patient = send(&server.client, "/charges", charge(), 30);
    // By the time this one has its 409, the patient one has begun to claim.
    assert_in_use(&server.client.charge("key-1").await);
    assert!(!patient.is_finished());
    elsewhere.rollback().await.unwrap();
    let patient = patient.await.unwrap();
    assert_eq!((patient.status.as_u16(), patient.is_replay()), (201, false));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_stop_ends_all_waits_with_409_and_finishes_what_executes() {
    let wait = [("IN_FLIGHT_WAIT_V1", "30s")];
    let (mut server, pause, first) = stopped_at(Stage::Worked, "/v1/charges", &wait).await;
    let waiter = send(&server.client, "/v1/charges", charge(), 30);
    let other = send(&server.client, "/v1/charges", another_charge(), 30);
    server.client.let_earlier_requests_arrive().await;
    let began = Instant::now();
    server.begin_stopping();
    assert_in_use(&waiter.await.unwrap());
    assert_in_use(&other.await.unwrap());
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    assert!(!first.is_finished());
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    let database = server.stop().await;
    assert_eq!(database.charges().await, 1);
    assert_eq!(database.records().await, 1);
}

/// systemd and Kubernetes kill a process that takes much longer than its drain limit.
#[tokio::test]
async fn a_stop_ends_soon_after_the_drain_limit_whatever_executes() {
    let limit = [("DRAIN_TIMEOUT", "10s")];
    let (server, pause, first) = stopped_at(Stage::Worked, "/charges", &limit).await;
    let began = Instant::now();
    let database = server.stop().await;
    let took = began.elapsed();
    let allowed = Duration::from_secs(10)..Duration::from_secs(16);
    assert!(allowed.contains(&took), "{took:?}");
    first.abort();
    pause.release().await;
    assert!(database.records().await <= 1);
}
