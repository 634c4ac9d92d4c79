//! `charge-once seed`: an account full of data, which a second run leaves as it is.

use super::*;
use crate::support::{checkouts::level, documents::block};

async fn everything(database: &TestDatabase) -> Vec<(String, i64)> {
    sqlx::query_as(
        "SELECT 'charges', count(*) FROM charges
         UNION ALL SELECT 'taken', sum(amount_captured)::bigint FROM charges
         UNION ALL SELECT 'returned', sum(amount_refunded)::bigint FROM charges
         UNION ALL SELECT 'refunds', count(*) FROM refunds
         UNION ALL SELECT 'orders', count(*) FROM orders
         UNION ALL SELECT 'checkouts', count(*) FROM checkouts
         UNION ALL SELECT 'stock', sum(quantity)::bigint FROM inventory
         UNION ALL SELECT 'customers', count(*) FROM customers
         UNION ALL SELECT 'methods', count(*) FROM payment_methods
         UNION ALL SELECT 'intents', count(*) FROM payment_intents
         UNION ALL SELECT 'setups', count(*) FROM setup_intents
         UNION ALL SELECT 'events', count(*) FROM events
         UNION ALL SELECT 'keys', count(*) FROM idempotency_keys
         ORDER BY 1",
    )
    .fetch_all(&database.pool)
    .await
    .unwrap()
}

fn file(folder: &TempDir, text: &str) -> String {
    let path = folder.path().join("seed.json");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_shop_has_every_state_of_an_object_and_a_second_run_changes_nothing() {
    let server = TestServer::start().await;
    let first = run(&url_of(&server), &["seed"]).await.succeeded();
    for state in [
        "inventory levels",
        "orders, paid",
        "orders, paid and refunded",
        "orders, canceled",
        "orders, open",
        "orders, open after a decline",
        "checkouts, completed",
        "checkouts, declined",
        "checkouts, out of stock",
        "charges, captured",
        "charges, declined",
        "charges, authorized",
        "charges, refunded",
        "customers",
        "payment methods",
        "payment intents, authorized",
        "payment intents, canceled",
        "payment intents, declined",
        "payment intents, not confirmed",
        "payment intents, paid",
        "payment intents, paid and refunded",
        "payment intents, waiting for the card's holder",
        "setup intents, canceled",
        "setup intents, declined",
        "setup intents, succeeded",
        "setup intents, waiting for the card's holder",
    ] {
        let state = format!("  {state}");
        let is_shown = first.lines().any(|line| line.ends_with(&state));
        assert!(is_shown, "{state}: {first}");
    }
    assert_has(&first, " 0 done by an earlier run");
    let orders = "SELECT count(*) FROM orders WHERE client_order_id LIKE 'seed-shop-%'";
    assert_eq!(server.database.count(orders).await, 36);
    let before = everything(&server.database).await;
    let second = run(&url_of(&server), &["seed"]).await.succeeded();
    assert_has(&second, ": 0 done now");
    assert_eq!(everything(&server.database).await, before);
    // Another name is another shop.
    let other = ["seed", "--seed", "shop-2", "--orders", "1"];
    run(&url_of(&server), &other).await.succeeded();
    assert_ne!(everything(&server.database).await, before);
}

#[tokio::test]
async fn killed_or_with_replies_lost_and_run_again_it_creates_each_entry_once() {
    let whole = TestServer::start().await;
    let arguments = ["seed", "--orders", "12"];
    run(&url_of(&whole), &arguments).await.succeeded();

    let server = TestServer::start().await;
    let mut acts = vec![Act::Pass; 40];
    acts[20] = Act::LoseTheAnswer;
    acts[30] = Act::LoseTheRequest;
    acts.push(Act::Swallow);
    let proxy = HttpProxy::in_front_of(server.client.address, acts).await;
    let mut first = command(&proxy.url(), &arguments).spawn().unwrap();
    eventually("it is in the middle", || async { proxy.seen().len() > 40 }).await;
    first.kill().unwrap();
    first.wait().unwrap();
    run(&proxy.url(), &arguments).await.succeeded();
    let expected = everything(&whole.database).await;
    assert_eq!(everything(&server.database).await, expected);
}

#[tokio::test]
async fn it_refuses_to_use_again_what_the_service_has_forgotten_or_soon_will() {
    let server = TestServer::start().await;
    let arguments = ["seed", "--orders", "1"];
    run(&url_of(&server), &arguments).await.succeeded();
    // As the sweep of expired keys does, a day later.
    let sweep = "DELETE FROM idempotency_keys";
    server.database.execute(sweep).await;
    let server = TestServer::start_on(server.database.clone(), &[]).await;
    let before = server.database.charges().await;
    for _ in 0..2 {
        let told = run(&url_of(&server), &arguments).await.failed(1);
        told.must_have(&["Choose another name: --seed shop-2"]);
    }
    assert_eq!(server.database.charges().await, before);

    let soon = TestServer::start_with(&[("IDEMPOTENCY_TTL", "300s")]).await;
    run(&url_of(&soon), &arguments).await.succeeded();
    let told = run(&url_of(&soon), &arguments).await.failed(1);
    told.must_have(&["Choose another name: --seed shop-2"]);
}

#[tokio::test]
async fn a_file_s_entries_are_created_and_one_that_the_service_refuses_is_named() {
    let server = TestServer::start().await;
    let folder = TempDir::new().unwrap();
    let wrong = r#"{
        "inventory": [{"sku": "cup", "quantity": 2}],
        "orders": [{
            "currency": "eur", "client_order_id": "A-1", "customer": "ada",
            "items": [{"sku": "cup", "quantity": 2, "unit_amount": 700}],
            "status": "paid", "source": "tok_mastercard", "refunds": [700]
        }],
        "checkouts": [{"currency": "eur", "items": [{"sku": "cup", "quantity": 1, "unit_amount": 700}]}],
        "charges": [
            {"amount": 500, "currency": "eur"},
            {"amount": 500, "currency": "eur"},
            {"amount": 900, "currency": "eur", "capture": false, "capture_amount": 400},
            {"amount": 600, "currency": "eur", "source": "tok_of_a_stranger"}
        ]
    }"#;
    let path = file(&folder, wrong);
    let arguments = ["seed", "--file", &path];
    let told = run(&url_of(&server), &arguments).await.failed(1);
    let refused = "charges[3]: refused: HTTP 400, parameter_invalid";
    told.must_have(&[refused, "(source)", "correct it"]);
    // Two entries that are equal are two charges.
    assert_eq!(server.database.charges().await, 5);

    file(&folder, &wrong.replace("tok_of_a_stranger", "tok_amex"));
    let printed = run(&url_of(&server), &arguments).await.succeeded();
    assert!(printed.contains(": 1 done now, "), "{printed}");
    assert_eq!(server.database.charges().await, 6);
    let taken = "SELECT sum(amount_captured)::bigint FROM charges";
    let expected = 1400 + 700 + 500 + 500 + 400 + 600;
    assert_eq!(server.database.count(taken).await, expected);
    assert_eq!(level(&server.client, "cup").await, 1);
}

