//! Idempotency records, as other processes leave them.

use charge_once::cli::api_key;
use sqlx::{Postgres, Transaction};

use crate::support::harness::TestDatabase;

/// Neither a record nor a business row.
pub async fn assert_nothing_stored(database: &TestDatabase, why: &str) {
    assert_eq!(database.records().await, 0, "a record exists: {why}");
    assert_eq!(database.charges().await, 0, "a charge exists: {why}");
    let orders = database.count("SELECT count(*) FROM orders").await;
    assert_eq!(orders, 0, "an order exists: {why}");
}

/// A claim of the dev account's `key` that is neither committed nor rolled back: what another
/// process in the middle of its work looks like. The key is free again when it is dropped.
pub async fn hold_key(database: &TestDatabase, key: &str) -> Transaction<'static, Postgres> {
    let mut tx = database.pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO idempotency_keys
                (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
                 created_at, expires_at)
         SELECT id, $2, 1, sha256('elsewhere'), 'POST', '/charges', 'req_elsewhere',
                now(), now() + interval '24 hours'
           FROM accounts WHERE name = $1",
    )
    .bind(api_key::DEV_ACCOUNT)
    .bind(key)
    .execute(&mut *tx)
    .await
    .unwrap();
    tx
}
