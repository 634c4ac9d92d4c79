//! `examples/smallest.rs`: what the crate does, in one file. It must hold what the crate holds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]

use sqlx::PgPool;

#[path = "../examples/smallest.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "its `main` is for people, and its words are its docs"
)]
mod smallest;

use smallest::{Reply, Request, SCHEMA, answer};

async fn execute(pool: &PgPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
}

async fn set_up(pool: &PgPool) {
    execute(pool, SCHEMA).await;
    execute(pool, "INSERT INTO wallets VALUES ('alice', 100)").await;
}

/// Asks for a charge, always under one key.
async fn charge(pool: PgPool, amount: &str) -> Result<Reply, sqlx::Error> {
    let request = Request {
        account: "alice".into(),
        key: "key".into(),
        body: amount.into(),
    };
    answer(pool, request).await
}

/// The charges, what is left in the wallet, and the keys.
async fn rows(pool: &PgPool) -> (i64, i64, i64) {
    let rows = "SELECT (SELECT count(*) FROM charges), (SELECT sum(balance)::bigint FROM wallets),
                       (SELECT count(*) FROM keys)";
    sqlx::query_as(rows).fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrations = false)]
async fn fifty_racers_make_one_charge_and_get_one_reply(pool: PgPool) {
    set_up(&pool).await;
    let racers: Vec<_> = (0..50)
        .map(|_| tokio::spawn(charge(pool.clone(), "70")))
        .collect();
    let mut replies = Vec::new();
    for racer in racers {
        replies.push(racer.await.unwrap().unwrap());
    }
    let first = replies.first().unwrap();
    assert_eq!(first.status, 201);
    assert!(replies.iter().all(|reply| reply == first));
    assert_eq!(rows(&pool).await, (1, 30, 1));
}

#[sqlx::test(migrations = false)]
async fn a_refusal_is_stored_without_what_the_work_wrote(pool: PgPool) {
    set_up(&pool).await;
    let refused = charge(pool.clone(), "170").await.unwrap();
    assert_eq!(refused.status, 402);
    assert_eq!(rows(&pool).await, (0, 100, 1));
    // The wallet has enough by now. The key's answer stays.
    execute(&pool, "UPDATE wallets SET balance = 1000").await;
    assert_eq!(charge(pool.clone(), "170").await.unwrap(), refused);
    let reused = Reply {
        status: 422,
        body: r#"{"error":"idempotency_key_reused"}"#.into(),
    };
    assert_eq!(charge(pool.clone(), "1").await.unwrap(), reused);
    assert_eq!(rows(&pool).await, (0, 1000, 1));
}

#[sqlx::test(migrations = false)]
async fn a_failure_leaves_the_key_free(pool: PgPool) {
    set_up(&pool).await;
    execute(&pool, "ALTER TABLE wallets RENAME TO elsewhere").await;
    charge(pool.clone(), "70").await.unwrap_err();
    execute(&pool, "ALTER TABLE elsewhere RENAME TO wallets").await;
    assert_eq!(rows(&pool).await, (0, 100, 0));
    assert_eq!(charge(pool.clone(), "70").await.unwrap().status, 201);
    assert_eq!(rows(&pool).await, (1, 30, 1));
}
