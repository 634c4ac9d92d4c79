//! Of several mistakes in one request, which is answered.

use crate::support::{
    harness::IMPATIENT,
    prelude::*,
    wire::{charge_with, send_slowly},
};

#[tokio::test]
async fn of_two_mistakes_the_earlier_check_answers() {
    let (server, client) = TestServer::with_client(IMPATIENT).await;
    let card = charge_with("description", "4242424242424242".into());
    let (huge, plain) = (vec![b' '; 65_537], "text/plain");
    server.client.charge("taken").await;

    // Route before API key.
    let answer = Answer::of(client.bare(Method::POST, "/nothing")).await;
    assert_eq!(answer.code(), "route_not_found");
    let answer = Answer::of(client.bare(Method::PUT, "/charges")).await;
    assert_eq!(answer.code(), "method_not_allowed");
    // API key before media type.
    let stranger = client.with_api_key("sk_test_nobody_at_all");
    let answer = stranger.post_raw("/charges", "key-1", plain, b"x").await;
    assert_eq!(answer.code(), "api_key_invalid");
    // Media type before size and before time.
    let answer = client.post_raw("/charges", "key-1", plain, &huge).await;
    assert_eq!(answer.code(), "unsupported_media_type");
    let authorized = format!("Authorization: Bearer {API_KEY}\r\n");
    let headers = format!("{authorized}Content-Type: text/plain\r\nIdempotency-Key: key-1\r\n");
    let reply = send_slowly(&client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 415 "), "{reply}");
    // Size and time before the key.
    let answer = client.post_raw("/charges", "not a key", JSON, &huge).await;
    assert_eq!(answer.code(), "body_too_large");
    let headers = format!("{authorized}Content-Type: {JSON}\r\n");
    let reply = send_slowly(&client, "/charges", &headers).await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    // Key before card numbers.
    for path in ["/charges", "/charges?card=4242424242424242"] {
        let answer = client.post_raw(path, "not a key", JSON, &card).await;
        assert_eq!(answer.code(), "idempotency_key_invalid", "{path}");
    }
    // Card numbers before the claim: the key is another request's.
    let answer = client.post_raw("/charges", "taken", JSON, &card).await;
    assert_eq!(answer.code(), "card_number_forbidden");
    // The claim before parameters and rules.
    let answer = client.post_raw("/charges", "taken", JSON, b"{").await;
    assert_eq!(answer.code(), "idempotency_key_reused");

    assert_eq!(server.database.records().await, 1);
}
