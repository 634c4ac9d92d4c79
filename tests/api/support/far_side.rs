//! An effect outside the database, through the library: a far side whose answers the test decides.

use std::collections::VecDeque;

use charge_once::idempotency::{
    Begin, CallOutcome, ExternalEffect, Failure, Idempotency, LeaseSettings, Outcome, Phases,
    Rejection, Reply, Request, Verdict,
};
use tokio::sync::Semaphore;

use crate::support::{
    effects::{replica, request, stored},
    prelude::*,
};

/// What the far side does with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Far {
    Executes,
    Declines,
    /// Does nothing, and answers so.
    NotExecuted,
    /// Does nothing, and its answer is lost.
    DropsBefore,
    /// Executes, and its answer is lost.
    DropsAfter,
    /// Executes when the test says so.
    ExecutesLater,
    /// The process dies while it waits.
    CallerDies,
}

/// The far side: executes each key once, whatever it is sent.
#[derive(Default)]
pub struct Ledger {
    pub script: Mutex<VecDeque<Far>>,
    pub calls: Mutex<Vec<Uuid>>,
    /// Until when the last one was allowed to execute.
    pub not_after: Mutex<Option<DateTime<Utc>>>,
    /// What each key came to: whether it was executed or declined.
    pub answers: Mutex<HashMap<Uuid, bool>>,
}

#[derive(Clone, Default)]
pub struct Network {
    pub ledger: Arc<Ledger>,
    pub may_answer: Arc<Mutex<Option<Arc<Semaphore>>>>,
}

impl Network {
    pub fn will(&self, script: &[Far]) {
        self.ledger.script.lock().unwrap().extend(script);
    }

    /// The keys that were asked for, in order.
    pub fn calls(&self) -> Vec<Uuid> {
        self.ledger.calls.lock().unwrap().clone()
    }

    pub fn executed(&self) -> usize {
        let answers = self.ledger.answers.lock().unwrap();
        answers.values().filter(|executed| **executed).count()
    }

    pub fn answer_now(&self) {
        let gate = self.may_answer.lock().unwrap().clone();
        gate.expect("somebody asks").add_permits(1);
    }

    pub async fn is_asked(&self, times: usize) {
        eventually("the far side is asked", || async {
            self.calls().len() == times
        })
        .await;
    }
}

impl ExternalEffect for Network {
    const KIND: &'static str = "network";
    type Operation = Uuid;
    type Answer = bool;

    async fn read(&self, tx: &mut PgConnection, _: Uuid, operation: Uuid) -> Result<Uuid, Failure> {
        sqlx::query_scalar("SELECT id FROM far_operations WHERE id = $1")
            .bind(operation)
            .fetch_one(tx)
            .await
            .map_err(Failure::from)
    }

    async fn call(&self, operation: &Uuid, not_after: DateTime<Utc>) -> CallOutcome<bool> {
        let far = self.ledger.script.lock().unwrap().pop_front();
        let far = far.unwrap_or(Far::Executes);
        let gate = Arc::new(Semaphore::new(0));
        *self.may_answer.lock().unwrap() = Some(Arc::clone(&gate));
        *self.ledger.not_after.lock().unwrap() = Some(not_after);
        self.ledger.calls.lock().unwrap().push(*operation);
        let execute = |executed: bool| {
            let mut answers = self.ledger.answers.lock().unwrap();
            *answers.entry(*operation).or_insert(executed)
        };
        match far {
            Far::Executes => CallOutcome::Answered(execute(true)),
            Far::Declines => CallOutcome::Answered(execute(false)),
            Far::NotExecuted => {
                CallOutcome::NotExecuted(Failure::unavailable("the far side is down"))
            }
            Far::DropsBefore => CallOutcome::Unknown(Failure::unavailable("no answer")),
            Far::DropsAfter => {
                execute(true);
                CallOutcome::Unknown(Failure::unavailable("no answer"))
            }
            Far::ExecutesLater => {
                let _permit = gate.acquire().await.unwrap();
                CallOutcome::Answered(execute(true))
            }
            Far::CallerDies => panic!("as the test wants it"),
        }
    }

