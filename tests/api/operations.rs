//! What is past the processor's memory of keys: never sent again, only looked up, and settled by a
//! person.

use std::process::{Command, Output};

use serde_json::json;
use uuid::Uuid;

use crate::{
    crash_table::World,
    harness::{API_KEY, TestDatabase},
};

/// `charge-once operations …`
fn operations(database: &TestDatabase, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_charge-once"))
        .arg("operations")
        .args(arguments)
        .env("DATABASE_URL", &database.url)
        .env("DEV_API_KEY", API_KEY)
        .env("RUST_LOG", "error")
        .output()
        .unwrap()
}

/// The operations that are listed: their ids, and what is said of them.
fn listed(database: &TestDatabase) -> Vec<(Uuid, String)> {
    let output = operations(database, &["list"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let (id, about) = line.split_once("  ").unwrap();
            (id.parse().unwrap(), about.to_owned())
        })
        .collect()
}

/// A charge that was asked for a day ago, and nobody knows what became of it.
async fn in_doubt_for_a_day(fault: &str) -> (World, Uuid) {
    let world = World::new().await;
    world.processor.switch(json!({"fault": fault})).await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    sqlx::query("UPDATE operations SET created_at = now() - interval '24 hours'")
        .execute(&world.database.pool)
        .await
        .unwrap();
    let [(id, about)] = listed(&world.database).try_into().unwrap();
    assert!(
        about.contains("create_charge") && about.contains("in doubt"),
        "{about}"
    );
    (world, id)
}

#[tokio::test]
async fn past_the_window_an_operation_is_looked_up_and_never_sent_again() {
    let (world, _) = in_doubt_for_a_day("drop_before").await;
    for _ in 0..2 {
        assert_eq!(world.client().charge("key-1").await.status, 503);
    }
    assert_eq!(world.processor.lines().await, 0);
    assert_eq!(world.in_flight().await, 1);

    let (world, _) = in_doubt_for_a_day("drop_after").await;
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("looked up").await;
}

#[tokio::test]
async fn a_person_settles_what_was_never_executed_and_the_key_is_free() {
    let (world, id) = in_doubt_for_a_day("drop_before").await;
    let settled = operations(
        &world.database,
        &["settle", &id.to_string(), "not-executed"],
    );
    assert!(settled.status.success(), "{settled:?}");
    assert_eq!(listed(&world.database), []);
    assert_eq!(world.database.charges().await, 0);
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("settled by hand").await;
}

#[tokio::test]
async fn a_person_s_word_is_an_answer_like_the_processor_s() {
    for (word, status) in [("done", 201), ("declined", 402)] {
        let (world, id) = in_doubt_for_a_day("drop_before").await;
        let settled = operations(&world.database, &["settle", &id.to_string(), word]);
        assert!(settled.status.success(), "{settled:?}");
        let answer = world.client().charge("key-1").await;
        assert_eq!(answer.status, status, "{word}");
        assert!(answer.is_replay());
        assert_eq!(world.processor.lines().await, 0);
    }
}

#[tokio::test]
async fn nothing_is_settled_by_hand_that_is_unknown_done_or_at_work() {
    let (world, id) = in_doubt_for_a_day("drop_before").await;
    let refused = |id: Uuid| {
        let output = operations(&world.database, &["settle", &id.to_string(), "done"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(Uuid::now_v7()).contains("no such operation in flight"));
    sqlx::query("UPDATE idempotency_keys SET leased_until = now() + interval '1 minute'")
        .execute(&world.database.pool)
        .await
        .unwrap();
    assert!(refused(id).contains("at work on it"));
    assert_eq!(world.in_flight().await, 1);
    world.the_lease_runs_out().await;
    let settled = operations(&world.database, &["settle", &id.to_string(), "done"]);
    assert!(settled.status.success(), "{settled:?}");
    refused(id);
}
