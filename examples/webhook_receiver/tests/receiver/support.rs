//! A private PostgreSQL for the test run with a database of its own for each test, the receiver,
//! and a sender of signed events.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::Router;
use charge_once_embedded_postgres::{EmbeddedPostgres, Settings};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::{
    net::TcpListener,
    sync::{OnceCell, oneshot},
};
use uuid::Uuid;

pub const SECRET: &str = "whsec_of_the_tests";

/// A wait for a condition that takes longer fails.
const PATIENCE: Duration = Duration::from_secs(20);

static POSTGRES: OnceCell<String> = OnceCell::const_new();

/// The URL of the PostgreSQL that all tests share.
async fn postgres() -> &'static str {
    POSTGRES
        .get_or_init(|| async {
            // Each #[tokio::test] has a runtime of its own; this one outlives all of them.
            let (started, has_started) = oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let _ = started.send(runtime.block_on(start_postgres()));
            });
            has_started.await.expect("PostgreSQL starts")
        })
        .await
}

async fn start_postgres() -> String {
    let name = format!("webhook-receiver-test-{}", Uuid::now_v7().simple());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let embedded = EmbeddedPostgres::start(Settings::new("charge_once", &folder))
        .await
        .unwrap();
    let url = embedded.url();
    std::mem::forget(embedded);
    // A watchdog stops PostgreSQL and removes its files when this process ends, however it ends:
    // the kernel then closes the watchdog's standard input.
    let script = r#"
        read -r _
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
    url
}

/// The URL of an empty database.
pub async fn empty_database() -> String {
    let url = postgres().await;
    let name = format!("test_{}", Uuid::now_v7().simple());
    let mut admin = PgConnection::connect(url).await.unwrap();
    let create = format!("CREATE DATABASE {name} TEMPLATE template0");
    sqlx::query(sqlx::AssertSqlSafe(create))
        .execute(&mut admin)
        .await
        .unwrap();
    url.replacen("/charge_once?", &format!("/{name}?"), 1)
}

/// The receiver on a database and a port of its own.
pub struct Receiver {
    pub pool: PgPool,
    pub address: SocketAddr,
    http: reqwest::Client,
}

impl Receiver {
    pub async fn start() -> Self {
        let pool = webhook_receiver::connect(&empty_database().await)
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        serve(
            listener,
            webhook_receiver::app(pool.clone(), SECRET.to_owned()),
        );
        Self {
            pool,
            address,
            http: http_client(),
        }
    }

    /// Delivers with this value of `Stripe-Signature`; returns the status.
    pub async fn deliver_signed(&self, signature: &str, body: &str) -> u16 {
        deliver(&self.http, self.address, signature, body).await
    }

    /// Delivers as the service does; returns the status.
    pub async fn deliver(&self, body: &str) -> u16 {
        let signature = signature(SECRET, now(), body);
        self.deliver_signed(&signature, body).await
    }

    /// The events that were handled, and the revenue in US cents.
    pub async fn effects(&self) -> (i64, i64) {
        effects(&self.pool).await
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }
}

pub async fn deliver(
    http: &reqwest::Client,
    address: SocketAddr,
    signature: &str,
    body: &str,
) -> u16 {
    let request = http
        .post(format!("http://{address}/webhooks"))
        .header("stripe-signature", signature)
        .body(body.to_owned());
    request.send().await.unwrap().status().as_u16()
}

pub async fn effects(pool: &PgPool) -> (i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM handled_events),
                coalesce((SELECT amount FROM revenue WHERE currency = 'usd'), 0)",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

pub fn serve(listener: TcpListener, app: Router) {
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
}

pub fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// What the service sends as `Stripe-Signature`.
pub fn signature(secret: &str, time: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    format!("t={time},v1={}", hex::encode(mac.finalize().into_bytes()))
}

/// The body of an event that a charge of 20.00 USD succeeded.
pub fn charge_succeeded(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"charge.succeeded",
            "data":{{"object":{{"amount_captured":2000,"currency":"usd"}}}}}}"#
    )
}

/// Polls until `condition` holds.
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
