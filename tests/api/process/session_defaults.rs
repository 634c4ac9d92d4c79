//! What a role, a database or a server has for defaults must not weaken the promise.

use std::{
    io::{Read, Seek},
    os::unix::{fs::MetadataExt, process::CommandExt},
    process::Child,
    sync::atomic::{AtomicUsize, Ordering},
};

use charge_once::{
    cli::api_key::ensure_dev_key,
    database::{self, embedded},
};
use charge_once_postgres::embedded::EmbeddedPostgres;
use sqlx::{Connection, postgres::PgConnectOptions};
use tempfile::NamedTempFile;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, UnixStream},
};

use crate::support::{
    prelude::*,
    program::{Run, signal},
};

#[tokio::test]
async fn sessions_are_pinned_against_the_defaults_of_the_database() {
    let database = TestDatabase::create().await;
    let careless = r#"
        DO $$ BEGIN EXECUTE format(
            'ALTER DATABASE %1$I SET synchronous_commit = off;
             ALTER DATABASE %1$I SET default_transaction_isolation = "repeatable read";
             ALTER DATABASE %1$I SET default_transaction_read_only = on;
             ALTER DATABASE %1$I SET bytea_output = escape;
             ALTER DATABASE %1$I SET statement_timeout = 0', current_database()); END $$
    "#;
    sqlx::raw_sql(careless)
        .execute(&database.pool)
        .await
        .unwrap();
    let connected = database::connect(&database.url, &config(&[]))
        .await
        .unwrap();
    let expected = [
        ("synchronous_commit", "on"),
        ("search_path", "public"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("statement_timeout", "3s"),
        ("lock_timeout", "1s"),
        ("bytea_output", "hex"),
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

/// A private PostgreSQL as the database of a test, with an account. It runs until it is stopped.
async fn database_in(folder: &Path) -> (TestDatabase, EmbeddedPostgres, PathBuf) {
    let (postgres, program) = start_in(folder).await;
    let url = postgres.url();
    let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
    let database = TestDatabase::elsewhere(url, pool);
    let migrated = database.connect(&[]).await;
    ensure_dev_key(&migrated, API_KEY).await.unwrap();
    migrated.pool().close().await;
    (database, postgres, program)
}

/// A write without a key, of what does not exist.
async fn delete(client: &Client) -> Answer {
    let path = format!("/webhook_endpoints/we_{}", "0".repeat(26));
    Answer::of(client.request(Method::DELETE, &path)).await
}

/// The lines of a log that are about a request, but its last one.
fn troubles_of(log: &mut NamedTempFile, request: &Answer) -> Vec<String> {
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    let id = request.header("request-id").unwrap();
    let about = text
        .lines()
        .filter(|line| line.contains(id) && !line.contains("answered"));
    about.map(str::to_owned).collect()
}

#[tokio::test]
async fn what_a_standby_can_not_do_is_503_and_is_done_once_when_it_is_promoted() {
    let folder = scratch();
    let (database, postgres, program) = database_in(folder.path()).await;
    let mut log = NamedTempFile::new().unwrap();
    let server =
        ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &[("RUST_LOG", "info")]);
    let client = &server.client;
    let before = client.charge("before").await;
    assert_eq!(before.status, 201);
    postgres.stop().await.unwrap();

    std::fs::write(folder.path().join("pgdata/standby.signal"), "").unwrap();
    let mut standby = start_again(folder.path(), &program, "hot_standby=on");
    let told = || async { client.get("/readyz").await };
    eventually("readiness says that it is a standby", || async {
        String::from_utf8_lossy(&told().await.body).contains("is a standby")
    })
    .await;
    // A charge, which shares a transaction, and a request that has one of its own.
    let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
    let update = format!("/charges/{}", before.id());
    for _ in 0..5 {
        for refused in [
            client.charge("key-1").await,
            client
                .post(&update, "key-2", &json!({"description": "x"}))
                .await,
            client.post("/webhook_endpoints", "key-3", &endpoint).await,
            delete(client).await,
        ] {
            assert_eq!(error(&refused), (503, "service_unavailable".to_owned()));
            assert_eq!(refused.header("retry-after"), Some("1"));
            assert_eq!(refused.header("stripe-should-retry"), Some("true"));
            let lines = troubles_of(&mut log, &refused);
            assert!(lines.len() == 1 && lines[0].contains("WARN"), "{lines:#?}");
        }
    }
    assert_eq!(client.get(&update).await.status, 200);

    let promoted = sqlx::query_scalar("SELECT pg_promote()");
    let promoted: bool = promoted.fetch_one(&database.pool).await.unwrap();
    assert!(promoted);
    eventually("the charge is made", || async {
        client.charge("key-1").await.status == 201
    })
    .await;
    assert!(client.charge("key-1").await.is_replay());
    assert_eq!(database.charges().await, 2);
    // It looks once a second.
    eventually("readiness says that all is well", || async {
        told().await.status == 200
    })
    .await;
    signal(&standby, Signal::SIGINT);
    standby.wait().unwrap();
}

#[tokio::test]
async fn a_server_that_begins_to_forget_is_written_to_again_when_it_keeps_what_it_is_told() {
    for setting in ["fsync", "full_page_writes"] {
        let folder = scratch();
        let (database, postgres, program) = database_in(folder.path()).await;
        postgres.stop().await.unwrap();
        let mut postgres = start_again(folder.path(), &program, "max_connections=50");
        eventually("the server answers", || async {
            database.pool.acquire().await.is_ok()
        })
        .await;
        let server = TestServer::start_on(database, &[]).await;
        let (client, database) = (&server.client, &server.database);
        let set = async |to: &str| {
            for sql in [
                format!("ALTER SYSTEM SET {setting} = {to}"),
                "SELECT pg_reload_conf()".to_owned(),
            ] {
                let sql = sqlx::AssertSqlSafe(sql);
                sqlx::raw_sql(sql).execute(&database.pool).await.unwrap();
            }
        };
        assert_eq!(client.charge("before").await.status, 201);
        set("off").await;
        // A session reads the settings again before its next statement, or a moment later.
        let attempts = AtomicUsize::new(0);
        eventually("a charge is refused", || async {
            let key = format!("key-1-{}", attempts.fetch_add(1, Ordering::Relaxed));
            client.charge(&key).await.status == 503
        })
        .await;
        let charges = database.charges().await;
        let refused = client.charge("key-2").await;
        assert_eq!(error(&refused), (503, "service_unavailable".to_owned()));
        assert_eq!(delete(client).await.status, 503);
        // A probe may have looked just before.
        eventually("readiness says so", || async {
            let answer = client.get("/readyz").await;
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            answer.status == 503 && told.contains("may lose what it acknowledged")
        })
        .await;
        assert_eq!(database.charges().await, charges);

        set("on").await;
        eventually("the charge is made", || async {
            client.charge("key-2").await.status == 201
        })
        .await;
        assert_eq!(database.charges().await, charges + 1);
        eventually("the server is ready again", || async {
            client.get("/readyz").await.status == 200
        })
        .await;
        server.stop().await;
        signal(&postgres, Signal::SIGINT);
        postgres.wait().unwrap();
    }
}

#[tokio::test]
async fn a_standby_is_named_by_readiness_and_refused_at_the_start() {
    let folder = scratch();
    let (postgres, program) = start_in(folder.path()).await;
    let url = postgres.url();
    let pool = sqlx::PgPool::connect_lazy(&url).unwrap();
    let server = TestServer::start_on(TestDatabase::elsewhere(url, pool), &[]).await;
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
    let refused = database::connect(&server.database.url, &config(&[])).await;
    let message = refused.expect_err("the start is refused").to_string();
    assert!(
        message.contains("Set DATABASE_URL to the primary"),
        "{message}"
    );
    let variables = [("DATABASE_URL", &*server.database.url)];
    let looked = Run::of(run(&["check", "--server"], &variables));
    assert_eq!(looked.code, Some(1), "{looked:?}");
    assert!(looked.stdout.contains("not ok   recovery: a standby\n"));
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
        let refused = database::connect(&url, &config(&[])).await;
        let looked = Run::of(run(&["check", "--server"], &[("DATABASE_URL", &url)]));
        signal(&forgetful, Signal::SIGINT);
        forgetful.wait().unwrap();
        let message = refused.expect_err("the start is refused").to_string();
        assert!(message.contains(careless), "{message}");
        let remedy = format!("Set {} on the server", careless.replace("off", "on"));
        assert!(message.contains(&remedy), "{message}");
        let line = format!(
            "not ok   {}\n         {message}\n",
            careless.replace('=', ": ")
        );
        assert_eq!(looked.code, Some(1), "{looked:?}");
        assert!(looked.stdout.contains(&line), "{line}{}", looked.stdout);
    }
}

/// A session that follows the log, as a standby's does.
#[tokio::test]
async fn a_standby_that_no_commit_waits_for_is_advised_against() {
    let folder = scratch();
    let (postgres, program) = start_in(folder.path()).await;
    let url = postgres.url();
    postgres.stop().await.unwrap();
    for (setting, line) in [
        (
            "synchronous_standby_names=",
            "advice   synchronous_standby_names: \"\", with 1 standbys connected\n",
        ),
        (
            "synchronous_standby_names=*",
            "ok       synchronous_standby_names: \"*\", with 1 standbys connected\n",
        ),
    ] {
        let mut server = start_again(folder.path(), &program, setting);
        eventually("the server answers", || async {
            sqlx::PgConnection::connect(&url).await.is_ok()
        })
        .await;
        let mut follower = Command::new(program.with_file_name("pg_receivewal"))
            .args(["--no-loop", "--directory"])
            .arg(folder.path())
            .args(["--dbname", &url])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually(line, || async {
            let looked = Run::of(run(&["check", "--server"], &[("DATABASE_URL", &url)]));
            looked.stdout.contains(line)
        })
        .await;
        signal(&follower, Signal::SIGINT);
        follower.wait().unwrap();
        signal(&server, Signal::SIGINT);
        server.wait().unwrap();
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
    database::connect(&url, &config(&[])).await.unwrap();
    assert!(accepted.load(Ordering::SeqCst) > lengths.len());
}

/// Other programs have all that PostgreSQL allows, and give some back.
#[tokio::test]
async fn a_start_waits_until_a_connection_is_free() {
    let database = TestDatabase::create().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let socket = options.get_socket().unwrap();
    let socket = socket.join(format!(".s.PGSQL.{}", options.get_port()));
    let (port, accepted) = flaky_network(socket, &[]).await;
    let name = options.get_database().unwrap();
    let role = format!("crowded_out_{name}");
    let alter = async |statement: String| {
        let statement = AssertSqlSafe(statement);
        sqlx::raw_sql(statement)
            .execute(&database.pool)
            .await
            .unwrap();
    };
    alter(format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 0; GRANT charge_once TO {role}"
    ))
    .await;
    let url = format!("postgres://{role}@127.0.0.1:{port}/{name}?sslmode=disable");
    let settings = config(&[]);
    let (started, ()) = tokio::join!(database::connect(&url, &settings), async {
        eventually("it tries again", || async {
            accepted.load(Ordering::SeqCst) > 1
        })
        .await;
        alter(format!("ALTER ROLE {role} CONNECTION LIMIT 50")).await;
    });
    started.unwrap().pool().close().await;
    alter(format!("DROP ROLE {role}")).await;
}
