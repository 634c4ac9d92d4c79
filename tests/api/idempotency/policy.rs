//! `/.well-known/idempotency`: each claim is shown by a request.

use charge_once::wire::error::ErrorCode;

use crate::support::{prelude::*, racers::definite, records::hold_key, resources::customer};

const PATH: &str = "/.well-known/idempotency";

/// As a program without an API key reads it.
async fn policy(server: &TestServer) -> Value {
    let answer = Answer::of(server.client.bare(Method::GET, PATH)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn text_at<'a>(policy: &'a Value, pointer: &str) -> &'a str {
    let value = policy.pointer(pointer).and_then(Value::as_str);
    value.expect(pointer)
}

/// What the policy says of an error.
fn about<'a>(policy: &'a Value, code: &str) -> &'a Value {
    let mut errors = policy["errors"].as_array().unwrap().iter();
    errors.find(|error| error["code"] == code).expect(code)
}

async fn send(server: &TestServer, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = server.client.request(method, path).json(&charge());
    let add = |request: RequestBuilder, (name, value): &(&str, &str)| request.header(*name, *value);
    Answer::of(headers.iter().fold(request, add)).await
}

#[tokio::test]
async fn it_needs_no_api_key_and_is_read_again_only_when_it_has_changed() {
    let (server, other) = (
        TestServer::start().await,
        TestServer::start_with(&[("IDEMPOTENCY_TTL", "12h")]).await,
    );
    let first = Answer::of(server.client.bare(Method::GET, PATH)).await;
    assert_eq!(first.header("content-type"), Some(JSON));
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    let tag = first.header("etag").unwrap();
    for (server, status) in [(&server, 304), (&other, 200)] {
        let again = server.client.bare(Method::GET, PATH);
        let again = Answer::of(again.header("if-none-match", tag)).await;
        assert_eq!(again.status, status);
    }
    assert_eq!(server.client.get(&format!("/v1{PATH}")).await.status, 404);
}

#[tokio::test]
async fn it_says_what_is_configured_and_so_does_the_openapi_document() {
    let server = TestServer::start_with(&[
        ("IDEMPOTENCY_TTL", "12h"),
        ("IDEMPOTENCY_TTL_MAX", "10d"),
        (
            "IDEMPOTENCY_TTL_BY_ROUTE",
            "POST /refunds=7d,POST /orders/*=20d",
        ),
        ("KEYS", "/v1=assign,/v1/refunds=required"),
        ("IN_FLIGHT_WAIT_V1", "3s"),
        ("KEY_MEMORY", "30d"),
        ("REFUSE_OLD_KEYS", "true"),
    ])
    .await;
    let told = policy(&server).await;
    told.assert_shows(json!({
        "object": "idempotency_policy",
        "expired": {"by_time_in_key": true, "remembered": 2_592_000},
        "retention": {"route": null, "least": 60, "most": 864_000, "seconds": 43_200},
        "retention_by_route": [
            {"route": "POST /orders/{id}", "least": 60, "most": 1_728_000, "seconds": 1_728_000},
            {"route": "POST /orders/{id}/cancel", "least": 60, "most": 1_728_000, "seconds": 1_728_000},
            {"route": "POST /orders/{id}/pay", "least": 60, "most": 1_728_000, "seconds": 1_728_000},
            {"route": "POST /refunds", "least": 60, "most": 864_000, "seconds": 604_800},
            {"route": "POST /test/accounts", "least": 60, "most": 864_000, "seconds": 3600},
        ],
        "prefixes": [
            {"prefix": "", "key_reused_status": 422, "wait": 0},
            {"prefix": "/v1", "key_reused_status": 400, "wait": 3},
        ],
    }));
    assert_eq!(
        told["key"]["without_key"],
        json!([
            {"prefix": "", "outcome": "refused"},
            {"prefix": "/v1", "outcome": "assigned"},
            {"prefix": "/v1/refunds", "outcome": "refused"},
        ])
    );
    let served = server.client.get("/openapi.json").await.json();
    assert_eq!(served["x-idempotency"], told);
    let kept = |method: &str, path: &str| &served["paths"][path][method]["x-idempotency"];
    assert_eq!(kept("post", "/charges"), &json!({"key": "required"}));
    assert_eq!(kept("get", "/charges"), &Value::Null);
    let deletion = kept("delete", "/customers/{id}");
    assert_eq!(deletion, &json!({"key": "optional"}));
    for (path, seconds) in [("/refunds", 604_800), ("/orders/{id}/pay", 1_728_000)] {
        assert_eq!(
            kept("post", path)["retention"]["seconds"],
            seconds,
            "{path}"
        );
    }
    let told = json!({"key": "required", "keys_for": 3600, "secret": true});
    kept("post", "/test/accounts").assert_shows(told);
    // What the document says by itself is what a server does without settings.
    let usual = TestServer::start().await;
    assert_eq!(document()["x-idempotency"], policy(&usual).await);
    assert_eq!(kept("post", "/orders")["retention"], Value::Null);
}

