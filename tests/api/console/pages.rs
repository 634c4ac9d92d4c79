//! The pages: what they show, to whom, and what they never show.

use reqwest::Method;
use serde_json::json;

use super::visit::{CONSOLE, Visit};
use crate::support::{
    accounts::client_of_account,
    harness::{Answer, TestServer, eventually},
};

/// Every page of a session, by its path.
const PAGES: &[&str] = &[
    "/console",
    "/console/live",
    "/console/keys/dev-1",
    "/console/charges",
    "/console/payment_intents",
    "/console/customers",
    "/console/setup_intents",
    "/console/orders",
    "/console/refunds",
    "/console/checkouts",
    "/console/deliveries",
    "/console/in-flight",
    "/console/playground",
];

async fn log_holds(server: &TestServer, rows: i64) {
    eventually("the log holds the rows", || async {
        server
            .database
            .count("SELECT count(*) FROM request_log")
            .await
            == rows
    })
    .await;
}

#[tokio::test]
async fn requests_are_listed_the_newest_first_with_the_replays_of_their_keys() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    assert!(visit.page("/console").await.contains("No request yet."));
    server.client.charge("key/1?").await;
    server.client.charge("key/1?").await;
    server.client.charge("key/1?").await;
    server.client.get("/charges").await;
    log_holds(&server, 4).await;
    for path in ["/console", "/console/live"] {
        let page = visit.page(path).await;
        let rows: Vec<_> = page.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 4, "{page}");
        assert!(rows[0].contains("GET") && rows[0].contains("read"));
        assert!(rows[3].contains("executed") && rows[1].contains("replayed"));
        let link = "<a href=\"/console/keys/key%2F1%3F\">key/1?</a>";
        assert!(
            rows[3].contains(link) && rows[3].contains("<td>2</td>"),
            "{}",
            rows[3]
        );
    }
}

#[tokio::test]
async fn older_requests_are_a_page_away() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    for number in 0..60 {
        server.client.charge(&format!("key-{number}")).await;
    }
    log_holds(&server, 60).await;
    let first = visit.page("/console").await;
    assert!(first.contains("key-59") && first.contains(">key-10<") && !first.contains(">key-9<"));
    let older = first.split("href=\"/console?before=").nth(1).unwrap();
    let older = older.split('"').next().unwrap();
    let second = visit.page(&format!("/console?before={older}")).await;
    assert!(second.contains(">key-9<") && !second.contains(">key-10<"));
    assert!(!second.contains("data-live") && !second.contains("?before="));
    assert_eq!(visit.get("/console?before=ch_1").await.status, 400);
}

#[tokio::test]
async fn a_page_shows_the_account_of_its_session_only() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let alice = client_of_account(&server, "alice").await;
    alice.charge("alice-1").await;
    server.client.charge("dev-1").await;
    log_holds(&server, 2).await;
    let visit = Visit::begin(&server).await;
    for path in PAGES {
        let page = visit.page(path).await;
        assert!(!page.contains("alice"), "{path}");
    }
}

#[tokio::test]
async fn what_clients_write_is_text_and_never_markup() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let key = "<script>alert(1)</script>";
    server
        .client
        .post("/charges", key, &json!({"amount": 0}))
        .await;
    log_holds(&server, 1).await;
    let page = Visit::begin(&server).await.page("/console").await;
    assert!(
        !page.contains(key) && page.contains("&lt;script&gt;alert(1)"),
        "{page}"
    );
}

#[tokio::test]
async fn pages_load_and_send_nothing_elsewhere_and_are_kept_by_no_cache() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let handler = regex::Regex::new(r"\son\w+=").unwrap();
    server.client.charge("dev-1").await;
    let visit = Visit::begin(&server).await;
    for path in PAGES
        .iter()
        .chain(&["/console/sign-in", "/console?before=x"])
    {
        for method in [Method::GET, Method::HEAD] {
            let answer = Answer::of(visit.request(method, path)).await;
            let policy = answer.header("content-security-policy").unwrap();
            assert!(
                policy.starts_with("default-src 'none'; script-src 'self';"),
                "{policy}"
            );
            assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
            assert!(policy.contains("form-action 'self'"), "{policy}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            // With no-referrer, a browser would not say which page sent a form.
            assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
            let page = super::visit::text(&answer);
            assert!(!page.contains("://") && !page.contains(" style="), "{page}");
            assert!(!handler.is_match(&page), "{page}");
        }
    }
    for (path, kind) in [("style.css", "text/css"), ("script.js", "text/javascript")] {
        let file = visit.get(&format!("/console/{path}")).await;
        assert!(file.header("content-type").unwrap().starts_with(kind));
        assert_eq!(file.header("cache-control"), Some("public, max-age=3600"));
    }
}
