//! Effects outside the database, whose first and last transactions many requests share.
#![cfg(feature = "batch")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use charge_once_idempotency::{
    Begin, Begun, CallOutcome, Decide, Decision, ExternalEffect, Failure, FirstVerdict,
    LeaseSettings, Outcome, Phases, RanAlone, Rejection, Reply, Rows, SharedBegin, SharedEffect,
    SharedPhases, Verdict, transaction_time,
};
use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool};
use support::{
    ACCOUNT,
    batching::{self, IN_READ, arrives_at, close, gathered, pass, patient},
    count, execute, made, request, stored, until, within_reason,
};
use tokio::{
    sync::Barrier,
    task::{JoinHandle, JoinSet},
};
use uuid::Uuid;

/// A depot hands out one parcel at a time.
const SCHEMA: &str = "
    CREATE TABLE depots (name text PRIMARY KEY, handed_out integer NOT NULL DEFAULT 0);
    CREATE TABLE parcels (id uuid PRIMARY KEY, depot text NOT NULL, tracking_number text);
    INSERT INTO depots SELECT depot::text FROM generate_series(1, 40) AS depot;
    INSERT INTO depots VALUES ('odd')";

/// What a courier's answer about this depot means takes more than a batch does.
const ODD: &str = "odd";

/// No depot: reading it waits until the test goes on.
const GATE: &str = "gate";

const LEFT: &str = "SELECT (SELECT count(*) FROM idempotency_leases)
                           + (SELECT count(*) FROM idempotency_keys WHERE status IS NULL)";

const SENT: &str = "SELECT count(*) FROM parcels JOIN depots ON name = depot
                     WHERE tracking_number = 'to ' || depot AND handed_out = 1";

/// A parcel of a depot, as it was written down.
#[derive(Clone)]
struct Parcel {
    id: Uuid,
    depot: String,
}

/// The depots of one transaction.
#[derive(Default)]
struct Depots {
    handed_out: HashMap<String, i32>,
    /// Those with a parcel that no courier has yet.
    busy: HashSet<String>,
    begun: Vec<Parcel>,
    sent: Vec<(Parcel, String)>,
}

enum Change {
    Begun(Parcel),
    Sent(Parcel, String),
}

impl Rows for Depots {
    type Name = String;
    type Changes = Change;

    async fn read(&mut self, tx: &mut PgConnection, names: Vec<String>) -> Result<(), sqlx::Error> {
        if names.iter().any(|name| name == GATE) {
            pass(tx, IN_READ).await?;
        }
        let read: Vec<(String, i32)> = sqlx::query_as(
            "SELECT name, handed_out FROM depots WHERE name = ANY ($1)
              ORDER BY name FOR NO KEY UPDATE",
        )
        .bind(&names)
        .fetch_all(&mut *tx)
        .await?;
        self.handed_out.extend(read);
        let busy = "SELECT depot FROM parcels
                     WHERE depot = ANY ($1) AND tracking_number IS NULL";
        let busy: Vec<String> = sqlx::query_scalar(busy).bind(names).fetch_all(tx).await?;
        self.busy.extend(busy);
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Begun(parcel) => self.begun.push(parcel),
            Change::Sent(parcel, number) => {
                *self.handed_out.entry(parcel.depot.clone()).or_default() += 1;
                self.sent.push((parcel, number));
            }
        }
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        for Parcel { id, depot } in self.begun {
            sqlx::query("INSERT INTO parcels (id, depot) VALUES ($1, $2)")
                .bind(id)
                .bind(depot)
                .execute(&mut *tx)
                .await?;
        }
        for (Parcel { id, depot }, number) in self.sent {
            sqlx::query("UPDATE parcels SET tracking_number = $2 WHERE id = $1")
                .bind(id)
                .bind(number)
                .execute(&mut *tx)
                .await?;
            sqlx::query("UPDATE depots SET handed_out = $2 WHERE name = $1")
                .bind(&depot)
                .bind(self.handed_out.get(&depot))
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    }
}

/// `POST /parcels`: hands a parcel of the depot to a courier.
struct Send(String);

impl Decide for Send {
    type Rows = Depots;

    fn reads(&self, _: &Depots) -> Vec<String> {
        vec![self.0.clone()]
    }

    fn decide(&self, _: &Depots, _: DateTime<Utc>) -> Result<Decision<Change>, Rejection> {
        panic!("it always asks")
    }

    fn weight(&self) -> usize {
        1
    }
}

impl SharedBegin for Send {
    type Operation = Parcel;

