//! What every test stands on: a private PostgreSQL for the test run, a database of its own for each
//! test, the server in this process or as a process of its own, and a client.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use charge_once::{
    config::Config,
    database::{Database, embedded},
    server,
};
use charge_once_client::transport::http_client_builder;
use charge_once_embedded_postgres::EmbeddedPostgres;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header::HeaderMap};
use serde_json::Value;
use sqlx::{Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::sync::{OnceCell, oneshot};
use uuid::Uuid;

/// The key of the account `dev` in every test database.
pub const API_KEY: &str = "sk_test_harness_dev";

/// Keys in flight by a committed row: each has a row without an outcome and a lease beside it, so
/// that one without the other counts, too.
pub const KEYS_IN_FLIGHT: &str = "
    SELECT count(*)
      FROM idempotency_leases
      FULL JOIN (SELECT account_id, key FROM idempotency_keys WHERE status IS NULL) AS unfinished
     USING (account_id, key)";

/// Any wait for a condition ends here, as a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

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

/// The default configuration with some variables set.
pub fn config(variables: &[(&str, &str)]) -> Config {
    let defaults = [
        ("BIND_ADDRESS", "127.0.0.1:0"),
        ("DATABASE_URL", "postgres://unused@localhost/unused"),
        ("WORKERS", "2"),
        ("DEV_API_KEY", API_KEY),
    ];
    Config::from_lookup(|name| {
        let find = |list: &[(&str, &str)]| {
            list.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        find(variables).or_else(|| find(&defaults))
    })
    .unwrap()
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

/// Limits so far away that a request held by an [`Obstacle`](crate::support::obstacle::Obstacle) never meets one.
pub const PATIENT: &[(&str, &str)] = &[
    ("STATEMENT_TIMEOUT", "40s"),
    ("DATABASE_DEADLINE", "45s"),
    ("IDLE_IN_TRANSACTION_TIMEOUT", "50s"),
    ("REQUEST_TIMEOUT", "60s"),
    ("IDEMPOTENCY_LEASE", "90s"),
];

/// Prints a line though the test passes: the test runner keeps to itself only what `print!` writes.
pub fn report(line: &str) {
    let mut output = std::io::stderr().lock();
    writeln!(output, "{line}").unwrap();
}

/// Polls until `condition` holds, and fails after [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "never happened: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client of one server, with the dev account's key.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    http: reqwest::Client,
    api_key: String,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        // No pool of connections: a test that kills servers must not meet a half-dead one.
        let http = http_client_builder()
            .unwrap()
            .pool_max_idle_per_host(0)
            // As a browser does, for pages.
            .redirect(reqwest::redirect::Policy::limited(3))
            .build()
            .unwrap();
        Self {
            address,
            http,
            api_key: API_KEY.to_owned(),
        }
    }

    /// The same server, another API key.
    pub fn with_api_key(&self, key: &str) -> Self {
        Self {
            api_key: key.to_owned(),
            ..self.clone()
        }
    }

    /// A request without credentials.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.api_key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    /// A JSON body, or anything else that serialises.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        Answer::of(
            self.request(Method::POST, path)
                .header("idempotency-key", key)
                .json(body),
        )
        .await
    }

    /// Under a key of its own: a new operation.
    pub async fn post_new(&self, path: &str, body: &Value) -> Answer {
        self.post(path, &Uuid::now_v7().to_string(), body).await
    }

    /// Sets a level of inventory.
    pub async fn put(&self, path: &str, key: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.send_raw(Method::PUT, path, key, "application/json", body.as_bytes())
            .await
    }

    /// A raw body.
    pub async fn post_raw(&self, path: &str, key: &str, media_type: &str, body: &[u8]) -> Answer {
        self.send_raw(Method::POST, path, key, media_type, body)
            .await
    }

    /// The same with another method.
    pub async fn send_raw(
        &self,
        method: Method,
        path: &str,
        key: &str,
        media_type: &str,
        body: &[u8],
    ) -> Answer {
        let request = self.request(method, path).header("idempotency-key", key);
        Answer::of(
            request
                .header("content-type", media_type)
                .body(body.to_vec()),
        )
        .await
    }

    pub async fn charge(&self, key: &str) -> Answer {
        self.post("/charges", key, &charge()).await
    }

    /// With `Prefer: wait=…`: how long to wait for a duplicate's owner.
    pub async fn post_waiting(&self, seconds: u32, path: &str, key: &str, body: &Value) -> Answer {
        Answer::of(
            self.request(Method::POST, path)
                .header("idempotency-key", key)
                .header("prefer", format!("wait={seconds}"))
                .json(body),
        )
        .await
    }

    /// The same request again for as long as the reply says that a retry makes sense.
    pub async fn charge_until_definite(&self, key: &str) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.charge(key).await;
            if answer.header("stripe-should-retry") != Some("true") {
                return answer;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "no definite answer: {answer:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns when requests that were sent before have reached their handlers. Needs a server
    /// with `WORKERS=1`: one thread takes them in turn, so once later ones are answered, earlier
    /// ones are where they wait.
    pub async fn let_earlier_requests_arrive(&self) {
        for _ in 0..20 {
            self.get("/charges").await;
        }
    }
}

