//! A whole run in which each server has two databases: `TEST_SHARDS=2`.
//!
//! The test's own one is the second, in which its account lives. All tests share the first one,
//! which has no account.

use charge_once::database::{self, shards::FIRST_SHARD};

use crate::support::prelude::*;

/// What the shard with the test's account is called.
pub const SECOND: &str = "b";

static FIRST: OnceLock<String> = OnceLock::new();

/// Whether each server of this run shall have two databases.
pub fn is_wanted() -> bool {
    match std::env::var("TEST_SHARDS").as_deref() {
        Err(_) => false,
        Ok("2") => true,
        Ok(other) => panic!("TEST_SHARDS knows 2, and not {other}"),
    }
}

pub fn second(url: &str) -> String {
    format!("{SECOND}={url}")
}

/// Makes `template` the second of this run's shards, without accounts, after it was copied as it is
/// without shards, with the account of the tests. Makes the first shard, too.
pub async fn prepare(postgres: &Throwaway, template: &str, names: [&str; 2]) {
    let [shard, unsharded] = names;
    let migrated = database::connect(template, &config(&[])).await.unwrap();
    migrated.pool().close().await;
    let copy = postgres.create_database(unsharded, shard).await.unwrap();
    let copy = database::connect(&copy, &config(&[])).await.unwrap();
    ensure_dev_key(&copy, API_KEY).await.unwrap();
    copy.pool().close().await;

    let shards = config(&[("SHARD_URLS", &second(template))]);
    let sharded = database::connect(template, &shards).await.unwrap();
    sharded.pool().close().await;
    let first = postgres.create_database("first_shard", shard).await;
    let first = first.unwrap();
    let shared = PgPool::connect(&first).await.unwrap();
    name(&shared, FIRST_SHARD).await;
    // Tests with and without KEY_MEMORY share it, so it never learns that keys are remembered.
    let forgets = "CREATE FUNCTION forgets() RETURNS trigger LANGUAGE plpgsql AS
                   'BEGIN RETURN NULL; END';
                   CREATE TRIGGER forgets BEFORE INSERT ON idempotency_tombstones
                   FOR EACH ROW EXECUTE FUNCTION forgets()";
    sqlx::raw_sql(forgets).execute(&shared).await.unwrap();
    name(&PgPool::connect(template).await.unwrap(), SECOND).await;
    assert!(FIRST.set(first).is_ok());
}

/// Names a database, as its first start as a shard would.
pub async fn name(pool: &PgPool, name: &str) {
    let named = sqlx::query("INSERT INTO shard (name) VALUES ($1)").bind(name);
    named.execute(pool).await.unwrap();
}

/// Where a server's first database is that reaches the test's own at `url`, and its `SHARD_URLS`.
/// `None`: the test's own is the only one, or the test says where its shards are.
pub fn of_server(
    database: &TestDatabase,
    url: &str,
    variables: &[(&str, &str)],
) -> Option<(String, String)> {
    let decides = |(name, _): &(&str, &str)| ["DATABASE_URL", "SHARD_URLS"].contains(name);
    let first = FIRST.get().filter(|_| database.is_from_template)?;
    (!variables.iter().any(decides)).then(|| (first.clone(), second(url)))
}
