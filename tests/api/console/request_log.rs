//! The request log: what it holds, what it never holds, and what it costs requests.

use charge_once::workers::expiry_sweep::Sweep;
use charge_once_service::request_log::{BATCH_ROWS, QUEUED_MAX};
use tokio::time::Instant;

use super::*;

/// What the log says of each request, the first one first: method, route, path, key, status,
/// outcome.
async fn rows(database: &TestDatabase) -> Vec<String> {
    let rows = "
        SELECT concat_ws(' ', method, route, coalesce(path, '-'), coalesce(idempotency_key, '-'),
                         coalesce(status::text, '-'), outcome)
          FROM request_log ORDER BY id";
    database.values(rows).await
}

#[tokio::test]
async fn every_outcome_is_logged_as_what_it_was() {
    let server = TestServer::start_with(&[CONSOLE, ("WORKERS", "1")]).await;
    let client = &server.client;
    let first = client.charge("key-1").await;
    client.charge("key-1").await;
    client.post("/v1/charges", "key-1", &charge()).await;
    client.post("/charges", "key-1", &another_charge()).await;
    let with = |card: &str| json!({"amount": 2000, "currency": "usd", "source": card});
    let declined = with("tok_chargeDeclined");
    client.post("/charges", "key-2", &declined).await;
    let nothing = json!({"amount": 0});
    client.post("/charges", "key-3", &nothing).await;
    let outage = with("tok_outage");
    client.post("/charges", "key-4", &outage).await;
    client.get("/charges?limit=1").await;
    let path = format!("/charges/{}", first.id());
    client.get(&path).await;
    log_holds(&server.database, 9).await;
    let expected = [
        "POST /charges /charges key-1 201 executed",
        "POST /charges /charges key-1 201 replayed",
        "POST /v1/charges /v1/charges key-1 400 reused",
        "POST /charges /charges key-1 422 reused",
        "POST /charges /charges key-2 402 executed",
        "POST /charges /charges key-3 400 refused",
        "POST /charges /charges key-4 503 failed",
        "GET /charges /charges - 200 read",
        &format!("GET /charges/{{id}} {path} - 200 read"),
    ];
    assert_eq!(rows(&server.database).await, expected);
    let row = sqlx::query("SELECT id, resource_id FROM request_log ORDER BY id LIMIT 1");
    let row = row.fetch_one(&server.database.pool).await.unwrap();
    let about: Option<String> = row.get("resource_id");
    assert_eq!(about, Some(first.id()));
    // The row has the id that the client was told.
    let named = charge_once::domain::ids::RequestId(row.get("id")).to_string();
    assert_eq!(first.header("request-id"), Some(named.as_str()));
}

#[tokio::test]
async fn a_client_that_leaves_and_a_duplicate_in_flight_are_logged() {
    let server = TestServer::start_with(&[PATIENT, &[CONSOLE]].concat()).await;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let socket = send_charge(&server.client, "key-1", "").await;
    pause.is_reached().await;
    assert_eq!(server.client.charge("key-1").await.status, 409);
    // A reset, which ends the request's handler, and not its work.
    socket.set_zero_linger().unwrap();
    drop(socket);
    log_holds(&server.database, 2).await;
    pause.release().await;
    let is_replayed = async || server.client.charge("key-1").await.is_replay();
    eventually("the retry is a replay", is_replayed).await;
    let database = server.stop().await;
    let held = rows(&database).await;
    let of = |end: &str| format!("POST /charges /charges key-1 {end}");
    let two = [of("- unanswered"), of("409 in_use")];
    assert_eq!(held[..2], two, "{held:?}");
    assert_eq!(held.last(), Some(&of("201 replayed")));
}

#[tokio::test]
async fn strangers_bodies_queries_and_card_numbers_leave_nothing_in_it() {
    const CARD: &str = "4242424242424242";
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let stranger = client.with_api_key("sk_test_stranger_1");
    let described = json!({"description": CARD});
    let answers = [
        (401, stranger.charge("stranger").await),
        (401, Answer::of(client.bare(Method::GET, "/charges")).await),
        (404, client.get("/nothing").await),
        (400, client.post("/charges", CARD, &charge()).await),
        (400, client.post("/charges", "key-1", &described).await),
        (400, client.get(&format!("/charges?customer={CARD}")).await),
        (404, client.get(&format!("/charges/{CARD}")).await),
        (404, client.get("/charges/4242%204242%204242%204242").await),
        (404, client.get("/charges/4242-4242-4242-4242").await),
        (201, client.post("/charges", "key-2", &charge()).await),
    ];
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{answer:?}");
    }
    log_holds(&server.database, 7).await;
    let held = rows(&server.database).await.join("\n");
    held.must_lack(&["4242", "stranger", "tok_visa", "usd", "customer", API_KEY]);
    held.must_have(&[
        "POST /charges /charges - 400 refused",
        "POST /charges /charges key-1 400 refused",
        "GET /charges/{id} - - 404 read",
    ]);
}

