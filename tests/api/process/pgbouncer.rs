//! Behind PgBouncer: in session mode everything works, and in any other the start refuses.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{
    harness::{
        Client, ServerProcess, TestDatabase, another_charge, charge, every_connection_is_clean,
    },
    pause_point::{PausePoint, Stage},
    pgbouncer::{IGNORES_OPTIONS, PgBouncer},
    processor::Processor,
    program::{printed_by, run, text},
};

/// What every session has where PgBouncer drops what connections ask for.
const PINNED: &str = r#"
    DO $$ BEGIN EXECUTE format(
        'ALTER DATABASE %1$I SET synchronous_commit = on;
         ALTER DATABASE %1$I SET default_transaction_isolation = "read committed";
         ALTER DATABASE %1$I SET default_transaction_read_only = off;
         ALTER DATABASE %1$I SET statement_timeout = 3000;
         ALTER DATABASE %1$I SET lock_timeout = 1000;
         ALTER DATABASE %1$I SET idle_in_transaction_session_timeout = 6000',
        current_database()); END $$"#;

async fn pinned() -> TestDatabase {
    let database = TestDatabase::create().await;
    let pin = sqlx::raw_sql(PINNED);
    pin.execute(&database.pool).await.unwrap();
    database
}

/// Charges, replays, a reuse, a refusal, a refund, and racers.
async fn assert_charges_once(client: &Client, keys: &str) {
    let key = format!("{keys}-1");
    let first = client.charge(&key).await;
    assert_eq!(first.status, 201);
    client.charge(&key).await.assert_replays(&first);
    let reused = client.post("/charges", &key, &another_charge()).await;
    assert_eq!(reused.code(), "idempotency_key_reused");
    let refund = json!({"charge": first.id(), "amount": 500});
    assert_eq!(client.post_new("/refunds", &refund).await.status, 201);
    let too_much = json!({"charge": first.id(), "amount": 2000});
    let refused = client.post_new("/refunds", &too_much).await;
    assert_eq!(refused.code(), "refund_amount_too_large");
    let mut racers = JoinSet::new();
    for _ in 0..20 {
        let (client, key) = (client.clone(), format!("{keys}-2"));
        racers.spawn(async move { client.charge_until_definite(&key).await });
    }
    let answers = racers.join_all().await;
    let executed = answers.iter().filter(|answer| !answer.is_replay()).count();
    assert_eq!(executed, 1);
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 201 && answer.body == answers[0].body)
    );
}

#[tokio::test]
async fn behind_pgbouncer_in_session_mode_everything_works() {
    let database = pinned().await;
    let Some(pooler) = PgBouncer::start(&database, "session", IGNORES_OPTIONS).await else {
        return;
    };
    let variables = [("DATABASE_URL", &*pooler.url)];
    let server = ServerProcess::start(&database, &variables);
    assert_charges_once(&server.client, "one").await;

    // A crash in the middle of the work.
    let mut pause = PausePoint::at(Stage::Executing, &database, "crash").await;
    let client = server.client.clone();
    let crashing = tokio::spawn(async move {
        let crashing = client.request(reqwest::Method::POST, "/charges");
        let crashing = crashing.header("idempotency-key", "crash");
        client.reply_or_none(crashing.json(&charge())).await
    });
    pause.is_reached().await;
    server.kill();
    assert!(crashing.await.unwrap().is_none());
    pause.release().await;
    let server = ServerProcess::start(&database, &variables);
    assert_eq!(
        server.client.charge_until_definite("crash").await.status,
        201
    );
    assert_eq!(database.charges().await, 3);
    drop(server);

    let processor = Processor::start().await;
    let url = processor.url();
    let network = [variables[0], ("PROCESSOR_URL", &*url)];
    let server = ServerProcess::start(&database, &network);
    assert_charges_once(&server.client, "network").await;
    drop(server);

    assert!(printed_by(&["check"], &variables).contains("invariants hold."));
    database.expire_records().await;
    assert!(!printed_by(&["sweep"], &variables).contains("Removed 0 expired"));
    every_connection_is_clean(&database).await;
}

#[tokio::test]
async fn behind_pgbouncer_in_another_mode_the_start_refuses_and_says_what_to_set() {
    let database = pinned().await;
    for (mode, settings) in [
        ("transaction", IGNORES_OPTIONS),
        ("statement", IGNORES_OPTIONS),
        (
            "transaction",
            "ignore_startup_parameters = extra_float_digits, options\nserver_round_robin = 1",
        ),
    ] {
        let Some(pooler) = PgBouncer::start(&database, mode, settings).await else {
            return;
        };
        for (command, code) in [("serve", 1), ("migrate", 1), ("check", 2)] {
            let variables = [
                ("DATABASE_URL", &*pooler.url),
                ("BIND_ADDRESS", "127.0.0.1:0"),
            ];
            let output = run(&[command], &variables);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{mode} {command}: {told}");
            assert!(
                told.contains("set pool_mode = session"),
                "{mode} {command}: {told}"
            );
        }
    }
}

#[tokio::test]
async fn settings_that_pgbouncer_drops_or_refuses_are_named() {
    let database = TestDatabase::create().await;
    for (settings, expected) in [
        (
            IGNORES_OPTIONS,
            r#"ALTER ROLE "charge_once" SET statement_timeout = '3000';"#,
        ),
        (
            "",
            "set ignore_startup_parameters = extra_float_digits, options",
        ),
    ] {
        let Some(pooler) = PgBouncer::start(&database, "session", settings).await else {
            return;
        };
        let output = run(&["migrate"], &[("DATABASE_URL", &pooler.url)]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}
