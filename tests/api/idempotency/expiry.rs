//! Keys at the end of their life: dead at once, taken over once, swept without harm.

use charge_once::idempotency::{Idempotency, Outcome, Record, SWEEP_BATCH_ROWS, SweepPace, sweep};
use sqlx::{Connection, PgExecutor};

use crate::support::{
    effects::{EFFECTS, End, LONG, Work, database_for_effects, failure, replica, request, stored},
    harness::WAITS_FOR_CONNECTIONS,
    prelude::*,
};

/// Adds records without a request: `expired` that died an hour ago, and `alive` that live an hour.
async fn add_records<'c>(executor: impl PgExecutor<'c>, expired: i64, alive: i64) {
    sqlx::query(
        "INSERT INTO idempotency_keys
         SELECT (SELECT id FROM accounts), 'old-' || number, 1,
                decode(repeat('00', 32), 'hex'), 'POST', '/orders', 'req_' || number, NULL,
                now() - interval '1 day',
                now() + CASE WHEN number <= $1 THEN -1 ELSE 1 END * interval '1 hour',
                201, '[]', '{}'
           FROM generate_series(1, $1 + $2) AS number",
    )
    .bind(expired)
    .bind(alive)
    .execute(executor)
    .await
    .unwrap();
}

const DEAD: &str = "SELECT count(*) FROM idempotency_keys WHERE expires_at <= now()";

async fn sweep_once(database: &TestDatabase) -> u64 {
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let swept = tokio::time::timeout(PATIENCE, sweep(&mut connection, SweepPace::default())).await;
    swept.expect("the sweep ends").unwrap()
}

#[tokio::test]
async fn idempotency_expires_names_the_whole_second_at_the_end_of_the_retention() {
    let server = TestServer::start_with(&[("IDEMPOTENCY_TTL", "90s")]).await;
    let first = server.client.charge("key-1").await;
    let named = first.header("idempotency-expires").unwrap().to_owned();
    let expected = r#"
        SELECT to_char(created_at + interval '90 seconds', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
          FROM idempotency_keys"#;
    let expected: String = server.database.value(expected).await;
    // A session of the test's own may have another time zone than UTC.
    let zone: String = server.database.value("SHOW TimeZone").await;
    assert!(["UTC", "Etc/UTC", "GMT"].contains(&zone.as_str()), "{zone}");
    assert_eq!(named, expected);
    server.client.charge("key-1").await.assert_replays(&first);
    let kept = "SELECT count(*) FROM idempotency_keys
                 WHERE expires_at = created_at + interval '90 seconds'";
    assert_eq!(server.database.count(kept).await, 1);
}

#[tokio::test]
async fn an_expired_key_is_new_at_once_though_nobody_swept_it() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    let first = server.client.charge("key-1").await;
    let nearly = "UPDATE idempotency_keys SET expires_at = now() + interval '1 minute',
                         created_at = now() - interval '23 hours 59 minutes'";
    server.database.execute(nearly).await;
    let still = server.client.charge("key-1").await;
    assert_eq!((still.is_replay(), still.id()), (true, first.id()));
    server.database.expire_records().await;
    let second = server.client.charge("key-1").await;
    assert_eq!((second.status.as_u16(), second.is_replay()), (201, false));
    assert_ne!(second.id(), first.id());
    server.client.charge("key-1").await.assert_replays(&second);
    assert_eq!(server.database.charges().await, 2);

    // New for any request, not only for the one it belonged to.
    server.database.expire_records().await;
    let body = another_charge();
    let other = server.client.post("/charges", "key-1", &body).await;
    assert_eq!((other.status.as_u16(), other.is_replay()), (201, false));
    let replay = server.client.post("/charges", "key-1", &body).await;
    replay.assert_replays(&other);
    assert_eq!(server.client.charge("key-1").await.status, 422);
    assert_eq!(server.database.charges().await, 3);
    assert_eq!(server.database.records().await, 1);
}

/// Replicas that run `work`, each with its own map of keys in flight: only the database stands
/// between them.
fn race(replicas: usize, pool: &PgPool, work: &Work) -> JoinSet<(Arc<Record>, bool)> {
    let racer = |_| {
        let (replica, work) = (replica(pool), work.clone());
        async move { stored(replica.run(request("A", LONG), work).await) }
    };
    (0..replicas).map(racer).collect()
}

