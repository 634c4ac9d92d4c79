//! The tables of `crates/webhooks`, which this program creates by its own migrations.

use charge_once::webhooks;
use sqlx::PgPool;

use crate::support::harness::TestDatabase;

/// Columns, constraints, indexes and options of the tables, a line for each. The one key to a table
/// that the crate doesn't have is left out.
const FACTS: &str = "
    WITH tables AS (
        SELECT unnest(ARRAY['events', 'webhook_endpoints', 'webhook_deliveries']::regclass[]) AS id
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
async fn the_migration_of_the_webhooks_crate_creates_the_tables_of_this_program() {
    let (own, empty) = (
        TestDatabase::create().await,
        TestDatabase::create_empty().await,
    );
    let pool = PgPool::connect(&empty.url).await.unwrap();
    let migrated = webhooks::migrate(&mut pool.acquire().await.unwrap()).await;
    migrated.unwrap();
    let (own, of_the_crate) = (facts(&own.pool).await, facts(&pool).await);
    assert!(own.len() > 50, "{own:#?}");
    assert_eq!(own, of_the_crate);
    pool.close().await;
}
