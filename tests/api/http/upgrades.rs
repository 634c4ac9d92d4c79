//! Requests that ask for another protocol: they are answered as if they did not ask (RFC 9110,
//! section 7.8), and the connection stays open.

use crate::support::{
    connection::{Connection, UPGRADES, request},
    prelude::*,
    processor::authorize,
};

/// The replies to two requests on one connection.
async fn both_are_answered(address: std::net::SocketAddr, request: &str, status: u16) {
    let mut connection = Connection::open_to(address).await;
    for _ in 0..2 {
        connection.send(request).await;
        let (head, _) = connection.reply().await;
        let status_line = format!("HTTP/1.1 {status} ");
        assert!(head.starts_with(&status_line), "{request}{head}");
        let head = head.to_lowercase();
        for part in ["upgrade", "connection: close"] {
            assert!(!head.contains(part), "{request}{head}");
        }
    }
}

#[tokio::test]
async fn a_request_for_another_protocol_is_answered_and_keeps_the_connection() {
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &[("CONSOLE", "true")]).await;
    let body = charge().to_string();
    for (number, upgrade) in UPGRADES.iter().enumerate() {
        let headers = format!("{upgrade}Content-Type: {JSON}\r\nIdempotency-Key: key-{number}\r\n");
        let charge = request("POST", "/charges", &headers, &body);
        both_are_answered(server.client.address, &charge, 201).await;
        for (path, status) in [
            ("/", 200),
            ("/charges", 200),
            ("/nothing", 404),
            ("/console/sign-in", 200),
        ] {
            let get = request("GET", path, upgrade, "");
            both_are_answered(server.client.address, &get, status).await;
        }
        let scrape = request("GET", "/metrics", upgrade, "");
        both_are_answered(scraper.address, &scrape, 200).await;
    }
    assert_eq!(server.database.charges().await, 6);
}

#[tokio::test]
async fn the_simulated_processor_ignores_it_too() {
    let processor = Processor::start().await;
    let instruction = serde_json::to_string(&authorize("ch_1", "tok_visa")).unwrap();
    let path = format!("/operations/{}", uuid::Uuid::now_v7());
    for upgrade in UPGRADES {
        let headers = format!("{upgrade}Content-Type: {JSON}\r\n");
        let put = request("PUT", &path, &headers, &instruction);
        both_are_answered(processor.address, &put, 200).await;
    }
    assert_eq!(processor.lines().await, 1);
}

#[tokio::test]
async fn http_1_0_closes_unless_it_asks_to_go_on() {
    let server = TestServer::start().await;
    let get = |connection: &str| {
        format!("GET /livez HTTP/1.0\r\nUpgrade: h2c\r\nConnection: {connection}\r\n\r\n")
    };
    let mut connection = Connection::open(&server.client).await;
    let requests = get("upgrade, keep-alive").repeat(2) + &get("upgrade");
    connection.send(requests + &get("upgrade")).await;
    let replies = connection.rest().await;
    assert_eq!(replies.matches("HTTP/1.0 200 ").count(), 3, "{replies}");
    assert!(!replies.contains("upgrade"), "{replies}");
}
