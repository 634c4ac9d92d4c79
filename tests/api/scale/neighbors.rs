//! One account that would like to have every connection, and the others.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{
    accounts::client_of_account,
    harness::{ALONE, Answer, Client, TestServer, eventually},
    resources::open_order,
};

/// More than the pool has connections, by far.
const ATTACKERS: usize = 100;

/// How often the other account charges meanwhile.
const CHARGES: usize = 60;

/// Transactions that wait for a row.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Many requests that wait for one order.
fn pay(client: &Client, order: &str) -> JoinSet<Answer> {
    (0..ATTACKERS)
        .map(|number| {
            let (client, path) = (client.clone(), format!("/orders/{order}/pay"));
            async move {
                let body = json!({"source": "tok_visa"});
                client.post(&path, &format!("pay-{number}"), &body).await
            }
        })
        .collect()
}

#[tokio::test]
async fn requests_that_wait_for_one_row_leave_connections_to_other_accounts() {
    let server = TestServer::start_with(&[ALONE]).await;
    let other = client_of_account(&server, "another").await;
    let order = open_order(&server.client).await;
    let mut tx = server.database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM orders FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert_eq!(other.charge("first").await.status, 201);
    let mut attackers = pay(&server.client, &order);
    eventually("they wait for the order", || async {
        server.database.count(WAITING).await > 0
    })
    .await;
    for number in 0..CHARGES {
        // Each needs connections while all attackers want some. None waits until its time is over.
        assert_eq!(other.charge(&format!("key-{number}")).await.status, 201);
        assert!(server.database.count(WAITING).await <= 5, "half of ten");
    }
    while let Some(attacker) = attackers.join_next().await {
        let (status, code, _) = attacker.unwrap().refusal();
        // Some never got a connection in time; those that did say what they waited for.
        let expected = [(409, "resource_busy"), (503, "service_unavailable")];
        assert!(expected.contains(&(status, &*code)), "{status} {code}");
    }
    tx.rollback().await.unwrap();
    // Nothing of them is left: the same key pays now.
    let body = json!({"source": "tok_visa"});
    let path = format!("/orders/{order}/pay");
    let paid = server.client.post(&path, "pay-0", &body).await;
    assert_eq!(paid.status, 200);
    assert!(!paid.is_replay());
}

#[tokio::test]
async fn a_row_that_is_unlocked_within_a_second_is_waited_for() {
    let server = TestServer::start().await;
    let order = open_order(&server.client).await;
    let mut tx = server.database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM orders FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let (client, path) = (server.client.clone(), format!("/orders/{order}/pay"));
    let paying = tokio::spawn(async move {
        let body = json!({"source": "tok_visa"});
        client.post(&path, "pay", &body).await
    });
    // The first of its transactions waits, gives up, and another one waits.
    for _ in 0..2 {
        eventually("it waits", || async {
            server.database.count(WAITING).await == 1
        })
        .await;
        eventually("it gives its connection back", || async {
            server.database.count(WAITING).await == 0
        })
        .await;
    }
    tx.rollback().await.unwrap();
    assert_eq!(paying.await.unwrap().status, 200);
    assert_eq!(server.database.charges().await, 1);
}
