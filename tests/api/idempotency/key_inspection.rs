//! Looking an idempotency key up. News, never a permission.

use reqwest::StatusCode;

use crate::support::{prelude::*, records::hold_key};

fn members(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[tokio::test]
async fn a_completed_key_tells_what_was_asked_and_answered() {
    let server = TestServer::start().await;
    let created = server.client.charge("key-1").await;
    let answer = server.client.get("/idempotency-keys/key-1").await;
    assert_eq!(answer.status, 200);
    let object = answer.json();
    let mut names = members(&object);
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "created",
            "expires",
            "fingerprint",
            "key",
            "method",
            "object",
            "path",
            "request",
            "resource",
            "response_status",
            "status",
            "workflow",
        ]
    );
    assert_eq!(object["object"], "idempotency_key");
    assert_eq!(object["key"], "key-1");
    assert_eq!(object["status"], "completed");
    assert_eq!(object["method"], "POST");
    assert_eq!(object["path"], "/charges");
    assert_eq!(object["response_status"], 201);
    assert_eq!(object["resource"], created.id());
    assert_eq!(object["request"], created.header("request-id").unwrap());
    assert_eq!(
        object["expires"].as_i64().unwrap() - object["created"].as_i64().unwrap(),
        86_400
    );
    let fingerprint = object["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64, "{fingerprint}");
}

#[tokio::test]
async fn declines_and_refusals_are_completed_too() {
    let server = TestServer::start().await;
    for (key, source, status) in [("d", "tok_chargeDeclined", 402), ("r", "tok_nobody", 400)] {
        let mut body = charge();
        body["source"] = source.into();
        let answer = server.client.post("/v1/charges", key, &body).await;
        let object = server
            .client
            .get(&format!("/idempotency-keys/{key}"))
            .await
            .json();
        assert_eq!(object["response_status"], status);
        assert_eq!(object["path"], "/v1/charges");
        assert_eq!(object["resource"], answer.json()["error"]["charge"]);
    }
}

#[tokio::test]
async fn a_key_in_flight_in_this_process_names_its_request() {
    let server = TestServer::start().await;
    let mut slow = charge();
    slow["source"] = "tok_slow".into();
    let client = server.client.clone();
    let working = tokio::spawn(async move { client.post("/charges", "key-1", &slow).await });
    eventually("the key is in flight", async || {
        server.client.get("/idempotency-keys/key-1").await.status == StatusCode::OK
    })
    .await;
    let object = server.client.get("/idempotency-keys/key-1").await.json();
    let created = working.await.unwrap();
    assert_eq!(object["status"], "in_flight");
    assert_eq!(
        (&object["method"], &object["path"]),
        (&json!("POST"), &json!("/charges"))
    );
    assert_eq!(object["request"], created.header("request-id").unwrap());
    for unknown_yet in ["response_status", "resource", "created", "expires"] {
        assert_eq!(object[unknown_yet], Value::Null, "{unknown_yet}");
    }
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
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "resource_missing")
        );
        let message = answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            message.contains("safe question is to retry it with this key"),
            "{message}"
        );
        assert!(message.contains("not mean"), "{message}");
    }
}

#[tokio::test]
async fn an_expired_key_and_another_accounts_key_are_404() {
    let server = TestServer::start().await;
    server.client.charge("key-1").await;
    let other = client_of_account(&server, "other").await;
    assert_eq!(other.get("/idempotency-keys/key-1").await.status, 404);
    sqlx::query(
        "UPDATE idempotency_keys SET created_at = now() - interval '1h', expires_at = now()",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    assert_eq!(
        server.client.get("/idempotency-keys/key-1").await.status,
        404
    );
    // Looking at an expired record doesn't take it over.
    assert_eq!(
        server
            .database
            .count("SELECT count(*) FROM idempotency_keys WHERE status = 201")
            .await,
        1
    );
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
        let by_query = server
            .client
            .get(&format!("/idempotency-keys?key={encoded}"))
            .await;
        assert_eq!(by_query.json()["key"], key, "{key} by query");
        assert_eq!(by_query.json()["resource"], created.id(), "{key} by query");
        if key != ".." {
            let by_path = server
                .client
                .get(&format!("/idempotency-keys/{encoded}"))
                .await;
            assert_eq!(by_path.json()["resource"], created.id(), "{key} by path");
        }
    }
}

#[tokio::test]
async fn a_look_up_without_a_valid_key_names_the_parameter() {
    let server = TestServer::start().await;
    let too_long = "k".repeat(256);
    let cases = [
        ("/idempotency-keys".to_owned(), "parameter_missing", "key"),
        (
            "/idempotency-keys?key=".to_owned(),
            "parameter_missing",
            "key",
        ),
        (
            "/idempotency-keys?key=a%20b".to_owned(),
            "parameter_invalid",
            "key",
        ),
        (
            format!("/idempotency-keys?key={too_long}"),
            "parameter_invalid",
            "key",
        ),
        (
            format!("/idempotency-keys/{too_long}"),
            "parameter_invalid",
            "key",
        ),
        (
            "/idempotency-keys/a%20b".to_owned(),
            "parameter_invalid",
            "key",
        ),
        (
            "/idempotency-keys?key=a&all=1".to_owned(),
            "parameter_unknown",
            "all",
        ),
        (
            "/idempotency-keys/a?all=1".to_owned(),
            "parameter_unknown",
            "all",
        ),
    ];
    for (path, code, param) in &cases {
        let answer = server.client.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, *code),
            "{path}"
        );
        assert_eq!(answer.json()["error"]["param"], *param, "{path}");
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
    Answer::of(
        server
            .client
            .request(Method::HEAD, "/idempotency-keys/key-1"),
    )
    .await;
    assert_eq!(server.database.count(row).await, before);
    server.client.charge("key-1").await.assert_replays(&first);
}
