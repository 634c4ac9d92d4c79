//! The last line of each request in the log.

use crate::support::prelude::*;

/// A key that nothing else in a log looks like.
const KEY: &str = "the-whole-key-is-never-logged";

/// The lines of the log that end a request, each with what its span says.
fn last_lines(log: &str) -> Vec<Value> {
    let lines = log.lines();
    let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut last: Vec<_> = lines.filter(|line| line["outcome"].is_string()).collect();
    for line in &mut last {
        let span = line["spans"][0].take();
        for (name, value) in span.as_object().expect("a span") {
            line[name] = value.clone();
        }
    }
    last
}

#[tokio::test]
async fn a_charge_its_replay_and_a_reuse_of_its_key_can_be_told_apart() {
    let database = TestDatabase::create_unsharded().await;
    let info = [
        ("RUST_LOG", "info"),
        ("LOG_FORMAT", "json"),
        ("WORKERS", "1"),
    ];
    let (server, log) = start_with_log(&database, &info);
    let client = &server.client;
    let made = database.printed_by("api-key create --account other");
    let other = client.with_api_key(made.lines().next().unwrap());
    client.charge(KEY).await;
    client.charge(KEY).await;
    client.post("/charges", KEY, &another_charge()).await;
    let wrong = json!({"amount": 0});
    client.post("/charges", "key-2", &wrong).await;
    client.get("/charges").await;
    client.get("/nowhere").await;
    let stranger = client.with_api_key("sk_test_wrong_key");
    stranger.get("/charges").await;
    other.charge(KEY).await;
    client.get("/livez").await;
    // One whose client leaves while it waits.
    let mut paused = PausePoint::at(Stage::Executing, &database, "key-3").await;
    let stream = send_charge(client, "key-3", "").await;
    let reached = tokio::time::timeout(PATIENCE, paused.is_reached());
    reached.await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    let are_told = async || last_lines(&text_of(&log)).len() == 9;
    eventually("all requests have their last line", are_told).await;
    let text = text_of(&log);
    paused.release().await;

    let lines = last_lines(&text);
    let told = lines.iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        let replayed = line["replayed"].as_bool().unwrap();
        let (method, route, outcome) = (text("method"), text("route"), text("outcome"));
        assert!(line["duration_us"].is_u64(), "{line}");
        assert!(text("request_id").starts_with("req_"), "{line}");
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
    assert_eq!(hash(0).len(), 8);
    assert_eq!([hash(1), hash(2)], [hash(0); 2]);
    assert_ne!(hash(0), hash(3));
    assert_ne!(hash(0), hash(7), "another account's key is another one");
    assert!(lines[4]["key"].is_null());
    assert!(!text.contains(KEY));
}
