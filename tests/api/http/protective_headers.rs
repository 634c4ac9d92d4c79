//! The headers that limit what browsers and caches do: every reply has them, errors included.

use super::headers::errors_of_every_kind;
use crate::support::{
    harness::IMPATIENT,
    openapi::{document, operations},
    prelude::*,
    webhooks::endpoint,
    wire::send_slowly,
};

const NO_STORE: &str = "no-store";

/// For files that change with a release only.
const AN_HOUR: &str = "public, max-age=3600";

fn assert_protected(answer: &Answer, cache_control: &str, what: &str) {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", cache_control),
    ] {
        let values: Vec<_> = answer.headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{what}: {name} of {answer:?}");
    }
    let policy = answer.header("content-security-policy").expect(what);
    let mut rules = policy.split("; ");
    assert_eq!(rules.next(), Some("default-src 'none'"), "{what}: {policy}");
    let rules: BTreeSet<_> = rules.collect();
    for directive in ["base-uri", "form-action", "frame-ancestors"] {
        let rule = format!("{directive} 'none'");
        assert!(rules.contains(&*rule), "{what}: {policy}");
    }
    // The proxy that terminates TLS says how long browsers must use it.
    assert_eq!(answer.header("strict-transport-security"), None, "{what}");
}

#[tokio::test]
async fn every_operation_of_the_document_answers_with_them_in_both_dialects() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let document = document();
    let mut statuses = BTreeSet::new();
    for (path, method, _) in operations(&document) {
        // Anyone may read it, so that it may be kept.
        if path == "/.well-known/idempotency" {
            continue;
        }
        for id in ["ch_unknown", "search"] {
            let mut path = path.replace("{id}", id);
            for (name, value) in [
                ("{sku}", "mug"),
                ("{key}", "key-1"),
                ("{name}", "checkout-1"),
            ] {
                path = path.replace(name, value);
            }
            for path in [path.clone(), format!("/v1{path}")] {
                let what = format!("{method} {path}");
                let key = Uuid::now_v7().to_string();
                let request = || server.client.request(method.clone(), &path);
                let keyed = request().header("idempotency-key", &key);
                for request in [
                    server.client.bare(method.clone(), &path),
                    request(),
                    keyed.json(&json!({"quantity": 1})),
                ] {
                    let answer = Answer::of(request).await;
                    assert_protected(&answer, NO_STORE, &what);
                    statuses.insert(answer.status.as_u16());
                }
            }
        }
    }
    let met: Vec<_> = statuses.into_iter().collect();
    assert_eq!(met, [200, 400, 401, 404, 405]);
}

#[tokio::test]
async fn pages_files_and_health_have_them_and_only_files_may_be_kept() {
    let server = TestServer::start().await;
    let cases = [
        ("/", NO_STORE),
        ("/livez", NO_STORE),
        ("/readyz", NO_STORE),
        ("/errors", NO_STORE),
        ("/swagger-ui", NO_STORE),
        ("/swagger-ui/", NO_STORE),
        ("/swagger-ui/index.html", NO_STORE),
        ("/swagger-ui/swagger-initializer.js", NO_STORE),
        ("/swagger-ui/swagger-ui.css", AN_HOUR),
        ("/swagger-ui/swagger-ui-bundle.js", AN_HOUR),
        ("/style.css", AN_HOUR),
        ("/favicon.svg", AN_HOUR),
        ("/favicon.ico", AN_HOUR),
        ("/openapi.json", "no-cache"),
        ("/.well-known/idempotency", "no-cache"),
    ];
    for (path, cache_control) in cases {
        for accept in ["text/html", "*/*"] {
            for method in [Method::GET, Method::HEAD] {
                let request = server.client.bare(method, path).header("accept", accept);
                let answer = Answer::of(request).await;
                assert_eq!(answer.status, 200, "{path}");
                assert_protected(&answer, cache_control, path);
            }
        }
    }
}

#[tokio::test]
async fn refusals_of_every_kind_have_them() {
    // Not ready is a server whose only database is out of order.
    let database = TestDatabase::create_unsharded().await;
    let server = TestServer::start_on(database, &[FORGETFUL, ("RATE_LIMIT", "1000")]).await;
    let client = &server.client;
    let mut answers = errors_of_every_kind(&server).await;
    for path in ["/v1", "/swagger-ui/nothing.js", "/%ff%00"] {
        answers.push((404, client.get(path).await));
    }
    for (method, path) in [(Method::PUT, "/"), (Method::PATCH, "/charges")] {
        answers.push((405, Answer::of(client.bare(method, path)).await));
    }
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{answer:?}");
        assert_protected(answer, NO_STORE, answer.status.as_str());
    }
    let broken = r#"UPDATE idempotency_keys SET headers = '[["no header name", "x"]]'"#;
    server.database.execute(broken).await;
    let defect = client.charge("key-1").await;
    assert_eq!(defect.status, 500);
    assert_protected(&defect, NO_STORE, "500");
    let unmigrate = "ALTER TABLE _sqlx_migrations RENAME TO gone";
    server.database.execute(unmigrate).await;
    eventually("the server is not ready", || async {
        let unready = Answer::of(client.bare(Method::GET, "/readyz")).await;
        assert_protected(&unready, NO_STORE, "/readyz");
        unready.status == 503
    })
    .await;
}

fn assert_text_is_protected(reply: &str) {
    for line in [
        "cache-control: no-store\r\n",
        "x-content-type-options: nosniff\r\n",
        "referrer-policy: no-referrer\r\n",
        "frame-ancestors 'none'\r\n",
    ] {
        assert!(reply.contains(line), "{reply}");
    }
}

#[tokio::test]
async fn a_redirect_has_them() {
    let server = TestServer::start().await;
    let request = b"GET /swagger-ui HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let reply = send_raw(&server.client, request).await;
    assert!(reply.starts_with("HTTP/1.1 308 "), "{reply}");
    assert_text_is_protected(&reply);
}

#[tokio::test]
async fn a_body_that_stalls_is_refused_with_them() {
    let server = TestServer::start_with(IMPATIENT).await;
    let headers = format!(
        "Authorization: Bearer {API_KEY}\r\nContent-Type: {JSON}\r\nIdempotency-Key: key-1\r\n"
    );
    let reply = send_slowly(&server.client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert_text_is_protected(&reply);
}

#[tokio::test]
async fn an_account_over_its_limit_gets_them() {
    let server = TestServer::start_with(&[("RATE_LIMIT", "1")]).await;
    // One in a second is allowed, however slow the machine is.
    let limited = loop {
        let answer = server.client.get("/charges").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(limited.status, 429);
    assert_protected(&limited, NO_STORE, "429");
}

#[tokio::test]
async fn a_secret_is_never_kept_by_a_cache_and_the_headers_by_no_record() {
    let server = TestServer::start().await;
    let body = endpoint("https://example.com/webhooks");
    let create = || server.client.post("/webhook_endpoints", "key-1", &body);
    let created = create().await;
    assert!(created.json()["secret"].is_string());
    assert_protected(&created, NO_STORE, "the first reply");
    let replay = create().await;
    assert_protected(&replay, NO_STORE, "the replay");
    replay.assert_replays(&created);
    let stored = sqlx::query_scalar("SELECT headers::text FROM idempotency_keys");
    let stored: String = stored.fetch_one(&server.database.pool).await.unwrap();
    assert!(stored.contains("location"), "{stored}");
    let names = "cache-control content-security-policy referrer-policy x-content-type-options";
    for name in names.split(' ') {
        assert!(!stored.contains(name), "{stored}");
    }
}
