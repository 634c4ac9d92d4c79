//! What bounds a wait, and what is said of the request when it is over.

use std::{
    convert::Infallible,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use charge_once::idempotency::{
    Admission, AdmissionObserver, BatchSettings, Batches, Decide, Decision, Idempotency,
    IdempotencyKey, InProgressLimits, Observer, Outcome, Record, Rejection, Reply, Request, Rows,
    Settings,
};
use chrono::{DateTime, Utc};
use futures_util::{FutureExt, future::join_all};
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

use crate::support::{
    effects::{
        EFFECTS, End, LONG, Work, database_for_effects, failure, replica, replica_with_deadline,
        reply, request, stored,
    },
    prelude::*,
};

/// Work in a batch, which decides when the test lets it.
struct Batched(Mutex<mpsc::Receiver<()>>);

impl Batched {
    /// And what lets it decide.
    fn new() -> (mpsc::Sender<()>, Self) {
        let (decides, may_decide) = mpsc::channel();
        (decides, Self(Mutex::new(may_decide)))
    }

    /// Which nothing holds up.
    fn free() -> Self {
        Self::new().1
    }
}

impl Decide for Batched {
    type Rows = Effects;

    fn decide(&self, _: &Effects, _: DateTime<Utc>) -> Result<Decision<usize>, Rejection> {
        let may_decide = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Blocks its thread: no time limit of the batch can fire.
        let _ = may_decide.recv();
        Ok(Decision {
            reply: reply(201, "in a batch"),
            changes: Some(1),
        })
    }

    async fn alone(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        Effects(1).write(tx).await?;
        Ok(reply(201, "alone"))
    }

    fn weight(&self) -> usize {
        1
    }
}

/// How many rows are to be written.
#[derive(Default)]
struct Effects(usize);

impl Rows for Effects {
    type Name = Infallible;
    type Changes = usize;

    async fn read(&mut self, _: &mut PgConnection, _: Vec<Infallible>) -> Result<(), sqlx::Error> {
        Ok(())
    }

    fn apply(&mut self, changes: usize) {
        self.0 += changes;
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        for _ in 0..self.0 {
            sqlx::query("INSERT INTO effects DEFAULT VALUES")
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_whose_batch_is_stuck_has_an_unknown_outcome_in_time() {
    let database = database_for_effects().await;
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    let pool = pool.connect(&database.url).await.unwrap();
    let replica = replica_with_deadline(&pool, Duration::from_secs(1));
    let batches = Batches::new(&replica, BatchSettings::default());
    let (decides, stuck) = Batched::new();
    let waiting = batches.run(request("A", Duration::ZERO), stuck);
    let mut waiting = Box::pin(timeout(PATIENCE, waiting));
    let answered = loop {
        tokio::select! {
            answered = &mut waiting => break answered,
            // The thread that is blocked may have been the one that looks after timers: a new task
            // wakes another.
            _ = tokio::spawn(async {}) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let failure = failure(answered.expect("it is answered"));
    assert!(failure.is_unknown, "{failure:?}");
    // The retry leads, and is not disturbed when the batch goes on.
    let (goes_on, retry) = Batched::new();
    let retry = tokio::spawn({
        let batches = batches.clone();
        async move { batches.run(request("A", LONG), retry).await }
    });
    drop(decides);
    drop(goes_on);
    stored(retry.await.unwrap());
    let counts = (database.count(EFFECTS).await, database.records().await);
    assert_eq!(counts, (1, 1));
    let holds = || async { replica.in_flight_counts().keys == 0 };
    eventually("no request is in flight", holds).await;
}

#[tokio::test]
async fn a_batch_takes_no_connection_that_is_older_than_those_of_the_pool_may_be() {
    for (max_lifetime, sessions) in [(LONG, 1), (Duration::ZERO, 3)] {
        let database = database_for_effects().await;
        let session = "ALTER TABLE effects ADD COLUMN session integer DEFAULT pg_backend_pid()";
        database.execute(session).await;
        let pool = PgPoolOptions::new().max_lifetime(max_lifetime);
        let replica = replica(&pool.connect(&database.url).await.unwrap());
        let settings = BatchSettings {
            connections: 1,
            ..BatchSettings::default()
        };
        let batches = Batches::new(&replica, settings);
        for key in ["key-1", "key-2", "key-3"] {
            let request = with_key(key);
            let (record, _) = stored(batches.run(request, Batched::free()).await);
            assert_eq!(record.reply.body, b"in a batch");
        }
        let counted = "SELECT count(DISTINCT session) FROM effects";
        assert_eq!(database.count(counted).await, sessions);
    }
}

fn with_key(key: &str) -> Request {
    Request {
        key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
        ..request("A", Duration::ZERO)
    }
}

/// COMMIT was answered, and the transaction is to run again, when its time is over.
#[tokio::test]
async fn what_was_certainly_rolled_back_is_not_unknown_when_its_time_is_over() {
    let database = database_for_effects().await;
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'refused at COMMIT' USING ERRCODE = 'serialization_failure'; END $$;
         CREATE CONSTRAINT TRIGGER late_check AFTER INSERT ON effects
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    database.execute(sql).await;
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&database.url).await.unwrap();
    let replica: Idempotency = replica_with_deadline(&pool, Duration::from_secs(2));
    let work = Work::that_lasts_and_then(End::Store);
    let mut first = Box::pin(replica.run(with_key("key-1"), work.clone()));
    assert!((&mut first).now_or_never().is_none());
    eventually("the work starts", || async { work.executions() == 1 }).await;
    // It waits for the only connection, and keeps it for longer than the first one has.
    let next = Work::that_lasts_and_then(End::Store);
    let mut second = Box::pin(replica.run(with_key("key-2"), next.clone()));
    assert!((&mut second).now_or_never().is_none());
    let holds = || async { replica.in_flight_counts().keys == 2 };
    eventually("the second request is in flight", holds).await;
    work.finish();
    let failure = failure(first.await);
    assert_eq!(next.executions(), 1, "it has the connection");
    assert!(!failure.is_unknown, "{failure:?}");
    next.finish();
    second.await;
}

/// A lock of the whole table says nothing about a key.
#[tokio::test]
async fn while_a_migration_locks_the_table_a_new_key_is_not_in_use() {
    for shortcut in [&[ALONE, FORGETFUL][..], &[]] {
        let server = TestServer::start_with(shortcut).await;
        let client = &server.client;
        let lock = "LOCK TABLE idempotency_keys IN SHARE MODE";
        let migration = server.database.holding(lock).await;
        let refused = client.charge("key-1").await;
        assert_eq!(refused.code(), "service_unavailable");
        assert_eq!(refused.header("stripe-should-retry"), Some("true"));
        let looked_up = client.get("/idempotency-keys/key-1").await;
        assert_eq!(looked_up.code(), "service_unavailable");
        migration.rollback().await.unwrap();
        assert_eq!(client.charge_until_definite("key-1").await.status, 201);
        assert_eq!(server.database.charges().await, 1);
    }
}

fn that_begins_nothing(pool: PgPool) -> Admission {
    let nothing = InProgressLimits {
        per_account: 0,
        in_all: 0,
    };
    Admission::new(pool, nothing)
}

/// A database where `Work` was done for the request `A`, its pool, and the record of that.
async fn with_a_completed_key() -> (TestDatabase, PgPool, Work, Arc<Record>) {
    let database = database_for_effects().await;
    let pool = PgPoolOptions::new().connect(&database.url).await.unwrap();
    let work = Work::that_ends(End::Store);
    let first = request("A", Duration::ZERO);
    let (first, _) = stored(replica(&pool).run(first, work.clone()).await);
    (database, pool, work, first)
}

/// More of them than look-ups may wait.
#[tokio::test]
async fn beyond_the_limits_all_duplicates_of_a_completed_key_share_one_look_up() {
    let (_database, pool, work, first) = with_a_completed_key().await;
    let limited = Idempotency::new(that_begins_nothing(pool), Settings::default()).unwrap();
    let duplicates = (0..2_100).map(|_| limited.run(request("A", Duration::ZERO), work.clone()));
    for outcome in join_all(duplicates).await {
        assert_eq!(stored(outcome), (Arc::clone(&first), true));
    }
    let other = limited.run(request("B", Duration::ZERO), work.clone());
    assert!(matches!(other.await, Outcome::Reused));
    assert_eq!(work.executions(), 1);
}

/// The other request leads, and says nothing about the retry that follows it. Then the retry leads.
#[tokio::test]
async fn beyond_the_limits_a_retry_that_followed_another_request_is_still_replayed() {
    let (_database, pool, work, first) = with_a_completed_key().await;
    let limited = Idempotency::new(that_begins_nothing(pool), Settings::default()).unwrap();
    let mut other = Box::pin(limited.run(request("B", LONG), work.clone()));
    let mut retry = Box::pin(limited.run(request("A", LONG), work.clone()));
    // In this order. The runtime has one thread: the look-up begins later.
    assert!((&mut other).now_or_never().is_none());
    assert!((&mut retry).now_or_never().is_none());
    assert_eq!(limited.in_flight_counts().waiters, 1);
    let other = other.await;
    assert!(matches!(other, Outcome::Reused), "{other:?}");
    assert_eq!(stored(retry.await), (first, true));
}

/// Panics once, as no observer may.
#[derive(Debug, Default)]
struct Panics(AtomicBool);

impl Observer for Panics {
    fn waited_for_connection(&self, _: Duration, _: bool) {
        assert!(self.0.swap(true, Ordering::SeqCst), "as the test wants it");
    }
}

impl AdmissionObserver for Panics {}

#[tokio::test]
async fn after_a_look_up_that_panicked_others_look_again() {
    let (_database, pool, work, first) = with_a_completed_key().await;
    let admission = that_begins_nothing(pool).observed_by(Arc::new(Panics::default()));
    let limited = Idempotency::new(admission, Settings::default()).unwrap();
    let retry = || limited.run(request("A", Duration::ZERO), work.clone());
    failure(retry().await);
    eventually("a retry is replayed", || async {
        let outcome = retry().await;
        !matches!(outcome, Outcome::Failed(_)) && stored(outcome) == (Arc::clone(&first), true)
    })
    .await;
}
