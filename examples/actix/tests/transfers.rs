//! The example, run as a program of its own on a real PostgreSQL.

use std::sync::Arc;

use example_test_support::endpoint::{self, Endpoint};
use tokio::task::JoinSet;

const TRANSFERS: Endpoint = Endpoint {
    program: env!("CARGO_BIN_EXE_example-actix"),
    path: "/transfers",
    body: r#"{"from":1,"to":2,"amount":100}"#,
    other_body: r#"{"from":1,"to":2,"amount":200}"#,
    effects: "SELECT (balance - 1000) / 100 FROM accounts WHERE id = 2",
    forbid: "UPDATE accounts SET balance = 0 WHERE id = 1",
    reset: "UPDATE accounts SET balance = 1000",
};

#[tokio::test]
async fn a_retry_is_answered_with_what_is_stored() {
    endpoint::replays(TRANSFERS).await;
}

#[tokio::test]
async fn a_key_is_refused_for_another_request() {
    endpoint::refuses_reuse(TRANSFERS).await;
}

#[tokio::test]
async fn a_refusal_is_stored_and_replayed() {
    endpoint::replays_refusals(TRANSFERS).await;
}

#[tokio::test]
async fn a_request_without_a_key_has_no_effect() {
    endpoint::needs_a_key(TRANSFERS).await;
}

#[tokio::test]
async fn fifty_racers_have_one_effect() {
    endpoint::has_one_effect_for_fifty_racers(TRANSFERS).await;
}

#[tokio::test]
async fn a_request_for_another_protocol_is_answered_and_told_that_the_connection_ends() {
    endpoint::answers_upgrades(TRANSFERS, true).await;
}

#[tokio::test]
async fn expired_keys_are_swept() {
    endpoint::sweeps_expired_keys(TRANSFERS).await;
}

#[tokio::test]
async fn sigterm_ends_the_program_in_good_order() {
    endpoint::ends_in_good_order(TRANSFERS).await;
}

#[tokio::test]
async fn a_refused_transfer_takes_no_money() {
    let service = TRANSFERS.start().await;
    for (key, body) in [
        r#"{"from":1,"to":3,"amount":100}"#,
        r#"{"from":3,"to":1,"amount":100}"#,
        r#"{"from":1,"to":2,"amount":1001}"#,
        r#"{"from":1,"to":2,"amount":0}"#,
        r#"{"from":1,"to":2,"amount":-100}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let answer = service.post(&format!("key-{key}"), body).await;
        assert_eq!(answer.status, 400, "{body}");
    }
    let untouched = "SELECT count(*) FROM accounts WHERE balance = 1000";
    assert_eq!(service.number(untouched).await, 2);
}

#[tokio::test]
async fn opposite_transfers_lose_no_money() {
    let service = Arc::new(TRANSFERS.start().await);
    let mut clients = JoinSet::new();
    for client in 0..20 {
        let service = Arc::clone(&service);
        clients.spawn(async move {
            let body = match client % 2 {
                0 => r#"{"from":1,"to":2,"amount":10}"#,
                _ => r#"{"from":2,"to":1,"amount":20}"#,
            };
            let key = format!("key-{client}");
            service.post_until_definite(&key, body).await.status
        });
    }
    assert_eq!(clients.join_all().await, [201; 20]);
    let balance = "SELECT balance FROM accounts WHERE id = 1";
    assert_eq!(service.number(balance).await, 1100);
}