#[tokio::test]
async fn its_keys_are_those_that_the_server_takes() {
    let modes = "/v1=assign,/v1/refunds=required";
    let server = TestServer::start_with(&[("KEYS", modes)]).await;
    let told = policy(&server).await;
    let header = text_at(&told, "/key/header");
    let pattern = Regex::new(text_at(&told, "/key/pattern")).unwrap();
    let max = usize::try_from(told["key"]["max_length"].as_u64().unwrap()).unwrap();
    let min = usize::try_from(told["key"]["min_length"].as_u64().unwrap()).unwrap();
    let (longest, longer) = ("k".repeat(max), "k".repeat(max + 1));
    let shorter = "k".repeat(min - 1);
    for key in [
        &*longest,
        &longer,
        &shorter,
        "key-1",
        "\"key-2\"",
        "\"key-3",
        "a b",
        "a,b",
        "a\\b",
        "~",
        "!",
    ] {
        let answer = send(&server, Method::POST, "/charges", &[(header, key)]).await;
        assert_eq!(answer.status == 201, pattern.is_match(key), "{key}");
    }
    for mistake in told["key"]["mistakes"].as_array().unwrap() {
        let key = mistake.as_str().unwrap();
        let answer = send(&server, Method::POST, "/charges", &[(header, key)]).await;
        assert_eq!(answer.code(), "idempotency_key_invalid", "{key}");
    }
    for mode in told["key"]["without_key"].as_array().unwrap() {
        let prefix = text_at(mode, "/prefix");
        let path = match prefix {
            "/v1/refunds" => prefix.to_owned(),
            _ => format!("{prefix}/charges"),
        };
        let answer = send(&server, Method::POST, &path, &[]).await;
        let is_refused = answer.status == 400 && answer.code() == "idempotency_key_required";
        assert_eq!(
            is_refused,
            mode["outcome"] == "refused",
            "{path}: {answer:?}"
        );
    }
    // Those that need a key, and those that may have one.
    for method in told["key"]["required_by"].as_array().unwrap() {
        let (method, path) = match method.as_str().unwrap() {
            "PUT" => (Method::PUT, "/inventory/mug"),
            _ => (Method::POST, "/charges"),
        };
        let answer = send(&server, method, path, &[]).await;
        assert_eq!(answer.code(), "idempotency_key_required", "{path}");
    }
    assert_eq!(told["key"]["optional_for"], json!(["DELETE"]));
    let path = format!("/customers/{}", customer(&server.client).await);
    let deletion = server.client.request(Method::DELETE, &path);
    assert_eq!(Answer::of(deletion).await.status, 200);
    // Two accounts may use one key.
    assert_eq!(told["scope"], "account");
    let other = client_of_account(&server, "other").await;
    let charged = other.charge("key-1").await;
    assert_eq!((charged.status.as_u16(), charged.is_replay()), (201, false));
}

