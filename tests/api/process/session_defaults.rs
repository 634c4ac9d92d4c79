//! What a role, a database or a server has for defaults must not weaken the promise.

use std::{
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use charge_once::database::{Database, embedded};
use charge_once_embedded_postgres::EmbeddedPostgres;
use nix::sys::signal::Signal;
use sqlx::{Connection, postgres::PgConnectOptions};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, UnixStream},
};

use crate::support::{
    harness::{TestDatabase, TestServer, config, eventually},
    program::{scratch, signal},
};

#[tokio::test]
async fn sessions_are_pinned_against_the_defaults_of_the_database() {
    let database = TestDatabase::create().await;
    let careless = r#"
        DO $$ BEGIN EXECUTE format(
            'ALTER DATABASE %1$I SET synchronous_commit = off;
             ALTER DATABASE %1$I SET default_transaction_isolation = "repeatable read";
             ALTER DATABASE %1$I SET default_transaction_read_only = on;
             ALTER DATABASE %1$I SET statement_timeout = 0', current_database()); END $$
    "#;
    sqlx::raw_sql(careless)
        .execute(&database.pool)
        .await
        .unwrap();
    let connected = Database::connect(&database.url, &config(&[]))
        .await
        .unwrap();
    let expected = [
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "3s"),
        ("lock_timeout", "1s"),
        ("idle_in_transaction_session_timeout", "6s"),
    ];
    for (name, value) in expected {
        let actual: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(connected.pool())
            .await
            .unwrap();
        assert_eq!(actual, value, "{name}");
    }
}

/// A PostgreSQL on data in a folder, and its program.
async fn start_in(folder: &Path) -> (EmbeddedPostgres, PathBuf) {
    let settings = embedded::settings(folder.to_owned(), None);
    let postgres = EmbeddedPostgres::start(settings).await.unwrap();
    let pid = std::fs::read_to_string(folder.join("pgdata/postmaster.pid")).unwrap();
    let program = std::fs::read_link(format!("/proc/{}/exe", pid.lines().next().unwrap())).unwrap();
    (postgres, program)
}

/// Starts its program again on that data, with a setting.
fn start_again(folder: &Path, program: &Path, setting: &str) -> Child {
    let data = folder.join("pgdata");
    let owner = std::fs::metadata(&data).unwrap();
    let socket_folder = folder.join("run");
    Command::new(program)
        .uid(owner.uid())
        .gid(owner.gid())
        .arg("-D")
        .arg(&data)
        .args(["-c", setting, "-c", "listen_addresses=", "-c"])
        .arg(format!(
            "unix_socket_directories={}",
            socket_folder.display()
        ))
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_standby_is_named_by_readiness_and_refused_at_the_start() {
    let folder = scratch();
    let (postgres, program) = start_in(folder.path()).await;
    let url = postgres.url();
    let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
    let server = TestServer::start_on(TestDatabase { url, pool }, &[]).await;
    assert_eq!(server.client.get("/readyz").await.status, 200);
    postgres.stop().await.unwrap();

    std::fs::write(folder.path().join("pgdata/standby.signal"), "").unwrap();
    let mut standby = start_again(folder.path(), &program, "hot_standby=on");
    eventually("readiness says that it is a standby", || async {
        let answer = server.client.get("/readyz").await;
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        answer.status == 503 && told.contains("The database is a standby")
    })
    .await;
    let refused = Database::connect(&server.database.url, &config(&[])).await;
    let message = refused.expect_err("the start is refused").to_string();
    assert!(
        message.contains("Set DATABASE_URL to the primary"),
        "{message}"
    );
    signal(&standby, Signal::SIGINT);
    standby.wait().unwrap();
}

#[tokio::test]
async fn a_server_that_forgets_what_it_acknowledged_is_refused_at_the_start() {
    let folder = scratch();
    let (postgres, program) = start_in(folder.path()).await;
    let url = postgres.url();
    postgres.stop().await.unwrap();

    // Servers that don't wait for the disk, or don't repair torn pages, start on that data.
    for careless in ["fsync=off", "full_page_writes=off"] {
        let mut forgetful = start_again(folder.path(), &program, careless);
        eventually("the server answers", || async {
            sqlx::PgConnection::connect(&url).await.is_ok()
        })
        .await;
        let refused = Database::connect(&url, &config(&[])).await;
        signal(&forgetful, Signal::SIGINT);
        forgetful.wait().unwrap();
        let message = refused.expect_err("the start is refused").to_string();
        assert!(message.contains(careless), "{message}");
        let remedy = format!("Set {} on the server", careless.replace("off", "on"));
        assert!(message.contains(&remedy), "{message}");
    }
}

/// A network that cuts the first connections after so many bytes of PostgreSQL's, and no later one.
async fn flaky_network(socket: PathBuf, lengths: &'static [u64]) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let number = counter.fetch_add(1, Ordering::SeqCst);
            let length = lengths.get(number).copied().unwrap_or(u64::MAX);
            let mut server = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.split();
                let (from_server, mut to_server) = server.split();
                let mut from_server = from_server.take(length);
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
                }
            });
        }
    });
    (port, accepted)
}

#[tokio::test]
async fn a_start_outlives_connections_that_break() {
    let database = TestDatabase::create().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let folder = options.get_socket().unwrap();
    let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
    // In the handshake, among the settings, and in the look at the schema.
    let lengths = &[0, 1, 300, 600, 700, 900];
    let (port, accepted) = flaky_network(socket, lengths).await;
    let name = options.get_database().unwrap();
    let url = format!("postgres://charge_once@127.0.0.1:{port}/{name}?sslmode=disable");
    Database::connect(&url, &config(&[])).await.unwrap();
    assert!(accepted.load(Ordering::SeqCst) > lengths.len());
}
