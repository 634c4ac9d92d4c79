//! Stopping a request at one exact stage, without a word to the server.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::support::harness::{PATIENCE, TestDatabase};

/// Where a request can be stopped.
#[derive(Debug, Clone, Copy)]
pub enum Stage {
    /// In the claim's INSERT: nobody knows yet whether it will execute.
    Claiming,
    /// The key is claimed, no charge is written.
    Executing,
    /// The charge is written, the outcome is not.
    Worked,
    /// In the UPDATE that saves the outcome.
    Saving,
    /// In the INSERT that leases the key, the last of the first phase.
    Leasing,
    /// COMMIT was sent.
    Committing,
}

impl Stage {
    /// Those at which the key is claimed and nothing is committed for certain.
    pub const BEFORE_COMMIT: [Self; 3] = [Self::Executing, Self::Worked, Self::Saving];

    /// When the trigger fires, as SQL.
    fn trigger(self) -> &'static str {
        match self {
            Self::Claiming => "TRIGGER obstacle BEFORE INSERT ON idempotency_keys FOR EACH ROW",
            Self::Executing => "TRIGGER obstacle BEFORE INSERT ON charges FOR EACH ROW",
            Self::Worked => "TRIGGER obstacle AFTER INSERT ON charges FOR EACH ROW",
            Self::Saving => {
                "TRIGGER obstacle BEFORE UPDATE ON idempotency_keys FOR EACH ROW \
                 WHEN (NEW.status IS NOT NULL)"
            }
            Self::Leasing => "TRIGGER obstacle BEFORE INSERT ON idempotency_leases FOR EACH ROW",
            Self::Committing => {
                "CONSTRAINT TRIGGER obstacle AFTER INSERT ON charges \
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
            }
        }
    }
}

/// A lock of the test's that stops the requests with some keys at one stage, and lets all other
/// requests pass. A trigger in the test's own database waits for it; the server knows nothing.
/// Dropped, it stops nobody any more.
pub struct Obstacle {
    /// Holds the lock, in a session of its own.
    holder: PgConnection,
}

impl Obstacle {
    /// `keys` is a pattern as LIKE has them: usually just a key.
    pub async fn at(stage: Stage, database: &TestDatabase, keys: &str) -> Self {
        let trigger = stage.trigger();
        let mut holder = PgConnection::connect(&database.url).await.unwrap();
        // A claim is made at its own transaction's now(). Without a lock_timeout: how long a request
        // is stopped is the test's decision. The sequence counts what is rolled back, too.
        let sql = format!(
            r#"
            SELECT pg_advisory_lock(1);
            CREATE SEQUENCE obstacle_meetings;
            CREATE FUNCTION wait_at_obstacle() RETURNS trigger
                LANGUAGE plpgsql SET lock_timeout = 0 AS $$
            BEGIN
                IF to_jsonb(NEW) ->> 'key' LIKE TG_ARGV[0]
                OR EXISTS (SELECT FROM idempotency_keys
                            WHERE key LIKE TG_ARGV[0] AND created_at = now())
                THEN
                    PERFORM nextval('obstacle_meetings');
                    PERFORM pg_advisory_xact_lock_shared(1);
                END IF;
                RETURN NEW;
            END $$;
            CREATE {trigger} EXECUTE FUNCTION wait_at_obstacle('{keys}');
            "#
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut holder)
            .await
            .unwrap();
        Self { holder }
    }

    /// Waits until a request is stopped.
    pub async fn is_met(&mut self) {
        self.is_met_by(1).await;
    }

    /// Waits until so many are.
    pub async fn is_met_by(&mut self, requests: usize) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.stopped_backends().await.len() < requests {
            assert!(
                tokio::time::Instant::now() < deadline,
                "nobody met the obstacle"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How often a request came to it, those that were rolled back later included.
    pub async fn meetings(&mut self) -> i64 {
        sqlx::query_scalar(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM obstacle_meetings",
        )
        .fetch_one(&mut self.holder)
        .await
        .unwrap()
    }

    /// Ends the database session of the stopped request, as a crash of its backend would.
    pub async fn break_the_stopped(&mut self) {
        let pid = self.stopped_backend().await;
        sqlx::query("SELECT pg_terminate_backend($1)")
            .bind(pid)
            .execute(&mut self.holder)
            .await
            .unwrap();
    }

    /// Makes every record expire that long after the stopped transaction's `now()`, the moment it
    /// began.
    pub async fn make_expiry_relative_to_the_stopped(&mut self, microseconds: i64) {
        let pid = self.stopped_backend().await;
        sqlx::query(
            "UPDATE idempotency_keys
                SET created_at = xact_start - interval '1 hour',
                    expires_at = xact_start + $2 * interval '1 microsecond'
               FROM pg_stat_activity
              WHERE pid = $1",
        )
        .bind(pid)
        .bind(microseconds)
        .execute(&mut self.holder)
        .await
        .unwrap();
    }

    async fn stopped_backend(&mut self) -> i32 {
        let stopped = self.stopped_backends().await;
        *stopped.first().expect("a stopped request")
    }

    async fn stopped_backends(&mut self) -> Vec<i32> {
        sqlx::query_scalar(
            "SELECT pid FROM pg_locks
              WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_all(&mut self.holder)
        .await
        .unwrap()
    }

    /// Lets everybody pass, now and later.
    pub async fn lift(self) {
        self.holder.close().await.unwrap();
    }
}
