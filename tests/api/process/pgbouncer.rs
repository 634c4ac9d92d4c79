//! Behind PgBouncer: in session mode everything works, and in any other the start refuses.

use crate::support::{
    pgbouncer::{self, POOLED_ROLE},
    prelude::*,
};

/// A database whose sessions have what PgBouncer drops.
pub async fn pinned() -> TestDatabase {
    let database = TestDatabase::create_unsharded().await;
    for setting in PINNED {
        database.set_default(setting).await;
    }
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
    let answers = all_at_once(20, |_| {
        let (client, key) = (client.clone(), format!("{keys}-2"));
        async move { client.charge_until_definite(&key).await }
    });
    let answers = answers.await;
    let executed = answers.iter().filter(|answer| !answer.is_replay()).count();
    assert_eq!(executed, 1);
    for answer in &answers {
        assert_eq!(answer.status, 201);
        assert_eq!(answer.body, answers[0].body);
    }
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
        let crashing = client.request(Method::POST, "/charges");
        let crashing = crashing.header("idempotency-key", "crash");
        client.reply_or_none(crashing.json(&charge())).await
    });
    pause.is_reached().await;
    server.kill();
    assert!(crashing.await.unwrap().is_none());
    pause.release().await;
    let server = ServerProcess::start(&database, &variables);
    let charged = server.client.charge_until_definite("crash").await;
    assert_eq!(charged.status, 201);
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
    let round_robin =
        "ignore_startup_parameters = extra_float_digits, options\nserver_round_robin = 1";
    for (mode, settings) in [
        ("transaction", IGNORES_OPTIONS),
        ("statement", IGNORES_OPTIONS),
        ("transaction", round_robin),
    ] {
        let Some(pooler) = PgBouncer::start(&database, mode, settings).await else {
            return;
        };
        for (command, code) in [("serve", 1), ("migrate", 1), ("check", 2)] {
            let variables = [("DATABASE_URL", &*pooler.url), ANY_PORT];
            let told = complaint_of(&[command], &variables, code);
            let is_told = told.contains("set pool_mode = session");
            assert!(is_told, "{mode} {command}: {told}");
        }
    }
}

#[tokio::test]
async fn settings_that_pgbouncer_drops_or_refuses_are_named() {
    let database = TestDatabase::create().await;
    let set = r#"ALTER ROLE "charge_once" SET statement_timeout = '3000';"#;
    let ignore = "set ignore_startup_parameters = extra_float_digits, options";
    for (settings, expected) in [(IGNORES_OPTIONS, set), ("", ignore)] {
        let Some(pooler) = PgBouncer::start(&database, "session", settings).await else {
            return;
        };
        let told = complaint_of(&["migrate"], &[("DATABASE_URL", &pooler.url)], 1);
        assert_has(&told, expected);
    }
}

/// `scripts/test-again pgbouncer` runs the core suite so: it must not go past PgBouncer unnoticed.
#[tokio::test]
async fn servers_connect_through_pgbouncer_if_the_run_asks_for_that() {
    let server = TestServer::start().await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    let users = "SELECT DISTINCT usename::text FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'charge-once'";
    let expected = match pgbouncer::is_wanted() {
        true => POOLED_ROLE,
        false => "charge_once",
    };
    let users: Vec<String> = server.database.values(users).await;
    assert_eq!(users, [expected]);
}
