//! The example, run as a program of its own on a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use example_test_support::{Program, empty_database, http_client};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

async fn receive(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0);
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn a_booking_that_commits_is_told_and_one_that_is_refused_is_not() {
    let url = empty_database().await;
    let variables = [("DATABASE_URL", &*url), ("ALLOW_PRIVATE", "1")];
    let service = Program::start(env!("CARGO_BIN_EXE_example-outbox"), &variables);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let post = async |path: &str, body: serde_json::Value| {
        let url = format!("http://{}{path}", service.address);
        http_client().post(url).json(&body).send().await.unwrap()
    };
    let url = format!("http://{}/", listener.local_addr().unwrap());
    assert_eq!(post("/endpoints", json!({"url": url})).await.status(), 200);
    for (seat, status) in [(12, 201), (12, 409), (13, 201)] {
        let booked = post("/bookings", json!({"seat": seat})).await;
        assert_eq!(booked.status(), status);
    }
    let mut seats = Vec::new();
    for _ in 0..2 {
        let told = receive(&listener);
        let told = timeout(Duration::from_secs(20), told).await.unwrap();
        assert!(told.contains(r#""type":"booking.created""#), "{told}");
        seats.push(["12", "13"].map(|seat| told.contains(&format!(r#"{{"seat":{seat}}}"#))));
    }
    seats.sort_unstable();
    assert_eq!(seats, [[false, true], [true, false]]);
}
