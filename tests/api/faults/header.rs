//! The header `Fault`: what it does to the first requests with a key, and what it doesn't change.

use std::time::Instant;

use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::support::{
    connection::{Connection, request},
    prelude::*,
};

async fn server() -> TestServer {
    TestServer::start_with(&[FAULTS]).await
}

/// Sends a charge with a fault. `None`: its reply was lost.
async fn send(client: &Client, fault: &str, key: &str) -> Option<Answer> {
    let (path, body) = ("/charges", charge());
    client.post_with_fault(fault, path, key, &body).await
}

/// `POST /charges` as it is on the wire.
fn charge_request(key: &str, headers: &str) -> String {
    let headers = format!("Idempotency-Key: {key}\r\nContent-Type: application/json\r\n{headers}");
    request("POST", "/charges", &headers, &charge().to_string())
}

#[tokio::test]
async fn a_lost_reply_is_no_byte_and_the_work_is_done_once() {
    let server = server().await;
    let mut connection = Connection::open(&server.client).await;
    // A reply before it on the same connection arrives whole.
    connection.send(charge_request("key-0", "")).await;
    let (head, _) = connection.reply().await;
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    let lost = charge_request("key-1", "Fault: reply_lost\r\n");
    connection.send(lost).await;
    assert_eq!(connection.rest().await, "");
    assert_eq!(server.database.charges().await, 2);
    let replay = server.client.charge("key-1").await;
    assert_eq!((replay.status.as_u16(), replay.is_replay()), (201, true));
    assert_eq!(replay.header("fault"), None);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn what_follows_a_lost_reply_in_the_same_write_is_not_answered_either() {
    let server = server().await;
    let mut connection = Connection::open(&server.client).await;
    let both = charge_request("key-1", "Fault: reply_lost\r\n") + &charge_request("key-2", "");
    connection.send(both).await;
    assert_eq!(connection.rest().await, "");
}

#[tokio::test]
async fn a_lost_request_is_no_byte_and_no_work() {
    let server = server().await;
    let mut connection = Connection::open(&server.client).await;
    let lost = charge_request("key-1", "Fault: request_lost\r\n");
    connection.send(lost).await;
    assert_eq!(connection.rest().await, "");
    assert_eq!(server.database.records().await, 0);
    assert_eq!(server.database.charges().await, 0);
    let first = server.client.charge("key-1").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
}

#[tokio::test]
async fn the_first_requests_with_a_key_meet_the_fault_and_later_ones_do_not() {
    let server = server().await;
    let client = &server.client;
    for (key, fault) in [
        ("lost-0", "request_lost; requests=2"),
        ("lost-1", "reply_lost; requests=2"),
    ] {
        for _ in 0..2 {
            assert!(send(client, fault, key).await.is_none(), "{fault}");
        }
        let answer = send(client, fault, key).await.expect("a reply");
        assert_eq!(answer.status, 201, "{fault}");
        // Each key has its own count, and so has each kind of fault.
        assert!(send(client, fault, "lost-2").await.is_none(), "{fault}");
    }
    assert_eq!(server.database.charges().await, 3);
}

#[tokio::test]
async fn errors_on_demand_are_those_that_a_client_meets_and_store_nothing() {
    let server = server().await;
    let client = &server.client;
    for (kind, status, code, retry_after) in [
        ("500", 500, "internal_error", None),
        ("503", 503, "service_unavailable", Some("1")),
        ("429", 429, "rate_limited", Some("1")),
    ] {
        for path in ["/charges", "/v1/charges"] {
            let key = format!("{kind}-{}", path.len());
            let fault = format!("{kind}; requests=2");
            for _ in 0..2 {
                let answer = client.post_with_fault(&fault, path, &key, &charge()).await;
                let answer = answer.expect("a reply");
                assert_eq!(error(&answer), (status, code.into()));
                assert_eq!(answer.header("fault"), Some(kind));
                assert_eq!(answer.header("retry-after"), retry_after);
                assert_eq!(answer.header("stripe-should-retry"), Some("true"));
                assert_eq!(answer.header("idempotency-key"), Some(&*key));
                assert_eq!(answer.header("original-request"), None);
            }
            let answer = client.post_with_fault(&fault, path, &key, &charge()).await;
            let answer = answer.expect("a reply");
            assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false));
            assert_eq!(answer.header("fault"), None);
        }
    }
    assert_eq!(server.database.charges().await, 6);
}

#[tokio::test]
async fn a_key_is_in_use_for_its_seconds_and_then_the_work_is_done() {
    let server = server().await;
    let client = &server.client;
    let began = Instant::now();
    let send = || send(client, "in_use; seconds=1", "key-1");
    let mut refused = 0;
    let answer = loop {
        let answer = send().await.expect("a reply");
        if answer.status != 409 {
            break answer;
        }
        assert_eq!(answer.code(), "idempotency_key_in_use");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("fault"), Some("in_use"));
        refused += 1;
    };
    let took = began.elapsed();
    assert!(refused > 0 && took >= Duration::from_secs(1), "{refused}");
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false));
    assert_eq!(send().await.expect("a reply").status, 201);
}

