//! The program: command line, environment, signals, and PostgreSQL of its own.

use std::io::Write;

use nix::{sys::signal::kill, unistd::Pid};
use tokio::net::TcpListener;

use crate::support::{prelude::*, program::postgres_runs};

#[test]
fn a_bad_value_stops_the_start_and_names_its_variable() {
    for (name, value) in [
        ("BIND_ADDRESS", "localhost"),
        ("DATABASE_URL", "mysql://secret@host/db"),
        ("DEV_API_KEY", "secret"),
        ("IDEMPOTENCY_TTL", "59s"),
        ("IDEMPOTENCY_TTL_BY_ROUTE", "POST /refund=7d"),
        ("POOL_CONNECTIONS", "1"),
        ("STATEMENT_TIMEOUT", "900ms"),
        ("DATABASE_DEADLINE", "2s"),
        ("REQUEST_TIMEOUT", "6s"),
        ("BODY_LIMIT", "64KiB"),
        ("RATE_LIMIT", "10/s"),
        ("MIGRATE_ON_START", "perhaps"),
        ("PG_BIN_DIR", "/nowhere"),
    ] {
        let folder = scratch();
        let data_dir = data_dir(&folder);
        let variables = [ANY_PORT, ("DATA_DIR", &*data_dir), (name, value)];
        let output = run(&[], &variables);
        let complaint = text(&output.stderr);
        assert!(!output.status.success(), "{name}={value}");
        assert!(complaint.contains(name), "{name}={value}: {complaint}");
        // It doesn't show the value.
        assert!(!complaint.contains("secret"), "{complaint}");
    }
}

#[test]
fn the_printed_openapi_document_is_the_committed_one() {
    let committed = include_str!("../../../openapi/openapi.json").trim_end();
    assert_eq!(printed_by(&["openapi"], &[]).trim_end(), committed);
}

#[tokio::test]
async fn sigterm_lets_the_request_in_flight_finish_and_ends_with_exit_code_0() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Executing, &database, "key-1").await;
    let variables = [PATIENT, &[("WORKERS", "1")]].concat();
    let mut server = ServerProcess::start(&database, &variables);
    let first = server.client.charging("key-1");
    pause.is_reached().await;
    // A duplicate that would wait for a long time. The only worker has read it when it has
    // answered a request that was sent after it.
    let mut waiting = send_charge(&server.client, "key-1", "Prefer: wait=30\r\n").await;
    for _ in 0..3 {
        assert_eq!(server.client.get("/livez").await.status, 200);
    }

    signal(&server.child, Signal::SIGTERM);
    let stops = async || server.client.get("/readyz").await.status == 503;
    eventually("the replica says that it stops", stops).await;
    let mut status = [0; 12];
    waiting.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 409", "the wait is ended");
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(exit_code(&mut server.child).await, Some(0));
    one_charge_and_its_record(&database).await;
}

/// A database that accepts connections and never answers.
#[tokio::test]
async fn sigterm_while_connecting_ends_a_server_with_exit_code_0_and_a_command_with_1() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://nobody@127.0.0.1:{port}/nothing?sslmode=disable");
    let stopped = "charge-once: stopped before it was done\n";
    for (command, code, complaint) in [("serve", 0, ""), ("migrate", 1, stopped)] {
        let variables = [("DATABASE_URL", &*url), ANY_PORT];
        let mut process = program(&[command], &variables)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let connected = tokio::time::timeout(PATIENCE, silent.accept()).await;
        let (_connection, _) = connected.expect("it connects").unwrap();
        signal(&process, Signal::SIGTERM);
        assert_eq!(exit_code(&mut process).await, Some(code), "{command}");
        let mut said = String::new();
        process.stderr.unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, complaint, "{command}");
    }
}

