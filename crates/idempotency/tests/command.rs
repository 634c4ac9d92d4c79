//! The core in an application: one transaction per key.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::time::Duration;

use charge_once_idempotency::{
    Command, Connections, FailureKind, Idempotency, Outcome, Rejection, Reply, SessionLimits,
    Settings, migrate, pin_session,
};
use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use support::{
    ACCOUNT, BEGIN, BookSeat, count, execute, failed, made, request, set_up, set_up_of, stored,
};
use uuid::Uuid;

const RECORDS: &str = "SELECT count(*) FROM idempotency_keys";
const BOOKINGS: &str = "SELECT count(*) FROM bookings";

async fn book(idempotency: &Idempotency, account_id: Uuid, key: &str, seat: &str) -> Outcome {
    let request = request(account_id, key, "/bookings", "{}");
    let seat = BookSeat::new(account_id, seat);
    idempotency.run(request, seat).await
}

/// Under the key `one`, in another request than that of [`book`].
async fn book_otherwise(idempotency: &Idempotency, account_id: Uuid, seat: &str) -> Outcome {
    let request = request(account_id, "one", "/bookings", "[]");
    let seat = BookSeat::new(account_id, seat);
    idempotency.run(request, seat).await
}

#[sqlx::test(migrations = false)]
async fn a_retry_gets_the_first_answer(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let send = || book(&idempotency, ACCOUNT, "one", "12A");
    let first = made(send().await);
    assert_eq!(stored(send().await), (first, true));
    assert_eq!(count(&pool, BOOKINGS).await, 1);
    assert_eq!(count(&pool, RECORDS).await, 1);
}

#[sqlx::test(migrations = false)]
async fn a_dropped_instance_gives_its_connections_back_at_once(pool: PgPool) {
    let (pool, _) = set_up_of(pool, 4).await;
    // A busy machine may be late once.
    let mut is_given_back = false;
    for number in 0..5 {
        let idempotency = Idempotency::new(pool.clone(), Settings::default()).unwrap();
        let (key, seat) = (format!("key-{number}"), format!("{number}A"));
        stored(book(&idempotency, ACCOUNT, &key, &seat).await);
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(pool.acquire().await.unwrap());
        }
        drop(idempotency);
        // Less than the second for which an instance keeps a connection that idles.
        let last = tokio::time::timeout(Duration::from_millis(700), pool.acquire()).await;
        is_given_back = last.is_ok_and(|last| last.is_ok());
        if is_given_back {
            break;
        }
    }
    assert!(is_given_back);
}

#[sqlx::test(migrations = false)]
async fn a_refusal_is_kept_after_its_reason_is_gone(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let send = |key| book(&idempotency, ACCOUNT, key, "12A");
    stored(send("one").await);
    let (refused, _) = stored(send("two").await);
    assert_eq!(refused.reply.status, 400);
    execute(&pool, "DELETE FROM bookings").await;
    assert_eq!(stored(send("two").await), (refused, true));
    assert_eq!(count(&pool, BOOKINGS).await, 0);
}

