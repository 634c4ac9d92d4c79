//! Whole servers, over TCP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may stop at the first surprise"
)]
use actix_web::{App, HttpResponse, web};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::*;

/// Any test ends here, as a failure.
const PATIENCE: Duration = Duration::from_secs(20);

async fn lost() -> HttpResponse {
    let mut reply = HttpResponse::Ok().body("lost");
    reply.extensions_mut().insert(NoReply);
    reply
}

/// All that a client reads that sends these bytes, and then waits for the end of its connection.
async fn received_for(sent: &str) -> String {
    let short = Duration::from_millis(400);
    let settings = ServerSettings {
        timeouts: ConnectionTimeouts {
            keep_alive: short,
            request_head: short,
            reply: short,
        },
        workers: 1,
        connections_per_worker: 10,
        drain_timeout: Duration::ZERO,
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let app = || {
        App::new()
            .route("/", web::post().to(|| async { "created" }))
            .route("/", web::head().to(|| async { "unseen" }))
            .route("/lost", web::get().to(lost))
    };
    let server = server(listener, app, settings, |_| {}).unwrap();
    let handle = server.handle();
    let served = tokio::spawn(server);

    let mut received = Vec::new();
    let asking = async {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        // A connection that is cut may be reset.
        let _ = socket.read_to_end(&mut received).await;
    };
    let ended = timeout(PATIENCE, asking).await;
    ended.expect("the connection ends");
    handle.stop(false).await;
    served.await.unwrap().unwrap();
    String::from_utf8(received).unwrap()
}

#[tokio::test]
async fn a_reply_has_its_body_though_a_head_request_follows_in_the_same_write() {
    let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    let received = received_for(&format!("{post}HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let (first, second) = received.split_once("created").expect(&received);
    assert!(first.starts_with("HTTP/1.1 200 "), "{received}");
    assert!(second.starts_with("HTTP/1.1 200 "), "{received}");
    assert!(!second.contains("unseen"), "{received}");
}

#[tokio::test]
async fn a_request_that_asks_for_another_protocol_is_answered_as_if_it_did_not() {
    let asking = "Connection: Upgrade\r\nUpgrade: h2c\r\n";
    let post = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{asking}\r\n");
    let received = received_for(&post.repeat(2)).await;
    assert_eq!(received.matches("created").count(), 2, "{received}");
}

#[tokio::test]
async fn half_a_head_is_408() {
    let received = received_for("GET / HTTP/1.1\r\n").await;
    assert!(received.starts_with("HTTP/1.1 408 "), "{received}");
}

#[tokio::test]
async fn a_reply_that_is_to_be_lost_ends_its_connection_without_a_byte() {
    let received = received_for("GET /lost HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(received, "");
}
