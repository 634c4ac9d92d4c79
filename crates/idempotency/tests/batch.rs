//! Many requests in one transaction.
#![cfg(feature = "batch")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use charge_once_idempotency::{
    BatchSettings, Batches, Command, Decide, Decision, Failure, Idempotency, Outcome, Record,
    Rejection, Reply, Request, Rows, SessionLimits, Settings,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use support::{
    ACCOUNT, BEGIN, BookSeat,
    batching::{BEFORE_WRITING, arrives_at, close, gathered, pass, waiting_at},
    count, execute, failed, made, request, set_up, set_up_of, set_up_with, stored, within_reason,
};
use tokio::task::JoinSet;
use uuid::Uuid;

const BOOKINGS: &str = "SELECT count(*) FROM bookings";
const RECORDS: &str = "SELECT count(*) FROM idempotency_keys";
const TAKE_A_SEAT: &str = "INSERT INTO bookings (seat) VALUES ('taken')";
/// The transaction that wrote a row.
const TRANSACTIONS: &str = "SELECT count(DISTINCT xmin::text) FROM idempotency_keys";

/// As many as a test uses at once, and fewer than the pool has.
const WARM_CONNECTIONS: usize = 7;

/// One connection for all batches, and time: a busy machine may take seconds to send what shall
/// wait behind the batch at the gate.
const PATIENT: BatchSettings = BatchSettings {
    connections: 1,
    prepare_limit: Duration::from_secs(40),
};

/// More than twice as long as a batch may take.
const DEADLINE: Duration = Duration::from_secs(90);

/// Longer than that.
const PATIENT_SESSIONS: SessionLimits = SessionLimits {
    statement: Duration::from_secs(100),
    idle_in_transaction: Duration::from_secs(120),
};

/// What a booking does in a batch.
#[derive(Clone, Copy)]
enum How {
    /// Takes the seat, or fails with everyone in the batch if it is taken.
    Books,
    Refuses,
    /// Swallows an error of the database in a batch.
    Swallows,
    /// Ends the batch's transaction, which it must not.
    EndsTheTransaction,
    /// Writes after that, too.
    EndsItAndWrites,
    /// Waits until the test lets go of the gate.
    WaitsAtTheGate,
    /// Can't decide by itself.
    RunsAlone,
    Panics,
}

#[derive(Clone)]
struct Book(BookSeat, How);

impl Decide for Book {
    type Rows = Bookings;

