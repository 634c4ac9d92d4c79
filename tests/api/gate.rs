//! A gate inside the database: requests stop at exactly one stage of their transaction until the
//! test opens it. Real triggers and a real lock; the server knows nothing of it.

use sqlx::{Connection, PgConnection};

use crate::harness::{TestDatabase, eventually};

/// Where a request stops.
#[derive(Debug, Clone, Copy)]
pub enum Stage {
    /// The key is claimed, the charge not yet written.
    Claimed,
    /// The charge is written.
    Worked,
    /// The reply is about to be saved.
    Saving,
    /// COMMIT was sent.
    Committing,
}

impl Stage {
    /// Those in which the outcome is certain: nothing is committed.
    pub const BEFORE_COMMIT: [Self; 3] = [Self::Claimed, Self::Worked, Self::Saving];

    fn trigger(self) -> &'static str {
        match self {
            Self::Claimed => "TRIGGER gate BEFORE INSERT ON charges",
            Self::Worked => "TRIGGER gate AFTER INSERT ON charges",
            Self::Saving => "TRIGGER gate BEFORE UPDATE ON idempotency_keys",
            Self::Committing => {
                "CONSTRAINT TRIGGER gate AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED"
            }
        }
    }
}

/// The sessions that stand at the gate of this database.
const WAITING: &str = "FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = \
                       (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A closed gate; dropping it opens it.
pub struct Gate {
    keeper: PgConnection,
}

impl Gate {
    pub async fn close(database: &TestDatabase, stage: Stage) -> Self {
        // Without a lock_timeout: how long a request stands here is the test's decision.
        let function = "CREATE FUNCTION wait_at_the_gate() RETURNS trigger \
            LANGUAGE plpgsql SET lock_timeout = 0 AS \
            $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$";
        install(database, function, stage.trigger(), "wait_at_the_gate").await;
        let mut keeper = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query("SELECT pg_advisory_lock(1)")
            .execute(&mut keeper)
            .await
            .unwrap();
        Self { keeper }
    }

    /// Until as many requests stand at the gate.
    pub async fn reached_by(database: &TestDatabase, requests: i64) {
        let sql = format!("SELECT count(*) {WAITING}");
        eventually("a request reaches the gate", || async {
            let waiting: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.clone()))
                .fetch_one(&database.pool)
                .await
                .unwrap();
            waiting == requests
        })
        .await;
    }

    /// What an operator or a failover does to the sessions at the gate.
    pub async fn terminate_those_waiting(database: &TestDatabase) {
        let sql = format!("SELECT count(pg_terminate_backend(pid)) {WAITING}");
        let ended: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&database.pool)
            .await
            .unwrap();
        assert_eq!(ended, 1);
    }

    pub async fn open(self) {
        self.keeper.close().await.unwrap();
    }
}

/// Creates a trigger function and its trigger.
pub async fn install(database: &TestDatabase, function: &str, trigger: &str, name: &str) {
    let sql = format!("{function}; CREATE {trigger} FOR EACH ROW EXECUTE FUNCTION {name}()");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&database.pool)
        .await
        .unwrap();
}

/// No session of the server holds a transaction open.
pub async fn every_connection_is_clean(database: &TestDatabase) {
    eventually("every connection of the server is idle", || async {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND application_name = 'charge-once' AND state <> 'idle'";
        database.count(busy).await == 0
    })
    .await;
}

/// Exactly one charge, and a record that names it.
pub async fn one_charge_and_its_record(database: &TestDatabase) {
    let joined = "SELECT count(*) FROM idempotency_keys WHERE status = 201 \
                  AND resource_id LIKE 'ch\\_%'";
    let counts = (
        database.charges().await,
        database.records().await,
        database.count(joined).await,
    );
    assert_eq!(counts, (1, 1, 1), "charges, records, records of a charge");
}

/// Neither a charge nor a record.
pub async fn nothing_is_stored(database: &TestDatabase) {
    let counts = (database.charges().await, database.records().await);
    assert_eq!(counts, (0, 0), "charges, records");
}
