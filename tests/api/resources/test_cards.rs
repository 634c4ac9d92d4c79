//! The test cards: the same answer every time, by token and by number.

use crate::support::{prelude::*, resources::charge_with};

/// The code and the decline_code.
type Decline = Option<(&'static str, Option<&'static str>)>;

/// token, number, brand, and for a decline its code and decline_code: the contract's table.
const CARDS: &[(&str, &str, &str, Decline)] = &[
    ("tok_visa", "4242424242424242", "visa", None),
    ("pm_card_visa", "4242424242424242", "visa", None),
    ("tok_mastercard", "5555555555554444", "mastercard", None),
    ("tok_amex", "378282246310005", "amex", None),
    (
        "tok_chargeDeclined",
        "4000000000000002",
        "visa",
        Some(("card_declined", Some("generic_decline"))),
    ),
    (
        "tok_chargeDeclinedInsufficientFunds",
        "4000000000009995",
        "visa",
        Some(("card_declined", Some("insufficient_funds"))),
    ),
    (
        "tok_visa_chargeDeclinedLostCard",
        "4000000000009987",
        "visa",
        Some(("card_declined", Some("lost_card"))),
    ),
    (
        "tok_visa_chargeDeclinedStolenCard",
        "4000000000009979",
        "visa",
        Some(("card_declined", Some("stolen_card"))),
    ),
    (
        "tok_chargeDeclinedExpiredCard",
        "4000000000000069",
        "visa",
        Some(("expired_card", None)),
    ),
    (
        "tok_chargeDeclinedIncorrectCvc",
        "4000000000000127",
        "visa",
        Some(("incorrect_cvc", None)),
    ),
    (
        "tok_chargeDeclinedProcessingError",
        "4000000000000119",
        "visa",
        Some(("processing_error", None)),
    ),
    (
        "tok_chargeDeclinedFraudulent",
        "4100000000000019",
        "visa",
        Some(("card_declined", Some("fraudulent"))),
    ),
];

#[tokio::test]
async fn every_test_card_answers_alike_by_token_and_by_number() {
    let server = TestServer::start().await;
    for (token, number, brand, decline) in CARDS {
        let card = json!({"object": "card", "number": number, "exp_month": 8, "exp_year": 2031, "cvc": "314"});
        for (source, expiry) in [(json!(token), (12, 2099)), (card, (8, 2031))] {
            let answer = charge_with(&server.client, &[("source", source)]).await;
            let id = match decline {
                None => answer.id(),
                Some(_) => answer.json()["error"]["charge"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            };
            let charge = server.client.get(&format!("/charges/{id}")).await.json();
            let kept = &charge["payment_method_details"]["card"];
            assert_eq!(kept["brand"], *brand, "{token}");
            assert_eq!(kept["last4"], number[number.len() - 4..], "{token}");
            assert_eq!(
                (&kept["exp_month"], &kept["exp_year"]),
                (&json!(expiry.0), &json!(expiry.1))
            );
            assert_eq!(charge["paid"], decline.is_none(), "{token}");
            let Some((code, decline_code)) = decline else {
                assert_eq!(answer.status, 201, "{token}");
                continue;
            };
            let error = answer.json()["error"].clone();
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (402, *code),
                "{token}"
            );
            assert_eq!(error["type"], "card_error", "{token}");
            assert_eq!(error["decline_code"].as_str(), *decline_code, "{token}");
            assert_eq!(
                (&charge["status"], &charge["failure_code"]),
                (&json!("failed"), &json!(code))
            );
            assert_eq!(charge["failure_message"], error["message"], "{token}");
            assert_eq!(
                (&charge["captured"], &charge["amount_captured"]),
                (&json!(false), &json!(0))
            );
            assert_eq!(charge["outcome"]["type"], "issuer_declined", "{token}");
        }
    }
}

#[tokio::test]
async fn a_slow_charge_is_409_meanwhile_or_waited_for_and_fills_its_lane() {
    let server = TestServer::start_with(&[("POOL_CONNECTIONS", "4")]).await;
    let mut slow = charge();
    slow["source"] = "tok_slow".into();
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
    let refused = server
        .client
        .request(reqwest::Method::POST, "/v1/charges")
        .header("idempotency-key", "key-1")
        .header("prefer", "wait=0");
    assert_eq!(
        Answer::of(refused.json(&slow)).await.code(),
        "idempotency_key_in_use"
    );
    // A quarter of four connections is one lane.
    let full = send("/charges", "key-2").await.unwrap();
    assert_eq!(
        (full.status.as_u16(), full.code().as_str()),
        (503, "service_unavailable")
    );
    // Ordinary charges pass.
    assert_eq!(server.client.charge("key-3").await.status, 201);
    assert!(
        !first.is_finished(),
        "all of this happens within two seconds"
    );

    let first = tokio::time::timeout(PATIENCE, first)
        .await
        .unwrap()
        .unwrap();
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
