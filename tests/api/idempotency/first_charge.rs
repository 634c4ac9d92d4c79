//! The main promise, once, in its plainest form.

use crate::support::prelude::*;

#[tokio::test]
async fn a_retried_charge_charges_once_and_answers_with_the_same_bytes() {
    let server = TestServer::start().await;
    let first = server.client.charge("key-1").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    let second = server.client.charge("key-1").await;
    second.assert_replays(&first);
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(server.database.records().await, 1);
}

#[tokio::test]
async fn a_decline_is_kept_with_its_failed_charge_and_replayed() {
    let server = TestServer::start().await;
    let body = charge_by("tok_chargeDeclinedInsufficientFunds");
    let first = server.client.post("/charges", "key-1", &body).await;
    assert_eq!(error(&first), (402, "card_declined".into()));
    assert_eq!(first.json()["error"]["decline_code"], "insufficient_funds");
    let replay = server.client.post("/charges", "key-1", &body).await;
    replay.assert_replays(&first);
    let failed = "SELECT count(*) FROM charges WHERE status = 'failed'";
    assert_eq!(server.database.count(failed).await, 1);
}

#[tokio::test]
async fn a_replay_is_byte_exact_after_a_restart_and_after_kill_9() {
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[]);
    let first = server.client.charge("key-1").await;
    assert_eq!(first.status, 201);
    server.kill();
    let server = ServerProcess::start(&database, &[]);
    server.client.charge("key-1").await.assert_replays(&first);
    assert_eq!(database.charges().await, 1);
}
