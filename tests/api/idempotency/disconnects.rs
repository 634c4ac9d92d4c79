//! Clients and networks that vanish in the middle of a request, at every stage of it.

use crate::support::{
    harness::{WAITS_FOR_CONNECTIONS, every_connection_is_clean, one_charge_and_its_record},
    postgres_proxy::{NetworkFault, PostgresProxy},
    prelude::*,
    records::assert_nothing_stored,
    wire::send_charge,
};

/// Longest a request may take: the ladder's REQUEST_TIMEOUT.
const LADDER: Duration = Duration::from_secs(8);

/// How a client goes.
#[derive(Debug, Clone, Copy)]
enum Goodbye {
    /// It closes its socket: FIN.
    Close,
    /// Its process dies, or a middlebox times out: RST.
    Reset,
}

async fn the_work_finishes_without_its_client(stage: Stage, goodbye: Goodbye) {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(stage, &database, "key-1").await;
    // One worker: once it answers a later request, it has seen the disconnect.
    let variables = [&[("WORKERS", "1"), ALONE], WAITS_FOR_CONNECTIONS].concat();
    let server = TestServer::start_on(database, &variables).await;
    let (client, database) = (&server.client, &server.database);
    let socket = send_charge(client, "key-1", "").await;
    pause.is_reached().await;
    if matches!(goodbye, Goodbye::Reset) {
        socket.set_zero_linger().unwrap();
    }
    drop(socket);
    for _ in 0..3 {
        assert_eq!(client.get("/livez").await.status, 200);
    }
    assert_nothing_stored(database, "it is stopped before the end").await;
    pause.release().await;
    let holds = || async { database.records().await == 1 };
    eventually("the work finishes", holds).await;
    // The record can be seen before the server has the answer to its COMMIT.
    let retry = client.charge_until_definite("key-1").await;
    assert_eq!(retry.status, 201, "{stage:?}, {goodbye:?}");
    assert!(retry.is_replay(), "{stage:?}, {goodbye:?}");
    one_charge_and_its_record(database).await;
    every_connection_is_clean(database).await;
    the_pool_serves_writes_and_reads(&server).await;
}

/// As many requests at once as the pool has connections, so that each is used.
async fn the_pool_serves_writes_and_reads(server: &TestServer) {
    let before = server.database.charges().await;
    let requests = (0..10).map(|number| {
        let client = server.client.clone();
        async move {
            assert_eq!(client.charge(&format!("after-{number}")).await.status, 201);
            assert_eq!(client.get("/charges").await.status, 200);
        }
    });
    futures_util::future::join_all(requests).await;
    assert_eq!(server.database.charges().await, before + 10);
}

#[tokio::test]
async fn a_client_that_closes_its_connection_still_gets_its_charge_once() {
    for stage in Stage::BEFORE_COMMIT {
        the_work_finishes_without_its_client(stage, Goodbye::Close).await;
    }
}

#[tokio::test]
async fn a_client_whose_connection_is_reset_still_gets_its_charge_once() {
    for stage in Stage::BEFORE_COMMIT {
        the_work_finishes_without_its_client(stage, Goodbye::Reset).await;
    }
}

#[tokio::test]
async fn a_reset_while_committing_changes_nothing() {
    the_work_finishes_without_its_client(Stage::Committing, Goodbye::Reset).await;
}

/// A server behind a proxy.
async fn server_behind_a_proxy(variables: &[(&str, &str)]) -> (TestServer, PostgresProxy) {
    server_of(TestDatabase::create().await, variables).await
}