#[sqlx::test(migrations = false)]
async fn a_key_belongs_to_one_request_of_one_account(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
    stored(book(&idempotency, one, "one", "12A").await);
    let reused = book_otherwise(&idempotency, one, "13C").await;
    assert!(matches!(reused, Outcome::Reused), "{reused:?}");
    assert!(!stored(book(&idempotency, other, "one", "14B").await).1);
    assert_eq!(count(&pool, BOOKINGS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn fifty_racers_through_two_replicas_have_one_effect(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    // Another process on the same database has a map of its own.
    let replica = Idempotency::new(pool.clone(), Settings::default()).unwrap();
    let replicas = [idempotency, replica];
    let racers = replicas.iter().cycle().take(50).cloned();
    let racers: Vec<_> = racers
        .map(|idempotency| {
            tokio::spawn(async move {
                let mut request = request(ACCOUNT, "one", "/bookings", "{}");
                request.wait = Duration::from_secs(10);
                let seat = BookSeat::new(ACCOUNT, "12A");
                idempotency.run(request, seat).await
            })
        })
        .collect();
    let mut executed = 0;
    for racer in racers {
        let (record, replayed) = stored(racer.await.unwrap());
        assert_eq!(record.reply.status, 201);
        executed += u32::from(!replayed);
    }
    assert_eq!(executed, 1);
    assert_eq!(count(&pool, BOOKINGS).await, 1);
}

/// A command that breaks the first rule of commands, and may go on after that.
struct SwallowsAnError {
    goes_on: bool,
}

impl Command for SwallowsAnError {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let book = "INSERT INTO bookings (account_id, seat) VALUES ($1, '14B')";
        let booking = sqlx::query(book).bind(ACCOUNT);
        booking.execute(&mut *tx).await?;
        let swallowed = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
        assert!(swallowed.is_err());
        if self.goes_on {
            // sqlx rolls the transaction back. A second one is not the one with the key.
            assert!(tx.begin().await.is_err());
            let mut other = tx.begin().await?;
            let booking = sqlx::query(book).bind(ACCOUNT).execute(&mut *other);
            drop(booking.await);
            other.commit().await?;
        }
        Ok(Reply::raw_json(201, "{}"))
    }
}

#[sqlx::test(migrations = false)]
async fn a_swallowed_database_error_fails_the_request_instead_of_losing_it(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    for goes_on in [false, true] {
        let request = request(ACCOUNT, "one", "/bookings", "{}");
        let failure = failed(idempotency.run(request, SwallowsAnError { goes_on }).await);
        assert_eq!(failure.kind, FailureKind::Internal, "{failure:?}");
        assert_eq!(count(&pool, BOOKINGS).await, 0);
        assert_eq!(count(&pool, RECORDS).await, 0);
    }
    assert!(!stored(book(&idempotency, ACCOUNT, "one", "14B").await).1);
}

/// As an add-on leaves it: a committed row without an outcome.
async fn leave_unfinished(pool: &PgPool, account_id: Uuid) {
    let left = request(account_id, "one", "/bookings", "{}");
    let mut tx = pool.begin_with(BEGIN).await.unwrap();
    sqlx::query(
        "INSERT INTO idempotency_keys
                (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
                 created_at, expires_at)
         VALUES ($1, 'one', $2, $3, 'POST', '/bookings', 'req', now() - interval '2 days',
                 now() - interval '1 day')",
    )
    .bind(account_id)
    .bind(left.fingerprint.version())
    .bind(left.fingerprint.bytes())
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

#[sqlx::test(migrations = false)]
async fn a_committed_row_without_an_outcome_is_unfinished_and_neither_expires_nor_executes(
    pool: PgPool,
) {
    let (pool, idempotency) = set_up(pool).await;
    leave_unfinished(&pool, ACCOUNT).await;
    #[cfg(feature = "sweep")]
    charge_once_idempotency::sweep(&mut pool.acquire().await.unwrap(), Default::default())
        .await
        .unwrap();

    let same = book(&idempotency, ACCOUNT, "one", "12A").await;
    assert!(matches!(same, Outcome::Unfinished), "{same:?}");
    // The fingerprint is compared before anything else.
    let other = book_otherwise(&idempotency, ACCOUNT, "12A").await;
    assert!(matches!(other, Outcome::Reused), "{other:?}");
    assert_eq!(count(&pool, BOOKINGS).await, 0);
    assert_eq!(count(&pool, RECORDS).await, 1);
}

#[sqlx::test(migrations = false)]
async fn migrations_run_twice_and_are_counted_apart_from_the_application_s(pool: PgPool) {
    let connect = pool.connect_options();
    let (pool, _) = set_up(pool).await;
    let mut connection = PgConnection::connect_with(&connect).await.unwrap();
    migrate(&mut connection).await.unwrap();
    let own = "SELECT count(*) FROM idempotency_migrations WHERE success";
    let files = 3 + i64::from(cfg!(feature = "phases")) + i64::from(cfg!(feature = "workflow"));
    assert_eq!(count(&pool, own).await, files);
    let application = "SELECT count(*) FROM pg_tables WHERE tablename = '_sqlx_migrations'";
    assert_eq!(count(&pool, application).await, 0);
    // A core-only user gets no table that only an add-on needs.
    let leases = "SELECT count(*) FROM pg_tables WHERE tablename = 'idempotency_leases'";
    let expected = i64::from(cfg!(feature = "phases"));
    assert_eq!(count(&pool, leases).await, expected);
}

/// What a schema named after the role, a default of the role, and a URL do from one start to the
/// next.
#[sqlx::test(migrations = false)]
async fn a_start_with_another_search_path_finds_the_records_or_refuses(pool: PgPool) {
    let (options, connect) = (pool.options().clone(), pool.connect_options());
    let (pool, idempotency) = set_up(pool).await;
    assert!(!stored(book(&idempotency, ACCOUNT, "one", "12A").await).1);
    execute(
        &pool,
        "CREATE SCHEMA other;
         DO $$ BEGIN
             EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', current_user);
             EXECUTE format('ALTER DATABASE %I SET search_path = other, public', current_database());
         END $$",
    )
    .await;
    for asked in [None, Some(r#""$user",public"#), Some("other,public")] {
        let connect = PgConnectOptions::clone(&connect);
        let connect = connect.options(asked.map(|asked| ("search_path", asked)));
        let mut connection = PgConnection::connect_with(&connect).await.unwrap();
        let schema = migrate(&mut connection).await.unwrap();
        assert_eq!(schema, "public");
        let pinned = pin_session(connect, &schema, SessionLimits::default());
        let pool = options.clone().connect_with(pinned).await.unwrap();
        let idempotency = Idempotency::new(pool, Settings::default()).unwrap();
        let again = book(&idempotency, ACCOUNT, "one", "12B").await;
        assert!(stored(again).1, "{asked:?}: a retry is a replay");
    }
    for asked in ["other", "nowhere"] {
        let connect = PgConnectOptions::clone(&connect).options([("search_path", asked)]);
        let mut connection = PgConnection::connect_with(&connect).await.unwrap();
        let told = migrate(&mut connection).await.unwrap_err().to_string();
        let expected = format!("public has the tables and not {asked}");
        assert!(told.contains(&expected), "{told}");
    }
    let copy = "CREATE TABLE other.idempotency_migrations (version bigint)";
    execute(&pool, copy).await;
    let mut connection = PgConnection::connect_with(&connect).await.unwrap();
    let told = migrate(&mut connection).await.unwrap_err().to_string();
    assert!(told.contains(r#""other and also public""#), "{told}");
    assert_eq!(count(&pool, BOOKINGS).await, 1);
}

#[sqlx::test(migrations = false)]
async fn a_schema_of_any_name_can_have_the_tables_and_must_exist(pool: PgPool) {
    let name = r#""A ""schema"", of\ours""#;
    let asking = PgConnectOptions::clone(&pool.connect_options());
    let asking = asking.options([("search_path", name)]);
    let mut connection = PgConnection::connect_with(&asking).await.unwrap();
    let told = migrate(&mut connection).await.unwrap_err().to_string();
    assert!(told.contains("no schema has been selected"), "{told}");
    connection.close().await.unwrap();

    let create = sqlx::AssertSqlSafe(format!("CREATE SCHEMA {name}"));
    sqlx::raw_sql(create).execute(&pool).await.unwrap();
    // As after a start: the next one asks for nothing.
    set_up(PgPoolOptions::new().connect_lazy_with(asking)).await;
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(migrate(&mut connection).await.unwrap(), name);
    let elsewhere = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(count(&pool, elsewhere).await, 0);
}

/// Reports what the transaction runs with.
struct ShowTransaction;

impl Command for ShowTransaction {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let show = "SELECT concat_ws(' / ', current_setting('synchronous_commit'), \
                    current_setting('transaction_isolation'), \
                    current_setting('transaction_read_only'), \
                    current_setting('client_min_messages'))";
        let shown: String = sqlx::query_scalar(show).fetch_one(tx).await?;
        Ok(Reply::raw_json(200, shown))
    }
}

/// A connection pooler may drop what `pin_session` asks for.
#[sqlx::test(migrations = false)]
async fn a_transaction_is_durable_whatever_the_session_defaults_are(pool: PgPool) {
    let (options, connect) = (pool.options().clone(), pool.connect_options());
    set_up(pool).await;
    let unpinned = PgConnectOptions::clone(&connect).options([
        ("synchronous_commit", "off"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
        ("client_min_messages", "error"),
    ]);
    let pool = options.connect_with(unpinned).await.unwrap();
    let idempotency = Idempotency::new(pool, Settings::default()).unwrap();
    let show = request(Uuid::now_v7(), "one", "/settings", "{}");
    let (record, _) = stored(idempotency.run(show, ShowTransaction).await);
    assert_eq!(record.reply.body, b"on / read committed / off / warning");
}

#[sqlx::test(migrations = false)]
async fn a_connection_that_died_between_two_uses_is_replaced(pool: PgPool) {
    // Not of the pool: the one that looks is not ended, and may be the pool's only one.
    let connect = pool.connect_options();
    let mut other = PgConnection::connect_with(&connect).await.unwrap();
    let (pool, _) = set_up_of(pool, 8).await;
    let connections = Connections::from(pool.clone());
    let idempotency = Idempotency::new(connections.clone(), Settings::default()).unwrap();
    for key in ["one", "two", "three"] {
        let booked = book(&idempotency, ACCOUNT, key, key).await;
        assert_eq!(stored(booked).0.reply.status, 201);
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let ended: i64 = sqlx::query_scalar(ended)
            .fetch_one(&mut other)
            .await
            .unwrap();
        assert!(ended > 0);
        if key == "two" {
            let mut connection = connections.acquire(ACCOUNT).await.unwrap();
            let read = sqlx::raw_sql("SELECT 1").execute(&mut *connection);
            assert!(read.await.is_ok(), "a read can't begin again");
            connection.release();
        }
    }
    assert_eq!(count(&pool, BOOKINGS).await, 3);
}

#[cfg(feature = "forget")]
#[sqlx::test(migrations = false)]
async fn an_account_s_completed_keys_can_be_forgotten_and_no_others(pool: PgPool) {
    use charge_once_idempotency::forget;

    let (pool, idempotency) = set_up(pool).await;
    let (account_id, other) = (Uuid::now_v7(), Uuid::now_v7());
    let keys = ["a", "b", "open"].map(|key| (account_id, key));
    for (account_id, key) in keys.into_iter().chain([(other, "a")]) {
        let seat = format!("{account_id} {key}");
        stored(book(&idempotency, account_id, key, &seat).await);
    }
    // Keys in flight, and those of the steps of a request.
    execute(
        &pool,
        "UPDATE idempotency_keys SET status = NULL, headers = NULL, body = NULL WHERE key = 'open';
         INSERT INTO idempotency_keys
         SELECT (jsonb_populate_record(one, jsonb_build_object('key', ',step-' || n))).*
           FROM idempotency_keys AS one, generate_series(1, 499) AS n WHERE one.key = 'b';
         INSERT INTO idempotency_tombstones (id, request, expired_at)
         SELECT idempotency_tombstone_id(account_id, 'old-' || n), 1, now()
           FROM idempotency_keys, generate_series(1, 501) AS n WHERE key = 'open'",
    )
    .await;
    let mut tx = pool.begin_with(BEGIN).await.unwrap();
    let first = forget(&mut tx, account_id, None).await.unwrap();
    let told = (first.rows, first.keys, first.last.as_deref());
    assert_eq!(told, (500, 1, Some("a")));
    let second = forget(&mut tx, account_id, first.last);
    let second = second.await.unwrap();
    let told = (second.rows, second.keys, second.last.as_deref());
    assert_eq!(told, (501, 1, Some("b")));
    let third = forget(&mut tx, account_id, second.last);
    let third = third.await.unwrap();
    assert_eq!((third.rows, third.keys, third.last), (1, 0, None));
    tx.commit().await.unwrap();
    // The key in flight, and the other account's.
    assert_eq!(count(&pool, RECORDS).await, 2);
    assert!(!stored(book(&idempotency, account_id, "a", "new").await).1);
}

/// A record that is sealed, and one of the same key that is not: without the seal's index and what
/// stands for it, there may be both.
#[cfg(feature = "sweep")]
#[sqlx::test(migrations = false)]
async fn two_records_with_one_tombstone_are_swept_and_the_later_one_is_remembered(pool: PgPool) {
    use charge_once_idempotency::{SweepPace, sealed_key, sweep};

    let (pool, idempotency) = set_up(pool).await;
    stored(book(&idempotency, ACCOUNT, "one", "12A").await);
    let drop = "ALTER TABLE idempotency_keys DROP CONSTRAINT no_record_is_sealed_without_its_index";
    execute(&pool, drop).await;
    let sealed = "INSERT INTO idempotency_keys
                  SELECT (jsonb_populate_record(one, jsonb_build_object('key', $1::text))).*
                    FROM idempotency_keys AS one";
    let mut tx = pool.begin_with(BEGIN).await.unwrap();
    let sealed = sqlx::query(sealed).bind(sealed_key(ACCOUNT, "one"));
    sealed.execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let expire = "UPDATE idempotency_keys
                     SET created_at = now() - interval '3 days',
                         expires_at = now() - CASE WHEN key = 'one' THEN interval '1 day'
                                                   ELSE interval '2 days' END";
    execute(&pool, expire).await;
    let pace = SweepPace {
        memory: Some(Duration::from_secs(30 * 24 * 3600)),
        ..SweepPace::default()
    };
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(sweep(&mut connection, pace).await.unwrap(), 2);
    let later = "SELECT count(*) FROM idempotency_tombstones
                  WHERE expired_at > now() - interval '36 hours' AND expired_at < 'infinity'";
    assert_eq!(count(&pool, later).await, 1);
    // What is kept for no longer goes, over any number of batches, and nothing else.
    let old = "INSERT INTO idempotency_tombstones (id, request, expired_at)
               SELECT gen_random_uuid(), 1, now() - interval '31 days' - n * interval '1 second'
                 FROM generate_series(1, 1200) AS n";
    execute(&pool, old).await;
    let pace = SweepPace { rest: 0, ..pace };
    sweep(&mut connection, pace).await.unwrap();
    // Beside it, there is the statement that keys are remembered here.
    let left = "SELECT count(*) FROM idempotency_tombstones";
    assert_eq!(count(&pool, left).await, 2);
}
