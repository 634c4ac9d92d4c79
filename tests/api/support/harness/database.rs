//! A private PostgreSQL for the test run, and a database of its own for each test.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use charge_once::database::{Database, embedded};
use charge_once_embedded_postgres::EmbeddedPostgres;
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::sync::{OnceCell, oneshot};
use uuid::Uuid;

use super::{API_KEY, config, eventually};

/// The migrated database that others are copied from.
const TEMPLATE: &str = "template_charge_once";

/// The PostgreSQL of this test run: durable settings, as in production.
struct Postgres {
    url: String,
}

static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();

/// Starts PostgreSQL once, and a watchdog that stops and removes it when this process ends, however
/// it ends: the watchdog's standard input is closed by the kernel.
async fn postgres() -> &'static Postgres {
    POSTGRES
        .get_or_init(|| async {
            // Every #[tokio::test] has a runtime of its own; this one outlives them all.
            let (started, has_started) = oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let url = runtime.block_on(start_postgres());
                let _ = started.send(url);
            });
            Postgres {
                url: has_started.await.expect("PostgreSQL starts"),
            }
        })
        .await
}

async fn start_postgres() -> String {
    let folder = std::env::temp_dir().join(format!("charge-once-test-{}", Uuid::now_v7().simple()));
    std::fs::create_dir_all(&folder).unwrap();
    let settings = embedded::settings(folder.clone(), None);
    let postgres = EmbeddedPostgres::start(settings).await.unwrap();
    let url = postgres.url();
    // Kept open for as long as this process lives; dropping it leaves PostgreSQL to the watchdog.
    std::mem::forget(postgres);
    watch_over(folder);

    let mut admin = PgConnection::connect(&url).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {TEMPLATE}")))
        .execute(&mut admin)
        .await
        .unwrap();
    let database = Database::connect(&database_url(&url, TEMPLATE), &config(&[]))
        .await
        .unwrap();
    charge_once::cli::api_key::ensure_dev_key(&database, API_KEY)
        .await
        .unwrap();
    database.pool().close().await;
    url
}

fn watch_over(folder: PathBuf) {
    let script = r#"
        read -r _ # until the test process is gone
        pid=$(head -n 1 "$1/pgdata/postmaster.pid" 2>/dev/null) && kill -INT "$pid"
        while [ -f "$1/pgdata/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        rm -rf "$1"
    "#;
    let watchdog = Command::new("sh")
        .args(["-c", script, "watchdog"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::mem::forget(watchdog);
}

/// The same server and user, another database.
fn database_url(url: &str, database: &str) -> String {
    url.replacen("/charge_once?", &format!("/{database}?"), 1)
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
        let server = postgres().await;
        let name = format!("test_{}", Uuid::now_v7().simple());
        let mut admin = PgConnection::connect(&server.url).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "CREATE DATABASE {name} TEMPLATE {template}"
        )))
        .execute(&mut admin)
        .await
        .unwrap();
        let url = database_url(&server.url, &name);
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect(&url)
            .await
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
