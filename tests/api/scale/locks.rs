//! Locks that would make the requests of an account queue.

use crate::support::{prelude::*, webhooks::told};

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
    let (server, _receiver, _endpoint) = told(QUICK).await;
    let lock = "SELECT FROM accounts FOR UPDATE; SELECT FROM webhook_endpoints FOR UPDATE";
    let tx = server.database.holding(lock).await;
    assert_eq!(server.client.charge("key").await.status, 201);
    tx.rollback().await.unwrap();
}

/// Foreign keys to tables whose rows are deleted, without an index that begins with their columns:
/// for each such row PostgreSQL would read the referring table whole. Of `orders`, only those of a
/// test account are deleted, when nothing is left that refers to them.
const UNINDEXED: &str = "SELECT count(*) FROM pg_constraint AS key
     WHERE contype = 'f'
       AND confrelid IN ('charges'::regclass, 'refunds'::regclass, 'checkouts'::regclass,
                         'events'::regclass)
       AND NOT EXISTS (
           SELECT FROM pg_index AS index
            WHERE indrelid = conrelid
              AND (indpred IS NULL OR pg_get_expr(indpred, indrelid) ~ '^\\(\\w+ IS NOT NULL\\)$')
              AND (SELECT array_agg(attnum ORDER BY attnum)
                     FROM unnest((indkey::smallint[])[0:cardinality(conkey) - 1]) AS attnum)
                = (SELECT array_agg(attnum ORDER BY attnum) FROM unnest(conkey) AS attnum))";

#[tokio::test]
async fn every_foreign_key_has_an_index() {
    let database = TestDatabase::create().await;
    assert_eq!(database.count(UNINDEXED).await, 0);
}

#[tokio::test]
async fn looking_up_a_completed_key_waits_for_no_write() {
    let server = TestServer::start().await;
    server.client.charge("key").await;
    let lock = "LOCK TABLE idempotency_keys IN SHARE ROW EXCLUSIVE MODE";
    let tx = server.database.holding(lock).await;
    let found = server.client.get("/idempotency-keys/key").await.json();
    assert_eq!(found["status"], "completed");
    tx.rollback().await.unwrap();
}
