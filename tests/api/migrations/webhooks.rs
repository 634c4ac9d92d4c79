//! The tables of `crates/webhooks` and `crates/request-log`, which this program creates by its own migrations.

use charge_once::webhooks;
use sqlx::PgPool;

use crate::support::harness::TestDatabase;

/// Columns, constraints, indexes and options of the tables, a line for each. The one key to a table
/// that no crate has is left out.
const FACTS: &str = "
    WITH tables AS (
        SELECT unnest(ARRAY['events', 'webhook_endpoints', 'webhook_deliveries', 'request_log']::regclass[]) AS id
    )
    SELECT format('%s: %s %s %s %s, null: %s, default: %s', attrelid::regclass, attnum, attname,
                  format_type(atttypid, atttypmod), attcollation::regcollation, NOT attnotnull,
                  pg_get_expr(adbin, adrelid)) AS fact
      FROM tables
      JOIN pg_attribute ON attrelid = id AND attnum > 0
      LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    UNION ALL
    SELECT format('%s: %s %s', conrelid::regclass, conname, pg_get_constraintdef(pg_constraint.oid))
      FROM tables JOIN pg_constraint ON conrelid = id
     WHERE conname <> 'a_webhook_endpoint_belongs_to_an_account'
    UNION ALL
    SELECT pg_get_indexdef(indexrelid) FROM tables JOIN pg_index ON indrelid = id
    UNION ALL
    SELECT format('%s: %s', id, reloptions) FROM tables JOIN pg_class ON oid = id
    ORDER BY fact";

async fn facts(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(FACTS).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn the_migrations_of_crates_create_the_tables_of_this_program() {
    let (own, empty) = (
        TestDatabase::create().await,
        TestDatabase::create_empty().await,
    );
    let pool = PgPool::connect(&empty.url).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    webhooks::migrate(&mut connection).await.unwrap();
    charge_once_request_log::migrate(&mut connection)
        .await
        .unwrap();
    drop(connection);
    let (own, of_the_crates) = (facts(&own.pool).await, facts(&pool).await);
    assert!(own.len() > 65, "{own:#?}");
    assert_eq!(own, of_the_crates);
    pool.close().await;
}
