//! `POST /test/accounts` and `POST /test/expire_keys`.

use crate::support::{accounts::client_of_test_account, prelude::*};

#[tokio::test]
async fn a_test_account_has_a_key_and_nothing_else_and_the_reply_is_replayed() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
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
    let replay = client.post("/test/accounts", "account-1", &json!({})).await;
    replay.assert_replays(&made);
    let made = "SELECT count(*) FROM accounts WHERE test_until IS NOT NULL";
    assert_eq!(server.database.count(made).await, 1);
    let api_key = account["api_key"].as_str().unwrap();
    let hashed = "SELECT count(*) FROM api_keys WHERE hash = sha256($1::bytea)";
    let hashed = sqlx::query_scalar(hashed).bind(api_key.as_bytes());
    let hashed: i64 = hashed.fetch_one(&server.database.pool).await.unwrap();
    assert_eq!(hashed, 1);
    let test = client.with_api_key(api_key);
    assert_eq!(test.get("/charges").await.json()["data"], json!([]));
    let own = test.charge("key-1").await;
    assert_eq!((own.status.as_u16(), own.is_replay()), (201, false));
    let again = test.post_new("/test/accounts", &json!({})).await;
    assert_eq!(
        again.refusal(),
        refusal("parameter_invalid", "Authorization")
    );
    client_of_test_account(&client).await;
}

#[tokio::test]
async fn no_parameter_is_taken_and_a_key_is_needed() {
    let server = TestServer::start_with(&[FAULTS]).await;
    for path in ["/test/accounts", "/test/expire_keys", "/v1/test/accounts"] {
        let answer = server.client.post_new(path, &json!({"name": "x"})).await;
        assert_eq!(answer.refusal(), refusal("parameter_unknown", "name"));
        let answer = Answer::of(server.client.request(Method::POST, path)).await;
        assert_eq!(answer.code(), "idempotency_key_required");
        assert_eq!(server.client.get(path).await.status, 405);
    }
}

#[tokio::test]
async fn there_are_only_so_many_test_accounts() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let sql = "INSERT INTO accounts (id, name, test_until)
         SELECT gen_random_uuid(), 'full ' || n, now() + interval '1 hour'
           FROM generate_series(1, 10000) AS n";
    server.database.execute(sql).await;
    let refused = server.client.post_new("/test/accounts", &json!({})).await;
    assert_eq!(error(&refused), (400, "parameter_invalid".into()));
    let sql = "UPDATE accounts SET closed_at = now() WHERE name = 'full 1'";
    server.database.execute(sql).await;
    client_of_test_account(&server.client).await;
}

fn expired(deleted: u32, has_more: bool) -> Value {
    json!({"object": "expired_keys", "deleted": deleted, "has_more": has_more})
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
    let bought = test.post("/checkouts", "key-2", &checkout()).await;
    assert_eq!(bought.status, 201);
    test.post("/charges", "refused", &json!({})).await;
    let first = test.post("/test/expire_keys", "expire-1", &json!({})).await;
    // The level of inventory has a key, too. Those of the steps of the checkout are not counted.
    assert_eq!(first.json(), expired(4, false));
    // Its own record stays, and is replayed.
    let again = test.post("/test/expire_keys", "expire-1", &json!({})).await;
    again.assert_replays(&first);
    assert!(dev.charge("dev-key").await.is_replay());
    let steps = "SELECT count(*) FROM idempotency_keys
                  WHERE key LIKE ',%' AND expires_at > now()";
    assert_eq!(server.database.count(steps).await, 0);
    // The first expiry is a completed key now.
    assert_eq!(expire_keys(&test).await["deleted"], 1);
}

#[tokio::test]
async fn a_key_in_flight_does_not_expire() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    client.charge("key-1").await;
    let broken = "a key in flight has no lease";
    server.database.is_left_broken(broken);
    let sql = "UPDATE idempotency_keys SET status = NULL, headers = NULL, body = NULL
                WHERE key = 'key-1'";
    server.database.execute(sql).await;
    assert_eq!(expire_keys(&client).await["deleted"], 0);
    assert_eq!(server.database.records().await, 2);
}

#[tokio::test]
async fn one_request_expires_ten_thousand_records_at_most() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    assert_eq!(client.charge("key").await.status, 201);
    let broken = "ten thousand answers left no change";
    server.database.is_left_broken(broken);
    let sql = "
         INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
                request_id, created_at, expires_at, status, headers, body)
         SELECT account_id, key || '-' || n, fingerprint_version, fingerprint, method, path, request_id,
                created_at, expires_at, status, headers, body
           FROM idempotency_keys, generate_series(1, 10100) AS n";
    server.database.execute(sql).await;
    assert_eq!(expire_keys(&client).await, expired(10_000, true));
    // The rest, and the first expiry.
    assert_eq!(expire_keys(&client).await, expired(102, false));
    assert_eq!(client.charge("key-1").await.status, 201);
}