#[tokio::test]
async fn its_times_waits_and_markers_are_those_of_replies() {
    let wait = ("IN_FLIGHT_WAIT_V1", "0s");
    let server = TestServer::start_with(&[wait, FORGETFUL]).await;
    let told = policy(&server).await;
    let header = text_at(&told, "/key/header");
    let [expires, original, replayed] = ["expires", "original_request", "replayed"]
        .map(|name| text_at(&told, &format!("/replay/{name}")));
    let preference = text_at(&told, "/retention_preference");
    let ask = |seconds: i64| format!("{preference}={seconds}");
    let seconds = |name: &str| told["retention"][name].as_i64().unwrap();
    let (least, most) = (seconds("least"), seconds("most"));
    for (key, prefer, kept) in [
        ("usual", String::new(), seconds("seconds")),
        ("less", ask(least - 1), least),
        ("more", ask(most + 1), most),
        ("least", ask(least), least),
        ("most", ask(most), most),
    ] {
        let headers = [(header, key), ("prefer", &*prefer)];
        let first = send(&server, Method::POST, "/charges", &headers).await;
        let replay = send(&server, Method::POST, "/charges", &headers).await;
        assert_eq!(
            (first.header(replayed), replay.header(replayed)),
            (None, Some("true"))
        );
        assert_eq!(first.header(original), first.header("request-id"));
        assert_eq!(replay.header(original), first.header("request-id"));
        assert_eq!(replay.header(expires), first.header(expires));
        let life = "SELECT extract(epoch FROM expires_at - created_at)::bigint
                      FROM idempotency_keys WHERE key = $1";
        let life = sqlx::query_scalar::<_, i64>(life).bind(key);
        let life = life.fetch_one(&server.database.pool).await.unwrap();
        assert_eq!(life, kept, "{key}");
    }
    let wait = text_at(&told, "/in_flight/preference");
    let wait_max = told["in_flight"]["wait_max"].as_u64().unwrap();
    let asked = format!("{wait}={}", wait_max + 1);
    let headers = [(header, "waits"), ("prefer", &*asked)];
    let waited = send(&server, Method::POST, "/charges", &headers).await;
    let applied = format!("{wait}={wait_max}");
    assert_eq!(waited.header("preference-applied"), Some(&*applied));
    let held = hold_key(&server.database, "held").await;
    for prefix in told["prefixes"].as_array().unwrap() {
        // With a wait of no time, the 409 comes at once.
        assert_eq!(prefix["wait"], 0);
        let path = format!("{}/charges", text_at(prefix, "/prefix"));
        let in_use = send(&server, Method::POST, &path, &[(header, "held")]).await;
        assert_eq!(told["in_flight"]["status"], in_use.status.as_u16());
        assert_eq!(in_use.code(), text_at(&told, "/in_flight/code"));
        let reused = server.client.post(&path, "usual", &json!({})).await;
        assert_eq!(
            prefix["key_reused_status"],
            reused.status.as_u16(),
            "{path}"
        );
    }
    held.rollback().await.unwrap();
    // An expired key is new, unless it is remembered. Then what was made must be read first.
    let kept = about(&told, "idempotency_key_expired");
    kept.assert_shows(json!({"retry": "read_first", "stored": true}));
    assert_eq!(told["expired"]["remembered"], 0);
    server.database.expire_records().await;
    let anew = send(&server, Method::POST, "/charges", &[(header, "usual")]).await;
    assert_eq!((anew.status.as_u16(), anew.is_replay()), (201, false));
    let path = text_at(&told, "/abandon").replace("{key}", "late");
    let given_up = server.client.post(&path, "own", &json!({})).await;
    assert_eq!(given_up.json()["status"], "abandoned");
    let late = server.client.charge("late").await;
    assert_eq!(late.code(), "idempotency_key_abandoned");
    assert_eq!(about(&told, &late.code())["stored"], true);
    assert!(late.header(original).is_some());
}

