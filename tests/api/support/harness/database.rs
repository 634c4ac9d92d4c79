//! A private PostgreSQL for the test run, and a database of its own for each test.

use charge_once::{
    database::{self, Database},
    store::invariants::INVARIANTS,
};
use sqlx::{Decode, Type};
use tokio::sync::OnceCell;

use crate::support::{pgbouncer, prelude::*, sharding};

/// The migrated database that others are copied from.
const TEMPLATE: &str = "template_charge_once";

/// Its copy from before a run with several databases made it a shard.
const UNSHARDED_TEMPLATE: &str = "template_unsharded";

/// Makes every stored outcome as old as if it had expired an hour ago.
pub const EXPIRE_RECORDS: &str = "
    UPDATE idempotency_keys
       SET created_at = now() - interval '25 hours', expires_at = now() - interval '1 hour'";

/// The PostgreSQL of this test run: durable settings, as in production.
static POSTGRES: OnceCell<Throwaway> = OnceCell::const_new();

async fn start_postgres() -> Throwaway {
    let through_pgbouncer = pgbouncer::is_wanted();
    let postgres = Throwaway::start("charge_once").await.unwrap();
    let template = postgres.create_database(TEMPLATE, "template0").await;
    let template = template.unwrap();
    if sharding::is_wanted() {
        sharding::prepare(&postgres, &template, [TEMPLATE, UNSHARDED_TEMPLATE]).await;
    }
    let database = database::connect(&template, &config(&[])).await.unwrap();
    ensure_dev_key(&database, API_KEY).await.unwrap();
    if through_pgbouncer {
        pgbouncer::start_for_the_run(&template, database.pool()).await;
    }
    database.pool().close().await;
    postgres
}

/// A database of one test's own. When the test lets go of it, every invariant of `charge-once
/// check` must hold. Then it is dropped: a thousand of them would take 13 GB of memory.
#[derive(Clone)]
pub struct TestDatabase {
    /// For a second server, or a proxy in front of it.
    pub url: String,
    /// For looking at rows and holding locks, beside the server's own pool.
    pub pool: PgPool,
    /// Whether it has what a server makes of it, and nothing else.
    pub is_from_template: bool,
    /// Shared by all clones.
    end: Arc<End>,
}

impl TestDatabase {
    pub async fn create() -> Self {
        Self {
            is_from_template: true,
            ..Self::create_from(TEMPLATE).await
        }
    }

    /// The only one of its service, also in a run with several databases: for a test of one
    /// database, of a command that is given one, or of the engine, which knows no shards.
    pub async fn create_unsharded() -> Self {
        if sharding::is_wanted() {
            return Self::create_from(UNSHARDED_TEMPLATE).await;
        }
        Self::create().await
    }

    /// Without the service's tables: for another program.
    pub async fn create_empty() -> Self {
        let database = Self::create_from("template0").await;
        database.is_left_broken("it has none of the tables");
        database
    }

    /// A database elsewhere, of which nothing is known at the end.
    pub fn elsewhere(url: String, pool: PgPool) -> Self {
        let database = Self::of(url, pool, None);
        database.is_left_broken("it may be gone");
        database
    }

    fn of(url: String, pool: PgPool, name: Option<String>) -> Self {
        let end = Arc::new(End {
            url: url.clone(),
            name,
            broken: OnceLock::new(),
        });
        Self {
            url,
            pool,
            is_from_template: false,
            end,
        }
    }

    /// The test changes rows as no program does, so the invariants need not hold at its end.
    pub fn is_left_broken(&self, _reason: &str) {
        let _ = self.end.broken.set(());
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
        Self::of(url, pool, Some(name))
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        self.value(sql).await
    }

