//! Pausing a request at one exact stage, without the server's knowledge.

use crate::support::prelude::*;

#[derive(Debug, Clone, Copy)]
pub enum Stage {
    /// In the claim's INSERT: it is open whether the request will execute.
    Claiming,
    /// The key is claimed, no charge is written.
    Executing,
    /// The charge is written, the outcome is not.
    Worked,
    /// In the UPDATE that saves the outcome. A new charge is kept from saving it with the claim.
    Saving,
    /// In the INSERT that leases the key, the last of the first phase.
    Leasing,
    /// COMMIT was sent.
    Committing,
}

/// Refuses claims with an outcome in a way that passes, so that the request reads, locks and
/// decides: BEGIN, claim, savepoint, work, save, COMMIT.
pub const CLAIM_WITHOUT_OUTCOME: &str = "
    CREATE FUNCTION refuse_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'no outcome yet' USING ERRCODE = 'serialization_failure'; END $$;
    CREATE TRIGGER claim_without_outcome BEFORE INSERT ON idempotency_keys FOR EACH ROW
        WHEN (NEW.status IS NOT NULL) EXECUTE FUNCTION refuse_outcome();";

impl Stage {
    /// The stages at which the key is claimed and certainly nothing is committed.
    pub const BEFORE_COMMIT: [Self; 3] = [Self::Executing, Self::Worked, Self::Saving];

    /// When the trigger fires, as SQL.
    fn trigger(self) -> &'static str {
        match self {
            Self::Claiming => "TRIGGER pause_point BEFORE INSERT ON idempotency_keys FOR EACH ROW",
            Self::Executing => "TRIGGER pause_point BEFORE INSERT ON charges FOR EACH ROW",
            Self::Worked => "TRIGGER pause_point AFTER INSERT ON charges FOR EACH ROW",
            Self::Saving => {
                "TRIGGER pause_point BEFORE UPDATE ON idempotency_keys FOR EACH ROW \
                 WHEN (NEW.status IS NOT NULL)"
            }
            Self::Leasing => "TRIGGER pause_point BEFORE INSERT ON idempotency_leases FOR EACH ROW",
            Self::Committing => {
                "CONSTRAINT TRIGGER pause_point AFTER INSERT ON charges \
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
            }
        }
    }
}

/// A lock that pauses the requests with some keys at one stage and lets all other requests pass. A
/// trigger in the test's own database waits for the lock; the server has no code for it. Dropping
/// the pause point releases the requests.
pub struct PausePoint {
    /// Holds the lock, in a session of its own.
    holder: PgConnection,
}

impl PausePoint {
    /// `keys` is a LIKE pattern, usually one whole key.
    pub async fn at(stage: Stage, database: &TestDatabase, keys: &str) -> Self {
        let trigger = stage.trigger();
        let mut holder = PgConnection::connect(&database.url).await.unwrap();
        // The function finds the claim of its own transaction by now(). It sets no lock_timeout,
        // because the test decides how long a request is paused. A sequence also counts arrivals
        // that are rolled back later.
        let sql = format!(
            r#"
            SELECT pg_advisory_lock(1);
            CREATE SEQUENCE pause_point_arrivals;
            CREATE FUNCTION wait_at_pause_point() RETURNS trigger
                LANGUAGE plpgsql SET lock_timeout = 0 AS $$
            BEGIN
                IF to_jsonb(NEW) ->> 'key' LIKE TG_ARGV[0]
                OR EXISTS (SELECT FROM idempotency_keys
                            WHERE key LIKE TG_ARGV[0] AND created_at = now())
                THEN
                    PERFORM nextval('pause_point_arrivals');
                    PERFORM pg_advisory_xact_lock_shared(1);
                END IF;
                RETURN NEW;
            END $$;
            CREATE {trigger} EXECUTE FUNCTION wait_at_pause_point('{keys}');
            {}
            "#,
            if matches!(stage, Stage::Saving) {
                CLAIM_WITHOUT_OUTCOME
            } else {
                ""
            }
        );
        let pause = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        pause.execute(&mut holder).await.unwrap();
        Self { holder }
    }

    pub async fn is_reached(&mut self) {
        self.is_reached_by(1).await;
    }

    /// Waits until at least `requests` requests are paused here.
    pub async fn is_reached_by(&mut self, requests: usize) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.paused_backends().await.len() < requests {
            let now = tokio::time::Instant::now();
            assert!(now < deadline, "no request reached the pause point");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many requests have arrived, including those that were rolled back later.
    pub async fn arrivals(&mut self) -> i64 {
        sqlx::query_scalar(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM pause_point_arrivals",
        )
        .fetch_one(&mut self.holder)
        .await
        .unwrap()
    }

    /// Ends the database session of the paused request, as a crash of its backend would.
    pub async fn break_the_paused(&mut self) {
        let pid = self.paused_backend().await;
        let terminate = sqlx::query("SELECT pg_terminate_backend($1)").bind(pid);
        terminate.execute(&mut self.holder).await.unwrap();
    }

    /// Makes every record expire `microseconds` after the paused transaction's `now()`, which is
    /// the moment that it began.
    pub async fn make_expiry_relative_to_the_paused(&mut self, microseconds: i64) {
        let pid = self.paused_backend().await;
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

    async fn paused_backend(&mut self) -> i32 {
        let paused = self.paused_backends().await;
        *paused.first().expect("a paused request")
    }

    async fn paused_backends(&mut self) -> Vec<i32> {
        sqlx::query_scalar(
            "SELECT pid FROM pg_locks
              WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_all(&mut self.holder)
        .await
        .unwrap()
    }

    /// Lets all requests pass, those that are paused and later ones.
    pub async fn release(self) {
        self.holder.close().await.unwrap();
    }
}
