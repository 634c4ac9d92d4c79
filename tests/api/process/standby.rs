//! What a standby of the database must have before a client is told of it.

use super::session_defaults::database_in;
use crate::support::prelude::*;

/// Sets what COMMIT waits for.
async fn wait_for(standby: &str, database: &TestDatabase) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{standby}'");
    database.execute(set).await;
    database.execute("SELECT pg_reload_conf()").await;
}

/// Has each COMMIT wait for a standby that there isn't.
async fn wait_in_vain(database: &TestDatabase) {
    wait_for("absent", database).await;
    // Not every process of the server has read it yet.
    let pool = database.pool.clone();
    let probing = tokio::spawn(async move {
        let write = "SELECT pg_logical_emit_message(true, 'probe', '')";
        while sqlx::raw_sql(write).execute(&pool).await.is_ok() {}
    });
    let waits = async || database.count(WAITING).await > 0;
    eventually("a COMMIT waits", waits).await;
    end_waits("pg_terminate_backend", database, &probing).await;
}

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

const ENDS: [&str; 2] = ["pg_cancel_backend", "pg_terminate_backend"];

/// Ends all waits for the standby, until the task that waits has ended.
async fn end_waits<T>(how: &str, database: &TestDatabase, waiting: &JoinHandle<T>) {
    let end = format!(
        "SELECT count({how}(pid)) FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event = 'SyncRep'"
    );
    eventually("the wait has ended", || async {
        database.execute(&end).await;
        waiting.is_finished()
    })
    .await;
}

#[tokio::test]
async fn what_only_this_server_has_is_not_acknowledged_until_the_standby_has_it() {
    // Requests share transactions, or not, and replay from memory, or not.
    for variables in [&[][..], &[ALONE, FORGETFUL]] {
        // All databases of a server share its standby.
        let folder = scratch();
        let (database, postgres, _) = database_in(folder.path()).await;
        // As a role may have it, too.
        let hide_warnings = "ALTER DATABASE charge_once SET client_min_messages = error";
        database.execute(hide_warnings).await;
        let server = TestServer::start_on(database, variables).await;
        for how in ENDS {
            is_not_acknowledged(&server, how).await;
        }
        server.stop().await;
        postgres.stop().await.unwrap();
    }
}

async fn is_not_acknowledged(server: &TestServer, how: &str) {
    let (client, database) = (&server.client, &server.database);
    let before = database.charges().await;
    let first = client.charge(&format!("{how}-0")).await;
    assert_eq!(first.status, 201);
    let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
    let endpoint = client.post_new("/webhook_endpoints", &endpoint).await;
    let endpoint = format!("/webhook_endpoints/{}", endpoint.id());
    wait_in_vain(database).await;

    let update = format!("/charges/{}", first.id());
    // Of a batch, and with a transaction of its own.
    let requests: [(&str, String, Value); 2] = [
        ("/charges", format!("{how}-1"), charge()),
        (&update, format!("{how}-2"), json!({"description": "x"})),
    ];
    // The first attempt executes. The second finds what the first left behind.
    for attempt in 0..2 {
        for (path, key, body) in &requests {
            let sending = client.sending(path, key, body.clone());
            end_waits(how, database, &sending).await;
            let answer = sending.await.unwrap();
            assert_eq!(answer.status, 503, "{attempt}: {path}: {answer:?}");
        }
    }
    // A write without a key, and one that finds nothing to write. Then a look at each key.
    let delete = || client.request(Method::DELETE, &endpoint);
    let look = |key: &str| client.request(Method::GET, &format!("/idempotency-keys/{key}"));
    for request in [
        delete(),
        delete(),
        look(&requests[0].1),
        look(&requests[1].1),
    ] {
        let sending = tokio::spawn(Answer::of(request));
        end_waits(how, database, &sending).await;
        assert_eq!(sending.await.unwrap().status, 503);
    }
    assert_eq!(database.charges().await, before + 2);

    wait_for("", database).await;
    for (path, key, body) in &requests {
        let answer = client.post(path, key, body).await;
        let is_done = answer.status.is_success() && answer.is_replay();
        assert!(is_done, "{answer:?}");
    }
    assert_eq!(database.charges().await, before + 2);
}

/// A standby, as far as its primary sees.
fn receive_wal(folder: &Path, program: &Path) -> Child {
    let owner = std::fs::metadata(folder.join("pgdata")).unwrap();
    let received = folder.join("received");
    std::fs::create_dir(&received).unwrap();
    std::os::unix::fs::chown(&received, Some(owner.uid()), Some(owner.gid())).unwrap();
    let receive = |what: &[&str]| {
        let mut command = Command::new(program.with_file_name("pg_receivewal"));
        command.uid(owner.uid()).gid(owner.gid());
        command.arg("--host").arg(folder.join("run"));
        command.args(["--username", "charge_once", "--slot", "standby"]);
        command.args(what).stderr(Stdio::null());
        command
    };
    assert!(receive(&["--create-slot"]).status().unwrap().success());
    // With a slot, it says what it has written to the disk, so a COMMIT can wait for it.
    let mut command = receive(&["--synchronous", "--directory"]);
    command.arg(received).spawn().unwrap()
}

async fn warnings(database: &TestDatabase) -> Vec<String> {
    let (server, log) = start_with_log(database, &[("RUST_LOG", "warn")]);
    drop(server);
    let text = text_of(&log);
    let about = text.lines().filter(|line| line.contains("standby"));
    about.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_start_warns_of_a_standby_that_no_commit_waits_for() {
    let folder = scratch();
    let (database, postgres, program) = database_in(folder.path()).await;
    assert_eq!(warnings(&database).await, Vec::<String>::new());

    let mut standby = receive_wal(folder.path(), &program);
    let standbys = "SELECT count(*) FROM pg_stat_replication";
    database.comes_to(standbys, 1).await;
    let told = warnings(&database).await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_has(&told[0], "WARN");
    assert_has(&told[0], "set synchronous_standby_names");
    let shown = database.printed_by("shards");
    assert_has(&shown, "  standby pg_receivewal: ");
    // A role without a right on statistics sees as much.
    database.execute("CREATE ROLE visitor LOGIN").await;
    let grant = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO visitor";
    database.execute(grant).await;
    let url = as_role(&database.url, "visitor");
    let output = run(&["check"], &[("DATABASE_URL", &url), ("RUST_LOG", "warn")]);
    assert!(text(&output.stderr).contains("set synchronous_standby_names"));
    let shown = printed_by(&["shards"], &[("DATABASE_URL", &url)]);
    assert_has(&shown, "a standby, of which this role sees nothing");

    // One that COMMIT waits for, as soon as it is there.
    wait_for("pg_receivewal", &database).await;
    assert_eq!(warnings(&database).await, Vec::<String>::new());
    wait_for("", &database).await;
    signal(&standby, Signal::SIGINT);
    standby.wait().unwrap();
    postgres.stop().await.unwrap();
}
