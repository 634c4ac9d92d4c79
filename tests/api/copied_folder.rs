//! `src/idempotency/` in another application: a database with nothing but its migration and a table
//! of that application's own, and code that names nothing else of this crate. The command and the
//! call are the example in the folder's README.

use std::time::Duration;

use charge_once::idempotency;
use sqlx::{
    PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

use crate::harness::TestDatabase;

use idempotency::{
    Command, Fingerprint, Fingerprinted, Idempotency, IdempotencyKey, Outcome, Parameters,
    Rejection, Reply, Request, Settings,
};

/// `POST /bookings`: takes a seat, which only one booking can have.
struct BookSeat {
    account_id: Uuid,
    seat: String,
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
            // Stored like a success: every retry hears the same.
            return Err(Rejection::Refused(json(400, r#"{"error":"seat_taken"}"#)));
        }
        Ok(json(201, r#"{"object":"booking"}"#))
    }
}

fn json(status: u16, body: &str) -> Reply {
    Reply {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: body.into(),
        resource_id: None,
    }
}

/// What a handler does: `body` is the canonical JSON of what was decoded.
async fn book(
    idempotency: &Idempotency,
    account_id: Uuid,
    key: &[u8],
    body: &[u8],
    command: BookSeat,
) -> (u16, Vec<u8>, bool) {
    let Ok(key) = IdempotencyKey::parse(key) else {
        return (400, b"the key is missing or malformed".to_vec(), false);
    };
    let request = Request {
        account_id,
        key,
        fingerprint: Fingerprint::of(&Fingerprinted {
            method: "POST",
            path: "/bookings",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(body),
        }),
        method: "POST".into(),
        path: "/bookings".into(),
        request_id: Uuid::now_v7().to_string(),
        wait: Duration::ZERO,
    };
    match idempotency.run(request, command).await {
        Outcome::Stored { record, replayed } => {
            (record.reply.status, record.reply.body.clone(), replayed)
        }
        Outcome::Reused => (422, b"the key belongs to another request".to_vec(), false),
        Outcome::InUse => (409, b"the first request has not finished".to_vec(), false),
        Outcome::Failed(_) => (503, b"retry with the same key".to_vec(), false),
    }
}

/// What must be pinned: a commit is on disk when it is acknowledged, a new statement sees what has
/// been committed, and nothing waits for ever.
fn pinned(options: PgConnectOptions) -> PgConnectOptions {
    options.options([
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "3000"),
        ("lock_timeout", "1000"),
        ("idle_in_transaction_session_timeout", "6000"),
    ])
}

async fn set_up(options: PgConnectOptions) -> Result<Idempotency, sqlx::error::BoxDynError> {
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_secs(1))
        .connect_with(pinned(options))
        .await?;
    let settings = Settings {
        retention: Duration::from_secs(24 * 3600),
        pool_wait: Duration::from_secs(1),
        database_deadline: Duration::from_secs(5),
        pool_connections: 10,
    };
    Idempotency::new(pool, settings)
}

/// A schema of its own stands for the other application's database.
async fn elsewhere(pool: &PgPool, url: &str) -> PgConnectOptions {
    sqlx::raw_sql("CREATE SCHEMA elsewhere")
        .execute(pool)
        .await
        .unwrap();
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.options([("search_path", "elsewhere")]);
    let tables = PgPoolOptions::new()
        .connect_with(options.clone())
        .await
        .unwrap();
    sqlx::raw_sql(include_str!("../../migrations/0001_idempotency_keys.sql"))
        .execute(&tables)
        .await
        .unwrap();
    sqlx::raw_sql("CREATE TABLE bookings (account_id uuid, seat text, PRIMARY KEY (seat))")
        .execute(&tables)
        .await
        .unwrap();
    tables.close().await;
    options
}

#[tokio::test]
async fn the_folder_and_its_migration_work_in_another_application() {
    let database = TestDatabase::create().await;
    let options = elsewhere(&database.pool, &database.url).await;
    let idempotency = set_up(options).await.unwrap();
    let account_id = Uuid::now_v7();
    let seat = |seat: &str| BookSeat {
        account_id,
        seat: seat.to_owned(),
    };
    let body = br#"{"seat":"12A"}"#;

    let first = book(&idempotency, account_id, b"one", body, seat("12A")).await;
    assert_eq!((first.0, first.2), (201, false));
    let again = book(&idempotency, account_id, b"one", body, seat("12A")).await;
    assert_eq!(again, (first.0, first.1, true));

    // The refusal is kept although the seat becomes free.
    let refused = book(&idempotency, account_id, b"two", body, seat("12A")).await;
    assert_eq!(refused.0, 400);
    sqlx::raw_sql("DELETE FROM elsewhere.bookings")
        .execute(&database.pool)
        .await
        .unwrap();
    let again = book(&idempotency, account_id, b"two", body, seat("12A")).await;
    assert_eq!(again, (400, refused.1, true));

    let other = book(&idempotency, account_id, b"one", b"{}", seat("13C")).await;
    assert_eq!(other.0, 422);
    let records = "SELECT count(*) FROM elsewhere.idempotency_keys";
    assert_eq!(database.count(records).await, 2);
    assert_eq!(database.records().await, 0);
}

/// A command that breaks the folder's first rule.
struct SwallowsAnError(Uuid);

impl Command for SwallowsAnError {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        sqlx::query("INSERT INTO bookings (account_id, seat) VALUES ($1, '14B')")
            .bind(self.0)
            .execute(&mut *tx)
            .await?;
        let swallowed = sqlx::query("SELECT 1 / 0").execute(tx).await;
        assert!(swallowed.is_err());
        Ok(json(201, "{}"))
    }
}

#[tokio::test]
async fn a_swallowed_database_error_fails_the_request_instead_of_losing_it() {
    let database = TestDatabase::create().await;
    let options = elsewhere(&database.pool, &database.url).await;
    let idempotency = set_up(options).await.unwrap();
    let account_id = Uuid::now_v7();
    let request = Request {
        account_id,
        key: IdempotencyKey::parse(b"one").unwrap(),
        fingerprint: Fingerprint::of(&Fingerprinted {
            method: "POST",
            path: "/bookings",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(b"{}"),
        }),
        method: "POST".into(),
        path: "/bookings".into(),
        request_id: "req".into(),
        wait: Duration::ZERO,
    };
    let outcome = idempotency.run(request, SwallowsAnError(account_id)).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let bookings = "SELECT count(*) FROM elsewhere.bookings";
    assert_eq!(database.count(bookings).await, 0);
    let records = "SELECT count(*) FROM elsewhere.idempotency_keys";
    assert_eq!(database.count(records).await, 0);
}
