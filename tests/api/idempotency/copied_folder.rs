//! `src/idempotency/` in another application: a database with nothing but its migration and a table
//! of that application's own, and code that names nothing else of this crate. The command and the
//! call are the example in the folder's README.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use charge_once::idempotency;
use sqlx::{
    PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

use crate::{idempotency::followers::stored, support::harness::TestDatabase};

use idempotency::{
    Begin, Begun, Called, Command, Failure, Fingerprint, Fingerprinted, Idempotency,
    IdempotencyKey, LeaseSettings, Operations, Outcome, Parameters, Phases, Rejection, Reply,
    Request, Settings, WorkflowName,
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
        workflow: None,
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

/// What `GET /workflows/{name}` answers: each key, and the status that a retry of it gets. Without a
/// status it is in flight.
async fn how_far(
    idempotency: &Idempotency,
    account_id: Uuid,
    name: WorkflowName,
) -> Result<Vec<(String, Option<u16>)>, Failure> {
    let page = idempotency.workflow(account_id, name, None, 100).await?;
    let steps = page.map(|page| page.steps).unwrap_or_default();
    let told = steps.into_iter().map(|step| {
        let status = step.outcome.map(|outcome| outcome.status);
        (step.key, status)
    });
    Ok(told.collect())
}

/// `POST /parcels`: orders a courier, who is across a network.
struct OrderCourier {
    account_id: Uuid,
    address: String,
}

impl Begin for OrderCourier {
    async fn begin(&self, tx: &mut PgConnection, operation: Uuid) -> Result<Begun, Rejection> {
        sqlx::query("INSERT INTO parcels (account_id, id, address) VALUES ($1, $2, $3)")
            .bind(self.account_id)
            .bind(operation)
            .bind(&self.address)
            .execute(tx)
            .await?;
        Ok(Begun::Written {
            resource_id: Some(operation.to_string()),
        })
    }
}

/// What `begin` wrote down.
struct Parcel {
    account_id: Uuid,
    id: Uuid,
    address: String,
}

/// The courier's API; it knows its own keys.
struct Courier {
    client: CourierClient,
}

impl Operations for Courier {
    const KIND: &'static str = "courier";
    type Operation = Parcel;
    type Answer = String;

    async fn read(
        &self,
        tx: &mut PgConnection,
        account_id: Uuid,
        operation: Uuid,
    ) -> Result<Parcel, Failure> {
        let address = sqlx::query_scalar("SELECT address FROM parcels WHERE id = $1")
            .bind(operation)
            .fetch_one(tx)
            .await?;
        Ok(Parcel {
            account_id,
            id: operation,
            address,
        })
    }

    async fn call(&self, parcel: &Parcel) -> Called<String> {
        match self.client.order(parcel.id, &parcel.address).await {
            Ok(tracking_number) => Called::Answered(tracking_number),
            // Certain only if nothing can have left this machine.
            Err(error) if error.is_connect() => {
                Called::NotExecuted(Failure::unavailable("no way to the courier"))
            }
            Err(_) => Called::Unknown(Failure::unavailable("the courier said nothing")),
        }
    }

    async fn settle(
        &self,
        tx: &mut PgConnection,
        parcel: &Parcel,
        tracking_number: &String,
    ) -> Result<Reply, Failure> {
        sqlx::query("UPDATE parcels SET tracking_number = $3 WHERE account_id = $1 AND id = $2")
            .bind(parcel.account_id)
            .bind(parcel.id)
            .bind(tracking_number)
            .execute(tx)
            .await?;
        Ok(json(201, &format!(r#"{{"tracking":"{tracking_number}"}}"#)))
    }

    async fn undo(&self, tx: &mut PgConnection, parcel: &Parcel) -> Result<(), Failure> {
        sqlx::query("DELETE FROM parcels WHERE account_id = $1 AND id = $2")
            .bind(parcel.account_id)
            .bind(parcel.id)
            .execute(tx)
            .await?;
        Ok(())
    }
}

async fn order_courier(phases: &Phases<Courier>, request: Request, address: &str) -> Outcome {
    let order = OrderCourier {
        account_id: request.account_id,
        address: address.to_owned(),
    };
    phases.run(request, order).await
}

fn set_up_phases(
    idempotency: Idempotency,
    client: CourierClient,
) -> Result<Phases<Courier>, sqlx::error::BoxDynError> {
    let settings = LeaseSettings {
        lease: Duration::from_secs(30),
        call_limit: Duration::from_secs(10),
    };
    Phases::new(idempotency, Courier { client }, settings)
}

/// Stands for an HTTP client: answers each key with one tracking number.
#[derive(Clone, Default)]
struct CourierClient {
    ordered: Arc<Mutex<HashMap<Uuid, String>>>,
    /// How many answers are lost on the way, from now on.
    loses: Arc<AtomicU32>,
}

/// Stands for the error of an HTTP client.
struct Lost;

impl Lost {
    fn is_connect(&self) -> bool {
        false
    }
}

impl CourierClient {
    async fn order(&self, key: Uuid, address: &str) -> Result<String, Lost> {
        let mut ordered = self.ordered.lock().unwrap();
        let number = format!("{address}-{}", ordered.len());
        let number = ordered.entry(key).or_insert(number).clone();
        let lost = |left: u32| left.checked_sub(1);
        match self
            .loses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost)
        {
            Ok(_) => Err(Lost),
            Err(_) => Ok(number),
        }
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
    for sql in [
        include_str!("../../../migrations/0001_idempotency_keys.sql"),
        include_str!("../../../migrations/0009_leases.sql"),
        include_str!("../../../migrations/0013_workflows.sql"),
        include_str!("../../../migrations/0015_operation_kinds.sql"),
        "CREATE TABLE bookings (account_id uuid, seat text, PRIMARY KEY (seat));
         CREATE TABLE parcels (account_id uuid, id uuid, address text, tracking_number text);",
    ] {
        sqlx::raw_sql(sql).execute(&tables).await.unwrap();
    }
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

#[tokio::test]
async fn the_second_mode_works_in_another_application_too() {
    let database = TestDatabase::create().await;
    let options = elsewhere(&database.pool, &database.url).await;
    let client = CourierClient::default();
    let phases = set_up_phases(set_up(options).await.unwrap(), client.clone()).unwrap();
    let request = Request {
        account_id: Uuid::now_v7(),
        key: IdempotencyKey::parse(b"one").unwrap(),
        fingerprint: Fingerprint::of(&Fingerprinted {
            method: "POST",
            path: "/parcels",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(b"{}"),
        }),
        method: "POST".into(),
        path: "/parcels".into(),
        workflow: None,
        request_id: "req".into(),
        wait: Duration::ZERO,
    };
    client.loses.store(1, Ordering::SeqCst);
    let lost = order_courier(&phases, request.clone(), "Elm Street").await;
    assert!(matches!(lost, Outcome::Failed(_)), "{lost:?}");
    for _ in 0..2 {
        let outcome = order_courier(&phases, request.clone(), "Elm Street").await;
        let (record, _) = stored(outcome);
        assert_eq!(record.reply.body, br#"{"tracking":"Elm Street-0"}"#);
    }
    assert_eq!(client.ordered.lock().unwrap().len(), 1);
    let parcels = "SELECT count(*) FROM elsewhere.parcels WHERE tracking_number = 'Elm Street-0'";
    assert_eq!(database.count(parcels).await, 1);
    assert!(!phases.recover_one().await.unwrap());
}

#[tokio::test]
async fn a_workflow_is_listed_in_another_application_in_both_modes() {
    let database = TestDatabase::create().await;
    let options = elsewhere(&database.pool, &database.url).await;
    let idempotency = set_up(options).await.unwrap();
    let client = CourierClient::default();
    let phases = set_up_phases(idempotency.clone(), client.clone()).unwrap();
    let account_id = Uuid::now_v7();
    let trip = WorkflowName::parse(b"trip-1").unwrap();
    let request = |key: &[u8]| Request {
        account_id,
        key: IdempotencyKey::parse(key).unwrap(),
        fingerprint: Fingerprint::of(&Fingerprinted {
            method: "POST",
            path: "/bookings",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(b"{}"),
        }),
        method: "POST".into(),
        path: "/bookings".into(),
        workflow: Some(trip.clone()),
        request_id: "req".into(),
        wait: Duration::ZERO,
    };
    let seat = || BookSeat {
        account_id,
        seat: "12A".to_owned(),
    };
    stored(idempotency.run(request(b"seat"), seat()).await);
    stored(idempotency.run(request(b"again"), seat()).await);
    client.loses.store(1, Ordering::SeqCst);
    let lost = order_courier(&phases, request(b"tickets"), "Elm Street").await;
    assert!(matches!(lost, Outcome::Failed(_)), "{lost:?}");
    let step = |key: &str, status| (key.to_owned(), status);
    let steps = how_far(&idempotency, account_id, trip.clone()).await;
    assert_eq!(
        steps.unwrap(),
        [
            step("seat", Some(201)),
            step("again", Some(400)),
            step("tickets", None)
        ]
    );
    let elsewhere = how_far(&idempotency, Uuid::now_v7(), trip).await;
    assert_eq!(elsewhere.unwrap(), []);
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
        workflow: None,
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