    fn begin_from(
        &self,
        depots: &Depots,
        _: DateTime<Utc>,
        operation: Uuid,
    ) -> Result<FirstVerdict<Self>, Rejection> {
        if depots.busy.contains(&self.0) {
            return Err(Failure::busy("another parcel is handed out").into());
        }
        let parcel = Parcel {
            id: operation,
            depot: self.0.clone(),
        };
        Ok(Verdict::Pending(Begun {
            changes: Change::Begun(parcel.clone()),
            operation: parcel,
            resource_id: None,
        }))
    }
}

impl Begin for Send {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<Verdict<Reply, Option<String>>, Rejection> {
        let mut depots = Depots::default();
        depots.read(tx, vec![self.0.clone()]).await?;
        let now = transaction_time(tx).await?;
        let begun = self.begin_from(&depots, now, operation)?;
        if let Verdict::Pending(begun) = begun {
            depots.apply(begun.changes);
        }
        depots.write(tx).await?;
        Ok(Verdict::Pending(None))
    }
}

/// The last step: the courier has the parcel.
struct Sent(Parcel, String);

impl Decide for Sent {
    type Rows = Depots;

    fn reads(&self, _: &Depots) -> Vec<String> {
        vec![self.0.depot.clone()]
    }

    fn decide(&self, _: &Depots, _: DateTime<Utc>) -> Result<Decision<Change>, Rejection> {
        if self.0.depot == ODD {
            return Err(Failure::unavailable("it takes more").into());
        }
        Ok(Decision {
            reply: Reply::raw_json(201, self.1.as_str()),
            changes: Some(Change::Sent(self.0.clone(), self.1.clone())),
        })
    }

    fn weight(&self) -> usize {
        1
    }
}

/// Keeps the batches' only connection until the test goes on.
struct Waits;

impl Decide for Waits {
    type Rows = Depots;

    fn reads(&self, _: &Depots) -> Vec<String> {
        vec![GATE.to_owned()]
    }

    fn decide(&self, _: &Depots, _: DateTime<Utc>) -> Result<Decision<Change>, Rejection> {
        Ok(Decision {
            reply: Reply::raw_json(200, "waited"),
            changes: None,
        })
    }

    fn weight(&self) -> usize {
        1
    }
}

#[derive(Clone, Default)]
struct Courier {
    /// Each parcel that was asked for, in this order.
    ordered: Arc<Mutex<Vec<Parcel>>>,
    /// So many calls answer together.
    together: Option<Arc<Barrier>>,
    /// What happens in the database meanwhile.
    meanwhile: Option<(PgPool, &'static str)>,
}

impl Courier {
    /// Answers when so many wait at the barrier: calls, and the test where it does.
    fn together(waiting: usize) -> (Self, Arc<Barrier>) {
        let barrier = Arc::new(Barrier::new(waiting));
        let courier = Self {
            together: Some(barrier.clone()),
            ..Self::default()
        };
        (courier, barrier)
    }
}

impl Courier {
    /// While it is asked, this happens.
    fn meanwhile(pool: &PgPool, happens: &'static str) -> Self {
        Self {
            meanwhile: Some((pool.clone(), happens)),
            ..Self::default()
        }
    }
}

impl ExternalEffect for Courier {
    const KIND: &'static str = "courier";
    type Operation = Parcel;
    type Answer = String;

    async fn read(&self, tx: &mut PgConnection, _: Uuid, id: Uuid) -> Result<Parcel, Failure> {
        let depot = sqlx::query_scalar("SELECT depot FROM parcels WHERE id = $1").bind(id);
        let depot = depot.fetch_one(tx).await?;
        Ok(Parcel { id, depot })
    }

    async fn call(&self, parcel: &Parcel, _: DateTime<Utc>) -> CallOutcome<String> {
        self.ordered.lock().unwrap().push(parcel.clone());
        if let Some(together) = &self.together {
            together.wait().await;
        }
        if let Some((pool, happens)) = &self.meanwhile {
            execute(pool, happens).await;
        }
        CallOutcome::Answered(format!("to {}", parcel.depot))
    }

    async fn complete(
        &self,
        tx: &mut PgConnection,
        parcel: &Parcel,
        number: &String,
    ) -> Result<Reply, Failure> {
        let mut depots = Depots::default();
        depots.read(tx, vec![parcel.depot.clone()]).await?;
        depots.apply(Change::Sent(parcel.clone(), number.clone()));
        depots.write(tx).await?;
        Ok(Reply::raw_json(201, number.as_str()))
    }

