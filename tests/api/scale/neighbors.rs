//! One account that would like to have every connection, and the others.

use crate::support::prelude::*;

/// More than the pool has connections, by far.
const ATTACKERS: usize = 100;

const LOCK_ORDERS: &str = "SELECT FROM orders FOR UPDATE";

/// How often the other account charges meanwhile.
const CHARGES: usize = 60;

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
    let tx = server.database.holding(LOCK_ORDERS).await;
    let mut asked = Instant::now();
    assert_eq!(other.charge("first").await.status, 201);
    let mut attackers = pay(&server.client, &order);
    let wait = async || server.database.count(LOCK_WAITS).await > 0;
    eventually("they wait for the order", wait).await;
    let mut judged = 0;
    for number in 0..CHARGES {
        // Each needs connections while all attackers want some. None waits until its time is over.
        let asked_before = std::mem::replace(&mut asked, Instant::now());
        assert_eq!(other.charge(&format!("key-{number}")).await.status, 201);
        let waiting = server.database.count(LOCK_WAITS).await;
        // Half of ten, for a second after the other account has asked. A busy machine may take
        // longer.
        if asked_before.elapsed() < Duration::from_millis(900) {
            assert!(waiting <= 5, "{waiting}");
            judged += 1;
        }
    }
    assert!(judged > CHARGES / 2, "{judged}");
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
    // It waits for a second. A machine that is busy for most of it shows nothing, so there is
    // another try.
    let mut tries = 0;
    while !is_waited_for(&server).await {
        tries += 1;
        assert!(tries < 5, "the machine is too busy");
    }
}

/// A payment waits for a second.
const IN_TIME: Duration = Duration::from_millis(800);

/// Pays an order that is locked at first. `false`: it took too long to see that the payment waits.
async fn is_waited_for(server: &TestServer) -> bool {
    let before = server.database.charges().await;
    let order = open_order(&server.client).await;
    let tx = server.database.holding(LOCK_ORDERS).await;
    let path = format!("/orders/{order}/pay");
    let sent = Instant::now();
    let body = json!({"source": "tok_visa"});
    let paying = server.client.sending(&path, &path, body);
    // The first of its transactions waits, gives up, and another one waits.
    for waits in [1, 0, 1, 0] {
        eventually("it waits, or gives its connection back", || async {
            server.database.count(LOCK_WAITS).await == waits || sent.elapsed() > IN_TIME
        })
        .await;
    }
    tx.rollback().await.unwrap();
    let paid = paying.await.unwrap().status;
    if sent.elapsed() > IN_TIME {
        return false;
    }
    assert_eq!(paid, 200);
    assert_eq!(server.database.charges().await, before + 1);
    true
}
