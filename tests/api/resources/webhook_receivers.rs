//! Receivers of webhooks that are hostile, or only unusual.

use std::fs;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::prelude::*;

/// Answers each connection with `first`, and then with `again` after each `pause` until the sender
/// goes. Returns its URL.
pub(super) async fn receiver(
    first: &'static [u8],
    again: &'static [u8],
    pause: Duration,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, first, again, pause));
        }
    });
    format!("http://{address}/")
}

async fn answer(mut stream: TcpStream, first: &[u8], again: &[u8], pause: Duration) {
    // A reset, before which the request has arrived, is no answer.
    let mut request = [0; 16 * 1024];
    let _ = stream.read(&mut request).await;
    let mut written = stream.write_all(first).await;
    while written.is_ok() && !again.is_empty() {
        // How slow it is, and not how long something is waited for.
        tokio::time::sleep(pause).await;
        written = stream.write_all(again).await;
    }
}

/// What the first attempt to send to the only endpoint, at `url`, showed.
async fn first_attempt(server: &TestServer, url: &str) -> (Option<i64>, Option<String>) {
    let endpoint = Endpoint::at(&server.client, url).await;
    server.client.charge("key-1").await;
    let shows = |delivery: &serde_json::Value| delivery["attempts"][0].is_object();
    let delivery = endpoint
        .newest_delivery(&server.client, "an attempt has ended", shows)
        .await;
    let attempt = &delivery["attempts"][0];
    let error = attempt["error"].as_str().map(str::to_owned);
    (attempt["response_status"].as_i64(), error)
}

fn failed(error: &str) -> (Option<i64>, Option<String>) {
    (None, Some(error.to_owned()))
}

/// No attempt times out here: a reply without an end is refused for its length.
const PATIENT: &[(&str, &str)] = &[("WEBHOOK_TIMEOUT", "60s")];

#[tokio::test]
async fn informational_replies_without_an_end_are_a_failure() {
    let server = TestServer::start_with(&quick_but(PATIENT)).await;
    let informational = b"HTTP/1.1 100 Continue\r\n\r\n";
    let url = receiver(b"", informational, Duration::ZERO).await;
    let shown = first_attempt(&server, &url).await;
    assert_eq!(shown, failed("the reply is too long"));
}

#[tokio::test]
async fn a_head_without_an_end_is_a_failure() {
    let server = TestServer::start_with(&quick_but(PATIENT)).await;
    let url = receiver(b"HTTP/1.1 200 OK\r\nName: ", &[b'a'; 1024], Duration::ZERO).await;
    let shown = first_attempt(&server, &url).await;
    assert_eq!(shown, failed("the reply is too long"));
}

#[tokio::test]
async fn a_head_that_never_gets_whole_times_out() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_TIMEOUT", "300ms")])).await;
    let drip = Duration::from_millis(20);
    let url = receiver(b"HTTP/1.1 200 OK\r\nName: ", b"a", drip).await;
    assert_eq!(first_attempt(&server, &url).await, failed("timed out"));
}

#[tokio::test]
async fn a_tls_handshake_that_never_ends_times_out() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_TIMEOUT", "300ms")])).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    assert_eq!(first_attempt(&server, &url).await, failed("timed out"));
}

#[tokio::test]
async fn what_is_not_http_is_a_failure() {
    let server = TestServer::start_with(QUICK).await;
    let url = receiver(b"220 mail.example.com ESMTP\r\n", b"", Duration::ZERO).await;
    let shown = first_attempt(&server, &url).await;
    assert_eq!(shown, failed("the reply can't be read"));
}

#[tokio::test]
async fn a_reply_has_at_most_100_headers() {
    for (headers, shown) in [
        (100, (Some(200), None)),
        (101, failed("the reply can't be read")),
    ] {
        let server = TestServer::start_with(QUICK).await;
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(headers));
        let url = receiver(head.leak().as_bytes(), b"", Duration::ZERO).await;
        assert_eq!(first_attempt(&server, &url).await, shown, "{headers}");
    }
}

#[tokio::test]
async fn a_few_informational_replies_before_the_status_are_fine() {
    let server = TestServer::start_with(QUICK).await;
    let replies = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                    HTTP/1.1 204 No Content\r\n\r\n";
    let url = receiver(replies, b"", Duration::ZERO).await;
    assert_eq!(first_attempt(&server, &url).await, (Some(204), None));
}

#[tokio::test]
async fn a_body_without_an_end_does_not_matter() {
    let server = TestServer::start_with(&quick_but(PATIENT)).await;
    let whole_head = b"HTTP/1.1 200 OK\r\n\r\n";
    let url = receiver(whole_head, &[b'a'; 64 * 1024], Duration::ZERO).await;
    assert_eq!(first_attempt(&server, &url).await, (Some(200), None));
}

/// A receiver that keeps the sender busy takes no time of a thread that answers requests.
#[tokio::test]
async fn the_sender_has_a_thread_of_its_own() {
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[]);
    assert_eq!(server.client.charge("key-1").await.status, 201);
    // Only Linux tells.
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", server.child.id())) else {
        return;
    };
    let names: Vec<String> = threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .collect();
    let is_there = names.iter().any(|name| name.trim() == "webhooks");
    assert!(is_there, "{names:?}");
}
