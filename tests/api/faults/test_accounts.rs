//! `POST /test/accounts` and `POST /test/expire_keys`.

use crate::support::{accounts::client_of_test_account, prelude::*};

#[tokio::test]
async fn a_test_account_has_a_key_and_nothing_else_and_the_reply_is_replayed() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let client = &server.client;
    client.charge("key-1").await;
    let made = client.post("/test/accounts", "account-1", &json!({})).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.header("location"), None);
    let account = made.json();
    let members: Vec<_> = account.as_object().unwrap().keys().collect();
    assert_eq!(members, ["api_key", "expires_at", "id", "object"]);
    assert_eq!(account["object"], "test_account");
    assert!(account["id"].as_str().unwrap().starts_with("acct_"));
    let left = account["expires_at"].as_i64().unwrap() - chrono::Utc::now().timestamp();
    assert!((86_300..=86_410).contains(&left), "{left}");
    client
        .post("/test/accounts", "account-1", &json!({}))
        .await
        .assert_replays(&made);
    assert_eq!(
        server
            .database
            .count("SELECT count(*) FROM accounts WHERE test_until IS NOT NULL")
            .await,
        1
    );

    let api_key = account["api_key"].as_str().unwrap();
    let hashed = sqlx::query_scalar::<_, i64>(
        "SELECT count(*) FROM api_keys WHERE hash = sha256($1::bytea)",
    )
    .bind(api_key.as_bytes());
    assert_eq!(hashed.fetch_one(&server.database.pool).await.unwrap(), 1);
    let test = client.with_api_key(api_key);
    assert_eq!(test.get("/charges").await.json()["data"], json!([]));
    let own = test.charge("key-1").await;
    assert_eq!((own.status.as_u16(), own.is_replay()), (201, false));
    let refused = test.post_new("/test/accounts", &json!({})).await;
    assert_eq!(
        refused.refusal(),
        (
            400,
            "parameter_invalid".into(),
            Some("Authorization".into())
        )
    );
    client_of_test_account(client).await;
}

#[tokio::test]
async fn no_parameter_is_taken_and_a_key_is_needed() {
    let server = TestServer::start_with(&[FAULTS]).await;
    for path in ["/test/accounts", "/test/expire_keys", "/v1/test/accounts"] {
        let answer = server.client.post_new(path, &json!({"name": "x"})).await;
        assert_eq!(
            answer.refusal(),
            (400, "parameter_unknown".into(), Some("name".into()))
        );
        let request = server.client.request(reqwest::Method::POST, path);
        let answer = crate::support::harness::Answer::of(request).await;
        assert_eq!(answer.code(), "idempotency_key_required");
        let request = server.client.request(reqwest::Method::GET, path);
        assert_eq!(
            crate::support::harness::Answer::of(request).await.status,
            405
        );
    }
}

#[tokio::test]
async fn there_are_only_so_many_test_accounts() {
    let server = TestServer::start_with(&[FAULTS]).await;
    sqlx::raw_sql(
        "INSERT INTO accounts (id, name, test_until)
         SELECT gen_random_uuid(), 'full ' || n, now() + interval '1 hour'
           FROM generate_series(1, 10000) AS n",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    let refused = server.client.post_new("/test/accounts", &json!({})).await;
    assert_eq!(
        (refused.status.as_u16(), &*refused.code()),
        (400, "parameter_invalid")
    );
    sqlx::raw_sql("UPDATE accounts SET closed_at = now() WHERE name = 'full 1'")
        .execute(&server.database.pool)
        .await
        .unwrap();
    client_of_test_account(&server.client).await;
}

async fn expire_keys(client: &Client) -> Value {
    let answer = client.post_new("/test/expire_keys", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()
}

#[tokio::test]
async fn an_expired_key_is_new_at_once_on_every_replica() {
    let database = TestDatabase::create().await;
    let one = TestServer::start_on(database.clone(), &[FAULTS]).await;
    let other = TestServer::start_on(database.clone(), &[FAULTS]).await;
    let test = client_of_test_account(&one.client).await;
    for client in [one.client.clone(), test] {
        let elsewhere = client.at(&other.client);
        let first = client.charge("key-1").await;
        // Both replicas have read it, and would remember it.
        for client in [&client, &elsewhere] {
            client.charge("key-1").await.assert_replays(&first);
        }
        let before = database.charges().await;
        let expired = expire_keys(&client).await;
        // The dev account's key for the test account is one more.
        assert!(expired["deleted"].as_i64().unwrap() >= 1, "{expired}");
        assert_eq!(expired["has_more"], false);
        let second = elsewhere.charge("key-1").await;
        assert_eq!((second.status.as_u16(), second.is_replay()), (201, false));
        assert_ne!(second.id(), first.id());
        client.charge("key-1").await.assert_replays(&second);
        assert_eq!(database.charges().await, before + 1);
    }
}

#[tokio::test]
async fn only_the_account_s_own_completed_keys_expire() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let dev = &server.client;
    let test = client_of_test_account(dev).await;
    dev.charge("dev-key").await;
    stock(&test, "mug", 10).await;
    test.charge("key-1").await;
    assert_eq!(
        test.post("/checkouts", "key-2", &checkout()).await.status,
        201
    );
    test.post("/charges", "refused", &json!({})).await;

    let first = test.post("/test/expire_keys", "expire-1", &json!({})).await;
    // The level of inventory has a key, too. Those of the steps of the checkout are not counted.
    assert_eq!(
        first.json(),
        json!({"object": "expired_keys", "deleted": 4, "has_more": false})
    );
    // Its own record stays, and is replayed.
    test.post("/test/expire_keys", "expire-1", &json!({}))
        .await
        .assert_replays(&first);
    assert!(dev.charge("dev-key").await.is_replay());
    let steps = "SELECT count(*) FROM idempotency_keys WHERE key LIKE ',%'";
    assert_eq!(server.database.count(steps).await, 0);
    // The first expiry is a completed key now.
    assert_eq!(expire_keys(&test).await["deleted"], 1);
}

#[tokio::test]
async fn a_key_in_flight_does_not_expire() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let client = &server.client;
    client.charge("key-1").await;
    server
        .database
        .is_left_broken("a key in flight has no lease");
    sqlx::raw_sql(
        "UPDATE idempotency_keys SET status = NULL, headers = NULL, body = NULL WHERE key = 'key-1'",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    assert_eq!(expire_keys(client).await["deleted"], 0);
    assert_eq!(server.database.records().await, 2);
}

#[tokio::test]
async fn one_request_expires_ten_thousand_records_at_most() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let client = &server.client;
    assert_eq!(client.charge("key").await.status, 201);
    server
        .database
        .is_left_broken("ten thousand answers left no change");
    sqlx::raw_sql(
        "INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
                request_id, created_at, expires_at, status, headers, body)
         SELECT account_id, key || '-' || n, fingerprint_version, fingerprint, method, path, request_id,
                created_at, expires_at, status, headers, body
           FROM idempotency_keys, generate_series(1, 10100) AS n",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    let first = expire_keys(client).await;
    assert_eq!(
        first,
        json!({"object": "expired_keys", "deleted": 10_000, "has_more": true})
    );
    let second = expire_keys(client).await;
    // The rest, and the first expiry.
    assert_eq!(
        second,
        json!({"object": "expired_keys", "deleted": 102, "has_more": false})
    );
    assert_eq!(
        client.post("/charges", "key-1", &charge()).await.status,
        201
    );
}
