//! Errors as `application/problem+json` (RFC 9457), for clients that prefer it.

use crate::support::{prelude::*, records::hold_key};

const PROBLEM: &str = "application/problem+json";

/// What a problem says, by the envelope of the same error.
fn problem_of(envelope: &Answer) -> Value {
    let mut problem = envelope.json()["error"].take();
    for (name, renamed) in [
        ("type", "error_type"),
        ("doc_url", "type"),
        ("message", "detail"),
    ] {
        problem[renamed] = problem.as_object_mut().unwrap().remove(name).unwrap();
    }
    let code = problem["code"].as_str().unwrap().replace('_', " ");
    problem["title"] = format!("{}{}", code[..1].to_uppercase(), &code[1..]).into();
    problem["status"] = envelope.status.as_u16().into();
    problem
}

async fn preferring(request: &RequestBuilder, accept: &str) -> Answer {
    let request = request.try_clone().unwrap();
    Answer::of(request.header("accept", accept)).await
}

fn headers_but_the_form(answer: &Answer) -> BTreeMap<String, String> {
    let of_one_form = "content-type content-length date request-id idempotent-replayed";
    let headers = answer.headers.iter();
    let headers = headers.filter(|(name, _)| !of_one_form.split(' ').any(|it| *name == it));
    headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect()
}

/// One error in both forms: they say the same, with the same headers.
async fn assert_both_forms(request: &RequestBuilder, status: u16) {
    let envelope = preferring(request, "*/*").await;
    let problem = preferring(request, PROBLEM).await;
    assert_eq!(
        (envelope.status.as_u16(), problem.status.as_u16()),
        (status, status)
    );
    assert_eq!(envelope.header("content-type"), Some(JSON), "{envelope:?}");
    assert_eq!(problem.header("content-type"), Some(PROBLEM), "{problem:?}");
    assert_eq!(problem.json(), problem_of(&envelope));
    let length = problem.body.len().to_string();
    assert_eq!(problem.header("content-length"), Some(&*length));
    assert_eq!(problem.header("vary"), Some("accept"));
    let (one, other) = (
        headers_but_the_form(&envelope),
        headers_but_the_form(&problem),
    );
    assert_eq!(one, other);
}

/// The errors of draft-ietf-httpapi-idempotency-key-header, section 2.7.
#[tokio::test]
async fn the_errors_of_the_idempotency_draft_are_problems() {
    let (server, client) = TestServer::with_client(&[]).await;
    let post = |body: Value| client.request(Method::POST, "/charges").json(&body);
    let missing = preferring(&post(charge()), PROBLEM).await;
    missing.json().assert_shows(json!({
        "type": "/errors#idempotency_key_required", "title": "Idempotency key required",
        "status": 400, "code": "idempotency_key_required",
        "error_type": "invalid_request_error",
    }));
    assert_both_forms(&post(charge()), 400).await;
    let held = hold_key(&server.database, "key-1").await;
    let keyed = post(charge()).header("idempotency-key", "key-1");
    let in_flight = preferring(&keyed, PROBLEM).await;
    in_flight.json().assert_shows(json!({
        "type": "/errors#idempotency_key_in_use", "title": "Idempotency key in use", "status": 409,
    }));
    assert_eq!(in_flight.header("retry-after"), Some("1"));
    held.rollback().await.unwrap();
    assert_eq!(client.charge("key-1").await.status, 201);
    let other = post(another_charge()).header("idempotency-key", "key-1");
    let reused = preferring(&other, PROBLEM).await;
    reused.json().assert_shows(json!({
        "type": "/errors#idempotency_key_reused", "title": "Idempotency key reused", "status": 422,
    }));
    assert_both_forms(&other, 422).await;
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn every_kind_of_error_has_both_forms() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let keyed = |path: &str, key: &str, body: Vec<u8>| {
        let request = client.request(Method::POST, path).body(body);
        request
            .header("idempotency-key", key)
            .header("content-type", JSON)
    };
    let json = |body: Value| serde_json::to_vec(&body).unwrap();
    let outage = charge_by("tok_outage");
    let text = client.request(Method::POST, "/charges").body("x");
    for (request, status) in [
        (client.request(Method::GET, "/charges?limit=0"), 400),
        (client.bare(Method::GET, "/charges"), 401),
        (client.request(Method::GET, "/charges/ch_unknown"), 404),
        (client.request(Method::GET, "/nothing"), 404),
        (client.request(Method::DELETE, "/charges"), 405),
        (keyed("/charges", "large", vec![b' '; 70_000]), 413),
        (text.header("content-type", "text/plain"), 415),
        (keyed("/charges", "outage", json(outage)), 503),
    ] {
        assert_both_forms(&request, status).await;
    }
}