#[tokio::test]
async fn a_delay_comes_before_the_work() {
    let server = server().await;
    let client = &server.client;
    let began = Instant::now();
    let delay = Duration::from_secs(4);
    let slow = send(client, "delay; seconds=4", "key-1");
    // The key is free meanwhile: a retry overtakes the request, which replays its outcome.
    let fast = async {
        while client.get("/charges").await.json()["data"] == json!([]) {
            assert_eq!(client.charge("key-1").await.status, 201);
        }
        Instant::now()
    };
    let (slow, fast) = tokio::join!(slow, fast);
    let slow = slow.expect("a reply");
    assert_eq!((slow.status.as_u16(), slow.is_replay()), (201, true));
    assert_eq!(slow.header("fault"), None);
    assert!(began.elapsed() >= delay);
    assert!(fast.duration_since(began) < delay, "the retry waited, too");
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_delay_ends_when_the_server_is_asked_to_stop() {
    let mut server = server().await;
    let client = server.client.clone();
    let began = Instant::now();
    let delayed = tokio::spawn({
        let client = client.clone();
        async move { send(&client, "delay; seconds=30", "key-1").await }
    });
    client.let_earlier_requests_arrive().await;
    server.begin_stopping();
    let answer = delayed.await.unwrap().expect("a reply");
    // Where the request came after the stop, it was not delayed.
    assert_eq!(answer.status, 503);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(server.stop().await.charges().await, 0);
}

#[tokio::test]
async fn a_delay_counts_among_what_waits_for_its_account() {
    let limits = [FAULTS, ("RATE_LIMIT", "0")];
    let mut server = TestServer::start_with(&limits).await;
    let client = server.client.clone();
    let send = async |key: String| {
        let answer = send(&client, "delay; seconds=30", &key).await;
        answer.expect("a reply")
    };
    let requests = (0..1_005).map(|number| send(format!("key-{number}")));
    let mut requests: FuturesUnordered<_> = requests.collect();
    for _ in 0..5 {
        let refused = requests.next().await.unwrap();
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("fault"), None);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    server.begin_stopping();
    while let Some(ended) = requests.next().await {
        assert_eq!(ended.status, 503);
    }
    assert_eq!(server.stop().await.charges().await, 0);
}

#[tokio::test]
async fn every_request_that_changes_something_can_meet_a_fault() {
    let server = server().await;
    let client = &server.client;
    stock(client, "mug", 100).await;
    let order = open_order(client).await;
    let one = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
    let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
    let cases: [(String, Value); 4] = [
        ("/orders".into(), one),
        (format!("/orders/{order}/pay"), json!({})),
        ("/checkouts".into(), checkout()),
        ("/webhook_endpoints".into(), endpoint),
    ];
    for (path, body) in &cases {
        let lost = client.post_with_fault("reply_lost", path, path, body).await;
        assert!(lost.is_none(), "{path}");
        let replay = client.post(path, path, body).await;
        assert!(replay.status.is_success(), "{path}: {replay:?}");
        assert!(replay.is_replay(), "{path}: {replay:?}");
        let key = format!("{path}-503");
        let answer = client.post_with_fault("503", path, &key, body).await;
        let answer = answer.expect("a reply");
        assert_eq!(answer.header("fault"), Some("503"), "{path}");
    }
    // A refusal can get lost as well.
    let (path, body) = ("/charges", json!({}));
    let lost = client.post_with_fault("reply_lost", path, "refused", &body);
    assert!(lost.await.is_none());
    let replay = client.post(path, "refused", &body).await;
    assert_eq!((replay.status.as_u16(), replay.is_replay()), (400, true));
    // Reads have no key, and no faults.
    let read = client.request(Method::GET, "/charges");
    let read = read.header("fault", "503");
    assert_eq!(Answer::of(read).await.status, 200);
}

#[tokio::test]
async fn a_header_that_says_nothing_known_is_refused_and_nothing_is_claimed() {
    let server = server().await;
    let client = &server.client;
    for fault in [
        "",
        "nonsense",
        "503; requests=0",
        "delay",
        "delay; seconds=31",
        "503, 500",
    ] {
        let answer = send(client, fault, "key-1").await.expect("a reply");
        let expected = refusal("parameter_invalid", "Fault");
        assert_eq!(answer.refusal(), expected, "{fault}");
    }
    let fault = ("fault", "503");
    let twice = client
        .charge_with_headers(&[("idempotency-key", "key-1"), fault, fault])
        .await;
    assert_eq!(twice.refusal().2.as_deref(), Some("Fault"));
    assert_eq!(server.database.records().await, 0);
}

#[tokio::test]
async fn the_header_is_no_part_of_the_request_that_the_key_stands_for() {
    let server = server().await;
    let client = &server.client;
    let first = client.charge("key-1").await;
    let again = send(client, "delay; seconds=0", "key-1").await;
    again.expect("a reply").assert_replays(&first);
}

#[tokio::test]
async fn a_lost_reply_of_a_client_that_goes_on_leaves_the_service_as_it_was() {
    let server = server().await;
    let client = &server.client;
    for index in 0..20 {
        let key = format!("key-{index}");
        assert!(send(client, "reply_lost", &key).await.is_none());
    }
    let holds = || async { server.database.charges().await == 20 };
    eventually("all charges are there", holds).await;
    assert_eq!(client.charge("key-0").await.status, 201);
}