#[tokio::test]
async fn of_twenty_replicas_racing_for_an_expired_key_exactly_one_takes_it_over() {
    let database = database_for_effects().await;
    let variables = [&[("POOL_CONNECTIONS", "20")], WAITS_FOR_CONNECTIONS].concat();
    let pool = database.connect(&variables).await.pool().clone();
    let work = Work::that_ends(End::Store);
    stored(replica(&pool).run(request("A", LONG), work.clone()).await);
    database.expire_records().await;
    let racers = race(20, &pool, &work);
    let answers = racers.join_all().await;
    let executed = answers.iter().filter(|(_, replayed)| !replayed).count();
    assert_eq!(executed, 1);
    for (record, _) in &answers {
        assert_eq!(record, &answers[0].0);
    }
    assert_eq!(work.executions(), 2);
    assert_eq!(database.count(EFFECTS).await, 2);
    assert_eq!(database.records().await, 1);
}

#[tokio::test]
async fn twenty_racers_for_an_expired_key_make_one_new_charge() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    let first = server.client.charge("key-1").await;
    server.database.expire_records().await;
    let answers = all_at_once(20, |_| {
        let client = server.client.clone();
        async move { client.charge_until_definite("key-1").await }
    })
    .await;
    for answer in &answers {
        assert_eq!(answer.status, 201);
        assert_eq!(answer.body, answers[0].body);
        assert_ne!(answer.id(), first.id());
    }
    assert!(answers.iter().filter(|answer| !answer.is_replay()).count() <= 1);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn a_refusal_replaces_an_expired_record_and_does_not_bring_it_back() {
    let server = TestServer::start_with(&[FORGETFUL]).await;
    server.client.charge("key-1").await;
    server.database.expire_records().await;
    let mut wrong = charge();
    wrong["amount"] = 0.into();
    let refusal = server.client.post("/charges", "key-1", &wrong).await;
    assert_eq!((refusal.status.as_u16(), refusal.is_replay()), (400, false));
    let replay = server.client.post("/charges", "key-1", &wrong).await;
    replay.assert_replays(&refusal);
    // The first use is forgotten.
    assert_eq!(server.client.charge("key-1").await.status, 422);
    let refused = "SELECT count(*) FROM idempotency_keys WHERE status = 400 AND expires_at > now()";
    assert_eq!(server.database.count(refused).await, 1);
    assert_eq!(server.database.charges().await, 1);
}

async fn run(replica: &Idempotency, content: &str, end: End) -> Outcome {
    let work = Work::that_ends(end);
    replica.run(request(content, LONG), work).await
}

#[tokio::test]
async fn a_refusal_that_wrote_before_it_refused_leaves_nothing_even_on_an_expired_key() {
    let database = database_for_effects().await;
    let replica = replica(database.connect(&[]).await.pool());
    stored(run(&replica, "A", End::Store).await);
    database.expire_records().await;
    let refusing = Work::that_ends(End::Refuse);
    for _ in 0..2 {
        let (record, _) = stored(replica.run(request("B", LONG), refusing.clone()).await);
        assert_eq!(record.reply.status, 400);
    }
    assert_eq!(refusing.executions(), 1);
    assert_eq!(database.count(EFFECTS).await, 1, "only the first one's");
    assert_eq!(database.records().await, 1);
}

#[tokio::test]
async fn a_failure_on_an_expired_key_leaves_it_expired_and_the_retry_executes() {
    let database = database_for_effects().await;
    let replica = replica(database.connect(&[]).await.pool());
    stored(run(&replica, "A", End::Store).await);
    database.expire_records().await;
    failure(run(&replica, "A", End::Fail).await);
    assert_eq!(database.count(DEAD).await, 1);
    let (_, replayed) = stored(run(&replica, "A", End::Store).await);
    assert!(!replayed);
    assert_eq!(database.count(EFFECTS).await, 2);
}

#[tokio::test]
async fn a_record_that_expires_during_the_claim_is_judged_by_the_moment_the_claim_began() {
    // Microseconds from the transaction's now() to the expiry. Code that read the clock again would
    // find both expired, because that moment has passed by then.
    for (microseconds, alive) in [(0, false), (1, true)] {
        let server = TestServer::start_with(PATIENT).await;
        let first = server.client.charge("key-1").await;
        let mut pause = PausePoint::at(Stage::Claiming, &server.database, "key-1").await;
        let second = server.client.charging("key-1");
        pause.is_reached().await;
        pause.make_expiry_relative_to_the_paused(microseconds).await;
        // Dead by the clock in both cases.
        assert_eq!(server.database.count(DEAD).await, 1);
        pause.release().await;
        let second = second.await.unwrap();
        assert_eq!(second.status, 201);
        assert_eq!(second.is_replay(), alive, "{microseconds} µs");
        assert_eq!(second.id() == first.id(), alive);
        let expected = if alive { 1 } else { 2 };
        assert_eq!(server.database.charges().await, expected);
    }
}