/// The parameters of an ordinary charge.
pub fn charge() -> Value {
    serde_json::json!({"amount": 2000, "currency": "usd", "source": "tok_visa"})
}

/// Another request than [`charge`].
pub fn another_charge() -> Value {
    serde_json::json!({"amount": 999, "currency": "usd", "source": "tok_visa"})
}

/// A whole reply.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        Self::read(request.send().await.unwrap()).await
    }

    pub async fn read(response: Response) -> Self {
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The envelope's code; fails where there is no whole envelope.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        for member in ["type", "code", "message", "doc_url"] {
            assert!(error[member].is_string(), "no {member} in {error}");
        }
        error["code"].as_str().unwrap().to_owned()
    }

    /// A refusal, in short: status, code and the parameter at fault.
    pub fn refusal(&self) -> (u16, String, Option<String>) {
        let param = self.json()["error"]["param"].as_str().map(str::to_owned);
        (self.status.as_u16(), self.code(), param)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub fn id(&self) -> String {
        self.json()["id"]
            .as_str()
            .expect("an object with an id")
            .to_owned()
    }

    /// The same status, bytes and end-to-end headers: what a replay promises.
    pub fn assert_replays(&self, original: &Self) {
        assert!(self.is_replay(), "not marked as a replay: {self:?}");
        assert_eq!(self.status, original.status);
        assert_eq!(self.body, original.body, "the bytes differ");
        let end_to_end = |answer: &Self| {
            let mut headers: Vec<_> = answer
                .headers
                .iter()
                .filter(|(name, _)| {
                    ![
                        "request-id",
                        "idempotent-replayed",
                        "preference-applied",
                        "idempotency-key",
                        "date",
                        "connection",
                    ]
                    .contains(&name.as_str())
                })
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect();
            headers.sort();
            headers
        };
        assert_eq!(end_to_end(self), end_to_end(original), "the headers differ");
    }
}

/// The server inside the test's process.
pub struct TestServer {
    pub client: Client,
    pub database: TestDatabase,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<()>,
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With some variables set.
    pub async fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_on(TestDatabase::create().await, variables).await
    }

    pub async fn start_on(database: TestDatabase, variables: &[(&str, &str)]) -> Self {
        let url = database.url.clone();
        Self::start_through(database, &url, variables).await
    }

    /// Reaches its database through `url`: a proxy's, say.
    pub async fn start_through(
        database: TestDatabase,
        url: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let config = config(variables);
        let connected = Database::connect(url, &config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server::serve(listener, connected, &config, stopped)
                .await
                .unwrap();
        });
        Self {
            client,
            database,
            stop: Some(stop),
            serving,
        }
    }

    /// Asks it to stop, without waiting.
    pub fn begin_stopping(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops it gracefully.
    pub async fn stop(mut self) -> TestDatabase {
        self.begin_stopping();
        self.serving.await.unwrap();
        self.database
    }
}

/// The server as a process of its own, for kill -9 and for several replicas.
pub struct ServerProcess {
    pub client: Client,
    pub child: Child,
}

impl ServerProcess {
    pub fn start(database: &TestDatabase, variables: &[(&str, &str)]) -> Self {
        Self::start_logging_to(Stdio::null(), database, variables)
    }

    /// With its log, which goes to standard error, somewhere.
    pub fn start_logging_to(
        log: impl Into<Stdio>,
        database: &TestDatabase,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_charge-once"))
            .env("BIND_ADDRESS", "127.0.0.1:0")
            .env("DATABASE_URL", &database.url)
            .env("DEV_API_KEY", API_KEY)
            .env("RUST_LOG", "warn")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        // The banner's first line ends with the URL.
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .rsplit("http://")
            .next()
            .unwrap()
            .parse()
            .unwrap_or_else(|_| {
                panic!("no address in the banner: {line:?}");
            });
        Self {
            client: Client::new(address),
            child,
        }
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
