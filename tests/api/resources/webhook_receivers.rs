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

const HASTY: &[(&str, &str)] = &[("WEBHOOK_TIMEOUT", "300ms")];

#[tokio::test]
async fn what_never_ends_or_is_no_reply_is_a_failure_and_an_unusual_reply_is_none() {
    let many = |piece: &str, count: usize| -> &'static str { piece.repeat(count).leak() };
    let with_headers = |count: usize| -> &'static str {
        let headers = many("a: b\r\n", count);
        format!("HTTP/1.1 200 OK\r\n{headers}\r\n").leak()
    };
    let begun = "HTTP/1.1 200 OK\r\nName: ";
    let informational = "HTTP/1.1 100 Continue\r\n\r\n";
    let early_hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                       HTTP/1.1 204 No Content\r\n\r\n";
    let (too_long, unreadable) = ("the reply is too long", "the reply can't be read");
    for (variables, first, again, pause, shown) in [
        (PATIENT, "", informational, 0, failed(too_long)),
        (PATIENT, begun, many("a", 1024), 0, failed(too_long)),
        (HASTY, begun, "a", 20, failed("timed out")),
        (
            &[],
            "220 mail.example.com ESMTP\r\n",
            "",
            0,
            failed(unreadable),
        ),
        (&[], with_headers(100), "", 0, (Some(200), None)),
        (&[], with_headers(101), "", 0, failed(unreadable)),
        (&[], early_hints, "", 0, (Some(204), None)),
        // A body without an end does not matter.
        (
            PATIENT,
            with_headers(0),
            many("a", 64 * 1024),
            0,
            (Some(200), None),
        ),
    ] {
        let server = TestServer::start_with(&quick_but(variables)).await;
        let pause = Duration::from_millis(pause);
        let url = receiver(first.as_bytes(), again.as_bytes(), pause).await;
        let attempt = first_attempt(&server, &url).await;
        assert_eq!(attempt, shown, "{first:.60} {again:.9}");
    }
}

#[tokio::test]
async fn a_tls_handshake_that_never_ends_times_out() {
    let server = TestServer::start_with(&quick_but(HASTY)).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    assert_eq!(first_attempt(&server, &url).await, failed("timed out"));
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
