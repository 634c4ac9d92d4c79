//! Effects outside the database, and workflows over both ways to run.
#![cfg(feature = "phases")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use charge_once_idempotency::{
    Begin, CallOutcome, ExternalEffect, Failure, FailureKind, Idempotency, LeaseSettings, Outcome,
    Phases, Rejection, Reply, Request, Settings, Verdict,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use support::{ACCOUNT, BookSeat, count, execute, failed, request, set_up, stored};
use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

/// `POST /parcels`: orders a courier, who is across a network.
struct OrderCourier {
    account_id: Uuid,
    address: &'static str,
}

impl Begin for OrderCourier {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<Verdict<Reply, Option<String>>, Rejection> {
        sqlx::query("INSERT INTO parcels (account_id, id, address) VALUES ($1, $2, $3)")
            .bind(self.account_id)
            .bind(operation)
            .bind(self.address)
            .execute(tx)
            .await?;
        Ok(Verdict::Pending(Some(operation.to_string())))
    }
}

/// What `begin` wrote down.
struct Parcel {
    account_id: Uuid,
    id: Uuid,
    address: String,
}

/// The courier's API; it has idempotency keys of its own.
#[derive(Default)]
struct Courier {
    client: CourierClient,
    /// The defect that [`ExternalEffect::read`] must not have.
    swallows_an_error: bool,
}