async fn server_of(
    database: TestDatabase,
    variables: &[(&str, &str)],
) -> (TestServer, PostgresProxy) {
    let proxy = PostgresProxy::in_front_of(&database.url).await;
    let url = proxy.url.clone();
    let server = TestServer::start_through(database, &url, variables).await;
    // Remembers the API key, so that the next request's first words to the database are its claim.
    assert_eq!(server.client.get("/charges").await.status, 200);
    (server, proxy)
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_answers_503_and_the_retry_replays() {
    let (server, proxy) = server_behind_a_proxy(&[]).await;
    proxy.inject(NetworkFault::LosesAnswersToCommit);
    let started = std::time::Instant::now();
    let unknown = server.client.charge("key-1").await;
    assert_eq!(error(&unknown), (503, "service_unavailable".into()));
    assert!(started.elapsed() < LADDER);
    // The expiry sweep may have met the same fault.
    assert!(proxy.lost_commits() >= 1);
    proxy.inject(NetworkFault::None);
    let retry = server.client.charge("key-1").await;
    assert_eq!(retry.status, 201);
    assert!(retry.is_replay(), "it had been committed");
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_commit_that_never_arrives_answers_503_and_the_retry_executes() {
    let (server, proxy) = server_behind_a_proxy(&[]).await;
    proxy.inject(NetworkFault::LosesCommits);
    let unknown = server.client.charge("key-1").await;
    assert_eq!(unknown.status, 503);
    // The expiry sweep may have met the same fault.
    assert!(proxy.lost_commits() >= 1);
    proxy.inject(NetworkFault::None);
    // The dead session may hold the key for a moment.
    let retry = server.client.charge_until_definite("key-1").await;
    assert_eq!(retry.status, 201);
    assert!(!retry.is_replay(), "nothing had been committed");
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn silence_while_committing_answers_503_within_the_ladder_and_the_retry_replays() {
    let (server, proxy) = server_behind_a_proxy(&[]).await;
    let mut pause = PausePoint::at(Stage::Committing, &server.database, "key-1").await;
    let request = server.client.charging("key-1");
    pause.is_reached().await;
    let started = std::time::Instant::now();
    proxy.inject(NetworkFault::Stalled);
    pause.release().await;
    let unknown = request.await.unwrap();
    assert_eq!(unknown.status, 503);
    assert!(started.elapsed() < LADDER);
    proxy.inject(NetworkFault::None);
    // An idle connection of the pool may have died in the silence too: it costs one more 503.
    let holds = || async { server.client.charge("key-1").await.status == 201 };
    eventually("the dead connections are replaced", holds).await;
    let retry = server.client.charge("key-1").await;
    assert!(retry.is_replay());
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_commit_that_postgres_refuses_answers_503_and_frees_the_key() {
    for code in ["40001", "40P01", "23514", "23505"] {
        let server = TestServer::start().await;
        let (client, database) = (&server.client, &server.database);
        let sql = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;
             CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON charges
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        database.execute(sql).await;
        assert_eq!(client.charge("key-1").await.status, 503, "{code}");
        assert_nothing_stored(database, "COMMIT was refused").await;
        database.execute("DROP TRIGGER refuse ON charges").await;
        let retry = client.charge("key-1").await;
        assert_eq!(retry.status, 201, "{code}");
        assert!(!retry.is_replay());
        one_charge_and_its_record(database).await;
        every_connection_is_clean(database).await;
    }
}

#[tokio::test]
async fn a_session_that_postgres_ends_commits_nothing_and_the_retry_executes_once() {
    for stage in Stage::BEFORE_COMMIT {
        let server = TestServer::start_with(&[ALONE]).await;
        let mut pause = PausePoint::at(stage, &server.database, "key-1").await;
        let request = server.client.charging("key-1");
        pause.is_reached().await;
        pause.break_the_paused().await;
        assert_eq!(request.await.unwrap().status, 503, "{stage:?}");
        assert_nothing_stored(&server.database, "the session was ended").await;
        pause.release().await;
        // The ended session may hold the key for a moment.
        let retry = server.client.charge_until_definite("key-1").await;
        assert_eq!(retry.status, 201, "{stage:?}");
        assert!(!retry.is_replay());
        one_charge_and_its_record(&server.database).await;
        every_connection_is_clean(&server.database).await;
    }
}

#[tokio::test]
async fn a_database_that_refuses_connections_answers_503_and_is_used_again_when_it_is_back() {
    let (server, proxy) = server_of(TestDatabase::create_unsharded().await, &[]).await;
    assert_eq!(server.client.charge("key-0").await.status, 201);
    proxy.inject(NetworkFault::Cut);
    let started = std::time::Instant::now();
    assert_eq!(server.client.charge("key-1").await.status, 503);
    assert!(started.elapsed() < LADDER);
    assert_eq!(server.client.get("/readyz").await.status, 503);
    assert_eq!(server.client.get("/livez").await.status, 200);
    proxy.inject(NetworkFault::None);
    assert_eq!(server.client.charge("key-1").await.status, 201);
    let holds = || async { server.client.get("/readyz").await.status == 200 };
    eventually("the server is ready again", holds).await;
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn a_silently_dead_connection_does_not_keep_its_place_in_the_pool() {
    // With the default limits, so that both requests are paused together on a busy machine too. A
    // batch would take both in one transaction.
    let (server, proxy) = server_behind_a_proxy(&[("POOL_CONNECTIONS", "2"), ALONE]).await;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-%").await;
    // Both connections die in the middle of a transaction, while the server waits for an answer.
    let requests = ["key-1", "key-2"].map(|key| server.client.charging(key));
    pause.is_reached_by(2).await;
    proxy.inject(NetworkFault::Stalled);
    for request in requests {
        assert_eq!(request.await.unwrap().status, 503);
    }
    // The old connections stay dead; only new ones work.
    pause.release().await;
    proxy.inject(NetworkFault::None);
    // Other keys at once; these two when PostgreSQL has ended the sessions that claimed them.
    for key in ["key-3", "key-4"] {
        assert_eq!(server.client.charge(key).await.status, 201, "{key}");
    }
    for key in ["key-1", "key-2"] {
        let holds = || async { server.client.charge(key).await.status == 201 };
        eventually("PostgreSQL frees the key", holds).await;
    }
    assert_eq!(server.database.charges().await, 4);
}