#[tokio::test]
async fn an_api_key_in_a_path_is_neither_kept_nor_shown() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    for (key, id) in [
        ("key-1", "sk_test_pasted_here"),
        ("key-2", "sk%5Ftest%5Fpasted_here"),
    ] {
        let path = format!("/charges/{id}/capture");
        assert_eq!(client.post(&path, key, &json!({})).await.status, 404);
        assert_eq!(client.get(&format!("/charges/{id}")).await.status, 404);
    }
    log_holds(&server.database, 4).await;
    let kept = "SELECT count(*)
                  FROM (SELECT path FROM request_log
                        UNION ALL SELECT path FROM idempotency_keys) AS kept
                 WHERE path ILIKE '%pasted%'";
    assert_eq!(server.database.count(kept).await, 0);
    let visit = Visit::begin(&server).await;
    for page in [
        "/console/requests",
        "/console/keys/key-1",
        "/console/keys/key-2",
    ] {
        let page = visit.page(page).await;
        page.must_have(&["/charges/{id}/capture"]);
        page.must_lack(&["pasted"]);
    }
}

#[tokio::test]
async fn without_the_console_nothing_is_logged() {
    let server = TestServer::start().await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    let database = server.stop().await;
    assert_eq!(database.count_of("request_log").await, 0);
}

#[tokio::test]
async fn what_is_queued_is_written_before_the_end() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    for number in 0..50 {
        server.client.charge(&format!("key-{number}")).await;
    }
    let database = server.stop().await;
    assert_eq!(database.count_of("request_log").await, 50);
}

#[tokio::test]
async fn a_log_that_can_not_be_written_delays_no_request_and_is_bounded() {
    let server = TestServer::start_with(&[CONSOLE, FORGETFUL, ("RATE_LIMIT", "0")]).await;
    let tx = server.database.holding("LOCK TABLE request_log").await;
    // More than the queue and the batches that are lost meanwhile hold.
    let more = QUEUED_MAX + 2_000;
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let client = server.client.clone();
        clients.spawn(async move {
            for _ in 0..more / 8 {
                assert_eq!(client.get("/charges/ch_1").await.status, 404);
            }
        });
    }
    clients.join_all().await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    tx.rollback().await.unwrap();
    // It goes on with what comes after.
    eventually("a later request is logged", || async {
        server.client.charge("key-2").await;
        let later = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key-2'";
        server.database.count(later).await > 0
    })
    .await;
    let database = server.stop().await;
    let replays = "SELECT count(*) FROM request_log WHERE idempotency_key IS NULL";
    let kept = usize::try_from(database.count(replays).await).unwrap();
    // The queue, and the batch that was being written when the table was free again.
    assert!(kept <= QUEUED_MAX + BATCH_ROWS, "{kept}");
}

#[tokio::test]
async fn rows_go_when_they_are_older_than_they_are_kept() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    for number in 0..3 {
        server.client.charge(&format!("key-{number}")).await;
    }
    let database = server.stop().await;
    let old = "
        INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us, created_at)
        SELECT account_id, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'GET',
               '/charges', 200, 'read', 1, now() - interval '25 hours'
          FROM (SELECT account_id FROM request_log LIMIT 1) AS account, generate_series(1, 1200) AS n";
    database.execute(old).await;
    let minutes = "
        INSERT INTO request_counts (account_id, minute, outcomes, durations, second_effects)
        SELECT account_id, now() - interval '25 hours' - n * interval '1 minute', '{1}', '{1}', 0
          FROM (SELECT account_id FROM request_log LIMIT 1) AS account, generate_series(1, 1200) AS n";
    let counted = database.count_of("request_counts").await;
    assert!(counted > 0, "the charges are counted");
    database.execute(minutes).await;
    for (kept, left) in [("0s", 1203), ("24h", 3)] {
        let variables = [("REQUEST_LOG_RETENTION", kept)];
        let connected = database.connect(&variables).await;
        let mut sweep = Sweep::new(connected, &config(&variables), 0);
        let until = Instant::now() + Duration::from_secs(60);
        let removed = sweep.old_rows(until).await.unwrap();
        assert_eq!(i64::try_from(removed.requests).unwrap(), 1203 - left);
        assert_eq!(database.count_of("request_log").await, left);
        let minutes = left - 3 + counted;
        assert_eq!(database.count_of("request_counts").await, minutes);
    }
}
