//! A small application on the crate: bookings of seats. Each test has a database of its own, which
//! `#[sqlx::test]` creates on the server that `DATABASE_URL` names.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "a test may stop at the first surprise, and no test needs all of this"
)]

#[cfg(feature = "batch")]
pub mod batching;

use std::{sync::Arc, time::Duration};

use charge_once_idempotency::{
    Command, Failure, FingerprintInput, Idempotency, IdempotencyKey, Outcome, Parameters, Record,
    Rejection, Reply, Request, SessionLimits, Settings, migrate, pin_session,
};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgExecutor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

/// How long anything may take before a test gives it up: longer than a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The account of most tests: each one has a database of its own.
pub const ACCOUNT: Uuid = Uuid::from_u128(1);

/// The crate's tables, and the application's own.
pub async fn set_up(database: PgPool) -> (PgPool, Idempotency) {
    set_up_of(database, 5).await
}

/// What [`set_up`] makes, with so many connections.
pub async fn set_up_of(database: PgPool, connections: u32) -> (PgPool, Idempotency) {
    let limits = SessionLimits::default();
    set_up_with(database, connections, limits, Settings::default()).await
}

/// What [`set_up`] makes, with limits and settings of a test's own.
pub async fn set_up_with(
    database: PgPool,
    connections: u32,
    limits: SessionLimits,
    settings: Settings,
) -> (PgPool, Idempotency) {
    let connect = PgConnectOptions::clone(&database.connect_options());
    let mut connection = PgConnection::connect_with(&connect).await.unwrap();
    let schema = migrate(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    // A pool of its own. Those that `#[sqlx::test]` makes have 20 connections together, so a test
    // that holds some of them and needs more would wait for other tests.
    database.close().await;
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
        .connect_with(pin_session(connect, &schema, limits))
        .await
        .unwrap();
    let bookings = "CREATE TABLE bookings (account_id uuid, seat text PRIMARY KEY)";
    execute(&pool, bookings).await;
    #[cfg(feature = "admission")]
    let connections = charge_once_idempotency::Admission::new(
        pool.clone(),
        charge_once_idempotency::InProgressLimits::NONE,
    );
    #[cfg(not(feature = "admission"))]
    let connections = pool.clone();
    let idempotency = Idempotency::new(connections, settings).unwrap();
    (pool, idempotency)
}

/// What `event` returns. A test fails, rather than hangs, where that never comes.
pub async fn within_reason<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(happened) => happened,
        Err(_) => panic!("never happened: {what}"),
    }
}

/// Returns when `is_reached` says so. A test fails, rather than hangs, where it never does.
pub async fn until(what: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is_reached().await {
            tokio::task::yield_now().await;
        }
    };
    within_reason(what, reached).await;
}

/// `POST /bookings`: takes a seat, which only one booking can have.
#[derive(Clone)]
pub struct BookSeat {
    pub account_id: Uuid,
    pub seat: String,
}

impl BookSeat {
    pub fn new(account_id: Uuid, seat: &str) -> Self {
        let seat = seat.to_owned();
        Self { account_id, seat }
    }
}

impl Command for BookSeat {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let booked = sqlx::query(
            "INSERT INTO bookings (account_id, seat) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        )
        .bind(self.account_id)
        .bind(&self.seat)
        .execute(tx)
        .await?;
        if booked.rows_affected() == 0 {
            // Stored like a success: every retry gets the same answer.
            let taken = Reply::raw_json(400, r#"{"error":"seat_taken"}"#);
            return Err(Rejection::Refused(taken));
        }
        Ok(Reply::raw_json(201, r#"{"object":"booking"}"#))
    }
}

/// `POST {path}` with the canonical parameters `body`.
pub fn request(account_id: Uuid, key: &str, path: &str, body: &str) -> Request {
    let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    let input = FingerprintInput {
        method: "POST",
        path,
        query: Parameters::Canonical(b"{}"),
        media_type: "json",
        parameters: Parameters::Canonical(body.as_bytes()),
    };
    Request::new(account_id, key, &input)
}

/// The record of an outcome that is definite, and whether it is a replay.
pub fn stored(outcome: Outcome) -> (Arc<Record>, bool) {
    match outcome {
        Outcome::Stored {
            record, replayed, ..
        } => (record, replayed),
        other @ (Outcome::Reused
        | Outcome::InUse { .. }
        | Outcome::Unfinished
        | Outcome::Failed(_)) => {
            panic!("not stored: {other:?}")
        }
    }
}

/// The failure that a request ended with.
#[track_caller]
pub fn failed(outcome: Outcome) -> Failure {
    let Outcome::Failed(failure) = outcome else {
        panic!("it has not failed: {outcome:?}");
    };
    failure
}

/// The record of a success that is no replay.
#[track_caller]
pub fn made(outcome: Outcome) -> Arc<Record> {
    let (record, replayed) = stored(outcome);
    assert_eq!((record.reply.status, replayed), (201, false));
    record
}

/// Sessions are read-only by default.
pub const BEGIN: &str = "BEGIN READ WRITE";

pub async fn execute(executor: impl PgExecutor<'_>, statements: &'static str) {
    let statements = AssertSqlSafe(format!("SET TRANSACTION READ WRITE; {statements}"));
    sqlx::raw_sql(statements).execute(executor).await.unwrap();
}

pub async fn count(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}
