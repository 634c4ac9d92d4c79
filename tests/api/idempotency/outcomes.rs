//! What is stored under a key, and what leaves the key free.

use crate::support::{
    harness::IMPATIENT,
    prelude::*,
    records::{assert_nothing_stored, hold_key},
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
        server
            .client
            .post(path, path, &body)
            .await
            .assert_replays(&first);
    }
    assert_eq!(server.database.charges().await, 2);
    assert_eq!(
        server.database.count("SELECT count(*) FROM orders").await,
        1
    );
    assert_eq!(server.database.records().await, 3);
}

#[tokio::test]
async fn a_refusal_is_stored_and_replayed_leaves_no_row_and_asks_for_a_new_key() {
    let server = TestServer::start().await;
    let cases: &[(&str, &str, &str, Vec<u8>)] = &[
        ("body_invalid", "/charges", JSON, b"{".to_vec()),
        (
            "body_invalid",
            "/charges",
            JSON,
            br#"{"amount":1,"amount":2}"#.to_vec(),
        ),
        (
            "body_invalid",
            "/charges",
            FORM,
            b"amount=1&amount=2".to_vec(),
        ),
        ("body_invalid", "/v1/orders", JSON, b"\xff".to_vec()),
        ("parameter_missing", "/charges", JSON, b"".to_vec()),
        (
            "parameter_missing",
            "/orders",
            FORM,
            b"currency=usd".to_vec(),
        ),
        (
            "parameter_invalid",
            "/charges",
            JSON,
            charge_with("amount", 0.into()),
        ),
        (
            "parameter_invalid",
            "/charges",
            JSON,
            charge_with("amount", "2000".into()),
        ),
        (
            "parameter_invalid",
            "/charges",
            JSON,
            charge_with("currency", "zzz".into()),
        ),
        (
            "parameter_invalid",
            "/charges",
            JSON,
            charge_with("source", "tok_nobody".into()),
        ),
        (
            "parameter_invalid",
            "/charges",
            JSON,
            charge_with("metadata", json!({"a": 1})),
        ),
        (
            "parameter_unknown",
            "/charges",
            JSON,
            charge_with("amuont", 2000.into()),
        ),
        (
            "parameter_unknown",
            "/charges?amount=1",
            JSON,
            charge().to_string().into_bytes(),
        ),
        (
            "parameter_invalid",
            "/charges?a=%zz",
            JSON,
            charge().to_string().into_bytes(),
        ),
        (
            "amount_too_large",
            "/charges",
            JSON,
            charge_with("amount", 100_000_000.into()),
        ),
    ];
    for (index, (code, path, media_type, body)) in cases.iter().enumerate() {
        let key = format!("key-{index}");
        let send = || server.client.post_raw(path, &key, media_type, body);
        let (first, second) = (send().await, send().await);
        assert_eq!(
            (first.status.as_u16(), first.code().as_str()),
            (400, *code),
            "{index}"
        );
        assert!(first.header("original-request").is_some(), "{index}");
        let message = first.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains("new key"), "{index}: {message}");
        second.assert_replays(&first);
    }
    assert_eq!(server.database.records().await, cases.len() as i64);
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(
        server.database.count("SELECT count(*) FROM orders").await,
        0
    );
}

#[tokio::test]
async fn a_corrected_request_needs_a_new_key() {
    let server = TestServer::start().await;
    let wrong = charge_with("currency", "zzz".into());
    server
        .client
        .post_raw("/charges", "key-1", JSON, &wrong)
        .await;
    assert_eq!(
        server.client.charge("key-1").await.code(),
        "idempotency_key_reused"
    );
    assert_eq!(server.client.charge("key-2").await.status, 201);
}

/// Sends to `path` with the key `key-1` and what `change` adds, as an ordinary charge.
async fn ordinary(
    client: &Client,
    method: Method,
    path: &str,
    change: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
) -> Answer {
    let request = client.bare(method, path).header("idempotency-key", "key-1");
    Answer::of(change(request)).await
}

#[tokio::test]
async fn what_fails_before_the_claim_leaves_no_record_and_the_key_free() {
    let server = TestServer::start().await;
    let (client, card) = (
        &server.client,
        charge_with("description", "4242424242424242".into()),
    );
    let post = Method::POST;
    let unknown = client.with_api_key("sk_test_nobody_at_all");
    let mut answers = vec![
        ordinary(client, post.clone(), "/charges", |r| r.json(&charge())).await,
        ordinary(&unknown, post.clone(), "/charges", |r| {
            r.bearer_auth("sk_test_no").json(&charge())
        })
        .await,
        ordinary(client, post.clone(), "/nothing", |r| {
            r.bearer_auth(API_KEY).json(&charge())
        })
        .await,
        ordinary(client, Method::PUT, "/charges", |r| {
            r.bearer_auth(API_KEY).json(&charge())
        })
        .await,
    ];
    answers.push(
        client
            .post_raw("/charges", "key-1", JSON, &vec![b' '; 65_537])
            .await,
    );
    answers.push(
        client
            .post_raw("/charges", "key-1", "text/plain", b"amount=1")
            .await,
    );
    answers.push(client.post_raw("/charges", "key-1", JSON, &card).await);
    answers.push(client.post_raw("/charges", "not a key", JSON, b"{}").await);
    let met: Vec<_> = answers
        .iter()
        .map(|a| (a.status.as_u16(), a.code()))
        .collect();
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
    assert_eq!(
        met,
        expected.map(|(status, code)| (status, code.to_owned()))
    );
    for answer in &answers {
        assert_eq!(answer.header("original-request"), None, "{answer:?}");
        assert_eq!(answer.header("idempotency-expires"), None, "{answer:?}");
    }
    assert_nothing_stored(&server.database, "no key was claimed").await;
    let first = client.charge("key-1").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
}

