//! Many requests with one key, at once and one after the other: one effect, one answer.

use charge_once::cli::api_key;

use crate::support::prelude::*;

/// Every charge has exactly one record that names it, and the other way round.
async fn assert_charges_and_records_match(database: &TestDatabase) {
    let unmatched = "SELECT (SELECT count(*) FROM charges)
                          - (SELECT count(DISTINCT resource_id) FROM idempotency_keys)";
    let unmatched = database.count(unmatched).await;
    assert_eq!(unmatched, 0, "charges without a record, or records without");
}

#[tokio::test]
async fn a_hundred_racers_through_two_replicas_with_two_connections_each_charge_once() {
    let database = TestDatabase::create().await;
    let small_pool = [("POOL_CONNECTIONS", "2")];
    let replicas = [
        ServerProcess::start(&database, &small_pool),
        ServerProcess::start(&database, &small_pool),
    ];
    let answers = all_at_once(100, |racer| {
        let client = replicas[racer % 2].client.clone();
        async move { client.charge_until_definite("key-1").await }
    })
    .await;
    let (first, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| !answer.is_replay());
    assert!(first.len() <= 1, "more than one executed: {first:?}");
    assert_eq!(answers[0].status, 201);
    let original = first.first().copied().unwrap_or(&answers[0]);
    for answer in others {
        answer.assert_replays(original);
    }
    assert_eq!(database.charges().await, 1);
    assert_eq!(database.records().await, 1);
}

#[tokio::test]
async fn a_storm_of_duplicates_holds_one_connection_and_delays_no_other_key() {
    let server = TestServer::start_with(PATIENT).await;
    let (client, database) = (&server.client, &server.database);
    let mut pause = PausePoint::at(Stage::Executing, database, "key-1").await;
    let first = client.charging("key-1");
    pause.is_reached().await;

    let storm = tokio::spawn(all_at_once(300, {
        let client = client.clone();
        move |_| {
            let client = client.clone();
            async move {
                let body = charge();
                client.post_waiting(30, "/charges", "key-1", &body).await
            }
        }
    }));
    // These don't wait: their answers show that the storm is on while the first one is held.
    let impatient = all_at_once(30, |_| {
        let client = client.clone();
        async move { client.charge("key-1").await }
    })
    .await;
    for answer in impatient {
        assert_eq!(answer.status, 409);
    }
    let other = client.post("/charges", "key-2", &another_charge()).await;
    assert_eq!(other.status, 201);
    // A worker has one for a moment. Waiting requests would have theirs until the release.
    eventually("only the first call holds a connection", || async {
        let connections = "SELECT count(*) FROM pg_stat_activity
                            WHERE datname = current_database() AND application_name = 'charge-once'
                              AND state <> 'idle'";
        database.count(connections).await == 1
    })
    .await;

    pause.release().await;
    let first = first.await.unwrap();
    assert_eq!(first.status, 201);
    for answer in storm.await.unwrap() {
        answer.assert_replays(&first);
    }
    assert_eq!(database.charges().await, 2);
    assert_eq!(database.records().await, 2);
}

