//! The test cards: the same answer every time, by token and by number.

use crate::support::{prelude::*, resources::charge_with};

/// token, number, brand, and for a decline its code and decline_code: the contract's table.
const CARDS: &str = "
    tok_visa                            4242424242424242  visa
    pm_card_visa                        4242424242424242  visa
    tok_mastercard                      5555555555554444  mastercard
    tok_amex                            378282246310005   amex
    tok_chargeDeclined                  4000000000000002  visa  card_declined generic_decline
    tok_chargeDeclinedInsufficientFunds 4000000000009995  visa  card_declined insufficient_funds
    tok_visa_chargeDeclinedLostCard     4000000000009987  visa  card_declined lost_card
    tok_visa_chargeDeclinedStolenCard   4000000000009979  visa  card_declined stolen_card
    tok_chargeDeclinedExpiredCard       4000000000000069  visa  expired_card
    tok_chargeDeclinedIncorrectCvc      4000000000000127  visa  incorrect_cvc
    tok_chargeDeclinedProcessingError   4000000000000119  visa  processing_error
    tok_chargeDeclinedFraudulent        4100000000000019  visa  card_declined fraudulent";

#[tokio::test]
async fn every_test_card_answers_alike_by_token_and_by_number() {
    let server = TestServer::start().await;
    for line in CARDS.lines().skip(1) {
        let [token, number, brand, decline @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("no card: {line}");
        };
        let card = json!({"object": "card", "number": number, "exp_month": 8, "exp_year": 2031, "cvc": "314"});
        for (source, expiry) in [(json!(token), (12, 2099)), (card, (8, 2031))] {
            let answer = charge_with(&server.client, &[("source", source)]).await;
            let id = match decline {
                [] => answer.id(),
                _ => answer.text_of("error/charge"),
            };
            let charge = server.client.get(&format!("/charges/{id}")).await.json();
            let kept = &charge["payment_method_details"]["card"];
            assert_eq!(kept["brand"], *brand, "{token}");
            assert_eq!(kept["last4"], number[number.len() - 4..], "{token}");
            kept.assert_shows(json!({"exp_month": expiry.0, "exp_year": expiry.1}));
            assert_eq!(charge["paid"], decline.is_empty(), "{token}");
            let [code, decline_code @ ..] = decline else {
                assert_eq!(answer.status, 201, "{token}");
                continue;
            };
            assert_eq!(error(&answer), (402, (*code).to_owned()), "{token}");
            let told = answer.json()["error"].take();
            told.assert_shows(json!({"type": "card_error", "decline_code": decline_code.first()}));
            charge.assert_shows(json!({
                "status": "failed", "failure_code": code, "failure_message": told["message"],
                "captured": false, "amount_captured": 0, "outcome/type": "issuer_declined",
            }));
        }
    }
}

#[tokio::test]
async fn a_slow_charge_is_409_meanwhile_or_waited_for_and_fills_its_lane() {
    let server = TestServer::start_with(&[("POOL_CONNECTIONS", "4")]).await;
    let slow = charge_by("tok_slow");
    let send = |path: &'static str, key: &'static str| {
        let (client, slow) = (server.client.clone(), slow.clone());
        tokio::spawn(async move { client.post(path, key, &slow).await })
    };
    let started = tokio::time::Instant::now();
    let first = send("/v1/charges", "key-1");
    eventually("the slow charge is in flight", async || {
        server.client.get("/idempotency-keys/key-1").await.status == 200
    })
    .await;
    let waiting = send("/v1/charges", "key-1");
    let refused = server.client.post_waiting(0, "/v1/charges", "key-1", &slow);
    assert_eq!(refused.await.code(), "idempotency_key_in_use");
    // A quarter of four connections is one lane.
    let full = send("/charges", "key-2").await.unwrap();
    assert_eq!(error(&full), (503, "service_unavailable".into()));
    // Ordinary charges pass.
    assert_eq!(server.client.charge("key-3").await.status, 201);
    assert!(!first.is_finished(), "within two seconds");
    let first = tokio::time::timeout(PATIENCE, first).await;
    let first = first.unwrap().unwrap();
    assert_eq!(first.status, 201);
    assert!(started.elapsed() >= std::time::Duration::from_secs(2));
    let waited = waiting.await.unwrap();
    waited.assert_replays(&first);
    // The lane is free again, and so is the key of the one it had no room for.
    assert_eq!(send("/charges", "key-2").await.unwrap().status, 201);
    assert_eq!(server.database.charges().await, 3);
}

#[tokio::test]
async fn the_slow_card_keeps_within_the_time_limit_of_a_statement() {
    // Longer limits of everything else, which a busy machine needs.
    let server = TestServer::start_with(&[("STATEMENT_TIMEOUT", "1500ms")]).await;
    let answer = charge_with(&server.client, &[("source", "tok_slow".into())]).await;
    assert_eq!(answer.status, 201);
}