#[tokio::test]
async fn an_api_key_is_shown_once_and_stops_working_within_seconds_of_its_revocation() {
    let database = TestDatabase::create_unsharded().await;
    let created = database.printed_by("api-key create --account shop");
    let key = created.lines().next().unwrap();
    let server = ServerProcess::start(&database, &[]);
    let client = server.client.with_api_key(key);
    assert_eq!(client.charge("key-1").await.status, 201);

    let list = database.printed_by("api-key list");
    list.must_have(&["shop", &key[key.len() - 4..]]);
    list.must_lack(&[key, API_KEY]);
    let list = database.printed_by("api-key list --json");
    let list: Value = serde_json::from_str(&list).unwrap();
    let of_shop = |key: &&Value| key["account"] == "shop";
    let listed = list["api_keys"].as_array().unwrap().iter().find(of_shop);
    let listed = ["last4", "revoked_at"].map(|name| &listed.unwrap()[name]);
    assert_eq!(json!(listed), json!([key[key.len() - 4..], null]));
    assert!(!list.to_string().contains(key), "{list}");

    let mut revoke = program(&["api-key", "revoke"], &[("DATABASE_URL", &database.url)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(revoke.stdin.take().unwrap(), "{key}").unwrap();
    assert!(revoke.wait().unwrap().success());
    let revoked = std::time::Instant::now();
    let is_refused = async || client.get("/charges").await.status == 401;
    eventually("the key stops working", is_refused).await;
    assert!(revoked.elapsed().as_secs() <= 5, "{:?}", revoked.elapsed());
    assert_eq!(client.charge("key-2").await.status, 401);
    one_charge_and_its_record(&database).await;
}

#[tokio::test]
async fn sweep_prints_what_it_removed() {
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[]);
    for key in ["key-1", "key-2", "key-3"] {
        assert_eq!(server.client.charge(key).await.status, 201);
    }
    // Its own sweep, which it begins at once, must find nothing to remove.
    server.kill();
    let age = "UPDATE idempotency_keys SET created_at = now() - interval '2 days',
                      expires_at = now() - interval '1 day'
                WHERE key <> 'key-3';
               INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us,
                      created_at)
               SELECT account_id, '00000000-0000-7000-8000-000000000001', 'GET', '/charges', 200,
                      'read', 1, now() - interval '25 hours'
                 FROM charges LIMIT 1";
    database.execute(age).await;
    for (keys, requests) in [(2, 1), (0, 0)] {
        let printed = database.printed_by("sweep");
        let expected = format!(
            "Removed {keys} expired idempotency keys.\n\
             Removed 0 events, 0 operations and {requests} logged requests that are older than they are kept.\n"
        );
        assert_eq!(printed, expected);
    }
    assert_eq!((database.charges().await, database.records().await), (3, 1));
}

#[tokio::test]
async fn healthcheck_ends_with_0_where_a_server_is_ready_and_with_1_where_none_is() {
    let database = TestDatabase::create().await;
    let address = lasting_address();
    let variables = [("BIND_ADDRESS", address.as_str())];
    let server = ServerProcess::start(&database, &variables);
    assert_eq!(run(&["healthcheck"], &variables).status.code(), Some(0));
    server.kill();
    let complaint = complaint_of(&["healthcheck"], &variables, 1);
    assert_has(&complaint, &format!("no server answers at {address}"));
}

#[tokio::test]
async fn two_processes_that_migrate_at_the_same_time_both_succeed() {
    let database = TestDatabase::create().await;
    let empty = "DROP SCHEMA public CASCADE; CREATE SCHEMA public";
    database.execute(empty).await;
    let variables = [("DATABASE_URL", database.url.as_str())];
    let mut migrations = [0; 2].map(|_| {
        let mut migrate = program(&["migrate"], &variables);
        migrate.stdout(Stdio::null()).spawn().unwrap()
    });
    for migration in &mut migrations {
        assert!(migration.wait().unwrap().success());
    }
    let done = "SELECT count(*) FROM _sqlx_migrations WHERE success";
    assert!(database.count(done).await > 0);
    assert_eq!(database.charges().await, 0);
}

/// The process that `postmaster.pid` names, once it is written.
fn postmaster(data_dir: &str) -> Option<Pid> {
    let file = Path::new(data_dir).join("pgdata/postmaster.pid");
    let content = std::fs::read_to_string(file).ok()?;
    content.lines().next()?.parse().ok().map(Pid::from_raw)
}

#[tokio::test]
async fn a_private_postgres_that_dies_is_started_again_and_stopped_in_the_end() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let (mut server, _) = start_embedded(&data_dir);
    let original = server.client.charge("key-1").await;
    let killed = postmaster(&data_dir).unwrap();
    kill(killed, Signal::SIGKILL).unwrap();
    let starts = async || postmaster(&data_dir).is_some_and(|pid| pid != killed);
    eventually("another PostgreSQL starts", starts).await;
    let replay = server.client.charge_until_definite("key-1").await;
    replay.assert_replays(&original);
    let charged = server.client.charge_until_definite("key-2").await;
    assert_eq!((charged.status.as_u16(), charged.is_replay()), (201, false));
    stops(&mut server.child, Signal::SIGTERM).await;
    assert!(!postgres_runs(&data_dir), "the second one is stopped");
}