    async fn complete(
        &self,
        tx: &mut PgConnection,
        operation: &Uuid,
        executed: &bool,
    ) -> Result<Reply, Failure> {
        sqlx::query("UPDATE far_operations SET executed = $2 WHERE id = $1 AND executed IS NULL")
            .bind(operation)
            .bind(executed)
            .execute(tx)
            .await?;
        let status = if *executed { 201 } else { 402 };
        Ok(super::effects::reply(status, &operation.to_string()))
    }

    async fn release(&self, tx: &mut PgConnection, operation: &Uuid) -> Result<(), Failure> {
        sqlx::query("DELETE FROM far_operations WHERE id = $1")
            .bind(operation)
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// Writes an operation down, or refuses.
pub struct Start {
    pub refuses: bool,
}

impl Begin for Start {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<Verdict<Reply, Option<String>>, Rejection> {
        sqlx::query("INSERT INTO far_operations (id) VALUES ($1)")
            .bind(operation)
            .execute(tx)
            .await?;
        if self.refuses {
            return Err(Rejection::Refused(super::effects::reply(400, "refused")));
        }
        Ok(Verdict::Pending(None))
    }
}

pub const LEASE: LeaseSettings = LeaseSettings {
    lease: Duration::from_secs(60),
    call_limit: Duration::from_secs(40),
};

/// A database, the far side, and as many replicas as a test wants.
pub struct World {
    pub database: TestDatabase,
    pub network: Network,
}

impl World {
    pub async fn new() -> Self {
        let database = TestDatabase::create_unsharded().await;
        let table = "CREATE TABLE far_operations (id uuid PRIMARY KEY, executed boolean)";
        database.execute(table).await;
        Self {
            database,
            network: Network::default(),
        }
    }

    /// A process of its own, with a pool of its own: instances that share one could keep all of its
    /// connections idle.
    pub fn idempotency(&self) -> Idempotency {
        let pool = &self.database.pool;
        let options = pool.connect_options().as_ref().clone();
        replica(&pool.options().clone().connect_lazy_with(options))
    }

    pub fn replica(&self) -> Phases<Network> {
        Phases::new(self.idempotency(), self.network.clone(), LEASE).unwrap()
    }

    /// One request of a replica of its own.
    pub async fn ask(&self) -> Outcome {
        self.ask_with_key("key-1").await
    }

    /// One request of a replica of its own, which has an answer.
    pub async fn answers(&self, status: u16, is_replay: bool) {
        let (record, replayed) = stored(self.ask().await);
        assert_eq!((record.reply.status, replayed), (status, is_replay));
    }

    /// The far side was asked so many times, always under the same key.
    pub fn was_asked_under_one_key(&self, times: usize) {
        let calls = self.network.calls();
        assert_eq!(calls, vec![calls[0]; times]);
    }

    /// One request with a key of its own, of a replica of its own.
    pub async fn ask_with_key(&self, key: &str) -> Outcome {
        let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
        let request = Request {
            key,
            ..request("A", Duration::ZERO)
        };
        self.replica().run(request, Start { refuses: false }).await
    }

    /// Sends the request in the background.
    pub fn asking(&self, wait: Duration) -> tokio::task::JoinHandle<Outcome> {
        let replica = self.replica();
        tokio::spawn(async move {
            replica
                .run(request("A", wait), Start { refuses: false })
                .await
        })
    }

    /// The holder of the lease has had its time.
    pub async fn the_lease_runs_out(&self) {
        let over = "UPDATE idempotency_leases
                       SET leased_until = now() - interval '1 second',
                           recover_after = now() - interval '1 second'";
        assert_eq!(self.database.execute(over).await, 1);
    }

    /// What a person leaves who is told that nothing was executed.
    pub async fn the_operation_is_forgotten(&self) {
        let forget = "DELETE FROM idempotency_keys; DELETE FROM idempotency_leases;
                      DELETE FROM far_operations";
        self.database.execute(forget).await;
    }

    /// Operations written down, those that are completed, and keys in flight.
    pub async fn counts(&self) -> (i64, i64, i64) {
        let database = &self.database;
        let operations = "SELECT count(*) FROM far_operations";
        let completed = "SELECT count(*) FROM far_operations WHERE executed IS NOT NULL";
        (
            database.count(operations).await,
            database.count(completed).await,
            database.count(KEYS_IN_FLIGHT).await,
        )
    }
}

pub fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_))
}
