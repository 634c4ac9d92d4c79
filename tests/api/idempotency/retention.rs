//! How long a key is kept: by its route, and by what its client would rather have.

use crate::support::{prelude::*, resources::customer};

const DAY: i64 = 86_400;

/// Sends a request with `Prefer`.
async fn preferring(
    client: &Client,
    (method, path, key): (Method, &str, &str),
    prefer: &str,
    body: &Value,
) -> Answer {
    let request = client.request(method, path).header("prefer", prefer);
    Answer::of(request.header("idempotency-key", key).json(body)).await
}

async fn charge_preferring(client: &Client, key: &str, prefer: &str) -> Answer {
    preferring(client, (Method::POST, "/charges", key), prefer, &charge()).await
}

/// For how many seconds the key is kept by its record, from its first use on.
async fn life(database: &TestDatabase, key: &str) -> i64 {
    let sql = "SELECT extract(epoch FROM expires_at - created_at)::bigint
                 FROM idempotency_keys WHERE key = $1";
    let life = sqlx::query_scalar(sql).bind(key);
    life.fetch_one(&database.pool).await.unwrap()
}

/// When the reply says that the key is forgotten.
fn expires(answer: &Answer) -> DateTime<Utc> {
    let named = answer.header("idempotency-expires").expect("it is stored");
    named.parse().unwrap()
}

/// Asserts that the record and the reply of a first use say so many seconds.
async fn assert_kept(database: &TestDatabase, key: &str, answer: &Answer, seconds: i64) {
    assert_eq!(life(database, key).await, seconds, "{key}");
    let sql = "SELECT date_trunc('second', expires_at) FROM idempotency_keys WHERE key = $1";
    let stored = sqlx::query_scalar::<_, DateTime<Utc>>(sql).bind(key);
    let stored = stored.fetch_one(&database.pool).await.unwrap();
    assert_eq!(expires(answer), stored, "{key}");
}

#[tokio::test]
async fn a_route_keeps_its_keys_for_a_time_of_its_own() {
    let by_route = "POST /refunds=7d, POST /orders/*=3h, DELETE /customers/{id}=2d, \
                    PUT /inventory/{sku}=1h, POST /checkouts=5d";
    let by_route = ("IDEMPOTENCY_TTL_BY_ROUTE", by_route);
    let (server, client) = TestServer::with_client(&[by_route, ("IDEMPOTENCY_TTL", "12h")]).await;
    let database = &server.database;
    let charged = client.charge("charge").await;
    assert_kept(database, "charge", &charged, DAY / 2).await;
    // In both dialects, and for a refusal too.
    for (path, key) in [("/refunds", "refund"), ("/v1/refunds", "refund-v1")] {
        let body = json!({"charge": charged.id(), "amount": 1});
        let refunded = client.post(path, key, &body).await;
        assert_eq!(refunded.status.as_u16() / 100, 2, "{refunded:?}");
        assert_kept(database, key, &refunded, 7 * DAY).await;
    }
    let refused = client.post("/refunds", "refused", &json!({})).await;
    assert_eq!(refused.status, 400);
    assert_kept(database, "refused", &refused, 7 * DAY).await;
    let missing = client.post("/orders/or_1/pay", "pay", &json!({})).await;
    assert_kept(database, "pay", &missing, 3 * 3600).await;
    let level = json!({"quantity": 5});
    let level = client.put("/inventory/mug", "level", &level).await;
    assert_kept(database, "level", &level, 3600).await;
    let path = format!("/customers/{}", customer(&client).await);
    let request = client.request(Method::DELETE, &path);
    let deleted = Answer::of(request.header("idempotency-key", "delete")).await;
    assert_kept(database, "delete", &deleted, 2 * DAY).await;
    // A checkout's outcome is kept from its end on, and the records of its steps as all others.
    let bought = client.post("/checkouts", "checkout", &checkout()).await;
    assert_eq!(bought.status, 201);
    let kept = life(database, "checkout").await;
    assert!((5 * DAY..5 * DAY + 3600).contains(&kept), "{kept}");
    let steps = "SELECT count(*) FROM idempotency_keys
                  WHERE key LIKE ',%' AND expires_at - created_at <> interval '12 hours'";
    assert_eq!(database.count(steps).await, 0);
    // A key that is given up is remembered for as long as any route's.
    let body = json!({});
    let given_up = client.post("/idempotency-keys/late/abandon", "own", &body);
    assert_eq!(given_up.await.json()["status"], "abandoned");
    assert_eq!(life(database, "late").await, 7 * DAY);
    assert_eq!(life(database, "own").await, DAY / 2);
}