impl ExternalEffect for Courier {
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
            .fetch_one(&mut *tx)
            .await?;
        if self.swallows_an_error {
            let _ = sqlx::query("SELECT 1 / 0").execute(tx).await;
        }
        Ok(Parcel {
            account_id,
            id: operation,
            address,
        })
    }

    async fn call(&self, parcel: &Parcel, _: DateTime<Utc>) -> CallOutcome<String> {
        match self.client.order(parcel.id, &parcel.address) {
            Some(tracking_number) => CallOutcome::Answered(tracking_number),
            // A busy courier is in doubt too: the parcel may be ordered.
            None => CallOutcome::Unknown(Failure::busy("the courier answered 409")),
        }
    }

    async fn complete(
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
        let body = format!(r#"{{"tracking":"{tracking_number}"}}"#);
        Ok(Reply::raw_json(201, body))
    }

    async fn release(&self, tx: &mut PgConnection, parcel: &Parcel) -> Result<(), Failure> {
        sqlx::query("DELETE FROM parcels WHERE account_id = $1 AND id = $2")
            .bind(parcel.account_id)
            .bind(parcel.id)
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// Stands for an HTTP client and the courier behind it: one tracking number for each key.
#[derive(Clone, Default)]
struct CourierClient {
    ordered: Arc<Mutex<HashMap<Uuid, String>>>,
    /// How many answers are lost on the way, from now on.
    loses: Arc<AtomicU32>,
}

impl CourierClient {
    /// `None`: ordered, but the answer is lost.
    fn order(&self, key: Uuid, address: &str) -> Option<String> {
        let mut ordered = self.ordered.lock().unwrap();
        let number = format!("{address}-{}", ordered.len());
        let number = ordered.entry(key).or_insert(number).clone();
        let lost = |left: u32| left.checked_sub(1);
        let answered = self
            .loses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost)
            .is_err();
        answered.then_some(number)
    }
}

const LEASE: LeaseSettings = LeaseSettings {
    lease: Duration::from_secs(30),
    call_limit: Duration::from_secs(10),
};

async fn set_up_phases(pool: PgPool) -> (PgPool, Idempotency, CourierClient, Phases<Courier>) {
    let (pool, idempotency) = set_up(pool).await;
    let parcels =
        "CREATE TABLE parcels (account_id uuid, id uuid, address text, tracking_number text)";
    execute(&pool, parcels).await;
    let client = CourierClient::default();
    let phases = phases_of(idempotency.clone(), client.clone());
    (pool, idempotency, client, phases)
}

fn phases_of(idempotency: Idempotency, client: CourierClient) -> Phases<Courier> {
    let courier = Courier {
        client,
        ..Courier::default()
    };
    Phases::new(idempotency, courier, LEASE).unwrap()
}

fn to(address: &'static str) -> OrderCourier {
    OrderCourier {
        account_id: ACCOUNT,
        address,
    }
}

#[sqlx::test(migrations = false)]
async fn a_lost_answer_is_asked_for_again_under_the_same_key(pool: PgPool) {
    let (pool, idempotency, client, phases) = set_up_phases(pool).await;
    let parcel = || request(ACCOUNT, "one", "/parcels", "{}");

    client.loses.store(1, Ordering::SeqCst);
    let first = Request {
        retention: Some(Duration::from_secs(3 * 86_400)),
        ..parcel()
    };
    let lost = failed(phases.run(first, to("Elm Street")).await);
    assert_eq!(lost.kind, FailureKind::Unavailable);
    // A command in one transaction can't judge what is left in flight.
    let seat = BookSeat::new(ACCOUNT, "12A");
    let unfinished = idempotency.run(parcel(), seat).await;
    assert!(matches!(unfinished, Outcome::Unfinished), "{unfinished:?}");

    for _ in 0..2 {
        let (record, _) = stored(phases.run(parcel(), to("Elm Street")).await);
        assert_eq!(record.reply.body, br#"{"tracking":"Elm Street-0"}"#);
        // As the request wanted that began, and from the outcome on.
        let life = (record.expires_at - record.created_at).to_std().unwrap();
        assert!(life > Duration::from_secs(3 * 86_400), "{life:?}");
        assert!(life < Duration::from_secs(4 * 86_400), "{life:?}");
    }
    assert_eq!(client.ordered.lock().unwrap().len(), 1);
    let parcels = "SELECT count(*) FROM parcels WHERE tracking_number = 'Elm Street-0'";
    assert_eq!(count(&pool, parcels).await, 1);
    let leases = "SELECT count(*) FROM idempotency_leases";
    assert_eq!(count(&pool, leases).await, 0);
    assert!(!phases.recover_one().await.unwrap());
}

/// Another process may complete it, which has not got the client's key.
#[cfg(feature = "seal")]
#[sqlx::test(migrations = false)]
async fn a_request_in_phases_is_not_sealed(pool: PgPool) {
    use charge_once_idempotency::{Seal, SealSecrets};

    let (pool, _, client, phases) = set_up_phases(pool).await;
    let seal = Seal::from(SealSecrets::new(["a secret of thirty-two characters"]).unwrap());
    let seal = Seal {
        seals: true,
        ..seal
    };
    let parcel = || Request {
        seal: Some(seal.clone()),
        ..request(ACCOUNT, "one", "/parcels", "{}")
    };
    client.loses.store(1, Ordering::SeqCst);
    failed(phases.run(parcel(), to("Elm Street")).await);
    for _ in 0..2 {
        let (record, _) = stored(phases.run(parcel(), to("Elm Street")).await);
        assert_eq!(record.reply.body, br#"{"tracking":"Elm Street-0"}"#);
    }
    let plain = "SELECT count(*) FROM idempotency_keys WHERE key = 'one' AND status = 201";
    assert_eq!(count(&pool, plain).await, 1);
}

/// Between the transaction that finds an operation in flight and the one that takes it over, the
/// key is released and another request begins an operation of its own under it.
#[sqlx::test(migrations = false)]
async fn the_operation_of_another_request_is_not_taken_over(pool: PgPool) {
    let options = pool.options().clone();
    let (pool, _, client, phases) = set_up_phases(pool).await;
    let elm_parcel = || request(ACCOUNT, "one", "/parcels", r#"{"to":"Elm Street"}"#);
    let oak_parcel = || request(ACCOUNT, "one", "/parcels", r#"{"to":"Oak Street"}"#);
    client.loses.store(1, Ordering::SeqCst);
    failed(phases.run(elm_parcel(), to("Elm Street")).await);

    // The retry runs in another process. Its only connection comes back to its pool when the test
    // says so, and it has found the operation by then.
    let (first_released, mut released) = mpsc::unbounded_channel();
    let resume = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&resume);
    let gated = options
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(60))
        .after_release(move |_, _| {
            let (first_released, gate) = (first_released.clone(), Arc::clone(&gate));
            Box::pin(async move {
                first_released.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                Ok(true)
            })
        })
        .connect_lazy_with((*pool.connect_options()).clone());
    let elsewhere = Idempotency::new(gated, Settings::default()).unwrap();
    let elsewhere = phases_of(elsewhere, client.clone());
    let retry = tokio::spawn({
        let parcel = elm_parcel();
        async move { elsewhere.run(parcel, to("Elm Street")).await }
    });
    released.recv().await.unwrap();

    let operation = sqlx::query_scalar("SELECT operation FROM idempotency_leases");
    let operation: Uuid = operation.fetch_one(&pool).await.unwrap();
    let never_sent = Failure::unavailable("the courier says that it got no order");
    let resolved = phases.resolve(operation, async |_| CallOutcome::NotExecuted(never_sent));
    assert!(resolved.await.unwrap());
    client.loses.store(1, Ordering::SeqCst);
    failed(phases.run(oak_parcel(), to("Oak Street")).await);

    resume.add_permits(Semaphore::MAX_PERMITS / 2);
    let answered = retry.await.unwrap();
    assert!(matches!(answered, Outcome::Reused), "{answered:?}");
    let (record, _) = stored(phases.run(oak_parcel(), to("Oak Street")).await);
    assert_eq!(record.reply.body, br#"{"tracking":"Oak Street-1"}"#);
}

/// PostgreSQL answers a COMMIT after an error with a rollback, which sqlx takes for success.
#[sqlx::test(migrations = false)]
async fn nothing_is_asked_for_when_the_operation_was_rolled_back(pool: PgPool) {
    let (pool, idempotency, client, sound) = set_up_phases(pool).await;
    let courier = Courier {
        client: client.clone(),
        swallows_an_error: true,
    };
    let defective = Phases::new(idempotency, courier, LEASE).unwrap();
    let parcel = |key| request(ACCOUNT, key, "/parcels", "{}");
    let order = || to("Elm Street");

    failed(defective.run(parcel("one"), order()).await);
    assert!(client.ordered.lock().unwrap().is_empty());
    assert_eq!(count(&pool, "SELECT count(*) FROM parcels").await, 0);

    // A takeover that is rolled back leaves the operation to the next process.
    client.loses.store(1, Ordering::SeqCst);
    failed(sound.run(parcel("two"), order()).await);
    failed(defective.run(parcel("two"), order()).await);
    let takeovers = "SELECT takeovers::bigint FROM idempotency_leases";
    assert_eq!(count(&pool, takeovers).await, 0);
    let (record, _) = stored(sound.run(parcel("two"), order()).await);
    assert_eq!(record.reply.body, br#"{"tracking":"Elm Street-0"}"#);
}

#[sqlx::test(migrations = false)]
async fn a_lease_that_is_too_short_for_a_call_is_refused(pool: PgPool) {
    let (_, idempotency) = set_up(pool).await;
    let settings = LeaseSettings {
        lease: Duration::from_secs(15),
        call_limit: Duration::from_secs(10),
    };
    let refused = Phases::new(idempotency, Courier::default(), settings);
    let reason = refused.err().map(|error| error.to_string());
    assert!(reason.unwrap().starts_with("the lease must be longer than"));
}

#[cfg(feature = "workflow")]
#[sqlx::test(migrations = false)]
async fn a_workflow_lists_its_requests_whichever_way_they_run(pool: PgPool) {
    use charge_once_idempotency::WorkflowName;

    let (_, idempotency, client, phases) = set_up_phases(pool).await;
    let trip = WorkflowName::parse(b"trip-1").unwrap();
    let linked = |key: &str| {
        let mut request = request(ACCOUNT, key, "/bookings", "{}");
        request.label = Some(trip.to_label());
        request
    };
    let seat = || BookSeat::new(ACCOUNT, "12A");
    stored(idempotency.run(linked("seat"), seat()).await);
    stored(idempotency.run(linked("again"), seat()).await);
    client.loses.store(1, Ordering::SeqCst);
    let order = to("Elm Street");
    failed(phases.run(linked("tickets"), order).await);

    let page = idempotency.workflow(ACCOUNT, trip.clone(), None, 100);
    let steps = page.await.unwrap().unwrap().steps.into_iter();
    let steps: Vec<_> = steps
        .map(|step| (step.key, step.request.outcome.map(|outcome| outcome.status)))
        .collect();
    let expected = [("seat", Some(201)), ("again", Some(400)), ("tickets", None)];
    let expected = expected.map(|(key, status)| (key.to_owned(), status));
    assert_eq!(steps, expected);
    let elsewhere = idempotency.workflow(Uuid::now_v7(), trip, None, 100);
    assert!(elsewhere.await.unwrap().unwrap().steps.is_empty());
}
