//! A command whose end the test decides, run through the library without HTTP.

use std::sync::atomic::AtomicU32;

use charge_once::idempotency::{
    Admission, Command, Failure, Fingerprint, FingerprintInput, Idempotency, InProgressLimits,
    Outcome, Parameters, Record, Rejection, Reply, Request, Settings,
};
use tokio::sync::Semaphore;

use crate::support::prelude::*;

#[derive(Debug, Clone, Copy)]
pub enum End {
    Store,
    Refuse,
    Fail,
    Panic,
    /// Hides a database error, as no command may.
    SwallowAnError,
}

/// Writes one effect, waits until the test lets it end, and ends as the test chose.
#[derive(Clone)]
pub struct Work {
    pub end: End,
    pub started: Arc<AtomicU32>,
    pub may_end: Arc<Semaphore>,
}

impl Work {
    /// Work that nothing holds up.
    pub fn that_ends(end: End) -> Self {
        Self {
            end,
            started: Arc::default(),
            may_end: Arc::new(Semaphore::new(1_000)),
        }
    }

    /// Work that lasts until [`Work::finish`].
    pub fn that_lasts_and_then(end: End) -> Self {
        Self {
            may_end: Arc::new(Semaphore::new(0)),
            ..Self::that_ends(end)
        }
    }

    pub fn finish(&self) {
        self.may_end.add_permits(1_000);
    }

    pub fn executions(&self) -> u32 {
        self.started.load(Ordering::SeqCst)
    }
}

pub fn reply(status: u16, body: &str) -> Reply {
    Reply {
        status,
        headers: Vec::new(),
        body: body.into(),
        resource_id: None,
    }
}

impl Command for Work {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let execution = self.started.fetch_add(1, Ordering::SeqCst);
        sqlx::query("INSERT INTO effects DEFAULT VALUES")
            .execute(&mut *tx)
            .await?;
        let _permit = self.may_end.acquire().await.unwrap();
        match self.end {
            End::Store => Ok(reply(201, &format!("execution {execution}"))),
            End::Refuse => Err(Rejection::Refused(reply(400, "refused"))),
            End::Fail => Err(Rejection::Failed(Failure::unavailable(
                "as the test wants it",
            ))),
            End::Panic => panic!("as the test wants it"),
            End::SwallowAnError => {
                let _ = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
                Ok(reply(201, "a lie"))
            }
        }
    }
}

pub async fn database_for_effects() -> TestDatabase {
    let database = TestDatabase::create_unsharded().await;
    let table = "CREATE TABLE effects (number bigint GENERATED ALWAYS AS IDENTITY)";
    database.execute(table).await;
    database
}

pub const EFFECTS: &str = "SELECT count(*) FROM effects";

/// A replica: a map of keys in flight of its own, in front of `pool`.
pub fn replica(pool: &PgPool) -> Idempotency {
    replica_with_deadline(pool, Duration::from_secs(30))
}

/// A replica with its own limit on waits for the database.
pub fn replica_with_deadline(pool: &PgPool, database_deadline: Duration) -> Idempotency {
    let settings = Settings {
        retention: Duration::from_secs(3600),
        database_deadline,
    };
    let admission = Admission::new(pool.clone(), InProgressLimits::NONE);
    Idempotency::new(admission, settings).unwrap()
}

/// The request `content` under the key `key-1`.
pub fn request(content: &str, wait: Duration) -> Request {
    Request {
        account_id: Uuid::nil(),
        key: IdempotencyKey::parse(b"key-1").unwrap(),
        fingerprint: Fingerprint::of(&FingerprintInput {
            method: "POST",
            path: "/work",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(content.as_bytes()),
        }),
        method: "POST".into(),
        path: "/work".into(),
        label: None,
        request_id: format!("req_{}", Uuid::now_v7().simple()),
        wait,
        retention: None,
        is_step: false,
        seal: None,
    }
}

pub const LONG: Duration = Duration::from_secs(30);

pub fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other @ (Outcome::Stored { .. }
        | Outcome::Reused
        | Outcome::InUse { .. }
        | Outcome::Unfinished) => {
            panic!("not failed: {other:?}")
        }
    }
}

pub fn stored(outcome: Outcome) -> (Arc<Record>, bool) {
    match outcome {
        Outcome::Stored {
            record, replayed, ..
        } => (record, replayed),
        Outcome::Reused | Outcome::InUse { .. } | Outcome::Unfinished | Outcome::Failed(_) => {
            panic!("not stored: {outcome:?}")
        }
    }
}
