//! Commands that misbehave, databases with treacherous defaults, pools that run dry.

use charge_once::{
    cli::api_key::ensure_dev_key,
    database::{self, embedded},
    idempotency::{
        Command, Idempotency, IdempotencyKey, Outcome, Rejection, Reply, Request, Settings,
    },
};
use charge_once_postgres::embedded::EmbeddedPostgres;
use tokio::sync::Barrier;

use crate::support::{
    effects::{self, failure, reply},
    harness::{every_connection_is_clean, one_charge_and_its_record},
    prelude::*,
};

/// A command of a test's own.
enum Misbehaviour {
    SwallowsAnError,
    Panics,
    TakesTooLong,
    /// Locks two rows in an order, meeting the other party in between.
    LocksInOrder([i64; 2], Arc<Barrier>),
    ReadsSetting(&'static str),
    Behaves,
}

impl Command for Misbehaviour {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        sqlx::query("INSERT INTO effects VALUES (1)")
            .execute(&mut *tx)
            .await?;
        match self {
            Self::SwallowsAnError => {
                let _ = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
            }
            Self::Panics => panic!("a defect, on purpose"),
            Self::TakesTooLong => std::future::pending().await,
            Self::LocksInOrder(rows, both_have_one) => {
                for (turn, row) in rows.iter().enumerate() {
                    sqlx::query("SELECT 1 FROM resources WHERE id = $1 FOR UPDATE")
                        .bind(row)
                        .execute(&mut *tx)
                        .await?;
                    if turn == 0 {
                        // The victim's second attempt meets no other transaction.
                        let meet = both_have_one.wait();
                        let _ = tokio::time::timeout(Duration::from_millis(500), meet).await;
                    }
                }
            }
            Self::ReadsSetting(name) => {
                let value: String = sqlx::query_scalar("SELECT current_setting($1)")
                    .bind(*name)
                    .fetch_one(tx)
                    .await?;
                return Ok(reply(201, &value));
            }
            Self::Behaves => {}
        }
        Ok(reply(201, "done"))
    }
}

fn request(key: &str) -> Request {
    Request {
        key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
        ..effects::request("{}", Duration::ZERO)
    }
}

/// The idempotency folder by itself, on a database with a table for effects.
async fn library() -> (TestDatabase, Idempotency) {
    let database = TestDatabase::create_unsharded().await;
    let sql = "CREATE TABLE effects (one bigint); CREATE TABLE resources (id bigint);
         INSERT INTO resources VALUES (1), (2)";
    database.execute(sql).await;
    let idempotency = connect(&database).await;
    (database, idempotency)
}

async fn connect(database: &TestDatabase) -> Idempotency {
    connect_with(database, Settings::default().database_deadline).await
}

async fn connect_with(database: &TestDatabase, database_deadline: Duration) -> Idempotency {
    let connected = database.connect(&[]).await;
    let settings = Settings {
        retention: Duration::from_secs(60),
        database_deadline,
    };
    Idempotency::new(connected.pool().clone(), settings).unwrap()
}

fn stored(outcome: Outcome) -> (String, bool) {
    let (record, replayed) = effects::stored(outcome);
    let body = String::from_utf8(record.reply.body.clone());
    (body.unwrap(), replayed)
}

/// Effects and records.
async fn kept(database: &TestDatabase) -> (i64, i64) {
    let effects = database.count("SELECT count(*) FROM effects").await;
    (effects, database.records().await)
}

async fn fails_under(
    database: &TestDatabase,
    idempotency: &Idempotency,
    misbehaviour: Misbehaviour,
) {
    failure(idempotency.run(request("key-1"), misbehaviour).await);
    assert_eq!(kept(database).await, (0, 0));
    every_connection_is_clean(database).await;
}

async fn frees_the_key(database: &TestDatabase, idempotency: &Idempotency) {
    let retry = idempotency.run(request("key-1"), Misbehaviour::Behaves);
    assert_eq!(stored(retry.await), ("done".to_owned(), false));
    assert_eq!(kept(database).await, (1, 1));
}

#[tokio::test]
async fn a_command_that_swallows_an_sql_error_or_panics_leaves_nothing_and_frees_the_key() {
    for misbehaviour in [Misbehaviour::SwallowsAnError, Misbehaviour::Panics] {
        let (database, idempotency) = library().await;
        fails_under(&database, &idempotency, misbehaviour).await;
        frees_the_key(&database, &idempotency).await;
    }
}

#[tokio::test]
async fn a_command_that_outlives_the_database_deadline_leaves_nothing_and_frees_the_key() {
    let (database, idempotency) = library().await;
    // Only the command that is too slow meets a short deadline: on a loaded disk, a COMMIT may take
    // longer than that.
    let impatient = connect_with(&database, Duration::from_secs(2)).await;
    fails_under(&database, &impatient, Misbehaviour::TakesTooLong).await;
    frees_the_key(&database, &idempotency).await;
}

