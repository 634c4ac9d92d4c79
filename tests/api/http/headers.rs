//! The headers of replies: the first one, replays, errors and reads.

use chrono::{DateTime, Utc};

use crate::support::{prelude::*, records::hold_key};

async fn charge_preferring(client: &Client, path: &str, prefer: &str) -> Answer {
    let request = client.request(Method::POST, path).header("prefer", prefer);
    Answer::of(request.header("idempotency-key", "key-1").json(&charge())).await
}

async fn charge_from(client: &Client, source: &str, key: &str) -> Answer {
    client.post("/charges", key, &charge_by(source)).await
}

#[tokio::test]
async fn every_reply_has_a_fresh_request_id_whoever_made_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let answers = [
        client.charge("key-1").await,
        client.charge("key-1").await,
        client.get("/charges").await,
        client.get("/charges/ch_unknown").await,
        client.get("/nothing").await,
        client.get("/livez").await,
        client.get("/errors").await,
        client.get("/openapi.json").await,
        client.get("/swagger-ui/").await,
        Answer::of(client.bare(Method::GET, "/charges")).await,
        Answer::of(client.request(Method::DELETE, "/charges")).await,
        Answer::of(client.request(Method::HEAD, "/charges")).await,
        charge_from(&client, "tok_outage", "key-2").await,
    ];
    let mut ids = BTreeSet::new();
    for answer in &answers {
        let id = answer.header("request-id").expect("a Request-Id");
        let rest = id.strip_prefix("req_").expect("req_…");
        assert_eq!(rest.len(), 26, "{id}");
        assert!(ids.insert(id), "{id} was used twice");
    }
}

#[tokio::test]
async fn the_first_reply_names_itself_and_replays_name_the_first() {
    let server = TestServer::start().await;
    let first = server.client.charge("key-1").await;
    let replay = server.client.charge("key-1").await;
    assert_eq!(first.header("original-request"), first.header("request-id"));
    assert_eq!(first.header("idempotent-replayed"), None);
    let original = replay.header("original-request");
    assert_eq!(original, first.header("request-id"));
    assert_ne!(replay.header("request-id"), first.header("request-id"));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    let location = format!("/charges/{}", first.id());
    assert_eq!(first.header("location"), Some(location.as_str()));
    replay.assert_replays(&first);
}

#[tokio::test]
async fn location_stays_in_the_dialect_and_resolves() {
    let server = TestServer::start().await;
    for path in ["/charges", "/v1/charges"] {
        let created = server.client.post(path, path, &charge()).await;
        let location = created.header("location").unwrap();
        assert_eq!(location, format!("{path}/{}", created.id()));
        assert_eq!(server.client.get(location).await.json(), created.json());
    }
}

#[tokio::test]
async fn stored_outcomes_say_when_the_record_dies_in_whole_seconds() {
    let server = TestServer::start().await;
    let created = server.client.charge("key-1").await;
    let declined = charge_from(&server.client, "tok_chargeDeclined", "key-2").await;
    let refused = charge_from(&server.client, "tok_nobody", "key-3").await;
    for (answer, status) in [(created, 201), (declined, 402), (refused, 400)] {
        assert_eq!(answer.status, status);
        let text = answer.header("idempotency-expires").unwrap();
        assert_eq!(text.len(), "2026-01-01T00:00:00Z".len(), "{text}");
        let expires: DateTime<Utc> = text.parse().unwrap();
        let hours = (expires - Utc::now()).num_minutes();
        assert!((23 * 60 + 55..=24 * 60).contains(&hours), "{text}");
    }
    let outage = charge_from(&server.client, "tok_outage", "key-4").await;
    let of_records = "idempotency-expires original-request idempotent-replayed";
    for header in of_records.split(' ') {
        assert_eq!(outage.header(header), None, "{header}");
    }
}

