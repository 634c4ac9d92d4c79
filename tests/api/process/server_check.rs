//! `charge-once check --server`: what the server must have, and what it had better have.

use tokio::net::TcpListener;

use crate::support::prelude::*;

pub fn look(url: &str) -> Run {
    Run::of(run(&["check", "--server"], &[("DATABASE_URL", url)]))
}

#[tokio::test]
async fn each_role_learns_what_a_server_would_have_with_it() {
    let database = TestDatabase::create().await;
    apply_roles(&database.url, &[]);
    let of_the_server = look(&as_role(&database.url, "charge_once_app")).succeeded();
    of_the_server.must_have(&[
        "ok       sessions: one for each connection\n",
        "ok       recovery: the primary\n",
        "ok       fsync: on\n",
        "ok       full_page_writes: on\n",
        "ok       synchronous_commit: on\n",
        "ok       default_transaction_isolation: read committed\n",
        "ok       statement_timeout: 3s\n",
        "ok       lock_timeout: 1s\n",
        "ok       idle_in_transaction_session_timeout: 6s\n",
        "ok       search_path: public\n",
        // 300 connections, of which three are a superuser's.
        "ok       max_connections: 297 for this role, which is enough for 16 processes\n",
        "ok       tls: off, within this machine\n",
        "ok       schema: current\n",
        "ok       rights: to rows only\n",
        "unknown  synchronous_standby_names: \"\", with 0 standbys connected\n",
    ]);
    assert!(of_the_server.ends_with("The server has all that charge-once must have.\n"));

    let owner = look(&database.url).succeeded();
    assert_has(&owner, "advice   rights: those of a superuser\n");

    let reader = look(&as_role(&database.url, "charge_once_reader"));
    assert_eq!(reader.code, Some(1), "{reader:?}");
    reader.stdout.must_have(&[
        "not ok   rights: ",
        "INSERT on charges",
        "run deploy/postgres/roles.sql again",
    ]);

    let variables = [
        ("DATABASE_URL", &*database.url),
        ("POOL_CONNECTIONS", "200"),
    ];
    let printed = printed_by(&["check", "--server", "--json"], &variables);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["fit"], true);
    let settings = printed["settings"].as_array().unwrap();
    let page = read("docs/deployment.md");
    let mut blocks = blocks(&page).into_iter();
    let shown = blocks.find(|(_, text)| text.starts_with("ok       sessions: "));
    let (_, shown) = shown.unwrap();
    let is_setting = |line: &&str| !line.starts_with("  ") && !line.starts_with("The ");
    let shown = shown.lines().filter(is_setting);
    let shown = shown.map(|line| line[9..].split(':').next().unwrap());
    let names = settings.iter().map(|one| one["setting"].as_str().unwrap());
    assert_eq!(shown.collect::<Vec<_>>(), names.collect::<Vec<_>>());
    let mut settings = settings.iter();
    let room = settings.find(|one| one["setting"] == "max_connections");
    let room = room.unwrap();
    assert_eq!(room["verdict"], "advice");
    assert_has(room["remedy"].as_str().unwrap(), "take 624");
}

/// They are pinned where connections are PostgreSQL's own, and not behind a pooler that drops what
/// connections ask for.
#[tokio::test]
async fn weaker_defaults_are_advised_against_and_refused_where_they_are_not_pinned() {
    let database = TestDatabase::create().await;
    for weak in [
        "synchronous_commit = off",
        "default_transaction_isolation = 'repeatable read'",
    ] {
        database.set_default(weak).await;
    }
    let pinned = look(&database.url).succeeded();
    pinned.must_have(&[
        "advice   synchronous_commit: on\n         other sessions of this role, such as those of psql, have off: \
         ALTER ROLE \"charge_once\" SET synchronous_commit = 'on';\n",
        "advice   default_transaction_isolation: read committed\n",
    ]);

    let Some(pooler) = PgBouncer::start(&database, "session", IGNORES_OPTIONS).await else {
        return;
    };
    let dropped = look(&pooler.url);
    assert_eq!(dropped.code, Some(1), "{dropped:?}");
    dropped.stdout.must_have(&[
        "not ok   synchronous_commit: off\n",
        "not ok   default_transaction_isolation: repeatable read\n",
        "not ok   statement_timeout: 0\n",
        "5 of 19 must be changed.\n",
    ]);

    let Some(pooler) = PgBouncer::start(&database, "transaction", IGNORES_OPTIONS).await else {
        return;
    };
    let shared = look(&pooler.url);
    assert_eq!(shared.code, Some(1), "{shared:?}");
    let expected = "not ok   sessions: shared by a connection pooler\n";
    assert!(shared.stdout.starts_with(expected), "{shared:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_known() {
    let database = TestDatabase::create_empty().await;
    let nowhere = database.url.replace("test_", "nothing_");
    let told = look(&nowhere).failed(2);
    assert_has(&told, "nothing is known: ");
    // What PostgreSQL says, and not where its own source says so.
    assert_has(&told, "does not exist. Is DATABASE_URL right");
}

#[tokio::test]
async fn an_address_in_brackets_is_connected_to() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        return; // This machine has no IPv6.
    };
    let address = listener.local_addr().unwrap();
    let url = format!("postgres://charge_once@{address}/charge_once?sslmode=disable");
    let looking = tokio::task::spawn_blocking(move || look(&url));
    let (connection, _) = listener.accept().await.unwrap();
    drop((connection, listener));
    let told = looking.await.unwrap().failed(2);
    assert!(!told.contains("Name or service not known"), "{told}");
}

/// An init container of Kubernetes begins while a Job migrates.
#[tokio::test]
async fn with_wait_it_ends_when_all_is_as_it_must_be() {
    let database = TestDatabase::create_empty().await;
    let variables = [("DATABASE_URL", &*database.url)];
    let mut waiting = program(&["check", "--server", "--wait", "1m"], &variables)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let told = lines.next().unwrap().unwrap();
    assert_eq!(told, "charge-once: waiting for what is not ok: schema");
    assert!(waiting.try_wait().unwrap().is_none());
    printed_by(&["migrate"], &variables);
    assert_eq!(exit_code(&mut waiting).await, Some(0));

    let unready = TestDatabase::create_empty().await;
    let too_short = unready.command("check --server --wait 1s");
    assert_eq!(too_short.code, Some(1), "{too_short:?}");
    assert!(too_short.stdout.contains("not ok   schema: not current\n"));
}
