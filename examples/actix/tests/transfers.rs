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
    says_close: true,
};

const DEPOSITS: Endpoint = Endpoint {
    path: "/deposits",
    body: r#"{"to":2,"amount":100}"#,
    other_body: r#"{"to":2,"amount":200}"#,
    forbid: "DELETE FROM accounts WHERE id = 2",
    reset: "INSERT INTO accounts (id, balance) VALUES (2, 1000)
            ON CONFLICT (id) DO UPDATE SET balance = 1000",
    ..TRANSFERS
};

#[tokio::test]
async fn it_does_what_every_endpoint_behind_a_key_does() {
    endpoint::keeps_its_promises(TRANSFERS).await;
}

#[tokio::test]
async fn a_handler_with_the_transaction_does_it_too() {
    endpoint::keeps_its_promises(DEPOSITS).await;
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