    pub async fn value<T>(&self, sql: &'static str) -> T
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn values<T>(&self, sql: &'static str) -> Vec<T>
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(sql).fetch_all(&self.pool).await.unwrap()
    }

    pub async fn comes_to(&self, sql: &'static str, count: i64) {
        let what = format!("{count} is {sql}");
        eventually(&what, || async { self.count(sql).await == count }).await;
    }

    /// Makes the operation that waits as old as if it had been tried all day: its reconciler pauses
    /// for longer than a test runs. The operation's id.
    pub async fn a_day_later(&self) -> Uuid {
        let late = "UPDATE idempotency_leases
                       SET takeovers = 10, recover_after = now() + interval '5 minutes'";
        self.execute(late).await;
        let old = "UPDATE operations SET created_at = now() - interval '24 hours'
                    WHERE completed_at IS NULL RETURNING id";
        self.value(old).await
    }

    /// Runs statements of the test's own. How many rows they changed, all together.
    pub async fn execute(&self, sql: impl Into<String>) -> u64 {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        let executed = sql.execute(&self.pool).await;
        executed.unwrap().rows_affected()
    }

    /// A transaction that has run this, and holds its locks until it ends.
    pub async fn holding(&self, sql: impl Into<String>) -> Transaction<'static, Postgres> {
        let mut tx = self.pool.begin().await.unwrap();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        sql.execute(&mut *tx).await.unwrap();
        tx
    }

    /// The program's own view of it: for the functions of the library.
    pub async fn connect(&self, variables: &[(&str, &str)]) -> Database {
        let connected = database::connect(&self.url, &config(variables)).await;
        connected.unwrap()
    }

    /// Makes every stored outcome as old as if it had expired an hour ago.
    pub async fn expire_records(&self) {
        self.execute(EXPIRE_RECORDS).await;
    }

    /// Lets every lease expire, as if the processes that held them had died long ago.
    pub async fn expire_leases(&self) {
        let over = "UPDATE idempotency_leases
                       SET leased_until = now() - interval '1 second',
                           recover_after = now() - interval '1 second'";
        self.execute(over).await;
    }

    pub async fn count_of(&self, table: &'static str) -> i64 {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn charges(&self) -> i64 {
        self.count_of("charges").await
    }

    pub async fn orders(&self) -> i64 {
        self.count_of("orders").await
    }

    pub async fn records(&self) -> i64 {
        self.count_of("idempotency_keys").await
    }
}

/// Rows that are shown of each invariant that doesn't hold.
const SHOWN: usize = 3;

/// Looks at the database when the last clone is dropped.
struct End {
    url: String,
    /// `None`: it isn't this run's to drop.
    name: Option<String>,
    broken: OnceLock<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.broken.get().is_none() {
            self.must_hold();
        }
        if let (Some(name), Some(postgres)) = (&self.name, POSTGRES.get()) {
            postgres.drop_database(name);
        }
    }
}

impl End {
    fn must_hold(&self) {
        let url = self.url.clone();
        // The test's own runtime is blocked until this is over.
        let looking = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(violations(&url))
        });
        let found = looking.join().unwrap();
        assert!(
            found.as_ref().is_ok_and(Vec::is_empty),
            "at the end of the test: {found:#?}. If it breaks the data on purpose, call is_left_broken"
        );
    }
}

async fn violations(url: &str) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    // A lock that the test still has must not hang it.
    sqlx::raw_sql("SET lock_timeout = '2s'; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .execute(&mut connection)
        .await?;
    let kept = config(&[]).retention.events;
    let mut found = Vec::new();
    for invariant in INVARIANTS {
        let violations = invariant.violations(&mut connection, kept).await?;
        let told = violations.found.iter().take(SHOWN);
        found.extend(told.map(|one| format!("{}: {one:?}", invariant.name)));
    }
    connection.close().await?;
    Ok(found)
}

/// The rule of the schema that an error is about.
pub fn violated(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error()?.constraint()
}

/// No session of the server holds a transaction open.
pub async fn every_connection_is_clean(database: &TestDatabase) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'charge-once' AND state <> 'idle'";
    database.comes_to(busy, 0).await;
}

/// Exactly one charge, and a record that names it.
pub async fn one_charge_and_its_record(database: &TestDatabase) {
    let joined = "SELECT count(*) FROM idempotency_keys WHERE status = 201 \
                  AND resource_id LIKE 'ch\\_%'";
    assert_eq!(database.charges().await, 1, "charges");
    assert_eq!(database.records().await, 1, "records");
    assert_eq!(database.count(joined).await, 1, "records of a charge");
}
