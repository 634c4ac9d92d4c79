//! Strangers, who have no API key, and what they cost.

use charge_once::domain::ids::SetupIntentId;

use crate::support::prelude::*;

/// Less than the time for which a refused key is remembered.
const SOON: Duration = Duration::from_millis(1500);

const POOL: (&str, &str) = ("POOL_CONNECTIONS", "4");

async fn behind_a_proxy() -> (TestServer, PostgresProxy) {
    let database = TestDatabase::create().await;
    let proxy = PostgresProxy::in_front_of(&database.url).await;
    let url = proxy.url.clone();
    let server = TestServer::start_through(database, &url, &[POOL]).await;
    (server, proxy)
}

/// Statements that match and wait for a lock, at this moment. One that has given up is no longer
/// counted: its client may begin the next before PostgreSQL has cleaned up after it.
async fn waiting(database: &TestDatabase, like: &str) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'
                      AND query LIKE $1 AND pid <> pg_backend_pid()";
    let waiting = sqlx::query_scalar(waiting).bind(like);
    waiting.fetch_one(&database.pool).await.unwrap()
}

#[tokio::test]
async fn what_can_not_be_an_api_key_asks_no_database() {
    let (server, proxy) = behind_a_proxy().await;
    proxy.inject(NetworkFault::Cut);
    for key in "nonsense sk_test_short sk_live_0123456789 sk_test_01234-6789".split(' ') {
        let refused = server.client.with_api_key(key).get("/charges").await;
        assert_eq!(error(&refused), (401, "api_key_invalid".into()), "{key}");
    }
    let plausible = server.client.with_api_key("sk_test_0123456789");
    assert_eq!(plausible.get("/charges").await.status, 503);
}

#[tokio::test]
async fn an_api_key_that_was_refused_a_moment_ago_asks_no_database() {
    let (server, proxy) = behind_a_proxy().await;
    let stranger = server.client.with_api_key("sk_test_0123456789");
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "no try was quick enough");
        let begun = Instant::now();
        assert_eq!(stranger.get("/charges").await.status, 401);
        proxy.inject(NetworkFault::Cut);
        let again = stranger.get("/charges").await.status;
        proxy.inject(NetworkFault::None);
        // On a machine that is slower than that, the key may have been forgotten.
        if begun.elapsed() < SOON {
            assert_eq!(again, 401);
            return;
        }
    }
}

#[tokio::test]
async fn look_ups_of_strangers_take_one_connection_and_few_statements() {
    let server = TestServer::start_with(&[POOL]).await;
    assert_eq!(server.client.get("/charges").await.status, 200);
    let key = async |client: Client, number: usize| {
        let stranger = client.with_api_key(&format!("sk_test_stranger_{number}"));
        stranger.get("/charges").await.status.as_u16()
    };
    let page = async |client: Client, number: usize| {
        let (account, intent) = (AccountId(Uuid::now_v7()), SetupIntentId(Uuid::now_v7()));
        let path = format!("/authenticate/{account}/{intent}/{number}");
        client.get(&path).await.status.as_u16()
    };
    for (table, statement) in [
        ("api_keys", "%FROM api_keys%"),
        ("setup_intents", "%AS setup%"),
    ] {
        let lock = format!("LOCK TABLE {table}");
        let tx = server.database.holding(lock).await;
        let mut strangers: JoinSet<u16> = (0..12)
            .map(|number| {
                let client = server.client.clone();
                async move {
                    match table {
                        "api_keys" => key(client, number).await,
                        _ => page(client, number).await,
                    }
                }
            })
            .collect();
        let mut most = 0;
        // None is found in time: some wait for the table, and the others for those.
        while !strangers.is_empty() {
            most = most.max(waiting(&server.database, statement).await);
            while let Some(refused) = strangers.try_join_next() {
                assert!([409, 503].contains(&refused.unwrap()), "{table}");
            }
        }
        assert_eq!(most, 1, "{table}");
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn keys_that_are_looked_up_together_are_told_apart() {
    // They all come from one address.
    let server = TestServer::start_with(&[("RATE_LIMIT", "0")]).await;
    let alice = client_of_account(&server, "alice").await;
    let bob = client_of_account(&server, "bob").await;
    let strangers = (0..200).map(|number| {
        let key = format!("sk_test_stranger_{number}");
        server.client.with_api_key(&key)
    });
    let mut strangers: JoinSet<Answer> = strangers
        .map(|stranger| async move { stranger.get("/charges").await })
        .collect();
    let (of_alice, of_bob) = tokio::join!(alice.charge("key"), bob.charge("key"));
    assert_ne!(of_alice.id(), of_bob.id());
    for (client, created) in [(alice, of_alice), (bob, of_bob)] {
        assert_eq!(created.status, 201);
        let charges = client.get("/charges").await.json();
        assert_eq!(charges["data"].as_array().unwrap().len(), 1);
        assert_eq!(charges["data"][0]["id"], created.id());
    }
    while let Some(refused) = strangers.join_next().await {
        assert_eq!(refused.unwrap().code(), "api_key_invalid");
    }
}

/// No look at whether the database is ready ends before this transaction does.
const HOLD_UP_READINESS: &str = "LOCK TABLE _sqlx_migrations";

#[tokio::test]
async fn however_often_readiness_is_asked_for_the_database_is_asked_by_one() {
    let server = TestServer::start_on(TestDatabase::create_unsharded().await, &[POOL]).await;
    let tx = server.database.holding(HOLD_UP_READINESS).await;
    let ask = |client: Client| async move { client.get("/readyz").await.status.as_u16() };
    let mut probes: JoinSet<u16> = (0..20).map(|_| ask(server.client.clone())).collect();
    let mut most = 0;
    while !probes.is_empty() {
        most = most.max(waiting(&server.database, "%FROM _sqlx_migrations%").await);
        while let Some(answer) = probes.try_join_next() {
            assert_eq!(answer.unwrap(), 503);
        }
    }
    assert_eq!(most, 1);
    tx.rollback().await.unwrap();
    let is_ready = async || server.client.get("/readyz").await.status == 200;
    eventually("it is ready", is_ready).await;
}

#[tokio::test]
async fn what_readiness_was_a_moment_ago_is_told_without_the_database() {
    let server = TestServer::start_with(&[POOL]).await;
    let readiness = || async { server.client.get("/readyz").await.status.as_u16() };
    // On a busy machine, a second may pass between two questions.
    eventually("it is ready while nobody can look", || async {
        readiness().await;
        let tx = server.database.holding(HOLD_UP_READINESS).await;
        let told = readiness().await;
        tx.rollback().await.unwrap();
        told == 200
    })
    .await;
}