#[tokio::test]
async fn a_time_that_a_handler_declares_is_kept_and_told() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    let made = client.post("/test/accounts", "test", &json!({})).await;
    assert_eq!(made.status, 201);
    assert_kept(&server.database, "test", &made, 3600).await;
    let policy = client.get("/.well-known/idempotency").await;
    let told = json!([
        {"route": "POST /test/accounts", "least": 60, "most": 30 * DAY, "seconds": 3600},
    ]);
    assert_eq!(policy.json()["retention_by_route"], told);
}

#[tokio::test]
async fn a_client_asks_for_longer_or_shorter_within_bounds() {
    for alone in [&[][..], &[ALONE]] {
        let most = &[("IDEMPOTENCY_TTL_MAX", "10d")][..];
        let (server, client) = TestServer::with_client(&[most, alone].concat()).await;
        for (number, (prefer, seconds, applied)) in [
            ("retain=7200", 7200, Some("retain=7200")),
            ("retain=7d", 7 * DAY, Some("retain=604800")),
            ("RETAIN = \"2h\"", 7200, Some("retain=7200")),
            ("wait=3, retain=90m", 5400, Some("wait=3, retain=5400")),
            ("retain=90m; wait=3", 5400, Some("wait=3, retain=5400")),
            ("retain=1", 60, Some("retain=60")),
            ("retain=0", 60, Some("retain=60")),
            ("retain=11d", 10 * DAY, Some("retain=864000")),
            (
                "retain=99999999999999999999999d",
                10 * DAY,
                Some("retain=864000"),
            ),
            ("retain=soon", DAY, None),
            ("retain=-1", DAY, None),
            ("retain=1.5d", DAY, None),
            ("retain", DAY, None),
            ("retain=soon, wait=3", DAY, Some("wait=3")),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("key-{number}");
            let answer = charge_preferring(&client, &key, prefer).await;
            assert_eq!(answer.status, 201, "{prefer}");
            assert_eq!(answer.header("preference-applied"), applied, "{prefer}");
            assert_kept(&server.database, &key, &answer, seconds).await;
        }
        // Two header lines are one.
        let request = client.request(Method::POST, "/charges").json(&charge());
        let request = request
            .header("prefer", "wait=3")
            .header("prefer", "retain=2h");
        let answer = Answer::of(request.header("idempotency-key", "two-lines")).await;
        assert_eq!(
            answer.header("preference-applied"),
            Some("wait=3, retain=7200")
        );
        assert_kept(&server.database, "two-lines", &answer, 7200).await;
    }
}

#[tokio::test]
async fn every_way_to_run_a_request_keeps_what_its_client_asked_for() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let prefer = "retain=3d";
    let nothing = json!({});
    let buying = (Method::POST, "/checkouts", "checkout");
    let bought = preferring(&client, buying, prefer, &checkout()).await;
    assert_eq!(bought.status, 201);
    let path = format!("/customers/{}", customer(&client).await);
    let deletion = (Method::DELETE, &*path, "delete");
    let deleted = preferring(&client, deletion, prefer, &nothing).await;
    assert_eq!(deleted.status, 200);
    let abandon = (Method::POST, "/idempotency-keys/late/abandon", "own");
    preferring(&client, abandon, prefer, &nothing).await;
    for key in ["checkout", "delete", "own", "late"] {
        let kept = life(&server.database, key).await;
        assert!((3 * DAY..3 * DAY + 3600).contains(&kept), "{key}: {kept}");
    }
    // Who gives a key up for a shorter time would only harm itself.
    let abandon = (Method::POST, "/idempotency-keys/later/abandon", "own-2");
    preferring(&client, abandon, "retain=60", &nothing).await;
    assert_eq!(life(&server.database, "own-2").await, 60);
    assert_eq!(life(&server.database, "later").await, DAY);
}

