//! Idempotency records, as other processes leave them.

use charge_once::cli::api_key;

use crate::support::prelude::*;

pub async fn assert_nothing_stored(database: &TestDatabase, why: &str) {
    assert_eq!(database.records().await, 0, "a record exists: {why}");
    assert_eq!(database.charges().await, 0, "a charge exists: {why}");
    assert_eq!(database.orders().await, 0, "an order exists: {why}");
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

/// A database with three expired keys, and two events that are older than they are kept.
pub async fn with_old_rows() -> TestDatabase {
    let server = TestServer::start_on(TestDatabase::create_unsharded().await, &[]).await;
    for key in ["key-1", "key-2", "key-3"] {
        assert_eq!(server.client.charge(key).await.status, 201);
    }
    let database = server.stop().await;
    database.expire_records().await;
    database.is_left_broken("two charges are young, and their events are old");
    // Ids carry their time: an old event has an old id.
    let age = "UPDATE events
                  SET created_at = now() - interval '31 days',
                      id = ('00000000-0000-7000-8000-' || right(id::text, 12))::uuid
                WHERE idempotency_key <> 'key-3'";
    database.execute(age).await;
    database
}

/// Any removal of events fails, until the trigger `refuse` is dropped.
pub async fn refuse_to_remove_events(database: &TestDatabase) {
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'events stay'; END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse()";
    database.execute(refuse).await;
}

/// How many rows of a table this transaction has read, in any way.
pub async fn rows_read(tx: &mut PgConnection, table: &str) -> i64 {
    let read = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
                 WHERE relname = $1";
    let read = sqlx::query_scalar(read).bind(table);
    read.fetch_one(tx).await.unwrap()
}