#[tokio::test]
async fn a_sweep_removes_every_dead_record_batch_by_batch_and_no_other() {
    // A few batches, and exactly one.
    for (expired, alive) in [(2 * SWEEP_BATCH_ROWS + 200, 3), (SWEEP_BATCH_ROWS, 1)] {
        let database = TestDatabase::create().await;
        add_records(&database.pool, expired, alive).await;
        assert_eq!(sweep_once(&database).await, expired.unsigned_abs());
        assert_eq!(database.count(DEAD).await, 0);
        assert_eq!(database.records().await, alive);
        assert_eq!(sweep_once(&database).await, 0);
    }
}

#[tokio::test]
async fn a_batch_of_the_sweep_has_a_deadline_of_its_own() {
    let database = TestDatabase::create().await;
    add_records(&database.pool, 1, 0).await;
    let tx = database.holding("LOCK TABLE idempotency_keys").await;
    let pace = SweepPace {
        batch_deadline: Duration::from_millis(50),
        rest: 0,
        ..SweepPace::default()
    };
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let swept = tokio::time::timeout(PATIENCE, sweep(&mut connection, pace)).await;
    let error = swept.expect("the sweep ends").unwrap_err();
    assert!(error.to_string().contains("deadline"), "{error}");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn a_sweep_passes_over_a_record_that_is_being_taken_over() {
    let server = TestServer::start_with(PATIENT).await;
    server.client.charge("key-1").await;
    server.database.expire_records().await;
    let mut pause = PausePoint::at(Stage::Worked, &server.database, "key-1").await;
    let taking_over = server.client.charging("key-1");
    pause.is_reached().await;
    // In one transaction: the server's own first sweep must not come between the two.
    let mut sweeping = server.database.pool.begin().await.unwrap();
    add_records(&mut *sweeping, 5, 0).await;
    // Without SKIP LOCKED it would wait here: the takeover ends only after the sweep.
    let swept = sweep(&mut sweeping, SweepPace::default()).await.unwrap();
    assert_eq!(swept, 5);
    sweeping.commit().await.unwrap();
    pause.release().await;
    let second = taking_over.await.unwrap();
    assert_eq!(second.status, 201);
    server.client.charge("key-1").await.assert_replays(&second);
    assert_eq!(server.database.charges().await, 2);
    assert_eq!(server.database.records().await, 1);
}

#[tokio::test]
async fn two_sweeps_at_once_share_the_work_and_wait_for_nobody() {
    let database = TestDatabase::create().await;
    add_records(&database.pool, 3 * SWEEP_BATCH_ROWS, 7).await;
    let (left, right) = tokio::join!(sweep_once(&database), sweep_once(&database));
    // Each may skip what the other one holds; a record is never counted twice.
    let rest = sweep_once(&database).await;
    assert_eq!(left + right + rest, 3 * SWEEP_BATCH_ROWS.unsigned_abs());
    assert_eq!(database.count(DEAD).await, 0);
    assert_eq!(database.records().await, 7);
}

#[tokio::test]
async fn sweeps_replays_and_takeovers_race_without_an_effect_too_many() {
    const ROUNDS: usize = 15;
    const RACERS: usize = 6;
    let database = database_for_effects().await;
    let variables = [&[("POOL_CONNECTIONS", "12")], WAITS_FOR_CONNECTIONS].concat();
    let pool = database.connect(&variables).await.pool().clone();
    let work = Work::that_ends(End::Store);
    stored(replica(&pool).run(request("A", LONG), work.clone()).await);
    let mut executed = 1;
    for round in 0..ROUNDS {
        // Every other round the key is dead; in the others all are replays.
        let dies = round % 2 == 0;
        if dies {
            database.expire_records().await;
        }
        let racers = race(RACERS, &pool, &work);
        let (answers, _, _) = tokio::join!(
            racers.join_all(),
            sweep_once(&database),
            sweep_once(&database)
        );
        let fresh = answers.iter().filter(|(_, replayed)| !replayed).count();
        assert_eq!(fresh, usize::from(dies), "round {round}");
        executed += i64::from(dies);
        assert_eq!(database.count(EFFECTS).await, executed, "round {round}");
        assert_eq!(database.records().await, 1, "round {round}");
    }
}