#[tokio::test]
async fn a_replay_changes_no_stored_expiry_and_applies_no_retention() {
    for memory in [&[][..], &[FORGETFUL]] {
        let (server, client) = TestServer::with_client(memory).await;
        let first = charge_preferring(&client, "key-1", "retain=2h").await;
        for prefer in ["retain=7d", "retain=60", "wait=0, retain=7d", "wait=0"] {
            let replay = charge_preferring(&client, "key-1", prefer).await;
            replay.assert_replays(&first);
            assert_eq!(expires(&replay), expires(&first), "{prefer}");
            let applied = prefer.starts_with("wait").then_some("wait=0");
            assert_eq!(replay.header("preference-applied"), applied, "{prefer}");
        }
        assert_eq!(life(&server.database, "key-1").await, 7200);
        // Nor does a reply that is not stored.
        let reuse = client.request(Method::POST, "/charges").json(&json!({}));
        let reuse = reuse.header("prefer", "retain=7d");
        let reuse = Answer::of(reuse.header("idempotency-key", "key-1")).await;
        assert_eq!(reuse.code(), "idempotency_key_reused");
        assert_eq!(reuse.header("preference-applied"), None);
    }
}

#[tokio::test]
async fn the_clock_of_the_database_ends_each_key_at_its_own_time() {
    let (server, client) = TestServer::with_client(&[FORGETFUL]).await;
    let short = charge_preferring(&client, "short", "retain=60").await;
    let long = charge_preferring(&client, "long", "retain=2d").await;
    let passes = async |time: &str| {
        let sql = format!(
            "UPDATE idempotency_keys SET created_at = created_at - interval '{time}',
                    expires_at = expires_at - interval '{time}'"
        );
        server.database.execute(sql).await;
    };
    passes("61 seconds").await;
    let again = client.charge("short").await;
    assert_eq!((again.status.as_u16(), again.is_replay()), (201, false));
    assert_ne!(again.id(), short.id());
    // A key that is taken over has the time of its new request.
    assert_eq!(life(&server.database, "short").await, DAY);
    passes("1 day 1 hour").await;
    let replay = client.charge("long").await;
    assert_eq!((replay.is_replay(), replay.id()), (true, long.id()));
    passes("1 day").await;
    assert!(!client.charge("long").await.is_replay());
    assert_eq!(server.database.charges().await, 4);
}

/// Requests at once, so that some share a transaction where requests do.
#[tokio::test]
async fn of_requests_at_once_each_is_kept_for_its_own_time() {
    let (server, client) = TestServer::with_client(&[]).await;
    all_at_once(20, |hours| {
        let client = client.clone();
        async move {
            let (key, prefer) = (format!("key-{hours}"), format!("retain={hours}h"));
            charge_preferring(&client, &key, &prefer).await
        }
    })
    .await;
    for hours in 0..20 {
        let kept = life(&server.database, &format!("key-{hours}")).await;
        assert_eq!(kept, (hours * 3600).max(60), "{hours}");
    }
}

#[test]
fn a_misspelled_route_stops_the_start_and_the_nearest_is_named() {
    let named = (
        "IDEMPOTENCY_TTL_BY_ROUTE",
        "POST /charges=1d,POST /refund=7d",
    );
    let told = text(&run(&[], &[ANY_PORT, named]).stderr);
    let expected = "IDEMPOTENCY_TTL_BY_ROUTE must be routes that take an idempotency key; did you mean \
                    POST /refunds?";
    assert!(told.contains(expected), "{told}");
}
