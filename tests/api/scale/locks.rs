//! Locks that would make the requests of an account queue.

use crate::support::{
    harness::{TestDatabase, TestServer},
    webhook_receiver::Receiver,
    webhooks::{Endpoint, QUICK},
};

/// Tables with a row for each account or endpoint, which many transactions are about at a time.
const SHARED: &str = "SELECT count(*) FROM pg_constraint
     WHERE contype = 'f' AND confrelid IN ('accounts'::regclass, 'webhook_endpoints'::regclass)
       AND conrelid NOT IN ('api_keys'::regclass, 'webhook_endpoints'::regclass)";

#[tokio::test]
async fn no_growing_table_refers_to_rows_that_all_requests_of_an_account_share() {
    let database = TestDatabase::create().await;
    assert_eq!(database.count(SHARED).await, 0);
}

#[tokio::test]
async fn a_locked_account_and_a_locked_endpoint_hold_up_no_charge() {
    let server = TestServer::start_with(&QUICK).await;
    let receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    let mut tx = server.database.pool.begin().await.unwrap();
    for lock in [
        "SELECT FROM accounts FOR UPDATE",
        "SELECT FROM webhook_endpoints FOR UPDATE",
    ] {
        sqlx::query(lock).execute(&mut *tx).await.unwrap();
    }
    assert_eq!(server.client.charge("key").await.status, 201);
    tx.rollback().await.unwrap();
}
