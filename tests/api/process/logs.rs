//! What strangers send must not get into the log, however much of it is asked for.

use crate::support::{prelude::*, wire::charge_with};

/// A test card, in digits that nothing else in a log has.
const CARD: &str = "5555555555554444";

/// Longer than any line that the server writes for itself at INFO.
const LINE_CHARS_MAX: usize = 2_000;

/// Sends a request with `head` and without a body, and awaits its reply's status line.
async fn send(client: &Client, head: &str) -> String {
    let head = format!(
        "{head}\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {API_KEY}\r\n\r\n"
    );
    let reply = send_raw(client, head.as_bytes()).await;
    reply.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn what_strangers_send_is_in_no_line_of_the_most_talkative_log() {
    let database = TestDatabase::create().await;
    let (server, log) = start_with_log(&database, &[("RUST_LOG", "trace")]);
    let client = &server.client;
    // A head has 16 KiB at most.
    let long = "X".repeat(12_000);
    let method = format!("{CARD}{long} /charges HTTP/1.1");
    let not_allowed = send(client, &method).await;
    assert_eq!(not_allowed, "HTTP/1.1 405 Method Not Allowed");
    for (line, status) in [
        (format!("{CARD} /nowhere HTTP/1.1"), 404),
        (format!("GET /{CARD} HTTP/1.1"), 404),
        (format!("GET /{CARD}/{long} HTTP/1.1"), 404),
        (format!("GET /charges/{CARD} HTTP/1.1"), 404),
        (format!("GET /charges?customer={CARD} HTTP/1.1"), 400),
        (format!("GET /charges HTTP/1.1\r\nUser-Agent: {CARD}"), 200),
        (format!("GET /charges HTTP/1.1\r\n{CARD}: {CARD}"), 200),
    ] {
        let answered = send(client, &line).await;
        let status = format!("HTTP/1.1 {status} ");
        assert!(answered.starts_with(&status), "{answered}: {:.100}", line);
    }
    let with_card = charge_with("description", CARD.into());
    let refused = client.post_raw("/charges", CARD, JSON, &with_card).await;
    assert_eq!(error(&refused), (400, "card_number_forbidden".into()));
    let raw = client.post_raw("/charges", "key-1", JSON, CARD.as_bytes());
    assert_eq!(error(&raw.await), (400, "card_number_forbidden".into()));
    let stranger = client.with_api_key(CARD);
    assert_eq!(stranger.get("/charges").await.status, 401);
    drop(server);

    let text = text_of(&log);
    let answered = text.lines().filter(|line| line.contains("answered"));
    assert_eq!(answered.count(), 11, "{text:.5000}");
    assert!(text.contains(r#""method":"unknown""#), "{text:.5000}");
    for line in text.lines() {
        assert!(!line.contains(CARD), "{line:.1000}");
        let is_statement = line.contains("sqlx");
        assert!(is_statement || line.len() < LINE_CHARS_MAX, "{line:.3000}");
    }
}

#[tokio::test]
async fn a_scan_of_ports_is_counted_and_rings_no_alert() {
    let database = TestDatabase::create().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let talkative = [("LOG_FORMAT", "pretty"), ("RUST_LOG", "debug")];
    let file = log.reopen().unwrap();
    let (server, scraper) = ServerProcess::start_with_metrics(file, &database, &talkative);
    for scanned in [
        &b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n"[..],
        b"\0\r\n\r\n",
    ] {
        send_raw(&server.client, scanned).await;
    }
    let malformed = r#"charge_once_connection_failures_total{reason="malformed"}"#;
    reaches(&scraper, malformed, 2.0).await;
    drop(server);

    let text = text_of(&log);
    assert!(text.contains("a connection ended early"), "{text:.5000}");
    for line in text.lines() {
        assert!(!line.contains("ERROR") && !line.contains("WARN"), "{line}");
    }
}