/// The outcome is stored once. Its form is that of each request.
#[tokio::test]
async fn a_stored_refusal_is_replayed_in_the_form_that_each_retry_prefers() {
    for variables in [&[][..], &[FORGETFUL]] {
        let (server, client) = TestServer::with_client(variables).await;
        for (key, body) in [
            ("refused", json!({"amount": "\"no\""})),
            ("declined", charge_by("tok_chargeDeclined")),
        ] {
            for first_form in [PROBLEM, "*/*"] {
                let key = format!("{key}-{}", first_form.len());
                let request = client.request(Method::POST, "/charges").json(&body);
                let request = request.header("idempotency-key", &key);
                let first = preferring(&request, first_form).await;
                assert!(first.status.is_client_error() && !first.is_replay());
                preferring(&request, first_form)
                    .await
                    .assert_replays(&first);
                let problem = preferring(&request, PROBLEM).await;
                let envelope = preferring(&request, "*/*").await;
                assert_eq!(problem.json(), problem_of(&envelope));
                assert!(problem.is_replay() && envelope.is_replay());
                // Below /v1 it would be another request, which is told so in Stripe's form.
                let below = client.request(Method::POST, "/v1/charges").json(&body);
                let below = below.header("idempotency-key", &key);
                let below = preferring(&below, PROBLEM).await;
                assert_eq!(error(&below), (400, "idempotency_key_reused".into()));
            }
        }
        assert_eq!(server.database.records().await, 4);
    }
}

#[tokio::test]
async fn a_head_request_has_the_headers_of_the_problem() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for path in ["/charges/ch_no", "/nothing"] {
        let [get, head] = [Method::GET, Method::HEAD].map(|verb| client.request(verb, path));
        let get = preferring(&get, PROBLEM).await;
        let head = preferring(&head, PROBLEM).await;
        assert_eq!((head.status, head.body.len()), (get.status, 0));
        for header in ["content-type", "content-length", "vary", "link"] {
            assert_eq!(head.header(header), get.header(header), "{path} {header}");
        }
    }
}

#[tokio::test]
async fn the_envelope_stays_where_no_problem_is_preferred() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let missing = client.request(Method::GET, "/charges/ch_no");
    let envelope = client.get("/charges/ch_no").await;
    assert_eq!(envelope.header("vary"), Some("accept"));
    for (accept, is_problem) in [
        (JSON, false),
        ("application/problem+json, application/json", false),
        (
            "application/json;q=0.5, application/problem+json;q=0.6",
            true,
        ),
        ("application/problem+json;q=0.5, */*", false),
        ("application/problem+json;q=2, ;;q", false),
        ("text/html", false),
    ] {
        let answer = preferring(&missing, accept).await;
        if is_problem {
            assert_eq!(answer.json(), problem_of(&envelope), "{accept}");
        } else {
            assert_eq!(answer.body, envelope.body, "{accept}");
            assert_eq!(answer.header("content-type"), Some(JSON), "{accept}");
        }
    }
    // Two headers are one list.
    let two = missing
        .try_clone()
        .unwrap()
        .header("accept", "application/json;q=0.1");
    assert_eq!(
        preferring(&two, PROBLEM).await.json(),
        problem_of(&envelope)
    );
    for prefix in ["/v1", "/%761"] {
        let below = client.request(Method::GET, &format!("{prefix}/charges/ch_no"));
        let below = preferring(&below, PROBLEM).await;
        assert_eq!(below.header("content-type"), Some(JSON), "{prefix}");
        assert_eq!(below.header("vary"), None, "{prefix}");
    }
    // What is no error has one form.
    let created = client.request(Method::POST, "/charges").json(&charge());
    let created = created.header("idempotency-key", "key-1");
    let created = preferring(&created, PROBLEM).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.header("content-type"), Some(JSON));
    assert_eq!(created.header("vary"), None);
}
