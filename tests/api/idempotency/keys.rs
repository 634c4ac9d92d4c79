//! The Idempotency-Key header: what is a key, whose it is, and how long it lives.

use charge_once::idempotency::{Fingerprint, FingerprintInput, Parameters};
use charge_once_strict_params::Encoding;

use crate::support::{prelude::*, records::assert_nothing_stored};

async fn charge_with_key_bytes(server: &TestServer, key: &[u8]) -> Answer {
    let request = server.client.request(Method::POST, "/charges");
    Answer::of(request.header("idempotency-key", key).json(&charge())).await
}

fn invalid() -> (u16, String) {
    (400, "idempotency_key_invalid".to_owned())
}

fn is_allowed(byte: u8) -> bool {
    (0x21..=0x7e).contains(&byte) && !b"\"\\,".contains(&byte)
}

#[tokio::test]
async fn a_post_without_a_key_is_refused_everywhere_and_stores_nothing() {
    let server = TestServer::start().await;
    for path in ["/charges", "/v1/charges", "/orders", "/v1/orders"] {
        let request = server.client.request(Method::POST, path).json(&charge());
        let answer = Answer::of(request).await;
        let required = (400, "idempotency_key_required".into());
        assert_eq!(error(&answer), required, "{path}");
    }
    assert_nothing_stored(&server.database, "no key was sent").await;
}

#[tokio::test]
async fn a_key_has_1_to_255_bytes_counted_without_quotes() {
    let server = TestServer::start().await;
    let quoted = |length: usize| format!("\"{}\"", "q".repeat(length));
    let refused = [String::new(), "\"\"".into(), "b".repeat(256), quoted(256)];
    for key in &refused {
        let answer = charge_with_key_bytes(&server, key.as_bytes()).await;
        assert_eq!(error(&answer), invalid(), "{} bytes", key.len());
    }
    assert_nothing_stored(&server.database, "no key was valid").await;
    let accepted = ["b".into(), "b".repeat(255), quoted(1), quoted(255)];
    for key in &accepted {
        let answer = charge_with_key_bytes(&server, key.as_bytes()).await;
        assert_eq!(answer.status, 201, "{} bytes", key.len());
    }
    assert_eq!(server.database.charges().await, 4);
}

#[tokio::test]
async fn every_byte_that_is_not_allowed_in_a_key_is_refused_and_stores_nothing() {
    let server = TestServer::start().await;
    // A tab and everything from the space on can stand in a header; whether in a key is the
    // question.
    let expressible = std::iter::once(b'\t').chain(0x20..=0xff);
    for byte in expressible.filter(|byte| !is_allowed(*byte) && *byte != 0x7f) {
        let answer = charge_with_key_bytes(&server, &[b'a', byte, b'z']).await;
        assert_eq!(error(&answer), invalid(), "{byte:#04x}");
        assert_eq!(answer.header("idempotency-key"), None, "{byte:#04x}");
    }
    // Control bytes make no HTTP header at all.
    let controls = (0x00..=0x1f).chain([0x7f]);
    for byte in controls.filter(|byte| !b"\t\n\r".contains(byte)) {
        let mut request =
            b"POST /charges HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: a".to_vec();
        request.push(byte);
        request.extend_from_slice(b"z\r\nContent-Length: 0\r\n\r\n");
        let reply = send_raw(&server.client, &request).await;
        assert!(reply.starts_with("HTTP/1.1 400 "), "{byte:#04x}: {reply}");
    }
    assert_nothing_stored(&server.database, "no key was valid").await;
}

#[tokio::test]
async fn a_key_that_only_a_mistake_sends_is_refused_and_stores_nothing() {
    let server = TestServer::start().await;
    for mistake in ["undefined", "null", "None", "nil", "NaN", "\"null\""] {
        let answer = charge_with_key_bytes(&server, mistake.as_bytes()).await;
        assert_eq!(error(&answer), invalid(), "{mistake}");
        assert_eq!(answer.header("idempotency-key"), None, "{mistake}");
    }
    assert_nothing_stored(&server.database, "no key was valid").await;
}

#[tokio::test]
async fn a_secret_is_neither_a_key_nor_a_workflow_and_is_not_echoed() {
    let server = TestServer::start().await;
    for secret in [
        "sk_test_ChargeOnceDevelopmentKey00",
        "order-1:sk_live_0123456789abcdef",
        "rk_test_0123456789abcdef",
        "\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
        "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH",
    ] {
        let answer = charge_with_key_bytes(&server, secret.as_bytes()).await;
        assert_eq!(error(&answer), invalid());
        assert_eq!(answer.header("idempotency-key"), None, "{secret}");
        let headers = [
            ("idempotency-key", "key-1"),
            ("idempotency-workflow", secret),
        ];
        let named = server.client.charge_with_headers(&headers).await;
        assert_eq!(error(&named), (400, "parameter_invalid".into()));
        for answer in [answer, named] {
            let body = String::from_utf8_lossy(&answer.body);
            assert!(!body.contains(secret.trim_matches('"')), "{secret}");
        }
    }
    assert_nothing_stored(&server.database, "all were secrets").await;
    for key in [
        "task_test_20260101",
        "gift_secret_santa_2026",
        "sk_1",
        "whsec_1",
        "pi_12345678",
    ] {
        assert_eq!(server.client.charge(key).await.status, 201, "{key}");
    }
}

