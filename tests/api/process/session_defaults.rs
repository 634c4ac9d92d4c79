//! What a role, a database or a server has for defaults must not weaken the promise.

use charge_once::database::{self, embedded};
use tokio::net::{TcpListener, UnixStream};

use super::server_check::look;
use crate::support::prelude::*;

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
    database.execute(careless).await;
    let connected = database.connect(&[]).await;
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
        let actual = sqlx::query_scalar::<_, String>("SELECT current_setting($1)").bind(name);
        let actual = actual.fetch_one(connected.pool()).await.unwrap();
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

fn start_again(folder: &Path, program: &Path, setting: &str) -> Child {
    let data = folder.join("pgdata");
    let owner = std::fs::metadata(&data).unwrap();
    let sockets = format!("unix_socket_directories={}/run", folder.display());
    Command::new(program)
        .uid(owner.uid())
        .gid(owner.gid())
        .arg("-D")
        .arg(&data)
        .args(["-c", setting, "-c", "listen_addresses=", "-c", &sockets])
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn ends(mut postgres: Child) {
    signal(&postgres, Signal::SIGINT);
    postgres.wait().unwrap();
}

async fn accepts_connections(url: &str) {
    let answers = async || sqlx::PgConnection::connect(url).await.is_ok();
    eventually("the server answers", answers).await;
}

async fn is_unready(client: &Client, part: &str) -> bool {
    let answer = client.get("/readyz").await;
    answer.status == 503 && String::from_utf8_lossy(&answer.body).contains(part)
}

/// A private PostgreSQL as the database of a test, with an account. It runs until it is stopped.
pub async fn database_in(folder: &Path) -> (TestDatabase, EmbeddedPostgres, PathBuf) {
    let (postgres, program) = start_in(folder).await;
    let database = TestDatabase::in_private(&postgres).await;
    (database, postgres, program)
}

/// A write without a key, of what does not exist.
async fn delete(client: &Client) -> Answer {
    let path = format!("/webhook_endpoints/we_{}", "0".repeat(26));
    Answer::of(client.request(Method::DELETE, &path)).await
}

/// The lines of a log that are about a request, but its last one.
fn troubles_of(log: &NamedTempFile, request: &Answer) -> Vec<String> {
    let text = text_of(log);
    let id = request.header("request-id").unwrap();
    let is_trouble = |line: &&str| line.contains(id) && !line.contains("answered");
    text.lines().filter(is_trouble).map(str::to_owned).collect()
}

#[tokio::test]
async fn what_a_standby_can_not_do_is_503_and_is_done_once_when_it_is_promoted() {
    let folder = scratch();
    let (database, postgres, program) = database_in(folder.path()).await;
    let (server, log) = start_with_log(&database, &[("RUST_LOG", "info")]);
    let client = &server.client;
    let before = client.charge("before").await;
    assert_eq!(before.status, 201);
    assert_eq!(client.get("/readyz").await.status, 200);
    postgres.stop().await.unwrap();

    std::fs::write(folder.path().join("pgdata/standby.signal"), "").unwrap();
    let standby = start_again(folder.path(), &program, "hot_standby=on");
    let is_standby = async || is_unready(client, "The database is a standby").await;
    eventually("readiness says that it is a standby", is_standby).await;
    let refused = database::connect(&database.url, &config(&[])).await;
    let told = refused.expect_err("a start is refused").to_string();
    assert_has(&told, "Set DATABASE_URL to the primary");
    let looked = look(&database.url);
    assert_eq!(looked.code, Some(1), "{looked:?}");
    assert_has(&looked.stdout, "not ok   recovery: a standby\n");
    // A charge, which shares a transaction, and a request that has one of its own.
    let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
    let update = format!("/charges/{}", before.id());
    let words = json!({"description": "x"});
    for _ in 0..5 {
        for refused in [
            client.charge("key-1").await,
            client.post(&update, "key-2", &words).await,
            client.post("/webhook_endpoints", "key-3", &endpoint).await,
            delete(client).await,
        ] {
            assert_eq!(error(&refused), (503, "service_unavailable".to_owned()));
            assert_eq!(refused.header("retry-after"), Some("1"));
            assert_eq!(refused.header("stripe-should-retry"), Some("true"));
            let lines = troubles_of(&log, &refused);
            assert!(lines.len() == 1 && lines[0].contains("WARN"), "{lines:#?}");
        }
    }
    assert_eq!(client.get(&update).await.status, 200);

    assert!(database.value::<bool>("SELECT pg_promote()").await);
    let is_made = async || client.charge("key-1").await.status == 201;
    eventually("the charge is made", is_made).await;
    assert!(client.charge("key-1").await.is_replay());
    assert_eq!(database.charges().await, 2);
    // It looks once a second.
    let is_well = async || client.get("/readyz").await.status == 200;
    eventually("readiness says that all is well", is_well).await;
    ends(standby);
}

#[tokio::test]
async fn a_server_that_begins_to_forget_is_written_to_again_when_it_keeps_what_it_is_told() {
    for setting in ["fsync", "full_page_writes"] {
        let folder = scratch();
        let (database, postgres, program) = database_in(folder.path()).await;
        postgres.stop().await.unwrap();
        let postgres = start_again(folder.path(), &program, "max_connections=50");
        accepts_connections(&database.url).await;
        let server = TestServer::start_on(database, &[]).await;
        let (client, database) = (&server.client, &server.database);
        let set = async |to: &str| {
            let set = format!("ALTER SYSTEM SET {setting} = {to}");
            database.execute(set).await;
            database.execute("SELECT pg_reload_conf()").await;
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
        let is_told = async || is_unready(client, "may lose what it acknowledged").await;
        eventually("readiness says so", is_told).await;
        assert_eq!(database.charges().await, charges);

        set("on").await;
        let is_made = async || client.charge("key-2").await.status == 201;
        eventually("the charge is made", is_made).await;
        assert_eq!(database.charges().await, charges + 1);
        let is_ready = async || client.get("/readyz").await.status == 200;
        eventually("the server is ready again", is_ready).await;
        server.stop().await;
        ends(postgres);
    }
}

#[tokio::test]
async fn a_server_that_forgets_what_it_acknowledged_is_refused_at_the_start() {
    let folder = scratch();
    let (postgres, program) = start_in(folder.path()).await;
    let url = postgres.url();
    postgres.stop().await.unwrap();

    // Servers that don't wait for the disk, or don't repair torn pages, start on that data.
    for careless in ["fsync=off", "full_page_writes=off"] {
        let forgetful = start_again(folder.path(), &program, careless);
        accepts_connections(&url).await;
        let refused = database::connect(&url, &config(&[])).await;
        let looked = look(&url);
        ends(forgetful);
        let message = refused.expect_err("the start is refused").to_string();
        assert!(message.contains(careless), "{message}");
        let remedy = format!("Set {} on the server", careless.replace("off", "on"));
        assert!(message.contains(&remedy), "{message}");
        let setting = careless.replace('=', ": ");
        let line = format!("not ok   {setting}\n         {message}\n");
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
    for (names, verdict) in [("", "advice   "), ("*", "ok       ")] {
        let name = "synchronous_standby_names";
        let line = format!("{verdict}{name}: \"{names}\", with 1 standbys connected\n");
        let server = start_again(folder.path(), &program, &format!("{name}={names}"));
        accepts_connections(&url).await;
        let follower = Command::new(program.with_file_name("pg_receivewal"))
            .args(["--no-loop", "--directory"])
            .arg(folder.path())
            .args(["--dbname", &url])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_told = async || look(&url).stdout.contains(&line);
        eventually(&line, is_told).await;
        ends(follower);
        ends(server);
    }
}

/// A network that cuts the first connections after so many bytes of PostgreSQL's, and no later one:
/// its port, the name of the database behind it, and how many connections there were.
async fn flaky_network(
    database: &TestDatabase,
    lengths: &'static [u64],
) -> (u16, String, Arc<AtomicUsize>) {
    let options: PgConnectOptions = database.url.parse().unwrap();
    let socket = options.get_socket().unwrap();
    let socket = socket.join(format!(".s.PGSQL.{}", options.get_port()));
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
    (port, options.get_database().unwrap().to_owned(), accepted)
}

#[tokio::test]
async fn a_start_outlives_connections_that_break() {
    let database = TestDatabase::create().await;
    // In the handshake, among the settings, and in the look at the schema.
    let lengths = &[0, 1, 300, 600, 700, 900];
    let (port, name, accepted) = flaky_network(&database, lengths).await;
    let url = format!("postgres://charge_once@127.0.0.1:{port}/{name}?sslmode=disable");
    database::connect(&url, &config(&[])).await.unwrap();
    assert!(accepted.load(Ordering::SeqCst) > lengths.len());
}

/// Other programs have all that PostgreSQL allows, and give some back.
#[tokio::test]
async fn a_start_waits_until_a_connection_is_free() {
    let database = TestDatabase::create().await;
    let (port, name, accepted) = flaky_network(&database, &[]).await;
    let role = format!("crowded_out_{name}");
    let alter = |statement: String| database.execute(statement);
    alter(format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")).await;
    alter(format!("GRANT charge_once TO {role}")).await;
    let url = format!("postgres://{role}@127.0.0.1:{port}/{name}?sslmode=disable");
    let settings = config(&[]);
    let (started, ()) = tokio::join!(database::connect(&url, &settings), async {
        let tries_again = async || accepted.load(Ordering::SeqCst) > 1;
        eventually("it tries again", tries_again).await;
        alter(format!("ALTER ROLE {role} CONNECTION LIMIT 50")).await;
    });
    started.unwrap().pool().close().await;
    alter(format!("DROP ROLE {role}")).await;
}