    async fn release(&self, _: &mut PgConnection, _: &Parcel) -> Result<(), Failure> {
        panic!("every call is answered")
    }
}

impl SharedEffect for Courier {
    type Rows = Depots;
    type Completion = Sent;

    fn completion(&self, parcel: &Parcel, number: &String) -> Sent {
        Sent(parcel.clone(), number.clone())
    }
}

struct World {
    batching: batching::World<Depots>,
    phases: SharedPhases<Courier>,
    courier: Courier,
}

impl World {
    async fn new(pool: PgPool, courier: impl FnOnce(&PgPool) -> Courier) -> Self {
        let batching = batching::World::set_up(SCHEMA, patient(1), pool).await;
        let courier = courier(&batching.pool);
        let lease = LeaseSettings {
            lease: Duration::from_secs(30),
            call_limit: Duration::from_secs(10),
        };
        let phases = Phases::new(batching.idempotency.clone(), courier.clone(), lease).unwrap();
        Self {
            phases: SharedPhases::new(phases, batching.batches.clone()),
            courier,
            batching,
        }
    }

    /// Sends a parcel of each of these depots at once, each under its own key.
    fn begin_to_send(&self, depots: &[&str]) -> Vec<JoinHandle<Outcome>> {
        let mut sending = Vec::new();
        for (number, depot) in depots.iter().enumerate() {
            let key = format!("key-{number}");
            let request = request(ACCOUNT, &key, "/parcels", depot);
            let (phases, send) = (self.phases.clone(), Send((*depot).to_owned()));
            sending.push(tokio::spawn(async move { phases.run(request, send).await }));
        }
        sending
    }

