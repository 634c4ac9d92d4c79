//! The pages: what they show, to whom, and what they never show.

use super::visit::{CONSOLE, Visit};
use crate::support::prelude::*;

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
    "/console/inventory",
    "/console/events",
    "/console/workflows",
    "/console/workflows?name=order-7",
    "/console?outcome=any&status=2xx&path=/charges&key=dev&object=ch_1",
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
    assert!(visit.page("/console").await.contains("No request yet"));
    server.client.charge("key/1?").await;
    server.client.charge("key/1?").await;
    server.client.charge("key/1?").await;
    server.client.get("/charges").await;
    log_holds(&server, 4).await;
    // Reads are shown to who asks for them: a terminal that listens for webhooks sends many.
    for (path, reads) in [
        ("/console", 0),
        ("/console/live", 0),
        ("/console?outcome=any", 1),
        ("/console/live?outcome=any", 1),
    ] {
        let page = visit.page(path).await;
        let rows: Vec<_> = page.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 3 + reads, "{page}");
        let is_read = rows[0].contains("GET") && rows[0].contains("read");
        assert_eq!(is_read, reads == 1, "{page}");
        let first = rows.last().unwrap();
        assert!(first.contains("executed") && rows[rows.len() - 2].contains("replayed"));
        let link = "<a class=\"mono\" href=\"/console/keys/key%2F1%3F\">key/1?</a>";
        let is_counted = first.contains("<td class=\"number\">2</td>");
        assert!(first.contains(link) && is_counted, "{first}");
    }
}

#[tokio::test]
async fn the_address_says_which_requests_are_shown() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let long = "checkout-0193f456789abcdef0123456789abcdef-7";
    let charge = client.charge(long).await.id();
    let declined = json!({"amount": 500, "currency": "usd", "source": "tok_chargeDeclined"});
    client.post("/charges", "key-2", &declined).await;
    client
        .post("/refunds", "key-3", &json!({"charge": charge}))
        .await;
    client.post("/orders", "key-4", &json!({})).await;
    client.get("/charges").await;
    log_holds(&server, 5).await;
    let visit = Visit::begin(&server).await;
    for (query, keys) in [
        ("", &["key-4", "key-3", "key-2", long][..]),
        ("status=402", &["key-2"]),
        ("status=4xx", &["key-4", "key-2"]),
        ("outcome=refused", &["key-4"]),
        ("path=/refunds", &["key-3"]),
        ("key=key-", &["key-4", "key-3", "key-2"]),
        (&format!("object={charge}"), &[long]),
        ("outcome=executed&status=2xx&path=/charges", &[long]),
        ("outcome=replayed", &[]),
    ] {
        for path in ["/console", "/console/live"] {
            let page = visit.page(&format!("{path}?{query}")).await;
            let stories = page.split("href=\"/console/keys/").skip(1);
            let shown: Vec<_> = stories
                .map(|rest| rest.split('"').next().unwrap())
                .collect();
            assert_eq!(shown, keys, "{query}: {page}");
        }
    }
    let page = visit.page("/console?status=4xx&path=%2Forders").await;
    for part in [
        "name=\"status\" value=\"4xx\"",
        "name=\"path\" value=\"/orders\"",
        "data-live=\"/console/live?status=4xx&amp;path=%2Forders\"",
        "href=\"/console\">Show all</a>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // A declined card is no success, and a long key is one line.
    let page = visit.page("/console").await;
    assert!(
        page.contains("<span class=\"state warn\">declined</span> 402"),
        "{page}"
    );
    let link = format!("title=\"{long}\">checkout-0193f…abcdef-7</a>");
    assert!(page.contains(&link), "{page}");
    let none = visit.page("/console?outcome=replayed").await;
    assert!(none.contains("No request fits"), "{none}");
    // What is wrong is named, and the form keeps the rest.
    for (field, wrong) in [
        ("outcome", "outcome=x"),
        ("status", "status=x"),
        ("status", "status=600"),
        ("path", "path=%00"),
        ("object", "object=%00"),
    ] {
        let answer = visit.get(&format!("/console?{wrong}&key=key-7")).await;
        assert_eq!(answer.status, 400, "{wrong}");
        let page = super::visit::text(&answer);
        for part in [
            "name=\"key\" value=\"key-7\"",
            &format!("<p class=\"problem\" id=\"{field}-problem\" role=\"alert\">"),
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert_eq!(page.matches("aria-invalid=\"true\"").count(), 1, "{page}");
        let live = visit.get(&format!("/console/live?{wrong}")).await;
        assert_eq!(live.status, 400, "{wrong}");
    }
    let workflow = visit.get("/console/workflows?name=order%207").await;
    assert_eq!(workflow.status, 400);
    let page = super::visit::text(&workflow);
    assert!(
        page.contains("value=\"order 7\"") && page.contains("id=\"name-problem\""),
        "{page}"
    );
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