#[tokio::test]
async fn without_a_database_url_it_brings_its_own_and_survives_kill_9() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let (server, banner) = start_embedded(&data_dir);
    let curl = banner.lines().last().unwrap();
    // A key of one's own is a secret.
    assert!(!banner.contains(API_KEY), "{banner}");
    let mut pasted = Command::new("sh");
    pasted.args(["-c", curl]).env("DEV_API_KEY", API_KEY);
    let first = text(&pasted.output().unwrap().stdout);
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    assert!(!first.to_lowercase().contains("idempotent-replayed"));
    let original = server.client.charge("key-1").await;
    assert_eq!(original.status, 201);

    // A second process on the same folder uses the first one's PostgreSQL, and leaves it running.
    let (mut second, _) = start_embedded(&data_dir);
    let replay = second.client.charge("key-1").await;
    replay.assert_replays(&original);
    stops(&mut second.child, Signal::SIGINT).await;
    assert_eq!(server.client.get("/readyz").await.status, 200);

    server.kill();
    let (mut server, _) = start_embedded(&data_dir);
    let replay = server.client.charge("key-1").await;
    replay.assert_replays(&original);
    let list = server.client.get("/charges").await.json();
    // One by curl, one by key-1.
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    assert!(postgres_runs(&data_dir));
    stops(&mut server.child, Signal::SIGINT).await;
    assert!(!postgres_runs(&data_dir), "PostgreSQL is stopped too");

    // The commands find what the server has left.
    let variables = [("DATA_DIR", data_dir.as_str())];
    assert!(printed_by(&["api-key", "list"], &variables).contains("dev"));
    assert!(!postgres_runs(&data_dir), "it was started for the command");
}

/// The processor's data is not the API's, in whatever folder both were started.
#[tokio::test]
async fn the_processor_brings_a_postgresql_of_its_own_and_stops_it() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let variables = [
        ("PROCESSOR_BIND_ADDRESS", "127.0.0.1:0"),
        ("PROCESSOR_DATA_DIR", data_dir.as_str()),
        ("DATABASE_URL", "postgres://nobody@127.0.0.1:1/the_api_s"),
    ];
    let mut processor = program(&["processor"], &variables);
    let mut child = processor.stdout(Stdio::piped()).spawn().unwrap();
    let mut banner = String::new();
    let mut printed = BufReader::new(child.stdout.as_mut().unwrap());
    printed.read_line(&mut banner).unwrap();
    let url = banner.trim().rsplit(' ').next().unwrap();
    let address = url.strip_prefix("http://").unwrap();
    let healthy = |address: &str| {
        let variables = [("PROCESSOR_BIND_ADDRESS", address)];
        let looked = run(&["healthcheck", "--processor"], &variables);
        looked.status.code()
    };
    assert_eq!(healthy(address), Some(0));
    assert!(postgres_runs(&data_dir));
    let mut server = ServerProcess::of(Client::new(address.parse().unwrap()), child);
    stops(&mut server.child, Signal::SIGTERM).await;
    assert!(!postgres_runs(&data_dir), "PostgreSQL is stopped too");
    assert_eq!(healthy(address), Some(1));
}

/// Runs the one command of docs/operations.md that begins with `program`, on this data.
fn run_documented(program: &str, data_dir: &str) {
    let mut lines = include_str!("../../../docs/operations.md").lines();
    let begins = format!("{program} ");
    let command = lines.find(|line| line.starts_with(&begins)).unwrap();
    let here = "$PWD/.charge-once";
    assert!(command.contains(here), "{command}");
    let postgres = Command::new("scripts/postgres-bin-dir").output().unwrap();
    let path = format!("{}:/usr/bin:/bin", text(&postgres.stdout).trim());
    let output = Command::new("sh")
        .args(["-c", &command.replace(here, data_dir)])
        .current_dir(Path::new(data_dir).parent().unwrap())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[tokio::test]
async fn a_backup_of_the_private_postgres_restores_charges_and_keys_as_documented() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let stop = async |mut server: ServerProcess| stops(&mut server.child, Signal::SIGTERM).await;
    let (server, _) = start_embedded(&data_dir);
    let original = server.client.charge("key-1").await;
    run_documented("pg_dump", &data_dir);
    assert_eq!(server.client.charge("key-2").await.status, 201);
    stop(server).await;
    std::fs::remove_dir_all(&data_dir).unwrap();

    let (server, _) = start_embedded(&data_dir);
    run_documented("pg_restore", &data_dir);
    stop(server).await;

    let (server, _) = start_embedded(&data_dir);
    let replay = server.client.charge("key-1").await;
    replay.assert_replays(&original);
    let after_the_backup = server.client.charge("key-2").await;
    assert!(!after_the_backup.is_replay(), "the backup doesn't know it");
    stop(server).await;
}