#[tokio::test]
async fn the_key_is_echoed_on_every_reply_to_a_mutating_request() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let plain = "text/plain";
    let with_key = |method: Method, path: &str| {
        let request = client.request(method, path);
        request.header("idempotency-key", "key-1").json(&charge())
    };
    let answers = [
        client.charge("key-1").await,
        client.charge("key-1").await,
        charge_from(&client, "tok_visa", "key-1").await,
        Answer::of(with_key(Method::POST, "/nothing")).await,
        Answer::of(with_key(Method::PATCH, "/charges")).await,
        Answer::of(with_key(Method::DELETE, "/charges")).await,
        Answer::of(with_key(Method::POST, "/orders")).await,
        Answer::of(with_key(Method::POST, "/charges").bearer_auth("sk_test_second")).await,
        client.post_raw("/charges", "key-1", plain, b"x").await,
    ];
    for answer in &answers {
        let echoed = answer.header("idempotency-key");
        assert_eq!(echoed, Some("key-1"), "{answer:?}");
    }
    let get = Answer::of(with_key(Method::GET, "/charges")).await;
    assert_eq!(get.header("idempotency-key"), None);
}

#[tokio::test]
async fn a_preferred_wait_is_echoed_capped_and_honoured_and_nonsense_is_ignored() {
    let server = TestServer::start().await;
    let cases = [
        ("wait=0", Some("wait=0")),
        ("wait=7", Some("wait=7")),
        ("wait=\"7\"", Some("wait=7")),
        ("respond-async, Wait=3", Some("wait=3")),
        ("respond-async, wait=7", Some("wait=7")),
        ("wait=30", Some("wait=30")),
        ("wait=31", Some("wait=30")),
        ("wait=99999999999999999999999", Some("wait=30")),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=soon", None),
        ("wait", None),
        ("respond-async", None),
    ];
    for (prefer, applied) in cases {
        let answer = charge_preferring(&server.client, "/charges", prefer).await;
        assert_eq!(answer.status, 201, "{prefer}");
        assert_eq!(answer.header("preference-applied"), applied, "{prefer}");
    }
    assert_eq!(server.database.charges().await, 1);
    let read = server.client.request(Method::GET, "/charges");
    let read = Answer::of(read.header("prefer", "wait=7")).await;
    assert_eq!(read.header("preference-applied"), None);
}

#[tokio::test]
async fn prefer_wait_zero_answers_409_at_once_under_v1() {
    let server = TestServer::start().await;
    let held = hold_key(&server.database, "key-1").await;
    let answer = charge_preferring(&server.client, "/v1/charges", "wait=0").await;
    assert_eq!(error(&answer), (409, "idempotency_key_in_use".into()));
    assert_eq!(answer.header("preference-applied"), Some("wait=0"));
    held.rollback().await.unwrap();
}

/// Replies that are errors, and their statuses. `key-1` is a completed charge's afterwards.
pub(super) async fn errors_of_every_kind(server: &TestServer) -> Vec<(u16, Answer)> {
    let client = &server.client;
    let held = hold_key(&server.database, "held").await;
    let in_use = client.charge("held").await;
    held.rollback().await.unwrap();
    client.charge("key-1").await;
    let large = vec![b' '; 70_000];
    let (text, declined) = ("text/plain", "tok_chargeDeclined");
    vec![
        (400, charge_from(client, "tok_nobody", "key-2").await),
        (400, charge_from(client, "tok_nobody", "key-2").await),
        (400, client.post_raw("/charges", "a b", JSON, b"").await),
        (400, client.get("/charges?limit=0").await),
        (400, client.post("/v1/charges", "key-1", &charge()).await),
        (401, Answer::of(client.bare(Method::GET, "/charges")).await),
        (402, charge_from(client, declined, "key-3").await),
        (402, charge_from(client, declined, "key-3").await),
        (404, client.get("/charges/ch_unknown").await),
        (404, client.get("/nothing").await),
        (
            405,
            Answer::of(client.request(Method::DELETE, "/charges")).await,
        ),
        (409, in_use),
        (413, client.post_raw("/charges", "k", JSON, &large).await),
        (415, client.post_raw("/charges", "k", text, b"x").await),
        (422, client.post("/orders", "key-1", &charge()).await),
        (503, charge_from(client, "tok_outage", "key-4").await),
    ]
}