/// Errors of requests whose key is `key`, by their codes.
async fn errors(server: &TestServer) -> BTreeMap<String, (String, Answer)> {
    let client = &server.client;
    let held = hold_key(&server.database, "held").await;
    client.charge("reused").await;
    let large = vec![b' '; 70_000];
    let stranger = client.with_api_key("sk_test_nobody");
    let with = |name: &str, value: Value| {
        let mut body = charge();
        body[name] = value;
        body
    };
    let raw = async |key: &str, media: &str, body: &[u8]| {
        client.post_raw("/charges", key, media, body).await
    };
    let keyless = client.request(Method::POST, "/charges");
    let [bare, put] = [Method::POST, Method::PUT].map(|method| client.bare(method, "/charges"));
    let bare = bare.header("idempotency-key", "bare");
    let nothing = json!({});
    let mut answers = vec![
        ("held", client.charge("held").await),
        ("", Answer::of(keyless.json(&charge())).await),
        ("bare", Answer::of(bare.json(&charge())).await),
        ("nobody", stranger.charge("nobody").await),
        ("large", raw("large", JSON, &large).await),
        ("text", raw("text", "text/plain", b"x").await),
        ("broken", raw("broken", JSON, b"{").await),
        ("route", client.post("/nothing", "route", &nothing).await),
        ("method", Answer::of(put).await),
    ];
    let capture = client.post("/charges/ch_1/capture", "gone", &nothing);
    answers.push(("gone", capture.await));
    for (key, body) in [
        ("reused", nothing),
        ("a b", charge()),
        ("card", with("description", "4242424242424242".into())),
        ("missing", json!({})),
        ("invalid", with("currency", "x".into())),
        ("unknown", with("unknown", 1.into())),
        ("much", with("amount", 100_000_000.into())),
        ("declined", charge_by("tok_chargeDeclined")),
        ("outage", charge_by("tok_outage")),
    ] {
        answers.push((key, client.post("/charges", key, &body).await));
    }
    held.rollback().await.unwrap();
    let answers = answers.into_iter();
    answers
        .map(|(key, answer)| (answer.code(), (key.to_owned(), answer)))
        .collect()
}

#[tokio::test]
async fn what_it_says_of_an_error_is_what_a_retry_meets() {
    let server = TestServer::start().await;
    let told = policy(&server).await;
    let original = text_at(&told, "/replay/original_request");
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let listed = told["errors"].as_array().unwrap().iter();
    let listed: Vec<_> = listed
        .map(|error| error["code"].as_str().unwrap())
        .collect();
    assert_eq!(listed, codes);
    let met = errors(&server).await;
    assert_eq!(met.len(), 19, "{:?}", met.keys());
    let mut statuses = BTreeSet::new();
    for (code, (key, answer)) in &met {
        let about = about(&told, code);
        assert_eq!(about["status"], answer.status.as_u16(), "{code}");
        let is_stored = answer.header(original).is_some();
        assert_eq!(about["stored"], is_stored, "{code}");
        let looked_up = format!("/idempotency-keys?key={key}");
        let known = server.client.get(&looked_up).await;
        // The key that is reused has the record of another request.
        let is_known = known.status == 200 && code != "idempotency_key_reused";
        assert_eq!(is_known, is_stored, "{code}: {known:?}");
        let should_retry = answer.header("stripe-should-retry") == Some("true");
        assert_eq!(about["retry"] == "same_key", should_retry, "{code}");
        assert!(!is_stored || about["retry"] == "new_key", "{code}");
        if is_stored {
            statuses.insert(answer.status.as_u16());
        }
    }
    // 409 is that of a key that was given up.
    statuses.insert(409);
    assert_eq!(told["stored_statuses"], json!(statuses));
    // Corrected, a request whose refusal is not stored may have the same key.
    for code in [
        "card_number_forbidden",
        "body_too_large",
        "unsupported_media_type",
    ] {
        assert_eq!(about(&told, code)["retry"], "corrected");
        let corrected = server.client.charge(&met[code].0).await;
        assert_eq!(
            (corrected.status.as_u16(), corrected.is_replay()),
            (201, false)
        );
    }
    // The same request with the same key has its outcome later.
    let in_use = definite(|| server.client.charge(&met["idempotency_key_in_use"].0)).await;
    assert_eq!((in_use.status.as_u16(), in_use.is_replay()), (201, false));
    // What is stored is the answer for good.
    let (key, refused) = &met["parameter_missing"];
    let again = server.client.post("/charges", key, &json!({})).await;
    again.assert_replays(refused);
    assert_eq!(server.client.charge(key).await.status, 422);
}
