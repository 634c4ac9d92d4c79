//! What is stored under a key, and what leaves the key free.

use crate::support::{
    harness::IMPATIENT,
    prelude::*,
    records::assert_nothing_stored,
    wire::{charge_with, send_slowly},
};

#[tokio::test]
async fn a_success_is_stored_with_its_rows_and_replayed() {
    let server = TestServer::start().await;
    let order = json!({"currency": "eur", "items": [{"quantity": 2, "unit_amount": 1200}]});
    for (path, body) in [
        ("/charges", charge()),
        ("/v1/charges", charge()),
        ("/orders", order),
    ] {
        let first = server.client.post(path, path, &body).await;
        assert_eq!(first.status, 201, "{path}");
        let replay = server.client.post(path, path, &body).await;
        replay.assert_replays(&first);
    }
    assert_eq!(server.database.charges().await, 2);
    assert_eq!(server.database.orders().await, 1);
    assert_eq!(server.database.records().await, 3);
}

#[tokio::test]
async fn a_refusal_is_stored_and_replayed_leaves_no_row_and_asks_for_a_new_key() {
    let server = TestServer::start().await;
    let plain = charge().to_string();
    let raw = |text: &str| text.as_bytes().to_vec();
    let mut cases = vec![
        ("body_invalid", "/charges", JSON, raw("{")),
        (
            "body_invalid",
            "/charges",
            JSON,
            raw(r#"{"amount":1,"amount":2}"#),
        ),
        ("body_invalid", "/charges", FORM, raw("amount=1&amount=2")),
        ("body_invalid", "/v1/orders", JSON, b"\xff".to_vec()),
        ("parameter_missing", "/charges", JSON, raw("")),
        ("parameter_missing", "/orders", FORM, raw("currency=usd")),
        ("parameter_unknown", "/charges?amount=1", JSON, raw(&plain)),
        ("parameter_invalid", "/charges?a=%zz", JSON, raw(&plain)),
    ];
    for (code, name, value) in [
        ("parameter_invalid", "amount", json!(0)),
        ("parameter_invalid", "amount", json!("2000")),
        ("parameter_invalid", "currency", json!("zzz")),
        ("parameter_invalid", "source", json!("tok_nobody")),
        ("parameter_invalid", "metadata", json!({"a": 1})),
        ("parameter_unknown", "amuont", json!(2000)),
        ("amount_too_large", "amount", json!(100_000_000)),
    ] {
        cases.push((code, "/charges", JSON, charge_with(name, value)));
    }
    for (index, (code, path, media_type, body)) in cases.iter().enumerate() {
        let key = format!("key-{index}");
        let send = || server.client.post_raw(path, &key, media_type, body);
        let (first, second) = (send().await, send().await);
        assert_eq!(error(&first), (400, (*code).into()), "{index}");
        assert!(first.header("original-request").is_some(), "{index}");
        let error = &first.json()["error"];
        let advice = "This answer is kept under the idempotency key: send a corrected request with a new key.";
        assert_eq!(error["advice"], advice, "{index}");
        assert!(
            !error["message"].to_string().contains("idempotency"),
            "{index}: {error}"
        );
        second.assert_replays(&first);
    }
    assert_eq!(server.database.records().await, cases.len() as i64);
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(server.database.orders().await, 0);
}

#[tokio::test]
async fn what_fails_before_the_claim_leaves_no_record_and_the_key_free() {
    let (server, client) = TestServer::with_client(&[]).await;
    let card = charge_with("description", "4242424242424242".into());
    let unknown = client.with_api_key("sk_test_no");
    let ordinary = async |request: reqwest::RequestBuilder| {
        let request = request.header("idempotency-key", "key-1");
        Answer::of(request.json(&charge())).await
    };
    let raw = async |key: &str, media_type: &str, body: &[u8]| {
        client.post_raw("/charges", key, media_type, body).await
    };
    let answers = [
        ordinary(client.bare(Method::POST, "/charges")).await,
        ordinary(unknown.request(Method::POST, "/charges")).await,
        ordinary(client.request(Method::POST, "/nothing")).await,
        ordinary(client.request(Method::PUT, "/charges")).await,
        raw("key-1", JSON, &[b' '; 65_537]).await,
        raw("key-1", "text/plain", b"amount=1").await,
        raw("key-1", JSON, &card).await,
        raw("not a key", JSON, b"{}").await,
    ];
    let expected = [
        (401, "api_key_missing"),
        (401, "api_key_invalid"),
        (404, "route_not_found"),
        (405, "method_not_allowed"),
        (413, "body_too_large"),
        (415, "unsupported_media_type"),
        (400, "card_number_forbidden"),
        (400, "idempotency_key_invalid"),
    ];
    for (answer, (status, code)) in answers.iter().zip(expected) {
        assert_eq!(error(answer), (status, code.into()));
        assert_eq!(answer.header("original-request"), None, "{answer:?}");
        assert_eq!(answer.header("idempotency-expires"), None, "{answer:?}");
    }
    assert_nothing_stored(&server.database, "no key was claimed").await;
    let first = client.charge("key-1").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
}

/// A charge without most of its body, and the reply to it.
async fn body_that_does_not_arrive(client: &Client) -> String {
    let headers = format!(
        "Authorization: Bearer {API_KEY}\r\nContent-Type: {JSON}\r\nIdempotency-Key: key-1\r\n"
    );
    let reply = send_slowly(client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    reply
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_408_and_leaves_the_key_free() {
    let server = TestServer::start_with(IMPATIENT).await;
    let reply = body_that_does_not_arrive(&server.client).await;
    assert!(reply.contains("\"code\":\"request_timeout\""), "{reply}");
    assert!(reply.contains("stripe-should-retry: true\r\n"), "{reply}");
    assert_nothing_stored(&server.database, "the body never arrived").await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
}

/// Makes every look-up of an API key take that long.
async fn slow_look_ups(database: &TestDatabase, seconds: &str) {
    let sql = format!(
        "ALTER TABLE api_keys RENAME TO quick_api_keys;
         CREATE VIEW api_keys AS SELECT quick_api_keys.* FROM quick_api_keys, pg_sleep({seconds})"
    );
    database.execute(sql).await;
}

#[tokio::test]
async fn an_api_key_that_can_not_be_looked_up_in_time_is_503_long_before_the_database_deadline() {
    let ladder = [
        ("POOL_WAIT", "500ms"),
        ("STATEMENT_TIMEOUT", "28s"),
        ("DATABASE_DEADLINE", "30s"),
        ("IDLE_IN_TRANSACTION_TIMEOUT", "46s"),
        ("REQUEST_TIMEOUT", "47s"),
        ("IDEMPOTENCY_LEASE", "90s"),
    ];
    let server = TestServer::start_with(&ladder).await;
    slow_look_ups(&server.database, "35").await;
    let client = &server.client;
    let answers = async { tokio::join!(client.get("/charges"), client.charge("key-1")) };
    let answers = tokio::time::timeout(PATIENCE, answers).await;
    let (read, charge) = answers.expect("two answers");
    for answer in [read, charge] {
        assert_eq!(error(&answer), (503, "service_unavailable".into()));
    }
    assert_nothing_stored(&server.database, "nobody knew whose key it was").await;
}

#[tokio::test]
async fn a_slow_look_up_of_the_api_key_takes_its_time_from_the_body_s() {
    let ladder = [
        ("POOL_WAIT", "1s"),
        ("STATEMENT_TIMEOUT", "5s"),
        ("DATABASE_DEADLINE", "6s"),
        ("IDLE_IN_TRANSACTION_TIMEOUT", "7s"),
        ("REQUEST_TIMEOUT", "10s"),
    ];
    let server = TestServer::start_with(&ladder).await;
    slow_look_ups(&server.database, "2").await;
    let sent = tokio::time::Instant::now();
    body_that_does_not_arrive(&server.client).await;
    // Two seconds for the look-up and then three for the body would be five.
    let taken = sent.elapsed();
    assert!(taken < Duration::from_secs(5), "{taken:?}");
}

#[tokio::test]
async fn an_outage_stores_nothing_and_frees_the_key_for_any_request() {
    let server = TestServer::start().await;
    let body = charge_by("tok_outage");
    for path in ["/charges", "/v1/charges"] {
        let answer = server.client.post(path, "key-1", &body).await;
        assert_eq!(error(&answer), (503, "service_unavailable".into()));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_nothing_stored(&server.database, "the processor is down").await;
    }
    assert_eq!(server.client.charge("key-1").await.status, 201);
}

#[tokio::test]
async fn the_same_request_succeeds_once_the_trouble_is_over() {
    let server = TestServer::start().await;
    let trouble = "ALTER TABLE charges ADD CONSTRAINT trouble CHECK (false) NOT VALID";
    server.database.execute(trouble).await;
    let failed = server.client.charge("key-1").await;
    assert_eq!(error(&failed), (500, "internal_error".into()));
    assert_nothing_stored(&server.database, "the insert failed").await;
    let over = "ALTER TABLE charges DROP CONSTRAINT trouble";
    server.database.execute(over).await;
    let retried = server.client.charge("key-1").await;
    assert_eq!((retried.status.as_u16(), retried.is_replay()), (201, false));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn every_concurrent_duplicate_of_a_refusal_gets_the_one_stored_answer() {
    let server = TestServer::start().await;
    let body = charge_with("currency", "zzz".into());
    let duplicates = (0..20).map(|_| server.client.post_raw("/v1/charges", "key-1", JSON, &body));
    let duplicates = futures_util::future::join_all(duplicates);
    let answers = tokio::time::timeout(Duration::from_secs(10), duplicates).await;
    let answers = answers.unwrap();
    for answer in &answers {
        assert_eq!(answer.status, 400);
        assert_eq!(answer.body, answers[0].body);
    }
    let executed = answers.iter().filter(|answer| !answer.is_replay());
    assert_eq!(executed.count(), 1);
    assert_eq!(server.database.records().await, 1);
}
