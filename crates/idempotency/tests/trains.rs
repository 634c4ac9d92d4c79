//! `examples/trains.rs`: a verb that reads, decides and writes, in one file.
#![cfg(feature = "batch")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]

mod support;

use sqlx::{PgPool, postgres::PgConnectOptions};
use support::{count, stored};
use tokio::task::JoinSet;
use uuid::Uuid;

#[path = "../examples/trains.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "its `main` is for people, and its words are its docs"
)]
mod trains;

use trains::{book, set_up};

#[sqlx::test(migrations = false)]
async fn each_seat_has_one_passenger_and_each_retry_the_first_answer(pool: PgPool) {
    let connect = PgConnectOptions::clone(&pool.connect_options());
    let batches = set_up(connect).await.unwrap();
    let passengers: Vec<_> = (0..20).map(|_| Uuid::now_v7()).collect();
    let mut answers = Vec::new();
    for is_retry in [false, true] {
        let mut sent = JoinSet::new();
        for (number, passenger) in (0..).zip(passengers.clone()) {
            let batches = batches.clone();
            sent.spawn(async move {
                let outcome = book(&batches, passenger, "one", (7, number % 6)).await;
                let (record, replayed) = stored(outcome.unwrap());
                assert_eq!(replayed, is_retry);
                let body = String::from_utf8(record.reply.body.clone()).unwrap();
                (number, record.reply.status, body)
            });
        }
        let mut sent = sent.join_all().await;
        sent.sort_unstable();
        answers.push(sent);
    }
    let [first, again] = <[_; 2]>::try_from(answers).unwrap();
    assert_eq!(first, again);
    let bodies = first.iter().map(|(_, _, body)| body);
    let count_of = |wanted: &str| bodies.clone().filter(|body| body.contains(wanted)).count();
    // There is no seat 0.
    assert_eq!(count_of("booking"), 5);
    assert_eq!(count_of("no_such_seat"), 4);
    assert_eq!(count_of("seat_taken"), 11);
    let taken = "SELECT count(DISTINCT passenger) FROM seats";
    assert_eq!(count(&pool, taken).await, 5);
}
