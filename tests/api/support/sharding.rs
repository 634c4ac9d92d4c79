//! A whole run in which each server has two databases: `TEST_SHARDS=2`.
//!
//! The test's own one is the second, in which its account lives. All tests share the first one,
//! which has no account.

use std::sync::OnceLock;

use charge_once::database::shards::FIRST_SHARD;
use charge_once_embedded_postgres::Throwaway;
use sqlx::PgPool;

use crate::support::harness::TestDatabase;

/// What the shard with the test's account is called.
pub const SECOND: &str = "b";

/// The first shard of this run.
static FIRST: OnceLock<String> = OnceLock::new();

/// Whether each server of this run shall have two databases.
pub fn is_wanted() -> bool {
    match std::env::var("TEST_SHARDS").as_deref() {
        Err(_) => false,
        Ok("2") => true,
        Ok(other) => panic!("TEST_SHARDS knows 2, and not {other}"),
    }
}

/// The variable with a second database.
pub fn second(url: &str) -> String {
    format!("{SECOND}={url}")
}

/// Makes the first shard of this run from a template without a name and without accounts.
pub async fn start_for_the_run(postgres: &Throwaway, template: &str) {
    let url = postgres
        .create_database("first_shard", template)
        .await
        .unwrap();
    name(&PgPool::connect(&url).await.unwrap(), FIRST_SHARD).await;
    assert!(FIRST.set(url).is_ok());
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
