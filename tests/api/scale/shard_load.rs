//! What `charge-once shards` tells of several databases, and what metrics tell of moves.

use charge_once::database::{move_account::MoveStep, shards::FIRST_SHARD};

use super::{
    moves::Movable,
    shards::{SHOP, with_shop},
};
use crate::support::{prelude::*, sharding::SECOND};

async fn charges(client: &Client, count: usize) {
    for number in 0..count {
        assert_eq!(client.charge(&format!("key-{number}")).await.status, 201);
    }
}

#[tokio::test]
async fn a_plan_is_true_after_its_moves() {
    let movable = Movable::prepared().await;
    let two = &movable.two;
    let server = two.server(&[]).await;
    let dev = &server.client;
    let kiosk = two.key_of_other("kiosk").await;
    charges(dev, 2).await;
    charges(&dev.with_api_key(&movable.key), 8).await;
    charges(&dev.with_api_key(&kiosk), 4).await;
    // An hour ago counts no more.
    let old = "UPDATE events SET id = ('00' || substr(id::text, 3))::uuid
                WHERE id = (SELECT id FROM events ORDER BY id LIMIT 1)";
    let id: Uuid = two.other.value(SHOP).await;
    two.other
        .execute(format!("{old} AND account_id = '{id}'"))
        .await;
    for database in [&two.first, &two.other] {
        database.execute("ANALYZE").await;
    }
    let told = two.run("shards --plan 5").await.succeeded();
    report(&told);
    let lines: Vec<_> = told.lines().collect();
    let shop = AccountId(id);
    for (number, begins, ends) in [
        (
            0,
            "main: 2 events/h (15 %), accounts: 1, size: ",
            ", keys: about 2",
        ),
        (
            2,
            "b: 11 events/h (85 %), accounts: 2, size: ",
            ", keys: about 12",
        ),
        (
            3,
            "           7 events/h ",
            &format!(" rows  shop ({shop})"),
        ),
    ] {
        let line = lines[number];
        assert!(line.starts_with(begins) && line.ends_with(ends), "{told}");
    }
    let then = "Afterwards: main 6 events/h (46 %), b 7 events/h (54 %).";
    assert_eq!(
        lines[5..],
        ["charge-once account move kiosk --to main", then]
    );

    let (_, command) = lines[5].split_once(' ').unwrap();
    two.run(command).await.succeeded();
    let told = two.run("shards --json --plan 5").await.succeeded();
    let told: Value = serde_json::from_str(&told).unwrap();
    let of_shard = |shard: &Value| (shard["name"].clone(), shard["events_per_hour"].clone());
    let shards = told["shards"].as_array().unwrap().iter().map(of_shard);
    let expected = [(json!("main"), json!(6)), (json!("b"), json!(7))];
    assert_eq!(shards.collect::<Vec<_>>(), expected);
    assert_eq!(told["plan"]["moves"], json!([]));
    let largest = &told["shards"][1]["largest"][0];
    assert_eq!(largest["account_name"], "shop");
    // A key, a charge and an event for each.
    assert!(largest["rows"].as_i64() >= Some(24), "{told}");
    let told = two.run("shards --plan 5").await.succeeded();
    assert!(
        told.ends_with("No move would even anything out.\n"),
        "{told}"
    );
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_subscriber_is_no_standby_and_the_log_that_is_kept_for_it_is_told() {
    let movable = Movable::prepared().await;
    let server = movable.two.server(&[]).await;
    charges(&server.client.with_api_key(&movable.key), 3).await;
    movable.killed_after(FIRST_SHARD, MoveStep::Copied).await;
    let told = movable.two.run("shards --json --plan 1").await.succeeded();
    let told: Value = serde_json::from_str(&told).unwrap();
    let old = &told["shards"][1];
    assert_eq!(old["standbys"], json!([]), "{told}");
    assert_eq!(old["moves"][0]["state"], "copying");
    assert!(old["moves"][0]["kept_bytes"].is_number(), "{told}");
    assert_eq!(told["plan"]["moves"], json!([]), "it moves already");
    movable.to(FIRST_SHARD).await.abort().await.unwrap();
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_shard_that_is_down_is_named_and_the_others_are_shown() {
    let (two, _) = with_shop().await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    proxy.inject(NetworkFault::Cut);
    let two = two.through(&proxy.url);
    let told = two.run("shards --json --plan 3").await;
    let shown: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(shown["shards"][0]["accounts"], 1, "{shown}");
    assert!(shown["shards"][1]["error"].is_string(), "{shown}");
    // What a shard does that is not known may be the most.
    assert_eq!(shown["plan"], Value::Null);
    let said = told.failed(1);
    assert_has(&said, "shard b: ");
    assert_has(&said, "it failed in 1 of 2 shards: b");
    let alone = two.first.command("shards --plan 1");
    assert_has(&alone.stdout, "main: ");
    assert_has(&alone.failed(1), "there is one database");
}

#[tokio::test]
async fn a_move_that_stands_still_is_seen_also_while_a_database_is_down() {
    let (two, _) = with_shop().await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    let two = two.through(&proxy.url);
    let shards = [("SHARD_URLS", &*two.shards)];
    let (server, scraper) = TestServer::start_with_metrics(two.first.clone(), &shards).await;
    let shop: Uuid = two.other.value(SHOP).await;
    let moves = |state: &str, other: &str, by: &str| {
        format!(
            "INSERT INTO moving (account_id, state, other, since, switched_by)
             VALUES ('{shop}', '{state}', '{other}', now() - interval '2 minutes', {by})
                 ON CONFLICT (account_id) DO UPDATE SET state = excluded.state, switched_by = excluded.switched_by"
        )
    };
    two.first.execute(moves("arriving", SECOND, "NULL")).await;
    two.other
        .execute(moves("leaving", FIRST_SHARD, "NULL"))
        .await;
    let worked_on = async || {
        let told = two.run("shards --json").await.succeeded();
        let told: Value = serde_json::from_str(&told).unwrap();
        let one = told["shards"][1]["moves"][0].clone();
        assert_eq!(
            (&one["state"], &one["other"]),
            (&json!("leaving"), &json!("main"))
        );
        // It is counted where it arrives.
        assert_eq!(told["shards"][1]["accounts"], 0, "{told}");
        one["is_worked_on"].clone()
    };
    assert_eq!(worked_on().await, false);
    let told = two.run("shards").await.succeeded();
    assert_has(
        &told,
        &format!("  shop ({}) moves to main: leaving for 12", AccountId(shop)),
    );
    assert_has(&told, " s, NO COMMAND IS AT WORK\n");
    let mut command = two.other.pool.acquire().await.unwrap();
    let lock = "SELECT pg_advisory_lock(x'6d6f76656d656e74'::bigint)";
    sqlx::raw_sql(lock).execute(&mut *command).await.unwrap();
    assert_eq!(worked_on().await, true);
    command.close().await.unwrap();

    let closed = "charge_once_moves{state=\"leaving\"}";
    let oldest = "charge_once_moves_oldest_seconds{state=\"leaving\"}";
    reaches(&scraper, closed, 1.0).await;
    let arriving = Scrape::of(&scraper).await;
    assert_eq!(arriving.value("charge_once_moves{state=\"arriving\"}"), 0.0);
    assert!(arriving.value(oldest) >= 120.0, "{}", arriving.text);
    // The old home may be what has failed.
    proxy.inject(NetworkFault::Cut);
    let last = "charge_once_database_metrics_last_success_timestamp_seconds";
    let before = Scrape::of(&scraper).await;
    exceeds(&scraper, oldest, before.value(oldest) + 1.0).await;
    assert_eq!(Scrape::of(&scraper).await.value(last), before.value(last));
    proxy.inject(NetworkFault::None);
    // Once it has arrived, it is open, while the old home still compares and forgets.
    two.first
        .execute(moves("arrived", SECOND, "pg_current_xact_id()"))
        .await;
    reaches(&scraper, closed, 0.0).await;
    reaches(&scraper, "charge_once_moves{state=\"arrived\"}", 1.0).await;
    server.stop().await;
}
