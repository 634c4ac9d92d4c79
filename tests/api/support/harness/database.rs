//! A private PostgreSQL for the test run, and a database of its own for each test.

use charge_once::{cli::api_key::ensure_dev_key, database::Database};
use charge_once_embedded_postgres::Throwaway;
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::{API_KEY, config, eventually};
use crate::support::pgbouncer;

/// The migrated database that others are copied from.
const TEMPLATE: &str = "template_charge_once";

/// The PostgreSQL of this test run: durable settings, as in production.
static POSTGRES: OnceCell<Throwaway> = OnceCell::const_new();

async fn start_postgres() -> Throwaway {
    let through_pgbouncer = pgbouncer::is_wanted();
    let postgres = Throwaway::start("charge_once").await.unwrap();
    let template = postgres.create_database(TEMPLATE, "template0").await;
    let template = template.unwrap();
    let database = Database::connect(&template, &config(&[])).await.unwrap();
    ensure_dev_key(&database, API_KEY).await.unwrap();
    if through_pgbouncer {
        pgbouncer::start_for_the_run(&template, database.pool()).await;
    }
    database.pool().close().await;
    postgres
}

/// A database of one test's own, removed with the whole PostgreSQL at the end of the run.
#[derive(Clone)]
pub struct TestDatabase {
    /// For a second server, or a proxy in front of it.
    pub url: String,
    /// For looking at rows and holding locks, beside the server's own pool.
    pub pool: PgPool,
}

impl TestDatabase {
    pub async fn create() -> Self {
        Self::create_from(TEMPLATE).await
    }

    /// Without the service's tables: for another program.
    pub async fn create_empty() -> Self {
        Self::create_from("template0").await
    }

    async fn create_from(template: &str) -> Self {
        let postgres = POSTGRES.get_or_init(start_postgres).await;
        let name = format!("test_{}", Uuid::now_v7().simple());
        let url = postgres.create_database(&name, template).await.unwrap();
        // Many tests never look, and a session costs as much as several requests.
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect_lazy(&url)
            .unwrap();
        Self { url, pool }
    }

    /// A single number, for an invariant in SQL.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// The program's own view of it: for the functions of the library.
    pub async fn connect(&self, variables: &[(&str, &str)]) -> Database {
        Database::connect(&self.url, &config(variables))
            .await
            .unwrap()
    }

    /// Makes every stored outcome as old as if it had expired an hour ago.
    pub async fn expire_records(&self) {
        sqlx::query(
            "UPDATE idempotency_keys
                SET created_at = now() - interval '25 hours',
                    expires_at = now() - interval '1 hour'",
        )
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// Lets every lease expire, as if the processes that held them had died long ago.
    pub async fn expire_leases(&self) {
        sqlx::query(
            "UPDATE idempotency_leases
                SET leased_until = now() - interval '1 second',
                    recover_after = now() - interval '1 second'",
        )
        .execute(&self.pool)
        .await
        .unwrap();
    }

    pub async fn charges(&self) -> i64 {
        self.count("SELECT count(*) FROM charges").await
    }

    pub async fn records(&self) -> i64 {
        self.count("SELECT count(*) FROM idempotency_keys").await
    }
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