#[tokio::test]
async fn the_documented_file_can_be_created() {
    let server = TestServer::start().await;
    let folder = TempDir::new().unwrap();
    let path = file(&folder, &block("docs/testing.md", "json"));
    let arguments = ["seed", "--file", &path];
    let printed = run(&url_of(&server), &arguments).await.succeeded();
    printed.must_have(&[
        "1  orders, paid and refunded",
        "1  checkouts, completed",
        "1  charges, captured",
        "1  charges, declined",
        "1  charges, refunded",
    ]);
}

#[tokio::test]
async fn a_file_that_can_t_be_created_is_refused_with_its_entry_before_anything_is_sent() {
    let server = TestServer::start().await;
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("nowhere.json");
    let missing = ["seed", "--file", missing.to_str().unwrap()];
    let told = run(&url_of(&server), &missing).await.failed(1);
    told.must_have(&["nowhere.json can't be read"]);
    let wrong = r#"{"charges": [{"amount": 1, "currency": "usd"}, {"amount": "2"}]}"#;
    let long = " ".repeat(4 * 1024 * 1024 + 1);
    for (content, told) in [
        (wrong, "charges[1].amount: invalid type: string"),
        (&long, "at most 4 MiB"),
    ] {
        let path = file(&folder, content);
        let said = run(&url_of(&server), &["seed", "--file", &path]).await;
        said.failed(1).must_have(&[told]);
    }
    for (arguments, told) in [
        (["--seed", "a b"], "letters, digits"),
        (["--orders", "0"], "1..=1000"),
        (["--orders", "1001"], "1..=1000"),
    ] {
        let arguments = [&["seed"], &arguments[..]].concat();
        let said = run(&url_of(&server), &arguments).await.failed(2);
        said.must_have(&[told]);
    }
    assert_eq!(server.database.records().await, 0);
}
