//! `examples/smallest.rs`: what the crate does, in one file. It must hold what the crate holds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]

use sqlx::{PgPool, Row};

#[path = "../examples/smallest.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "its `main` is for people, and its words are its docs"
)]
mod smallest;

use smallest::{Reply, Request, SCHEMA, answer};

async fn set_up(pool: &PgPool) {
    sqlx::raw_sql(SCHEMA).execute(pool).await.unwrap();
    sqlx::query("INSERT INTO wallets VALUES ('alice', 100)")
        .execute(pool)
        .await
        .unwrap();
}

fn request(key: &str, body: &str) -> Request {
    Request {
        account: "alice".into(),
        key: key.into(),
        body: body.into(),
    }
}

/// The charges, what is left in the wallet, and the keys.
async fn rows(pool: &PgPool) -> (i64, i64, i64) {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM charges), (SELECT sum(balance)::bigint FROM wallets),
            (SELECT count(*) FROM keys)",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[sqlx::test(migrations = false)]
async fn fifty_racers_make_one_charge_and_get_one_reply(pool: PgPool) {
    set_up(&pool).await;
    let racers: Vec<_> = (0..50)
        .map(|_| tokio::spawn(answer(pool.clone(), request("key", "70"))))
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
    let refused = answer(pool.clone(), request("key", "170")).await.unwrap();
    assert_eq!(refused.status, 402);
    assert_eq!(rows(&pool).await, (0, 100, 1));
    // The wallet has enough by now. The key's answer stays.
    sqlx::query("UPDATE wallets SET balance = 1000")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(
        answer(pool.clone(), request("key", "170")).await.unwrap(),
        refused
    );
    let reused = answer(pool.clone(), request("key", "1")).await.unwrap();
    assert_eq!(
        reused,
        Reply {
            status: 422,
            body: r#"{"error":"idempotency_key_reused"}"#.into()
        }
    );
    assert_eq!(rows(&pool).await, (0, 1000, 1));
}

#[sqlx::test(migrations = false)]
async fn a_failure_leaves_the_key_free(pool: PgPool) {
    set_up(&pool).await;
    sqlx::query("ALTER TABLE wallets RENAME TO elsewhere")
        .execute(&pool)
        .await
        .unwrap();
    answer(pool.clone(), request("key", "70"))
        .await
        .unwrap_err();
    sqlx::query("ALTER TABLE elsewhere RENAME TO wallets")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(rows(&pool).await, (0, 100, 0));
    assert_eq!(
        answer(pool.clone(), request("key", "70"))
            .await
            .unwrap()
            .status,
        201
    );
    assert_eq!(rows(&pool).await, (1, 30, 1));
}