    fn decide(&self, _: &Bookings, now: DateTime<Utc>) -> Result<Decision<Book>, Rejection> {
        let reply = Reply::raw_json(201, format!(r#"{{"seat":"{}","at":"{now}"}}"#, self.0.seat));
        match self.1 {
            How::Books
            | How::Swallows
            | How::EndsTheTransaction
            | How::EndsItAndWrites
            | How::WaitsAtTheGate => Ok(Decision {
                reply,
                changes: Some(self.clone()),
            }),
            How::Refuses => Err(Rejection::Refused(Reply::raw_json(400, "{}"))),
            How::RunsAlone => Err(Rejection::Failed(Failure::unavailable("it takes more"))),
            How::Panics => panic!("a defect"),
        }
    }

    async fn alone(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        self.0.execute(tx).await
    }

    fn weight(&self) -> usize {
        1
    }
}

/// Bookings read nothing.
#[derive(Default)]
struct Bookings(Vec<Book>);

impl Rows for Bookings {
    type Name = Infallible;
    type Changes = Book;

    async fn read(&mut self, _: &mut PgConnection, _: Vec<Infallible>) -> Result<(), sqlx::Error> {
        Ok(())
    }

    fn apply(&mut self, book: Book) {
        self.0.push(book);
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        for Book(BookSeat { account_id, seat }, how) in self.0 {
            if let How::WaitsAtTheGate = how {
                pass(tx, BEFORE_WRITING).await?;
            }
            if let How::EndsTheTransaction | How::EndsItAndWrites = how {
                sqlx::Connection::begin(&mut *tx).await?.rollback().await?;
            }
            if let How::EndsTheTransaction = how {
                continue;
            }
            if let How::Swallows = how {
                let _ = sqlx::raw_sql("SELECT 1 / 0").execute(&mut *tx).await;
                continue;
            }
            sqlx::query("INSERT INTO bookings (account_id, seat) VALUES ($1, $2)")
                .bind(account_id)
                .bind(seat)
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    }
}

/// An application whose batches share one connection, and a request in its first batch that waits.
struct AtTheGate {
    pool: PgPool,
    idempotency: Idempotency,
    batches: Batches<Bookings>,
    gate: sqlx::Transaction<'static, sqlx::Postgres>,
    sent: JoinSet<(String, Outcome)>,
}

impl AtTheGate {
    async fn set_up(pool: PgPool) -> Self {
        Self::with(PATIENT, pool).await
    }

    async fn with(batches: BatchSettings, pool: PgPool) -> Self {
        let settings = Settings {
            database_deadline: DEADLINE,
            ..Settings::default()
        };
        let (pool, idempotency) = set_up_with(pool, 10, PATIENT_SESSIONS, settings).await;
        let gate = close(&pool, BEFORE_WRITING).await;
        // Connections are made before they are needed: a request waits for a held key for a quarter
        // of a second, and a busy machine takes as long to connect.
        let mut made = Vec::new();
        for _ in 0..WARM_CONNECTIONS {
            made.push(pool.acquire().await.unwrap());
        }
        drop(made);
        let batches = Batches::new(&idempotency, batches);
        let mut this = Self {
            pool,
            idempotency,
            batches,
            gate,
            sent: JoinSet::new(),
        };
        this.send(Uuid::now_v7(), "gate", How::WaitsAtTheGate);
        arrives_at(&this.pool, BEFORE_WRITING).await;
        this
    }

    /// Books the seat that has the key's name.
    fn send(&mut self, account_id: Uuid, key: &str, how: How) {
        self.send_for(account_id, key, key, how);
    }

    fn send_for(&mut self, account_id: Uuid, key: &str, seat: &str, how: How) {
        let (batches, id) = (self.batches.clone(), format!("{account_id} {key}"));
        let request = request(account_id, key, "/bookings", "{}");
        let book = Book(BookSeat::new(account_id, seat), how);
        self.sent
            .spawn(async move { (id, batches.run(request, book).await) });
    }

    /// Opens the gate when so many requests wait for the next batch, and returns how all ended.
    async fn open(self, waiting: usize) -> Ended {
        gathered(&self.batches, waiting).await;
        self.gate.rollback().await.unwrap();
        Ended {
            pool: self.pool,
            batches: self.batches,
            outcomes: within_reason("all end", self.sent.join_all()).await,
        }
    }
}

struct Ended {
    pool: PgPool,
    batches: Batches<Bookings>,
    outcomes: Vec<(String, Outcome)>,
}

impl Ended {
    fn take(&mut self, account_id: Uuid, key: &str) -> Outcome {
        let id = format!("{account_id} {key}");
        let place = self.outcomes.iter().position(|(one, _)| *one == id);
        self.outcomes.swap_remove(place.unwrap()).1
    }
}

/// Claims keys in a transaction elsewhere, which is open.
async fn hold(
    pool: &PgPool,
    account_id: Uuid,
    keys: &[&str],
) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut elsewhere = pool.begin_with(BEGIN).await.unwrap();
    sqlx::query(
        "INSERT INTO idempotency_keys
                (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
                 created_at, expires_at)
         SELECT $1, key, 1, sha256('x'), 'POST', '/', 'req_1', now(), now() + interval '1 day'
           FROM unnest($2::text[]) AS key",
    )
    .bind(account_id)
    .bind(keys)
    .execute(&mut *elsewhere)
    .await
    .unwrap();
    elsewhere
}

async fn run(
    batches: &Batches<Bookings>,
    account_id: Uuid,
    (key, seat): (&str, &str),
    how: How,
) -> Outcome {
    let request = request(account_id, key, "/bookings", "{}");
    let book = Book(BookSeat::new(account_id, seat), how);
    batches.run(request, book).await
}

async fn book(batches: &Batches<Bookings>, account_id: Uuid, key: &str, seat: &str) -> Outcome {
    run(batches, account_id, (key, seat), How::Books).await
}

/// Nothing but a batch would have given it the transaction's time in its reply.
#[track_caller]
fn made_in_a_batch(outcome: Outcome) -> Arc<Record> {
    let record = made(outcome);
    let body = String::from_utf8(record.reply.body.clone()).unwrap();
    assert!(body.contains(&record.created_at.to_string()), "{body}");
    record
}

#[sqlx::test(migrations = false)]
async fn requests_that_wait_share_a_transaction_and_have_their_own_answers(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    for number in 0..50 {
        world.send(ACCOUNT, &format!("seat-{number}"), How::Books);
    }
    let mut ended = world.open(50).await;
    for number in 0..50 {
        let key = format!("seat-{number}");
        let record = made(ended.take(ACCOUNT, &key));
        let again = stored(book(&ended.batches, ACCOUNT, &key, "another").await);
        // What was answered is what is stored, to the byte and the microsecond.
        assert_eq!(again, (record.clone(), true));
        let body = String::from_utf8(record.reply.body.clone()).unwrap();
        let expected = format!(r#"{{"seat":"{key}","at":"{}"}}"#, record.created_at);
        assert_eq!(body, expected);
    }
    assert_eq!(count(&ended.pool, BOOKINGS).await, 51);
    assert_eq!(count(&ended.pool, TRANSACTIONS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn each_request_of_a_batch_is_kept_for_its_own_time(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    let asked_by = |hours: u64| (hours > 0).then(|| Duration::from_secs(3600 * hours));
    for hours in 0..20 {
        let (batches, key) = (world.batches.clone(), format!("seat-{hours}"));
        let request = Request {
            retention: asked_by(hours),
            ..request(ACCOUNT, &key, "/bookings", "{}")
        };
        let book = Book(BookSeat::new(ACCOUNT, &key), How::Books);
        let id = format!("{ACCOUNT} {key}");
        let running = async move { (id, batches.run(request, book).await) };
        world.sent.spawn(running);
    }
    let mut ended = world.open(20).await;
    for hours in 0..20 {
        let key = format!("seat-{hours}");
        let record = made(ended.take(ACCOUNT, &key));
        let life = (record.expires_at - record.created_at).to_std().unwrap();
        let usual = Settings::default().retention;
        assert_eq!(life, asked_by(hours).unwrap_or(usual), "{key}");
        // Another wish of a retry changes nothing.
        let again = stored(book(&ended.batches, ACCOUNT, &key, "another").await);
        assert_eq!(again, (record, true));
    }
    assert_eq!(count(&ended.pool, TRANSACTIONS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn the_same_key_of_two_accounts_is_two_requests(pool: PgPool) {
    let (alice, bob) = (Uuid::now_v7(), Uuid::now_v7());
    let mut world = AtTheGate::set_up(pool).await;
    // Bob's key is taken already, by another request.
    let taken = request(bob, "one", "/bookings", "[]");
    let taken = world.idempotency.run(taken, BookSeat::new(bob, "taken"));
    stored(taken.await);
    world.send_for(alice, "one", "alice's", How::Books);
    world.send_for(bob, "one", "bob's", How::Books);
    let mut ended = world.open(2).await;
    made(ended.take(alice, "one"));
    assert!(matches!(ended.take(bob, "one"), Outcome::Reused));
    let booked: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT account_id, seat FROM bookings WHERE seat LIKE '%''s'")
            .fetch_all(&ended.pool)
            .await
            .unwrap();
    assert_eq!(booked, [(alice, "alice's".to_owned())]);
}

#[sqlx::test(migrations = false)]
async fn a_replay_beside_a_new_request_writes_nothing(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    let first = request(ACCOUNT, "one", "/bookings", "{}");
    let seat = BookSeat::new(ACCOUNT, "first");
    let (first, _) = stored(world.idempotency.run(first, seat).await);
    world.send_for(ACCOUNT, "one", "second", How::Books);
    world.send(ACCOUNT, "two", How::Books);
    let mut ended = world.open(2).await;
    assert_eq!(stored(ended.take(ACCOUNT, "one")), (first, true));
    made_in_a_batch(ended.take(ACCOUNT, "two"));
    // The gate's, the first one's, and the new one's.
    assert_eq!(count(&ended.pool, BOOKINGS).await, 3);
}

#[sqlx::test(migrations = false)]
async fn a_refusal_is_kept_without_rows(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    world.send(ACCOUNT, "one", How::Refuses);
    world.send(ACCOUNT, "two", How::Books);
    let mut ended = world.open(2).await;
    let (refused, replayed) = stored(ended.take(ACCOUNT, "one"));
    assert_eq!((refused.reply.status, replayed), (400, false));
    let again = stored(book(&ended.batches, ACCOUNT, "one", "one").await);
    assert_eq!(again, (refused, true));
    assert_eq!(count(&ended.pool, BOOKINGS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn what_fails_in_a_batch_fails_no_neighbor(pool: PgPool) {
    for how in [How::Books, How::Panics, How::RunsAlone] {
        let mut world = AtTheGate::set_up(pool.clone()).await;
        // The seat of the last one is taken: its row is refused, and a request alone finds out
        // kindly.
        execute(&world.pool, TAKE_A_SEAT).await;
        for key in ["one", "two", "three"] {
            world.send(ACCOUNT, key, How::Books);
        }
        world.send(ACCOUNT, "taken", how);
        let mut ended = world.open(4).await;
        for key in ["one", "two", "three"] {
            made(ended.take(ACCOUNT, key));
        }
        assert_eq!(stored(ended.take(ACCOUNT, "taken")).0.reply.status, 400);
        assert_eq!(count(&ended.pool, BOOKINGS).await, 5);
        assert_eq!(count(&ended.pool, RECORDS).await, 5);
        let tables = "TRUNCATE bookings, idempotency_keys; DROP TABLE bookings";
        execute(&ended.pool, tables).await;
    }
}

#[sqlx::test(migrations = false)]
async fn a_swallowed_error_loses_nothing(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    // The last of its batch: no statement follows that would fail.
    world.send(ACCOUNT, "one", How::Swallows);
    let mut ended = world.open(1).await;
    // It ran alone.
    made(ended.take(ACCOUNT, "one"));
    assert_eq!(count(&ended.pool, BOOKINGS).await, 2);
    assert_eq!(count(&ended.pool, RECORDS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn rows_that_end_the_transaction_are_not_acknowledged(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    world.send(ACCOUNT, "one", How::EndsTheTransaction);
    let mut ended = world.open(1).await;
    failed(ended.take(ACCOUNT, "one"));
    assert_eq!(count(&ended.pool, BOOKINGS).await, 1);
    assert_eq!(count(&ended.pool, RECORDS).await, 1);
}

#[sqlx::test(migrations = false)]
async fn what_rows_write_after_they_ended_the_transaction_is_refused(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    world.send(ACCOUNT, "one", How::EndsItAndWrites);
    let mut ended = world.open(1).await;
    // It ran alone.
    made(ended.take(ACCOUNT, "one"));
    assert_eq!(count(&ended.pool, BOOKINGS).await, 2);
    assert_eq!(count(&ended.pool, RECORDS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn a_key_that_another_replica_holds_holds_up_no_neighbor(pool: PgPool) {
    let (mallory, alice) = (Uuid::now_v7(), Uuid::now_v7());
    let mut world = AtTheGate::set_up(pool).await;
    let elsewhere = hold(&world.pool, mallory, &["held"]).await;
    world.send(mallory, "held", How::Books);
    world.send(alice, "free", How::Books);
    let mut ended = world.open(2).await;
    assert!(matches!(ended.take(mallory, "held"), Outcome::InUse { .. }));
    made(ended.take(alice, "free"));
    elsewhere.rollback().await.unwrap();
    made(book(&ended.batches, mallory, "held", "held").await);
}

#[sqlx::test(migrations = false)]
async fn a_batch_that_hangs_holds_up_no_other(pool: PgPool) {
    let two = BatchSettings {
        connections: 2,
        ..PATIENT
    };
    let world = AtTheGate::with(two, pool).await;
    // A batch of its own.
    made_in_a_batch(book(&world.batches, ACCOUNT, "free", "free").await);
    // The other batch still hangs.
    assert_eq!(waiting_at(&world.pool, BEFORE_WRITING).await, 1);
}

#[sqlx::test(migrations = false)]
async fn a_batch_that_hangs_leaves_its_requests_most_of_their_time(pool: PgPool) {
    let short = BatchSettings {
        prepare_limit: Duration::from_secs(5),
        ..PATIENT
    };
    let since = Instant::now();
    let mut world = AtTheGate::with(short, pool).await;
    let ended = within_reason("it runs alone", world.sent.join_next()).await;
    let (_, outcome) = ended.unwrap().unwrap();
    assert_eq!(stored(outcome).0.reply.status, 201);
    assert!(since.elapsed() < DEADLINE / 2, "{:?}", since.elapsed());
    // The gate was never opened, and the next batch has a clean connection.
    stored(book(&world.batches, ACCOUNT, "next", "next").await);
    assert_eq!(count(&world.pool, BOOKINGS).await, 2);
}

#[cfg(feature = "admission")]
#[sqlx::test(migrations = false)]
async fn what_falls_out_of_a_batch_waits_for_no_key_of_another_account(pool: PgPool) {
    let (mallory, alice) = (Uuid::now_v7(), Uuid::now_v7());
    let mut world = AtTheGate::set_up(pool).await;
    // More than there are connections.
    let keys: Vec<_> = (1..=20).map(|key| key.to_string()).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let elsewhere = hold(&world.pool, mallory, &keys).await;
    for key in &keys {
        world.send(mallory, key, How::Books);
    }
    world.send(alice, "free", How::Books);
    let ended = world.open(21).await;
    elsewhere.rollback().await.unwrap();
    // In the order in which they ended.
    let accounts = ended.outcomes.iter().map(|(id, _)| id.split(' ').next());
    let accounts: Vec<_> = accounts.map(Option::unwrap).collect();
    let before_alice = accounts.iter().take_while(|one| **one != alice.to_string());
    let mallorys = before_alice.filter(|one| **one == mallory.to_string());
    // Those of the other account that have a connection may end before her on a busy machine.
    // Behind all of them, she would be the last one.
    assert!(mallorys.count() <= 9, "{accounts:?}");
}

#[sqlx::test(migrations = false)]
async fn an_expired_key_is_free_and_one_without_an_outcome_is_not(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let batches = Batches::new(&idempotency, PATIENT);
    for key in ["expired", "unfinished"] {
        stored(book(&batches, ACCOUNT, key, key).await);
    }
    execute(
        &pool,
        "DELETE FROM bookings;
         UPDATE idempotency_keys
            SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'
          WHERE key = 'expired';
         UPDATE idempotency_keys SET status = NULL, headers = NULL, body = NULL
          WHERE key = 'unfinished'",
    )
    .await;
    made(book(&batches, ACCOUNT, "expired", "again").await);
    let unfinished = book(&batches, ACCOUNT, "unfinished", "never").await;
    assert!(matches!(unfinished, Outcome::Unfinished), "{unfinished:?}");
    let seats: Vec<String> = sqlx::query_scalar("SELECT seat FROM bookings")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(seats, ["again"]);
}

#[sqlx::test(migrations = false)]
async fn a_connection_that_died_is_replaced(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let batches = Batches::new(&idempotency, PATIENT);
    for key in ["one", "two", "three"] {
        made(book(&batches, ACCOUNT, key, key).await);
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        assert!(count(&pool, ended).await > 0);
    }
    assert_eq!(count(&pool, BOOKINGS).await, 3);
}

#[sqlx::test(migrations = false)]
async fn work_ends_though_its_client_has_left(pool: PgPool) {
    let mut world = AtTheGate::set_up(pool).await;
    world.send(ACCOUNT, "one", How::Books);
    gathered(&world.batches, 1).await;
    world.sent.abort_all();
    world.gate.rollback().await.unwrap();
    world.idempotency.end_waits();
    let drained = tokio::time::timeout(Duration::from_secs(10), world.idempotency.drained());
    drained.await.unwrap();
    assert_eq!(count(&world.pool, BOOKINGS).await, 2);
}

/// The same statements for one request, on a connection of the pool.
const BY_ITSELF: BatchSettings = BatchSettings {
    connections: 0,
    ..PATIENT
};

#[sqlx::test(migrations = false)]
async fn without_connections_of_their_own_batches_are_of_one_request(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let batches = Batches::new(&idempotency, BY_ITSELF);
    let run = async |key, seat, how| run(&batches, ACCOUNT, (key, seat), how).await;
    // Claimed with its outcome.
    let record = made_in_a_batch(run("one", "one", How::Books).await);
    let again = run("one", "another", How::Books).await;
    assert_eq!(stored(again), (record, true));
    let refused = stored(run("refused", "refused", How::Refuses).await);
    assert_eq!((refused.0.reply.status, refused.1), (400, false));
    // What it can't decide, or must read first, is a transaction like any other.
    let undecided = stored(run("undecided", "one", How::RunsAlone).await);
    assert_eq!((undecided.0.reply.status, undecided.1), (400, false));
    let expire = "UPDATE idempotency_keys SET created_at = now() - interval '2 days',
                                              expires_at = now() - interval '1 day'";
    execute(&pool, expire).await;
    made(run("one", "again", How::Books).await);
    let elsewhere = hold(&pool, ACCOUNT, &["held"]).await;
    let held = run("held", "held", How::Books).await;
    assert!(matches!(held, Outcome::InUse { .. }), "{held:?}");
    elsewhere.rollback().await.unwrap();
    stored(run("held", "held", How::Books).await);
    assert_eq!(count(&pool, BOOKINGS).await, 3);
}

#[sqlx::test(migrations = false)]
async fn a_batch_of_one_that_fails_leaves_nothing_and_is_not_acknowledged(pool: PgPool) {
    let (pool, idempotency) = set_up_of(pool, 2).await;
    let batches = Batches::new(&idempotency, BY_ITSELF);
    execute(&pool, TAKE_A_SEAT).await;
    for how in [How::Books, How::Panics, How::Swallows] {
        for _ in 0..3 {
            failed(run(&batches, ACCOUNT, ("one", "taken"), how).await);
        }
        assert_eq!(count(&pool, RECORDS).await, 0);
    }
    // Every connection is clean, or was closed.
    made(book(&batches, ACCOUNT, "one", "free").await);
    assert_eq!(count(&pool, BOOKINGS).await, 2);
}
