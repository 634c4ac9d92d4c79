//! Several requests on one connection: each has the reply that it has alone.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    connection::{Connection, request},
    prelude::*,
};

fn charge_request(key: &str) -> String {
    let headers = format!("Content-Type: {JSON}\r\nIdempotency-Key: {key}\r\n");
    request("POST", "/charges", &headers, &charge().to_string())
}

fn head_request() -> String {
    request("HEAD", "/livez", "", "")
}

fn get_request() -> String {
    request("GET", "/livez", "", "")
}

const ALIVE: &str = "{\"status\":\"alive\"}";

/// The whole reply to a charge, and then the one to a HEAD, which has no body.
async fn a_charge_and_then_a_head(connection: &mut Connection) {
    let (head, body) = connection.reply().await;
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    let charge: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(charge["object"], "charge");
    is_answered_without_a_body(connection).await;
}

async fn is_answered_without_a_body(connection: &mut Connection) {
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

async fn is_charged(connection: &mut Connection) {
    let (head, _) = connection.reply().await;
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
}

/// A handler takes no part in this: the server would know by the HEAD that no reply has a body, and
/// the client would read the next reply as the body of the charge.
#[tokio::test]
async fn a_charge_has_its_whole_reply_though_a_head_request_follows_in_the_same_write() {
    let server = TestServer::start().await;
    for number in 0..20 {
        let mut connection = Connection::open(&server.client).await;
        let both = charge_request(&format!("key-{number}")) + &head_request();
        connection.send(both).await;
        a_charge_and_then_a_head(&mut connection).await;
        // The connection goes on, so that nothing is left on it.
        connection.send(get_request()).await;
        assert_eq!(connection.reply().await.1, ALIVE);
    }
    assert_eq!(server.database.charges().await, 20);
}

#[tokio::test]
async fn a_head_request_has_no_body_though_a_get_request_follows_in_the_same_write() {
    let server = TestServer::start().await;
    for _ in 0..20 {
        let mut connection = Connection::open(&server.client).await;
        // It asks the database, so that both have arrived before it is answered.
        let ready = request("HEAD", "/readyz", "", "");
        connection.send(ready + &get_request()).await;
        is_answered_without_a_body(&mut connection).await;
        assert_eq!(connection.reply().await.1, ALIVE);
    }
}

/// Actix sees chunks where another server might see a change of protocol.
#[tokio::test]
async fn a_chunked_request_that_asks_for_another_protocol_is_one_request_as_well() {
    let server = TestServer::start().await;
    let charge = charge().to_string();
    for number in 0..20 {
        let headers = format!(
            "Content-Type: {JSON}\r\nIdempotency-Key: key-{number}\r\nUpgrade: websocket\r\n\
             Transfer-Encoding: chunked\r\n"
        );
        let chunks = format!("{:x}\r\n{charge}\r\n0\r\n\r\n", charge.len());
        let mut connection = Connection::open(&server.client).await;
        let both = request("POST", "/charges", &headers, "") + &chunks + &head_request();
        connection.send(both).await;
        a_charge_and_then_a_head(&mut connection).await;
    }
}

#[tokio::test]
async fn a_hundred_requests_in_one_write_are_answered_in_order() {
    let server = TestServer::start().await;
    let both = |number| charge_request(&format!("key-{number}")) + &head_request();
    let requests: String = (0..100).map(both).collect();
    let socket = Connection::open(&server.client).await.socket;
    let (mut read, mut write) = socket.into_split();
    // More than the server takes before it answers.
    let sending = async {
        write.write_all(requests.as_bytes()).await.unwrap();
        // The end of the requests takes no reply away.
        write.shutdown().await.unwrap();
    };
    let mut replies = String::new();
    let exchange = async { tokio::join!(sending, read.read_to_string(&mut replies)) };
    let exchange = tokio::time::timeout(PATIENCE, exchange).await;
    exchange.expect("the connection ends").1.unwrap();
    let lines = replies.lines();
    let keys = lines.filter_map(|line| line.strip_prefix("idempotency-key: key-"));
    let keys: Vec<i32> = keys.map(|number| number.parse().unwrap()).collect();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
    assert_eq!(replies.matches("HTTP/1.1 201 ").count(), 100);
    assert_eq!(replies.matches("HTTP/1.1 200 ").count(), 100);
    assert_eq!(server.database.charges().await, 100);
}

#[tokio::test]
async fn a_connection_is_used_again_after_any_reply() {
    let server = TestServer::start().await;
    let mut connection = Connection::open(&server.client).await;
    for number in 0..3 {
        let charge = charge_request(&format!("key-{number}"));
        connection.send(charge).await;
        is_charged(&mut connection).await;
        // An unread body, in chunks.
        let chunked = "Transfer-Encoding: chunked\r\n";
        let nothing = request("POST", "/nothing", chunked, "");
        connection.send(nothing).await;
        assert!(connection.reply().await.0.starts_with("HTTP/1.1 404 "));
        connection.send("3\r\nabc\r\n0\r\n\r\n").await;
        connection.send("\r\n\r\n").await;
        connection.send(head_request()).await;
        is_answered_without_a_body(&mut connection).await;
    }
}

#[tokio::test]
async fn a_client_that_expects_100_sends_its_body_after_it() {
    let server = TestServer::start().await;
    let mut connection = Connection::open(&server.client).await;
    for key in ["key-1", "key-2"] {
        let expecting = charge_request(key)
            .replace("Host: localhost", "Host: localhost\r\nExpect: 100-continue");
        let (head, body) = expecting.split_at(expecting.find("\r\n\r\n").unwrap() + 4);
        connection.send(head).await;
        assert_eq!(connection.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
        connection.send(body).await;
        is_charged(&mut connection).await;
    }
}

/// Far more than the server holds back.
#[tokio::test]
async fn a_body_of_the_largest_size_arrives_whole() {
    let server = TestServer::start_with(&[("BODY_LIMIT", "1048576")]).await;
    let charge = charge().to_string();
    let body = " ".repeat(1024 * 1024 - charge.len()) + &charge;
    let headers = format!("Content-Type: {JSON}\r\nIdempotency-Key: sized\r\n");
    let mut connection = Connection::open(&server.client).await;
    let sized = request("POST", "/charges", &headers, &body);
    connection.send(sized).await;
    is_charged(&mut connection).await;
    let headers = headers.replace("sized", "chunked") + "Transfer-Encoding: chunked\r\n";
    let chunked = request("POST", "/charges", &headers, "");
    connection.send(chunked).await;
    for piece in body.as_bytes().chunks(10_000) {
        connection.send(format!("{:x}\r\n", piece.len())).await;
        connection.send(piece).await;
        connection.send("\r\n").await;
    }
    connection.send("0\r\n\r\n").await;
    is_charged(&mut connection).await;
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn what_is_malformed_is_refused_and_ends_the_connection() {
    let server = TestServer::start().await;
    for malformed in [
        "\u{16}\u{3}\u{1}\u{2}",
        "GET /livez HTTP/1.1\r\n\r\n",
        "GET /livez\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\nx",
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    ] {
        let mut connection = Connection::open(&server.client).await;
        let requests = get_request() + malformed + &get_request();
        connection.send(requests).await;
        assert_eq!(connection.reply().await.1, ALIVE);
        let rest = connection.rest().await;
        assert!(rest.starts_with("HTTP/1.1 400 "), "{malformed:?}: {rest}");
        assert_eq!(rest.matches("HTTP/1.1").count(), 1, "{malformed:?}: {rest}");
    }
}