#[tokio::test]
async fn a_deadlock_is_run_again_and_both_requests_succeed() {
    let (database, _) = library().await;
    // A deadlock is looked for after this time, which must be below the 100 ms that a row is waited
    // for.
    let name: String = database.value("SELECT current_database()::text").await;
    let soon = format!("ALTER DATABASE {name} SET deadlock_timeout = '20ms'");
    database.execute(soon).await;
    let idempotency = connect(&database).await;
    let barrier = Arc::new(Barrier::new(2));
    let one = Misbehaviour::LocksInOrder([1, 2], barrier.clone());
    let other = Misbehaviour::LocksInOrder([2, 1], barrier);
    let (one, other) = tokio::join!(
        idempotency.run(request("key-1"), one),
        idempotency.run(request("key-2"), other)
    );
    assert!(!stored(one).1);
    assert!(!stored(other).1);
    assert_eq!(kept(&database).await, (2, 2));
    every_connection_is_clean(&database).await;
}

#[tokio::test]
async fn defaults_of_the_database_cannot_undo_the_promise() {
    let (database, _) = library().await;
    let name: String = database.value("SELECT current_database()::text").await;
    // In one session: a later one would be read-only already.
    let mut session = database.pool.acquire().await.unwrap();
    for default in [
        "synchronous_commit = off",
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_read_only = on",
        "statement_timeout = 1",
    ] {
        let set = AssertSqlSafe(format!("ALTER DATABASE {name} SET {default}"));
        sqlx::raw_sql(set).execute(&mut *session).await.unwrap();
    }
    let idempotency = connect(&database).await;
    for (setting, pinned) in [
        ("synchronous_commit", "on"),
        ("transaction_isolation", "read committed"),
        ("transaction_read_only", "off"),
        ("statement_timeout", "3s"),
    ] {
        let outcome = idempotency.run(request(setting), Misbehaviour::ReadsSetting(setting));
        assert_eq!(stored(outcome.await).0, pinned, "{setting}");
    }
    // This test's own sessions are not pinned, and a millisecond may be too short for them.
    let reset = AssertSqlSafe(format!("ALTER DATABASE {name} RESET ALL"));
    sqlx::raw_sql(reset).execute(&mut *session).await.unwrap();
    assert_eq!(kept(&database).await, (4, 4));
}

#[tokio::test]
async fn a_column_that_changes_under_a_live_replica_fails_no_request_with_a_key() {
    let server = TestServer::start_with(&[FORGETFUL, ALONE]).await;
    let (client, database) = (&server.client, &server.database);
    let path = format!("/charges/{}", client.charge("key-1").await.id());
    let update = async |key: &str| {
        let change = json!({"description": key});
        client.post(&path, key, &change).await
    };
    let replay = async || client.charge("key-1").await;
    // Several sessions have prepared what follows.
    for round in 0..3 {
        let keys = [0, 1, 2, 3].map(|number| format!("update-{round}-{number}"));
        let [one, two, three, four] = &keys;
        tokio::join!(update(one), update(two), update(three), update(four));
        tokio::join!(replay(), replay(), client.get(&path), client.get(&path));
    }
    for (table, column) in [("charges", "description"), ("idempotency_keys", "path")] {
        let change = format!(r#"ALTER TABLE {table} ALTER COLUMN {column} TYPE text COLLATE "C""#);
        database.execute(change).await;
    }
    for number in 0..8 {
        let updated = update(&format!("after-{number}")).await;
        assert_eq!(updated.status, 200, "{updated:?}");
        let replayed = replay().await;
        assert!(replayed.is_replay(), "{replayed:?}");
    }
    // A read is not begun again: its client is told to.
    eventually("what a read has prepared is made anew", || async {
        let read = client.get(&path).await;
        assert!(read.status == 200 || error(&read).0 == 503, "{read:?}");
        read.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_pool_that_is_used_up_answers_503_and_recovers() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, "key-%").await;
    let variables = [PATIENT, &[("POOL_CONNECTIONS", "2")]].concat();
    let server = TestServer::start_on(database, &variables).await;
    let (client, database) = (&server.client, &server.database);
    assert_eq!(client.get("/charges").await.status, 200);
    let holders = ["key-1", "key-2"].map(|key| client.charging(key));
    pause.is_reached_by(2).await;
    let refused = client.charge("key-3").await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(client.get("/livez").await.status, 200);
    pause.release().await;
    for holder in holders {
        assert_eq!(holder.await.unwrap().status, 201);
    }
    assert_eq!(client.get("/readyz").await.status, 200);
    assert!(!client.charge("key-3").await.is_replay());
    assert_eq!((database.charges().await, database.records().await), (3, 3));
}

#[tokio::test]
async fn a_postgres_that_stops_and_starts_is_used_again_without_a_restart() {
    let folder = scratch();
    let settings = embedded::settings(folder.path().to_owned(), None);
    let postgres = EmbeddedPostgres::start(settings.clone()).await.unwrap();
    let url = postgres.url();
    database::connect(&url, &config(&[])).await.unwrap();
    let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
    let database = TestDatabase::elsewhere(url, pool);
    let connected = database.connect(&[]).await;
    ensure_dev_key(&connected, API_KEY).await.unwrap();
    let server = TestServer::start_on(database, &[]).await;
    assert_eq!(server.client.get("/charges").await.status, 200);
    postgres.stop().await.unwrap();
    let refused = server.client.charge("key-1").await;
    assert_eq!(refused.status, 503);
    assert_eq!(server.client.get("/readyz").await.status, 503);
    let postgres = EmbeddedPostgres::start(settings).await.unwrap();
    let holds = || async { server.client.get("/readyz").await.status == 200 };
    eventually("the server is ready again", holds).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    one_charge_and_its_record(&server.database).await;
    postgres.stop().await.unwrap();
}