#[tokio::test]
async fn every_error_links_to_its_explanation_and_says_whether_to_retry() {
    let (server, client) = TestServer::with_client(&[]).await;
    for (status, answer) in &errors_of_every_kind(&server).await {
        let code = answer.code();
        assert_eq!(answer.status, *status, "{code}");
        let link = format!("</errors#{code}>; rel=\"describedby\"");
        let is_worth_a_retry = matches!(status, 409 | 503);
        let should_retry = if is_worth_a_retry { "true" } else { "false" };
        for (name, expected) in [
            ("stripe-should-retry", Some(should_retry)),
            ("link", Some(&*link)),
            ("retry-after", is_worth_a_retry.then_some("1")),
            ("content-type", Some(JSON)),
        ] {
            assert_eq!(answer.header(name), expected, "{name} of {status} {code}");
        }
        assert_eq!(answer.json()["error"]["doc_url"], format!("/errors#{code}"));
    }
    let created = client.charge("key-5").await;
    for header in ["stripe-should-retry", "retry-after", "link"] {
        assert_eq!(created.header(header), None, "{header}");
    }
}

#[tokio::test]
async fn what_is_busy_says_to_retry_and_the_same_key_does_it_then() {
    let (server, client) = TestServer::with_client(&[]).await;
    let created = client.charge("key-1").await;
    let lock = "SELECT FROM charges FOR UPDATE";
    let locked = server.database.holding(lock).await;
    let refund = json!({"charge": created.id()});
    let busy = client.post("/refunds", "key-2", &refund).await;
    assert_eq!(error(&busy), (409, "resource_busy".into()));
    assert_eq!(busy.header("stripe-should-retry"), Some("true"));
    assert_eq!(busy.header("original-request"), None, "nothing is stored");
    assert_eq!(server.database.records().await, 1);
    locked.rollback().await.unwrap();
    let refunded = client.post("/refunds", "key-2", &refund).await;
    assert_eq!(refunded.status, 201);
    assert!(!refunded.is_replay());
}

#[tokio::test]
async fn an_internal_error_is_opaque_and_says_to_retry() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    server.client.charge("key-1").await;
    let broken = r#"UPDATE idempotency_keys SET headers = '[["no header name", "secret"]]'"#;
    server.database.execute(broken).await;
    let answer = server.client.charge("key-1").await;
    assert_eq!(error(&answer), (500, "internal_error".into()));
    assert_eq!(answer.header("stripe-should-retry"), Some("true"));
    assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_replay_restores_multi_valued_headers() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    server.client.charge("key-1").await;
    let more = r#"UPDATE idempotency_keys
                     SET headers = headers || '[["link", "<a>"], ["link", "<b>"]]'"#;
    server.database.execute(more).await;
    let replay = server.client.charge("key-1").await;
    let links: Vec<_> = replay.headers.get_all("link").iter().collect();
    assert_eq!(links, ["<a>", "<b>"]);
}

#[tokio::test]
async fn head_answers_as_get_does_without_a_body() {
    let server = TestServer::start().await;
    let created = server.client.charge("key-1").await;
    let one = format!("/v1/charges/{}", created.id());
    let paths = "/charges /idempotency-keys/key-1 /charges/ch_no /nothing /livez /openapi.json \
                 /swagger-ui/ /";
    for path in paths.split(' ').chain([&*one]) {
        let get = server.client.get(path).await;
        let head = Answer::of(server.client.request(Method::HEAD, path)).await;
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty(), "{path}");
        let headers = "content-type content-length link stripe-should-retry";
        for header in headers.split(' ') {
            assert_eq!(head.header(header), get.header(header), "{path} {header}");
        }
    }
}
