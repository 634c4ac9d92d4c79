//! By which names a server may be called.

use crate::{console::visit::Visit, support::prelude::*};

/// What a browser sends for a page of a site whose name leads to this machine.
const REBOUND: &str = "rebound.example:8080";

#[tokio::test]
async fn under_the_name_of_another_site_nothing_on_loopback_is_served() {
    let (server, client) = TestServer::with_client(&[("CONSOLE", "true")]).await;
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/livez"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/charges"),
        (Method::GET, "/console/sign-in"),
        (Method::GET, "/nothing"),
        (Method::DELETE, "/charges"),
    ] {
        let request = client.request(method, path).header("host", REBOUND);
        let answer = Answer::of(request).await;
        let refused = (400, "host_not_allowed".to_owned(), None);
        assert_eq!(answer.refusal(), refused, "{path}");
    }
    let post = |host| {
        let request = client.request(Method::POST, "/v1/charges");
        let request = request.header("host", host);
        Answer::of(request.header("idempotency-key", "key-1").json(&charge()))
    };
    let refused = post(REBOUND).await;
    assert_eq!(refused.code(), "host_not_allowed");
    assert_eq!(refused.header("stripe-should-retry"), Some("false"));
    assert!(refused.header("request-id").is_some());
    assert_eq!(server.database.records().await, 0);
    assert_eq!(post("localhost").await.status, 201, "the key is free");
    let target = b"GET http://rebound.example/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let refused = send_raw(&client, target).await;
    assert!(refused.contains("host_not_allowed"), "{refused}");
    // A host is asked for by HTTP/1.1 alone.
    let old = send_raw(&client, b"GET /livez HTTP/1.0\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.0 200 "), "{old}");
}

#[tokio::test]
async fn under_the_name_of_another_site_no_metrics_are_served() {
    let database = TestDatabase::create().await;
    let (_server, scraper) = TestServer::start_with_metrics(database, &[]).await;
    for (host, status) in [(REBOUND, 400), ("localhost:9090", 200)] {
        let request = scraper.request(Method::GET, "/metrics");
        let answer = Answer::of(request.header("host", host)).await;
        assert_eq!(answer.status, status, "{host}");
    }
}

#[tokio::test]
async fn behind_allowed_hosts_the_server_still_asks_itself() {
    let database = TestDatabase::create().await;
    let variables = [
        ("BIND_ADDRESS", "0.0.0.0:0"),
        ("ALLOWED_HOSTS", "pay.example.com"),
        ("CONSOLE", "true"),
    ];
    let server = ServerProcess::start(&database, &variables);
    let client = &server.client;
    let livez = |host| Answer::of(client.bare(Method::GET, "/livez").header("host", host));
    assert_eq!(livez("pay.example.com:443").await.status, 200);
    assert_eq!(livez("localhost").await.code(), "host_not_allowed");
    let address = format!("0.0.0.0:{}", client.address.port());
    let variables = [variables[1], ("BIND_ADDRESS", &address)];
    let healthy = run(&["healthcheck"], &variables);
    assert_eq!(healthy.status.code(), Some(0), "{}", text(&healthy.stderr));
    let visit = Visit::begin_under(client, "pay.example.com").await;
    let fields = [
        ("amount", "2000"),
        ("currency", "usd"),
        ("source", "tok_visa"),
        ("kind", "charge"),
        ("action", "send"),
    ];
    let sent = visit.post("/console/playground", &fields).await;
    assert_eq!((sent.status.as_u16(), database.charges().await), (200, 1));
}

#[tokio::test]
async fn no_page_of_another_site_moves_the_simulator() {
    let processor = Processor::start().await;
    let fault = json!({"fault": "refuse"});
    let post = || processor.request(Method::POST, "/faults");
    let rebound = Answer::of(post().header("host", REBOUND).json(&fault)).await;
    assert_eq!(rebound.status, 400);
    assert_eq!(rebound.json()["error"]["code"], "host_not_allowed");
    let ledger = processor.request(Method::GET, "/ledger");
    let ledger = Answer::of(ledger.header("host", REBOUND)).await;
    assert_eq!(ledger.json()["error"]["code"], "host_not_allowed");
    // A browser sends these for any page, without asking.
    for media_type in [None, Some("text/plain"), Some(FORM)] {
        let request = post().body(fault.to_string());
        let request = match media_type {
            None => request,
            Some(media_type) => request.header("content-type", media_type),
        };
        assert_eq!(Answer::of(request).await.status, 415, "{media_type:?}");
    }
    let shown = Answer::of(processor.request(Method::GET, "/faults")).await;
    assert_eq!(shown.json()["faults"], json!([]));
    processor.set_fault(fault).await;
}
