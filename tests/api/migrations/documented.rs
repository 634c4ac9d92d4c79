//! The examples of `docs/migrations.md`, and what it says about migrations beside running replicas.

use std::fs;

use charge_once::database::migrations::apply;
use sqlx::migrate::Migrator;

use super::linter::Linter;
use crate::support::prelude::*;

/// How many orders there are when the example begins: more than two batches.
const OLD_ORDERS: i64 = 2_500;

const WAITING: &str = "SELECT count(*) FROM pg_locks
    WHERE NOT granted AND locktype = 'relation'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// An example: a migration with the name of its file, or a statement that is repeated.
#[derive(Debug)]
enum Example {
    Migration(String, String),
    Batches(String),
}

fn examples() -> Vec<Example> {
    let document = read("docs/migrations.md");
    let mut examples = Vec::new();
    let mut name = String::new();
    let mut parts = document.split("```");
    while let (Some(prose), Some(block)) = (parts.next(), parts.next()) {
        for line in prose.lines().filter(|line| line.starts_with("**")) {
            name = line.split("**").nth(1).unwrap().to_owned();
        }
        let sql = block.strip_prefix("sql\n").unwrap().to_owned();
        examples.push(match name.ends_with(".sql") {
            true => Example::Migration(name.clone(), sql),
            false => Example::Batches(sql),
        });
    }
    examples
}

/// One file as a set of migrations, for a database that has others too.
async fn migrator(name: &str, sql: &str) -> Migrator {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(name), sql).unwrap();
    let mut migrator = Migrator::new(folder.path()).await.unwrap();
    migrator.set_ignore_missing(true);
    migrator
}

async fn migrate(database: &TestDatabase, name: &str, sql: &str) {
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let migrator = migrator(name, sql).await;
    let applied = apply(&migrator, &mut connection).await;
    assert!(applied.is_ok(), "{name}: {applied:?}");
    connection.close().await.unwrap();
}

async fn insert_old_orders(database: &TestDatabase) {
    let insert = "INSERT INTO orders
               (account_id, id, amount, currency, content_hash, items, metadata, status)
        SELECT accounts.id, gen_random_uuid(), 1, 'usd', sha256('order'), '[{}]', '{}', 'open'
          FROM accounts, generate_series(1, COUNT)";
    let insert = insert.replace("COUNT", &OLD_ORDERS.to_string());
    database.execute(insert).await;
}

/// Repeats the statement until it changes no row. How many batches changed rows.
async fn run_batches(database: &TestDatabase, sql: &str) -> u64 {
    for batches in 0.. {
        let changed = database.execute(sql).await;
        assert!(changed <= 1000, "{changed}");
        if changed == 0 {
            return batches;
        }
    }
    unreachable!("a batch that changes no row comes")
}

/// The state that each example leaves behind: a query that counts, and its count.
fn effect_of(name: &str) -> (&'static str, i64) {
    let without_channel = "SELECT count(*) FROM orders WHERE channel IS NULL";
    let not_validated = "SELECT count(*) FROM pg_constraint
        WHERE conrelid = 'orders'::regclass AND NOT convalidated";
    let columns = "SELECT count(*) FROM pg_attribute
        WHERE attrelid = 'orders'::regclass AND attname = 'channel'";
    let not_null = "SELECT count(*) FROM pg_attribute
        WHERE attrelid = 'orders'::regclass AND attname = 'channel' AND attnotnull";
    let valid = "SELECT count(*) FROM pg_index
        WHERE indisvalid AND indexrelid = 'orders_by_channel'::regclass";
    let indexes = "SELECT count(*) FROM pg_class WHERE relname = 'orders_by_channel'";
    match name {
        "9001_order_channel.sql" => (without_channel, OLD_ORDERS),
        "9002_order_channel_rules.sql" => (not_validated, 2),
        "9003_order_channel_validated.sql" => (not_validated, 0),
        "9004_order_channel_not_null.sql" => (not_null, 1),
        "9005_orders_by_channel.sql" => (valid, 1),
        "9006_order_channel_optional.sql" => (not_null, 0),
        "9007_drop_orders_by_channel.sql" => (indexes, 0),
        "9008_drop_order_channel.sql" => (columns, 0),
        other => panic!("no effect is known of {other}"),
    }
}

#[tokio::test]
async fn the_documented_migrations_run_and_keep_the_rules() {
    // This build is the release that knows nothing of the new column.
    let server = TestServer::start().await;
    let database = &server.database;
    database.is_left_broken("no event tells of its old orders");
    insert_old_orders(database).await;
    let order = json!({"currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}]});
    let mut linter = Linter::default();
    let mut count = 0;
    for example in examples() {
        count += 1;
        match example {
            Example::Batches(sql) => assert_eq!(run_batches(database, &sql).await, 3),
            Example::Migration(name, sql) => {
                assert_eq!(linter.faults(&sql), [], "{name}");
                migrate(database, &name, &sql).await;
                let (query, expected) = effect_of(&name);
                assert_eq!(database.count(query).await, expected, "{name}");
                // Between 9002 and 9005 the release that fills the column in must be alone.
                let is_tolerated = !("9002".."9006").contains(&&name[..4]);
                if is_tolerated {
                    let created = server.client.post("/orders", &name, &order).await;
                    assert_eq!(created.status, 201, "{name}: {}", created.json());
                    let delete = "DELETE FROM orders WHERE currency = 'eur'";
                    database.execute(delete).await;
                }
            }
        }
    }
    assert_eq!(count, 9);
}

#[tokio::test]
async fn a_migration_that_waits_for_a_lock_gives_up_and_is_tried_again() {
    let server = TestServer::start().await;
    let database = &server.database;
    let reading = database.holding("SELECT FROM orders").await;
    let sql = "SET LOCAL lock_timeout = '200ms'; ALTER TABLE orders ADD COLUMN note text;";
    let migrating = migrate(database, "9001_note.sql", sql);
    let requests = async {
        // The migration waits, and gives up.
        for waits in [1, 0] {
            database.comes_to(WAITING, waits).await;
        }
        let notes = "SELECT count(*) FROM pg_attribute WHERE attname = 'note'";
        assert_eq!(database.count(notes).await, 0);
        assert_eq!(server.client.get("/orders").await.status, 200);
        reading.rollback().await.unwrap();
    };
    tokio::join!(migrating, requests);
}

/// A replica that waits inside a statement would have a snapshot, for which CONCURRENTLY waits.
#[tokio::test]
async fn replicas_that_start_together_build_an_index_once() {
    let database = TestDatabase::create().await;
    // Building waits for this transaction, so that the second replica surely comes meanwhile.
    let writing = database.holding("UPDATE accounts SET name = name").await;
    let sql = "-- no-transaction\nCREATE INDEX CONCURRENTLY by_time ON accounts (created_at);";
    let replica = || migrate(&database, "9001_by_time.sql", sql);
    let release = async {
        let building = "SELECT count(*) FROM pg_stat_progress_create_index";
        let polling = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state = 'idle'
              AND query LIKE '%pg_try_advisory_lock%'";
        eventually("a replica builds and the other waits", || async {
            database.count(building).await == 1 && database.count(polling).await == 1
        })
        .await;
        writing.rollback().await.unwrap();
    };
    tokio::join!(replica(), replica(), release);
    let valid = "SELECT count(*) FROM pg_index
        WHERE indisvalid AND indexrelid = 'by_time'::regclass";
    assert_eq!(database.count(valid).await, 1);
}