    /// Sends them as [`World::begin_to_send`] does, and returns how each ended.
    async fn send(&self, depots: &[&str]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for sent in self.begin_to_send(depots) {
            outcomes.push(within_reason("an answer", sent).await.unwrap());
        }
        outcomes
    }
}

#[sqlx::test(migrations = false)]
async fn many_requests_share_both_transactions_and_each_has_its_effect_once(pool: PgPool) {
    let (courier, _) = Courier::together(40);
    let world = World::new(pool, |_| courier).await;
    let depots: Vec<_> = (1..=40).map(|depot: i32| depot.to_string()).collect();
    let depots: Vec<_> = depots.iter().map(String::as_str).collect();
    let first = world.send(&depots).await.into_iter().map(made);
    let again = world.send(&depots).await.into_iter().map(stored);
    for ((first, again), depot) in first.zip(again).zip(&depots) {
        assert_eq!(first.reply.body, format!("to {depot}").as_bytes());
        // What was answered is what is stored.
        assert_eq!(again, (first, true));
    }
    assert_eq!(world.courier.ordered.lock().unwrap().len(), 40);
    assert_eq!(count(&world.batching.pool, SENT).await, 40);
    assert_eq!(count(&world.batching.pool, LEFT).await, 0);
    // 40 first steps, 40 last ones, and 40 replays.
    let seen = world.batching.seen.batches();
    assert!(
        seen.iter().map(|(requests, _)| requests).sum::<usize>() == 120 && seen.len() < 30,
        "{seen:?}"
    );
    assert_eq!(world.batching.seen.alone(), []);
}

/// What is unfinished about a depot was read before the first of the two began.
#[sqlx::test(migrations = false)]
async fn of_two_in_one_batch_that_ask_about_one_row_the_second_looks_again(pool: PgPool) {
    let (courier, together) = Courier::together(3);
    let world = World::new(pool, |_| courier).await;
    let mut sending = JoinSet::new();
    for sent in world.begin_to_send(&["1", "1", "2"]) {
        sending.spawn(async move { sent.await.unwrap() });
    }
    // The courier answers about depot 1 when the second request has seen that it is busy. Answered
    // before that, the depot would be free again, and the request would be right to ask for more.
    let refused = within_reason("one is refused", sending.join_next()).await;
    let busy = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    assert!(refused.is_some_and(|refused| busy(&refused.unwrap())));
    within_reason("the courier is asked about both", together.wait()).await;
    let outcomes = within_reason("the others end", sending.join_all()).await;
    assert!(!outcomes.iter().any(busy), "{outcomes:?}");
    let ordered = world.courier.ordered.lock().unwrap().clone();
    let mut ordered: Vec<_> = ordered.into_iter().map(|parcel| parcel.depot).collect();
    ordered.sort_unstable();
    assert_eq!(ordered, ["1", "2"]);
    let parcels = "SELECT count(*) FROM parcels";
    assert_eq!(count(&world.batching.pool, parcels).await, 2);
    assert_eq!(count(&world.batching.pool, LEFT).await, 0);
}

#[sqlx::test(migrations = false)]
async fn an_answer_that_no_batch_can_decide_throws_its_batch_away_and_is_written_alone(
    pool: PgPool,
) {
    let (courier, together) = Courier::together(3);
    let world = World::new(pool, |_| courier).await;
    let (batching, ordered) = (&world.batching, &world.courier.ordered);
    let answer_both = async {
        let asked = async || ordered.lock().unwrap().len() >= 2;
        until("the courier is asked about both", asked).await;
        let gate = close(&batching.pool, IN_READ).await;
        let request = request(ACCOUNT, "gate", "/gates", "{}");
        let batches = batching.batches.clone();
        let waits = tokio::spawn(async move { batches.run(request, Waits).await });
        arrives_at(&batching.pool, IN_READ).await;
        together.wait().await;
        gathered(&batching.batches, 2).await;
        gate.rollback().await.unwrap();
        stored(within_reason("the gate is passed", waits).await.unwrap());
    };
    let (outcomes, ()) = tokio::join!(world.send(&[ODD, "1"]), answer_both);
    for (outcome, depot) in outcomes.into_iter().zip([ODD, "1"]) {
        assert_eq!(made(outcome).reply.body, format!("to {depot}").as_bytes());
    }
    assert_eq!(batching.seen.alone(), [RanAlone::BatchFailed; 2]);
    assert_eq!(count(&batching.pool, SENT).await, 2);
    assert_eq!(count(&batching.pool, LEFT).await, 0);
    assert_eq!(ordered.lock().unwrap().len(), 2);
}

#[sqlx::test(migrations = false)]
async fn a_holder_that_has_lost_its_lease_writes_nothing(pool: PgPool) {
    let taken = "UPDATE idempotency_leases SET token = gen_random_uuid()";
    let world = World::new(pool, |pool| Courier::meanwhile(pool, taken)).await;
    let sent = world.send(&["1"]).await;
    assert!(
        matches!(sent.as_slice(), [Outcome::InUse { .. }]),
        "{sent:?}"
    );
    let written = "SELECT (SELECT count(*) FROM parcels WHERE tracking_number IS NOT NULL)
                          + (SELECT count(*) FROM depots WHERE handed_out > 0)";
    assert_eq!(count(&world.batching.pool, written).await, 0);
    assert_eq!(count(&world.batching.pool, LEFT).await, 2);
    assert_eq!(world.courier.ordered.lock().unwrap().len(), 1);
}

/// Another process may complete it, which has not got the client's key.
#[cfg(feature = "seal")]
#[sqlx::test(migrations = false)]
async fn a_request_that_shares_its_phases_is_not_sealed(pool: PgPool) {
    use charge_once_idempotency::{Request, Seal, SealSecrets};

    let world = World::new(pool, |_| Courier::default()).await;
    let seal = Seal::from(SealSecrets::new(["a secret of thirty-two characters"]).unwrap());
    let seals = true;
    let sealing = Request {
        seal: Some(Seal { seals, ..seal }),
        ..request(ACCOUNT, "one", "/parcels", "{}")
    };
    made(world.phases.run(sealing, Send("1".to_owned())).await);
    let plain = "SELECT count(*) FROM idempotency_keys WHERE key = 'one' AND status = 201";
    assert_eq!(count(&world.batching.pool, plain).await, 1);
}

#[sqlx::test(migrations = false)]
async fn a_clock_that_goes_back_shortens_the_life_of_no_record(pool: PgPool) {
    let ahead = "UPDATE idempotency_keys
                    SET created_at = created_at + interval '1 hour',
                        expires_at = expires_at + interval '1 hour'";
    let world = World::new(pool, |pool| Courier::meanwhile(pool, ahead)).await;
    for (shared, depot) in [(2, "1"), (3, ODD)] {
        let [sent] = <[_; 1]>::try_from(world.send(&[depot]).await).unwrap();
        let record = made(sent);
        assert_eq!(record.expires_at - record.created_at, TimeDelta::days(1));
        // An answer about the odd depot is written alone.
        let committed = world.batching.seen.batches().into_iter();
        assert_eq!(
            committed.filter(|(_, committed)| *committed).count(),
            shared
        );
        execute(&world.batching.pool, "DELETE FROM idempotency_keys").await;
    }
}