#[tokio::test]
async fn fifty_retries_of_a_completed_key_together_are_fifty_replays() {
    let server = TestServer::start().await;
    let first = server.client.charge("key-1").await;
    let answers = all_at_once(50, |_| {
        let client = server.client.clone();
        async move { client.charge("key-1").await }
    })
    .await;
    assert_eq!(answers.len(), 50);
    for answer in answers {
        answer.assert_replays(&first);
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_key_reused_for_another_request_is_refused_and_the_first_answer_stays() {
    let (server, client) = TestServer::with_client(&[]).await;
    let first = client.charge("key-1").await;
    for (path, body, status) in [
        ("/charges", another_charge(), 422),
        // The path belongs to the fingerprint, the status to the dialect.
        ("/v1/charges", charge(), 400),
        ("/orders", charge(), 422),
    ] {
        let reuse = client.post(path, "key-1", &body).await;
        assert_eq!(reuse.status, status, "{path}");
        assert_eq!(reuse.code(), "idempotency_key_reused");
        assert_eq!(reuse.header("stripe-should-retry"), Some("false"));
        assert!(!reuse.is_replay());
    }
    client.charge("key-1").await.assert_replays(&first);
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(server.database.records().await, 1);
    assert_eq!(server.database.orders().await, 0);
}

#[tokio::test]
async fn reuse_that_races_the_first_call_writes_nothing() {
    let database = TestDatabase::create().await;
    let mut pause = PausePoint::at(Stage::Worked, &database, "key-1").await;
    let replica = ServerProcess::start(&database, PATIENT);
    let server = TestServer::start_on(database, PATIENT).await;
    let first = server.client.charging("key-1");
    pause.is_reached().await;

    // Through the same process, and through another one, which learns of it by its lock only.
    for client in [&server.client, &replica.client] {
        let racing = client.post("/charges", "key-1", &another_charge()).await;
        // 422 would be a guess: the first may still roll back.
        assert_eq!(racing.status, 409);
    }
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    for client in [&server.client, &replica.client] {
        let later = client.post("/charges", "key-1", &another_charge()).await;
        assert_eq!(later.status, 422);
    }
    let sum = "SELECT sum(amount)::bigint FROM charges";
    assert_eq!(server.database.count(sum).await, 2000);
}

/// The parameters of a charge that is refused.
fn refused_charge() -> Value {
    json!({"amount": 0, "currency": "usd", "source": "tok_visa"})
}

#[tokio::test]
async fn a_refusal_keeps_its_key_while_a_valid_request_races_it() {
    for stage in [Stage::Claiming, Stage::Saving] {
        let server = TestServer::start_with(PATIENT).await;
        let mut pause = PausePoint::at(stage, &server.database, "key-1").await;
        let refused = server.client.sending("/charges", "key-1", refused_charge());
        pause.is_reached().await;
        let racing = server.client.charge("key-1").await;
        assert_eq!(error(&racing), (409, "idempotency_key_in_use".into()));
        pause.release().await;
        let refused = refused.await.unwrap();
        assert_eq!(error(&refused), (400, "parameter_invalid".into()));
        let corrected = server.client.charge("key-1").await;
        assert_eq!(error(&corrected), (422, "idempotency_key_reused".into()));
        let body = refused_charge();
        let replay = server.client.post("/charges", "key-1", &body).await;
        replay.assert_replays(&refused);
        assert_eq!(server.database.charges().await, 0);
        let kept = "SELECT count(*) FROM idempotency_keys WHERE status = 400";
        assert_eq!(server.database.count(kept).await, 1);
        // A corrected request needs a new key.
        assert_eq!(server.client.charge("key-2").await.status, 201);
    }
}

#[tokio::test]
async fn the_same_key_in_two_accounts_is_two_keys() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    let mine = server.client.charge("key-1").await;
    let theirs = other.charge("key-1").await;
    assert_eq!((mine.status.as_u16(), theirs.status.as_u16()), (201, 201));
    assert_ne!(mine.id(), theirs.id());
    assert!(!theirs.is_replay());
    other.charge("key-1").await.assert_replays(&theirs);
    server.client.charge("key-1").await.assert_replays(&mine);
    let accounts = "SELECT count(DISTINCT account_id) FROM charges";
    assert_eq!(server.database.count(accounts).await, 2);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn rotating_the_api_key_keeps_the_replays() {
    let server = TestServer::start().await;
    let first = server.client.charge("key-1").await;
    // Two API keys of one account are valid at once.
    let rotated = client_of_account(&server, api_key::DEV_ACCOUNT).await;
    rotated.charge("key-1").await.assert_replays(&first);
    let database = server.database.connect(&[]).await;
    let new_key = api_key::create_key(&database, "dev").await.unwrap();
    let revoked = api_key::revoke_key(&database, API_KEY).await;
    assert!(revoked.unwrap());
    let replay = server.client.with_api_key(&new_key).charge("key-1").await;
    replay.assert_replays(&first);

    // A replica that has never seen the old key refuses it at once.
    let replica = ServerProcess::start(&server.database, &[("DEV_API_KEY", "")]);
    assert_eq!(replica.client.charge("key-1").await.status, 401);
    assert_eq!(server.database.charges().await, 1);
    assert_charges_and_records_match(&server.database).await;
}

#[tokio::test]
async fn ten_keys_raced_by_ten_duplicates_each_are_ten_charges() {
    let server = TestServer::start().await;
    let answers = all_at_once(100, |racer| {
        let (client, key) = (server.client.clone(), format!("key-{}", racer % 10));
        async move { client.charge_until_definite(&key).await }
    })
    .await;
    let ids: BTreeSet<_> = answers.iter().map(Answer::id).collect();
    assert_eq!(ids.len(), 10);
    assert_eq!(server.database.charges().await, 10);
    assert_charges_and_records_match(&server.database).await;
}
