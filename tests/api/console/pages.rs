//! The pages: what they show, to whom, and what they never show.

use super::*;

/// A page without a session, and one that is refused.
const MORE_PAGES: &[&str] = &["/console/sign-in", "/console/requests?before=x"];

const PAGES: &[&str] = &[
    "/console",
    "/console?span=day",
    "/console/live/overview",
    "/console/requests",
    "/console/live",
    "/console/search",
    "/console/search?q=nothing",
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
    "/console/requests?outcome=any&status=2xx&path=/charges&key=dev&object=ch_1",
    "/console/deliveries",
    "/console/deliveries?status=failed",
    "/console/webhook_endpoints/new",
    "/console/in-flight",
    "/console/playground",
    "/console/protocol?step=6",
];

#[tokio::test]
async fn requests_are_listed_the_newest_first_with_the_replays_of_their_keys() {
    let (server, visit) = visited().await;
    visit
        .page("/console/requests")
        .await
        .must_have(&["No request yet"]);
    for _ in 0..3 {
        server.client.charge("key/1?").await;
    }
    server.client.get("/charges").await;
    log_holds(&server.database, 4).await;
    // Reads are shown to who asks for them: a terminal that listens for webhooks sends many.
    for (path, reads) in [
        ("/console/requests", 0),
        ("/console/live", 0),
        ("/console/requests?outcome=any", 1),
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
    let (server, visit) = visited().await;
    let client = &server.client;
    let long = "checkout-0193f456789abcdef0123456789abcdef-7";
    let charge = client.charge(long).await.id();
    let declined = json!({"amount": 500, "currency": "usd", "source": "tok_chargeDeclined"});
    client.post("/charges", "key-2", &declined).await;
    let refund = json!({"charge": charge});
    client.post("/refunds", "key-3", &refund).await;
    client.post("/orders", "key-4", &json!({})).await;
    client.get("/charges").await;
    log_holds(&server.database, 5).await;
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
        for path in ["/console/requests", "/console/live"] {
            let page = visit.page(&format!("{path}?{query}")).await;
            let stories = page.split("href=\"/console/keys/").skip(1);
            let shown = stories.map(|rest| rest.split('"').next().unwrap());
            assert_eq!(shown.collect::<Vec<_>>(), keys, "{query}: {page}");
        }
    }
    let page = visit
        .page("/console/requests?status=4xx&path=%2Forders")
        .await;
    page.must_have(&[
        "name=\"status\" value=\"4xx\"",
        "name=\"path\" value=\"/orders\"",
        "data-live=\"/console/live?status=4xx&amp;path=%2Forders\"",
        "href=\"/console/requests\">Show all</a>",
    ]);
    // A declined card is no success, and a long key is one line.
    let page = visit.page("/console/requests").await;
    let link = format!("title=\"{long}\">checkout-0193f…abcdef-7</a>");
    page.must_have(&["<span class=\"state warn\">declined</span> 402", &link]);
    let none = visit.page("/console/requests?outcome=replayed").await;
    none.must_have(&["No request fits"]);
    // What is wrong is named, and the form keeps the rest.
    for (field, wrong) in [
        ("outcome", "outcome=x"),
        ("status", "status=x"),
        ("status", "status=600"),
        ("path", "path=%00"),
        ("object", "object=%00"),
    ] {
        let answer = visit
            .get(&format!("/console/requests?{wrong}&key=key-7"))
            .await;
        assert_eq!(answer.status, 400, "{wrong}");
        let page = text(&answer.body);
        page.must_have(&[
            "name=\"key\" value=\"key-7\"",
            &format!("<p class=\"problem\" id=\"{field}-problem\" role=\"alert\">"),
        ]);
        assert_eq!(page.matches("aria-invalid=\"true\"").count(), 1, "{page}");
        let live = visit.get(&format!("/console/live?{wrong}")).await;
        assert_eq!(live.status, 400, "{wrong}");
    }
    let workflow = visit.get("/console/workflows?name=order%207").await;
    assert_eq!(workflow.status, 400);
    let page = text(&workflow.body);
    page.must_have(&["value=\"order 7\"", "id=\"name-problem\""]);
}

#[tokio::test]
async fn older_requests_are_a_page_away() {
    let (server, visit) = visited().await;
    for number in 0..60 {
        server.client.charge(&format!("key-{number}")).await;
    }
    log_holds(&server.database, 60).await;
    let first = visit.page("/console/requests").await;
    first.must_have(&["key-59", ">key-10<"]);
    first.must_lack(&[">key-9<"]);
    let older = first.between("href=\"/console/requests?before=", "\"");
    let second = visit
        .page(&format!("/console/requests?before={older}"))
        .await;
    second.must_have(&[">key-9<"]);
    second.must_lack(&[">key-10<", "data-live", "?before="]);
    assert_eq!(visit.get("/console/requests?before=ch_1").await.status, 400);
}

#[tokio::test]
async fn a_page_shows_the_account_of_its_session_only() {
    let (server, visit) = visited().await;
    let alice = client_of_account(&server, "alice").await;
    alice.charge("alice-1").await;
    server.client.charge("dev-1").await;
    log_holds(&server.database, 2).await;
    for path in PAGES {
        let page = visit.page(path).await;
        assert!(!page.contains("alice"), "{path}");
    }
}

#[tokio::test]
async fn what_clients_write_is_text_and_never_markup() {
    let (server, visit) = visited().await;
    let key = "<script>alert(1)</script>";
    let body = json!({"amount": 0});
    server.client.post("/charges", key, &body).await;
    log_holds(&server.database, 1).await;
    let page = visit.page("/console/requests").await;
    page.must_have(&["&lt;script&gt;alert(1)"]);
    page.must_lack(&[key]);
}

#[tokio::test]
async fn pages_load_and_send_nothing_elsewhere_and_are_kept_by_no_cache() {
    let (server, visit) = visited().await;
    let handler = regex::Regex::new(r"\son\w+=").unwrap();
    server.client.charge("dev-1").await;
    for path in PAGES.iter().chain(MORE_PAGES) {
        for method in [Method::GET, Method::HEAD] {
            let answer = Answer::of(visit.request(method, path)).await;
            let policy = answer.header("content-security-policy").unwrap();
            let own_scripts = "default-src 'none'; script-src 'self';";
            assert!(policy.starts_with(own_scripts), "{policy}");
            policy.must_have(&["frame-ancestors 'none'", "form-action 'self'"]);
            policy.must_lack(&["unsafe"]);
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            // With no-referrer, a browser would not say which page sent a form.
            assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
            assert_eq!(answer.header("vary"), Some("Accept-Language"));
            let page = text(&answer.body);
            page.must_lack(&["://", " style="]);
            assert!(!handler.is_match(&page), "{page}");
        }
    }
    for (path, kind) in [("style.css", "text/css"), ("script.js", "text/javascript")] {
        let file = visit.get(&format!("/console/{path}")).await;
        assert!(file.header("content-type").unwrap().starts_with(kind));
        assert_eq!(file.header("cache-control"), Some("public, max-age=3600"));
        assert!(file.body.len() < 30_000, "{path}");
    }
}