#[tokio::test]
async fn a_body_that_does_not_arrive_in_time_is_408_and_leaves_the_key_free() {
    let server = TestServer::start_with(IMPATIENT).await;
    let headers = format!(
        "Authorization: Bearer {API_KEY}\r\nContent-Type: {JSON}\r\nIdempotency-Key: key-1\r\n"
    );
    let reply = send_slowly(&server.client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
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
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&database.pool)
        .await
        .unwrap();
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
    let answers =
        async { tokio::join!(server.client.get("/charges"), server.client.charge("key-1")) };
    let (read, charge) = tokio::time::timeout(PATIENCE, answers)
        .await
        .expect("two answers");
    for answer in [read, charge] {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "service_unavailable")
        );
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
    let headers = format!(
        "Authorization: Bearer {API_KEY}\r\nContent-Type: {JSON}\r\nIdempotency-Key: key-1\r\n"
    );
    let sent = tokio::time::Instant::now();
    let reply = send_slowly(&server.client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    // Two seconds for the look-up and then three for the body would be five.
    let taken = sent.elapsed();
    assert!(taken < Duration::from_secs(5), "{taken:?}");
}

#[tokio::test]
async fn a_duplicate_in_flight_and_a_reused_key_store_nothing() {
    let server = TestServer::start().await;
    let held = hold_key(&server.database, "key-1").await;
    let in_flight = server.client.charge("key-1").await;
    assert_eq!(
        (in_flight.status.as_u16(), in_flight.code().as_str()),
        (409, "idempotency_key_in_use")
    );
    held.rollback().await.unwrap();
    assert_nothing_stored(&server.database, "the other claim was rolled back").await;

    let first = server.client.charge("key-1").await;
    let reuse = server.client.post("/orders", "key-1", &charge()).await;
    assert_eq!(
        (reuse.status.as_u16(), reuse.code().as_str()),
        (422, "idempotency_key_reused")
    );
    assert_eq!(server.database.records().await, 1);
    server.client.charge("key-1").await.assert_replays(&first);
}

#[tokio::test]
async fn an_outage_stores_nothing_and_frees_the_key_for_any_request() {
    let server = TestServer::start().await;
    let mut body = charge();
    body["source"] = "tok_outage".into();
    for path in ["/charges", "/v1/charges"] {
        let answer = server.client.post(path, "key-1", &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "service_unavailable")
        );
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_nothing_stored(&server.database, "the processor is down").await;
    }
    assert_eq!(server.client.charge("key-1").await.status, 201);
}

#[tokio::test]
async fn the_same_request_succeeds_once_the_trouble_is_over() {
    let server = TestServer::start().await;
    let execute = async |sql: &'static str| {
        sqlx::raw_sql(sql)
            .execute(&server.database.pool)
            .await
            .unwrap();
    };
    execute("ALTER TABLE charges ADD CONSTRAINT trouble CHECK (false) NOT VALID").await;
    let failed = server.client.charge("key-1").await;
    assert_eq!(
        (failed.status.as_u16(), failed.code().as_str()),
        (500, "internal_error")
    );
    assert_nothing_stored(&server.database, "the insert failed").await;
    execute("ALTER TABLE charges DROP CONSTRAINT trouble").await;
    let retried = server.client.charge("key-1").await;
    assert_eq!((retried.status.as_u16(), retried.is_replay()), (201, false));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn every_concurrent_duplicate_of_a_refusal_gets_the_one_stored_answer() {
    let server = TestServer::start().await;
    let body = charge_with("currency", "zzz".into());
    let duplicates = (0..20).map(|_| server.client.post_raw("/v1/charges", "key-1", JSON, &body));
    let answers = tokio::time::timeout(
        Duration::from_secs(10),
        futures_util::future::join_all(duplicates),
    )
    .await
    .unwrap();
    for answer in &answers {
        assert_eq!(answer.status, 400);
        assert_eq!(answer.body, answers[0].body);
    }
    assert_eq!(
        answers.iter().filter(|answer| !answer.is_replay()).count(),
        1
    );
    assert_eq!(server.database.records().await, 1);
}
