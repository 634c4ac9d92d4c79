//! What a role, a database or a server has for defaults must not weaken the promise.

use charge_once::database::Database;

use crate::harness::{TestDatabase, config};

#[tokio::test]
async fn sessions_are_pinned_against_the_defaults_of_the_database() {
    let database = TestDatabase::create().await;
    let careless = r#"
        DO $$ BEGIN EXECUTE format(
            'ALTER DATABASE %1$I SET synchronous_commit = off;
             ALTER DATABASE %1$I SET default_transaction_isolation = "repeatable read";
             ALTER DATABASE %1$I SET default_transaction_read_only = on;
             ALTER DATABASE %1$I SET statement_timeout = 0', current_database()); END $$
    "#;
    sqlx::raw_sql(careless)
        .execute(&database.pool)
        .await
        .unwrap();
    let connected = Database::connect(&database.url, &config(&[]))
        .await
        .unwrap();
    let expected = [
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "3s"),
        ("lock_timeout", "1s"),
        ("idle_in_transaction_session_timeout", "6s"),
    ];
    for (name, value) in expected {
        let actual: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(connected.pool())
            .await
            .unwrap();
        assert_eq!(actual, value, "{name}");
    }
}
