//! Looking an idempotency key up. News, never a permission.

use reqwest::StatusCode;

use crate::support::{prelude::*, records::hold_key};

#[tokio::test]
async fn a_completed_key_tells_what_was_asked_and_answered() {
    let server = TestServer::start().await;
    let created = server.client.charge("key-1").await;
    let answer = server.client.get("/idempotency-keys/key-1").await;
    assert_eq!(answer.status, 200);
    let object = answer.json();
    let created_at = object["created"].as_i64().unwrap();
    let expected = json!({
        "object": "idempotency_key", "key": "key-1", "status": "completed", "method": "POST",
        "path": "/charges", "response_status": 201, "resource": created.id(), "workflow": null,
        "request": created.header("request-id").unwrap(), "created": created_at,
        "expires": created_at + 86_400, "fingerprint": object["fingerprint"],
    });
    assert_eq!(object, expected);
    let fingerprint = object["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64, "{fingerprint}");
}

#[tokio::test]
async fn declines_and_refusals_are_completed_too() {
    let server = TestServer::start().await;
    for (key, source, status) in [("d", "tok_chargeDeclined", 402), ("r", "tok_nobody", 400)] {
        let body = charge_by(source);
        let answer = server.client.post("/v1/charges", key, &body).await;
        let path = format!("/idempotency-keys/{key}");
        let object = server.client.get(&path).await.json();
        assert_eq!(object["response_status"], status);
        assert_eq!(object["path"], "/v1/charges");
        assert_eq!(object["resource"], answer.json()["error"]["charge"]);
    }
}

#[tokio::test]
async fn a_key_in_flight_in_this_process_names_its_request() {
    let server = TestServer::start().await;
    let slow = charge_by("tok_slow");
    let working = server.client.sending("/charges", "key-1", slow);
    eventually("the key is in flight", async || {
        server.client.get("/idempotency-keys/key-1").await.status == StatusCode::OK
    })
    .await;
    let object = server.client.get("/idempotency-keys/key-1").await.json();
    let created = working.await.unwrap();
    object.assert_shows(json!({
        "status": "in_flight", "method": "POST", "path": "/charges", "response_status": null,
        "request": created.header("request-id").unwrap(), "resource": null, "created": null,
        "expires": null,
    }));
    let after = server.client.get("/idempotency-keys/key-1").await.json();
    assert_eq!(after["status"], "completed");
    assert_eq!(after["fingerprint"], object["fingerprint"]);
}

#[tokio::test]
async fn a_key_in_flight_elsewhere_is_found_by_its_lock() {
    let server = TestServer::start().await;
    let held = hold_key(&server.database, "key-1").await;
    let object = server.client.get("/idempotency-keys/key-1").await.json();
    assert_eq!(object["status"], "in_flight");
    assert_eq!(object["request"], Value::Null);
    held.rollback().await.unwrap();
    let answer = server.client.get("/idempotency-keys/key-1").await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn an_unknown_key_is_404_and_the_message_names_the_safe_question() {
    let server = TestServer::start().await;
    for path in ["/idempotency-keys/key-1", "/v1/idempotency-keys?key=key-1"] {
        let answer = server.client.get(path).await;
        assert_eq!(error(&answer), (404, "resource_missing".into()));
        let message = answer.json()["error"]["message"].to_string();
        for words in ["safe question is to retry it with this key", "not mean"] {
            assert!(message.contains(words), "{message}");
        }
    }
}

#[tokio::test]
async fn an_expired_key_and_another_accounts_key_are_404() {
    let server = TestServer::start().await;
    server.client.charge("key-1").await;
    let other = client_of_account(&server, "other").await;
    assert_eq!(other.get("/idempotency-keys/key-1").await.status, 404);
    let sql = "UPDATE idempotency_keys SET created_at = now() - interval '1h', expires_at = now()";
    server.database.execute(sql).await;
    let looked_up = server.client.get("/idempotency-keys/key-1").await;
    assert_eq!(looked_up.status, 404);
    // Looking at an expired record doesn't take it over.
    let kept = "SELECT count(*) FROM idempotency_keys WHERE status = 201";
    assert_eq!(server.database.count(kept).await, 1);
}

#[tokio::test]
async fn any_key_can_be_looked_up_by_query_and_by_path() {
    let server = TestServer::start().await;
    for key in [
        "a/b", "what?", "100%", "%41", "a+b", "a&key=b", "#1", "~", "a;b", "..", "[0]",
    ] {
        let created = server.client.charge(key).await;
        assert_eq!(created.status, 201, "{key}");
        let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/idempotency-keys?key={encoded}");
        let by_query = server.client.get(&path).await;
        assert_eq!(by_query.json()["key"], key, "{key} by query");
        assert_eq!(by_query.json()["resource"], created.id(), "{key} by query");
        if key != ".." {
            let path = format!("/idempotency-keys/{encoded}");
            let by_path = server.client.get(&path).await;
            assert_eq!(by_path.json()["resource"], created.id(), "{key} by path");
        }
    }
}

#[tokio::test]
async fn a_look_up_without_a_valid_key_names_the_parameter() {
    let server = TestServer::start().await;
    let too_long = "k".repeat(256);
    let long_query = format!("/idempotency-keys?key={too_long}");
    let long_path = format!("/idempotency-keys/{too_long}");
    for (code, param, path) in [
        ("parameter_missing", "key", "/idempotency-keys"),
        ("parameter_missing", "key", "/idempotency-keys?key="),
        ("parameter_invalid", "key", "/idempotency-keys?key=a%20b"),
        ("parameter_invalid", "key", &long_query),
        ("parameter_invalid", "key", &long_path),
        ("parameter_invalid", "key", "/idempotency-keys/a%20b"),
        ("parameter_unknown", "all", "/idempotency-keys?key=a&all=1"),
        ("parameter_unknown", "all", "/idempotency-keys/a?all=1"),
    ] {
        let answer = server.client.get(path).await;
        assert_eq!(answer.refusal(), refusal(code, param), "{path}");
    }
}

#[tokio::test]
async fn looking_changes_nothing() {
    let server = TestServer::start().await;
    for _ in 0..3 {
        server.client.get("/idempotency-keys/key-1").await;
    }
    assert_eq!(server.database.records().await, 0);
    let first = server.client.charge("key-1").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    let row = "SELECT hashtext(idempotency_keys::text)::bigint FROM idempotency_keys";
    let before = server.database.count(row).await;
    server.client.get("/idempotency-keys/key-1").await;
    let client = &server.client;
    Answer::of(client.request(Method::HEAD, "/idempotency-keys/key-1")).await;
    assert_eq!(server.database.count(row).await, before);
    server.client.charge("key-1").await.assert_replays(&first);
}
