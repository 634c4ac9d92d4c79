//! Keys whose records have expired, and records that are sealed.
#![cfg(all(feature = "memory", feature = "seal"))]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::time::Duration;

use charge_once_idempotency::{
    Idempotency, Memory, Reply, Request, SEAL_MIGRATIONS, Seal, SealSecrets,
};
use sqlx::{Acquire, PgPool};
use support::{ACCOUNT, BookSeat, count, execute, failed, made, request, set_up, stored};

const DAY: Duration = Duration::from_secs(24 * 3600);
const BOOKINGS: &str = "SELECT count(*) FROM bookings";

async fn book(idempotency: &Idempotency, request: Request, seat: &str) -> (u16, bool) {
    let booked = idempotency.run(request, BookSeat::new(ACCOUNT, seat));
    let (record, replayed) = stored(booked.await);
    (record.reply.status, replayed)
}

/// The step of a request that takes long would be refused, and the request never end.
#[sqlx::test(migrations = false)]
async fn the_key_of_a_step_is_not_remembered(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let memory = Memory {
        keep: Some(DAY),
        by_time_in_key: true,
        answer: |_| Reply::raw_json(409, "{}"),
    };
    let idempotency = idempotency.remembering(memory).unwrap();
    let send = |key, is_step| Request {
        is_step,
        ..request(ACCOUNT, key, "/bookings", "{}")
    };
    let old = "018f4d2e-0000-7000-8000-000000000000";
    for key in ["one", old] {
        let before = count(&pool, BOOKINGS).await;
        assert_eq!(
            book(&idempotency, send(key, true), &format!("{key}-1")).await,
            (201, false)
        );
        execute(
            &pool,
            "UPDATE idempotency_keys
                SET created_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'",
        )
        .await;
        assert_eq!(
            book(&idempotency, send(key, true), &format!("{key}-2")).await,
            (201, false)
        );
        assert_eq!(count(&pool, BOOKINGS).await, before + 2);
        execute(
            &pool,
            "UPDATE idempotency_keys
                SET created_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'",
        )
        .await;
        for is_replay in [false, true] {
            let late = book(&idempotency, send(key, false), &format!("{key}-3")).await;
            assert_eq!(late, (409, is_replay));
        }
        assert_eq!(count(&pool, BOOKINGS).await, before + 2);
    }
}

/// One that is sealed could stand beside one that is not, and both be executed.
#[sqlx::test(migrations = false)]
async fn no_record_is_sealed_before_its_index_is_there(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let seal = Seal::from(SealSecrets::new(["a secret of thirty-two characters"]).unwrap());
    let send = || Request {
        seal: Some(Seal {
            seals: true,
            ..seal.clone()
        }),
        ..request(ACCOUNT, "one", "/bookings", "{}")
    };
    let seat = || BookSeat::new(ACCOUNT, "12A");
    failed(idempotency.run(send(), seat()).await);
    assert_eq!(count(&pool, BOOKINGS).await, 0);
    let mut connection = pool.acquire().await.unwrap();
    let connection = connection.acquire().await.unwrap();
    let writes = sqlx::raw_sql("SET default_transaction_read_only = off");
    writes.execute(&mut *connection).await.unwrap();
    SEAL_MIGRATIONS.run(&mut *connection).await.unwrap();
    made(idempotency.run(send(), seat()).await);
    let plain = request(ACCOUNT, "one", "/bookings", "{}");
    failed(idempotency.run(plain, seat()).await);
    assert!(stored(idempotency.run(send(), seat()).await).1);
    assert_eq!(count(&pool, BOOKINGS).await, 1);
}