#[tokio::test]
async fn every_allowed_byte_is_a_key_by_itself_and_all_are_different_keys() {
    let server = TestServer::start().await;
    let allowed: Vec<u8> = (0..=0xff).filter(|byte| is_allowed(*byte)).collect();
    assert_eq!(allowed.len(), 91);
    for byte in &allowed {
        let answer = charge_with_key_bytes(&server, &[*byte]).await;
        assert_eq!(answer.status, 201, "{byte:#04x}");
        assert!(!answer.is_replay(), "{byte:#04x}");
    }
    assert_eq!(server.database.charges().await, 91);
}

#[tokio::test]
async fn the_bare_and_the_quoted_spelling_name_the_same_key_and_each_is_echoed_as_sent() {
    let server = TestServer::start().await;
    let bare = charge_with_key_bytes(&server, b"key-1").await;
    assert_eq!(bare.header("idempotency-key"), Some("key-1"));
    let quoted = charge_with_key_bytes(&server, b"\"key-1\"").await;
    quoted.assert_replays(&bare);
    assert_eq!(quoted.header("idempotency-key"), Some("\"key-1\""));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_half_quoted_key_and_one_with_structured_field_parameters_are_refused() {
    let server = TestServer::start().await;
    let keys = [
        "\"key",
        "key\"",
        "\"",
        "\"key\";a=1",
        "\"a\" \"b\"",
        "\"a\"b\"",
        "a,b",
        "\"a\", \"b\"",
        "'a b'",
    ];
    for key in keys {
        let answer = charge_with_key_bytes(&server, key.as_bytes()).await;
        assert_eq!(answer.code(), "idempotency_key_invalid", "{key}");
    }
    assert_nothing_stored(&server.database, "no key was valid").await;
}

#[tokio::test]
async fn the_header_sent_twice_is_refused_even_with_equal_values() {
    let server = TestServer::start().await;
    for second in ["key-1", "key-2"] {
        let headers = [("idempotency-key", "key-1"), ("idempotency-key", second)];
        let answer = server.client.charge_with_headers(&headers).await;
        assert_eq!(error(&answer), invalid());
    }
    assert_nothing_stored(&server.database, "two keys are none").await;
}

#[tokio::test]
async fn reads_ignore_the_header_whatever_is_in_it() {
    let server = TestServer::start().await;
    for method in [Method::GET, Method::HEAD] {
        for key in ["key-1", "not, a key"] {
            let request = server.client.request(method.clone(), "/charges");
            let answer = Answer::of(request.header("idempotency-key", key)).await;
            assert_eq!(answer.status, 200, "{method} {key}");
            assert_eq!(answer.header("idempotency-key"), None, "{method} {key}");
            assert!(!answer.is_replay(), "{method} {key}");
        }
    }
    assert_nothing_stored(&server.database, "reads store nothing").await;
}

#[tokio::test]
async fn exactly_one_of_many_racers_takes_an_expired_key_over() {
    // The key of another request, and that of the same one.
    for path in ["/charges", "/v1/charges"] {
        let server = TestServer::start_with(&[FORGETFUL]).await;
        let old = server.client.post(path, "key-1", &charge()).await;
        server.database.expire_records().await;
        let answers = all_at_once(20, |_| {
            let client = server.client.clone();
            async move { client.post("/v1/charges", "key-1", &charge()).await }
        })
        .await;
        for answer in &answers {
            assert_eq!(answer.status, 201);
            assert_eq!(answer.body, answers[0].body);
            assert_ne!(answer.id(), old.id());
        }
        let executed = answers.iter().filter(|answer| !answer.is_replay()).count();
        assert_eq!(executed, 1);
        assert_eq!(server.database.charges().await, 2);
    }
}

/// The release before kept what this one doesn't. "400, and nothing was done" would be wrong, and a
/// corrected request with another key would be a second charge.
#[tokio::test]
async fn a_retry_of_what_an_earlier_release_executed_gets_its_answer_though_it_is_forbidden_now() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    let (client, pool) = (&server.client, &server.database.pool);
    let secret = "idem_sk_live_0123456789abcdef";
    let forbidden = json!({
        "amount": 2000, "currency": "usd", "metadata": {"ref": "4242 4242 4242 4242"},
        "source": "tok_visa",
    });
    for (key, body) in [(secret, &charge()), ("card", &forbidden)] {
        let refused = client.post("/charges", key, body).await;
        assert_eq!(refused.status, 400, "{key}");
    }
    let by_secret = client.charge("key-1").await;
    let by_card = client.charge("card").await;
    for rename in [
        "UPDATE idempotency_keys SET key = $1 WHERE key = 'key-1'",
        "UPDATE events SET idempotency_key = $1 WHERE idempotency_key = 'key-1'",
    ] {
        let rename = sqlx::query(rename).bind(secret);
        rename.execute(pool).await.unwrap();
    }
    let canonical = serde_json::to_vec(&forbidden).unwrap();
    let fingerprint = Fingerprint::of(&FingerprintInput {
        method: "POST",
        path: "/charges",
        query: Parameters::Canonical(b"{}"),
        media_type: Encoding::Json.as_str(),
        parameters: Parameters::Canonical(&canonical),
    });
    let update = sqlx::query("UPDATE idempotency_keys SET fingerprint = $1 WHERE key = 'card'");
    let update = update.bind(fingerprint.bytes());
    update.execute(pool).await.unwrap();
    let again = client.charge(secret).await;
    again.assert_replays(&by_secret);
    assert_eq!(again.header("idempotency-key"), None, "it is not echoed");
    let again = client.post("/charges", "card", &forbidden).await;
    again.assert_replays(&by_card);
    // Another body under such a key is what it always is.
    let other = json!({"amount": 1, "currency": "usd", "source": "tok_visa"});
    assert_eq!(client.post("/charges", secret, &other).await.status, 400);
    assert_eq!(server.database.charges().await, 2);
}
