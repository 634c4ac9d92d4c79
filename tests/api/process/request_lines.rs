//! The last line of each request in the log.

use std::io::Read;

use tokio::io::AsyncWriteExt;

use crate::support::prelude::*;

/// A key that nothing else in a log looks like.
const KEY: &str = "the-whole-key-is-never-logged";

/// The lines of the log that end a request, each with what its span says.
fn last_lines(log: &str) -> Vec<Value> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["outcome"].is_string())
        .map(|mut line| {
            let span = line["spans"][0].take();
            for (name, value) in span.as_object().expect("a span") {
                line[name] = value.clone();
            }
            line
        })
        .collect()
}

#[tokio::test]
async fn a_charge_its_replay_and_a_reuse_of_its_key_can_be_told_apart() {
    let database = TestDatabase::create_unsharded().await;
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let info = [
        ("RUST_LOG", "info"),
        ("LOG_FORMAT", "json"),
        ("WORKERS", "1"),
    ];
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &info);
    let client = &server.client;
    let made = printed_by(
        &["api-key", "create", "--account", "other"],
        &[("DATABASE_URL", &database.url)],
    );
    let key_of_other = made
        .split_whitespace()
        .find(|word| word.starts_with("sk_test_"));
    let other = client.with_api_key(key_of_other.unwrap());
    client.charge(KEY).await;
    client.charge(KEY).await;
    client.post("/charges", KEY, &another_charge()).await;
    client
        .post("/charges", "key-2", &json!({"amount": 0}))
        .await;
    client.get("/charges").await;
    client.get("/nowhere").await;
    client
        .with_api_key("sk_test_wrong_key")
        .get("/charges")
        .await;
    other.charge(KEY).await;
    client.get("/livez").await;
    // One whose client leaves while it waits.
    let paused = PausePoint::at(Stage::Executing, &database, "key-3").await;
    let mut stream = tokio::net::TcpStream::connect(client.address)
        .await
        .unwrap();
    let body = charge().to_string();
    let request = format!(
        "POST /charges HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: key-3\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut paused = paused;
    tokio::time::timeout(PATIENCE, paused.is_reached())
        .await
        .unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    let mut text = String::new();
    eventually("all requests have their last line", || {
        log.read_to_string(&mut text).unwrap();
        std::future::ready(last_lines(&text).len() == 9)
    })
    .await;
    paused.release().await;

    let lines = last_lines(&text);
    let told = lines.iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        let replayed = line["replayed"].as_bool().unwrap();
        let (method, route, outcome) = (text("method"), text("route"), text("outcome"));
        assert!(line["duration_us"].is_u64(), "{line}");
        assert!(
            line["request_id"].as_str().unwrap().starts_with("req_"),
            "{line}"
        );
        format!("{method} {route} {} {outcome} {replayed}", line["status"])
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "POST /charges 201 executed false",
            "POST /charges 201 replayed true",
            "POST /charges 422 reused false",
            "POST /charges 400 refused false",
            "GET /charges 200 read false",
            "GET not_found 404 read false",
            "GET /charges 401 read false",
            "POST /charges 201 executed false",
            "POST /charges null unanswered false",
        ]
    );
    let hash = |number: usize| lines[number]["key"].as_str().unwrap();
    assert_eq!((hash(0).len(), hash(0)), (8, hash(1)));
    assert_eq!(hash(0), hash(2));
    assert_ne!(hash(0), hash(3));
    assert_ne!(hash(0), hash(7), "another account's key is another one");
    assert!(lines[4]["key"].is_null());
    assert!(!text.contains(KEY));
}
