//! A newer image has a newer C library, which sorts text differently under the name of the same
//! locale.

use std::fs;

use charge_once::database::embedded;
use charge_once_postgres::embedded::{EmbeddedSettings, Locale};
use futures_util::{StreamExt, stream};
use sqlx::migrate::Migrator;

use crate::support::prelude::*;

/// A locale that no system has.
const LOCALE: &str = "xx_XX.UTF-8";

/// Clients' own ids, which locales sort differently.
fn client_order_ids() -> Vec<String> {
    let mut ids = Vec::new();
    for word in ["order", "Order", "ORDER", "órder", "z"] {
        for mark in [" ", "#", "-", "_", ". ", ""] {
            ids.extend((0..10).map(|number| format!("{word}{mark}{number}")));
        }
    }
    ids
}

/// A PostgreSQL of the test's own, with a locale of its own.
struct Cluster {
    folder: TempDir,
}

impl Cluster {
    fn new() -> Self {
        Self { folder: scratch() }
    }

    /// Makes the locale from a source of glibc's.
    fn make_locale(&self, source: &str) {
        let made = self.folder.path().join(LOCALE);
        if made.exists() {
            fs::remove_dir_all(&made).unwrap();
        }
        let mut make = Command::new("localedef");
        make.args(["-i", source, "-f", "UTF-8"]).arg(&made);
        let is_made = make.status().is_ok_and(|status| status.success());
        assert!(
            is_made,
            "install the sources of locales, Debian's package `locales`"
        );
    }

    async fn start(&self) -> (EmbeddedPostgres, TestServer) {
        let folder = self.folder.path();
        let settings = EmbeddedSettings {
            locale: Locale {
                name: LOCALE.to_owned(),
                folder: Some(folder.to_owned()),
            },
            ..embedded::settings(folder.join("data"), None)
        };
        let postgres = EmbeddedPostgres::start(settings).await.unwrap();
        let database = TestDatabase::in_private(&postgres).await;
        (postgres, TestServer::start_on(database, &[]).await)
    }
}

async fn stop((postgres, server): (EmbeddedPostgres, TestServer)) {
    server.stop().await.pool.close().await;
    postgres.stop().await.unwrap();
}

async fn order_all(client: &Client) -> HashMap<String, Answer> {
    let orders = stream::iter(client_order_ids()).map(async |name| {
        let items = json!([{"quantity": 1, "unit_amount": 100}]);
        let order =
            json!({"currency": "usd", "items": items, "client_order_id": name, "customer": name});
        let answer = client.post_new("/v1/orders", &order).await;
        (name, answer)
    });
    orders.buffer_unordered(8).collect().await
}

#[tokio::test]
async fn another_order_of_the_locale_changes_no_natural_key() {
    let cluster = Cluster::new();
    cluster.make_locale("en_US");
    let running = cluster.start().await;
    let first = order_all(&running.1.client).await;
    assert_eq!(first.len(), 300);
    stop(running).await;

    cluster.make_locale("C");
    let running = cluster.start().await;
    let client = &running.1.client;
    for (name, again) in order_all(client).await {
        assert_eq!(first[&name].status, 201, "{name}");
        assert_eq!(again.status, 200, "{name}");
        assert_eq!(again.id(), first[&name].id(), "{name}");
    }
    let listed = client.get("/v1/orders?customer=Order%237").await.json();
    assert_eq!(listed["data"][0]["id"], first["Order#7"].id());
    stop(running).await;
}

/// As in a database of release 0.2.0, whose indexes the locale sorted.
#[tokio::test]
async fn the_check_finds_what_a_broken_index_let_in_twice() {
    let cluster = Cluster::new();
    cluster.make_locale("en_US");
    let running = cluster.start().await;
    let database = &running.1.database;
    let by_locale = r#"ALTER TABLE orders
                             ALTER COLUMN client_order_id TYPE text COLLATE "default""#;
    database.execute(by_locale).await;
    order_all(&running.1.client).await;
    // A large table is read along the index, and may be in its order.
    for costly in ["seqscan", "sort", "incremental_sort", "hashagg"] {
        let off = format!("ALTER DATABASE charge_once SET enable_{costly} = off");
        database.execute(off).await;
    }
    stop(running).await;

    cluster.make_locale("C");
    let running = cluster.start().await;
    // Release 0.2.0 looks for a name by inserting it.
    let again = "INSERT INTO orders (account_id, id, amount, currency, customer, client_order_id,
                                     content_hash, items, metadata, status)
                 SELECT account_id, gen_random_uuid(), amount, currency, customer, client_order_id,
                        content_hash, items, metadata, status
                   FROM orders
                     ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING";
    let database = &running.1.database;
    let duplicates = usize::try_from(database.execute(again).await).unwrap();
    // This order doesn't find all that the other one had stored.
    assert!(duplicates > 0);
    let checked = database.command("check --json").stdout;
    let checked: Value = serde_json::from_str(&checked).unwrap();
    let mut found = checked["invariants"].as_array().unwrap().iter();
    let found = found.find(|one| one["name"] == "natural_keys_name_one_object");
    let violations = found.unwrap()["violations"].as_array().unwrap();
    assert_eq!(violations.len(), 100.min(2 * duplicates), "{checked}");
    stop(running).await;
}

#[tokio::test]
async fn a_start_on_another_version_of_the_locale_says_what_to_do() {
    let database = TestDatabase::create().await;
    let variables = [("DATABASE_URL", &*database.url), ("RUST_LOG", "warn")];
    let output = run(&["migrate"], &variables);
    assert_eq!(text(&output.stderr), "");
    let update = "UPDATE pg_database SET datcollversion = '2.0' WHERE datname = current_database()";
    database.execute(update).await;
    let migrated = Run::of(run(&["migrate"], &variables));
    assert_has(&migrated.stderr, "run REINDEX DATABASE test_");
    assert_has(&migrated.stderr, "REFRESH COLLATION VERSION");
    migrated.succeeded();
}

/// The tables of the API, of the simulated processor, and of what is there to be copied.
#[tokio::test]
async fn no_index_is_sorted_by_the_locale() {
    let api = TestDatabase::create().await;
    let processor = TestDatabase::create_for_processor().await;
    let example = TestDatabase::create_empty().await;
    let migrations = root().join("examples/webhook_receiver/migrations");
    let migrations = Migrator::new(migrations).await.unwrap();
    migrations.run(&example.pool).await.unwrap();
    let sorted_otherwise = "
        SELECT format('%s by %s', indexrelid::regclass, attname)
          FROM pg_index
          JOIN pg_class ON pg_class.oid = indrelid
          JOIN pg_attribute ON attrelid = indexrelid
          JOIN pg_collation ON pg_collation.oid = attcollation
         WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
           AND collname <> 'C'";
    for database in [api, processor, example] {
        let found: Vec<String> = database.values(sorted_otherwise).await;
        assert!(found.is_empty(), "{found:?}");
    }
}
