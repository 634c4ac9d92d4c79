//! Keys that are remembered when their records have expired.

use charge_once::idempotency::{SweepPace, sweep};
use sqlx::Connection;

use crate::support::{
    accounts::client_of_test_account,
    prelude::*,
    racers::{all_at_once, definite},
};

const YEAR: (&str, &str) = ("KEY_MEMORY", "365d");
const REMEMBERING: &[(&str, &str)] = &[YEAR, FORGETFUL];

fn expired() -> (u16, String) {
    (409, "idempotency_key_expired".to_owned())
}

/// As a server with this `KEY_MEMORY` sweeps.
fn pace(days: u64) -> SweepPace {
    SweepPace {
        memory: Some(Duration::from_secs(days * 24 * 3600)),
        ..SweepPace::default()
    }
}

/// In one transaction: a server's own first sweep must not come between the two.
async fn expire_and_sweep(database: &TestDatabase) -> u64 {
    let mut sweeping = database.holding(EXPIRE_RECORDS).await;
    let swept = sweep(&mut sweeping, pace(365)).await.unwrap();
    sweeping.commit().await.unwrap();
    swept
}

/// But for the one that states that keys are remembered.
const TOMBSTONES: &str =
    "SELECT count(*) FROM idempotency_tombstones WHERE expired_at < 'infinity'";

#[tokio::test]
async fn a_request_with_an_expired_key_does_nothing_and_names_what_the_first_one_made() {
    let (server, client) = TestServer::with_client(REMEMBERING).await;
    let database = &server.database;
    for is_swept in [false, true] {
        let key = format!("key-{is_swept}");
        let charged = client.charge(&key).await;
        assert_eq!(charged.status, 201);
        let charges = database.charges().await;
        if is_swept {
            assert!(expire_and_sweep(database).await >= 1);
            assert_eq!(database.records().await, 0);
        } else {
            database.expire_records().await;
        }
        let known = client.get(&format!("/idempotency-keys/{key}")).await;
        known.json().assert_shows(json!({
            "key": key, "status": "expired", "resource": charged.id(), "response_status": null,
        }));
        // An operator need not know whose key it is.
        let url = [("DATABASE_URL", &*database.url), YEAR];
        let shown = printed_by(&["keys", "show", &key], &url);
        shown.must_have(&["its outcome is no longer kept", &charged.id()]);
        let late = client.charge(&key).await;
        assert_eq!(error(&late), expired());
        assert!(!late.is_replay());
        let described_by = "</errors#idempotency_key_expired>; rel=\"describedby\"";
        assert_eq!(late.header("link"), Some(described_by));
        late.json()["error"].assert_shows(json!({
            "resource": charged.id(), "resource_url": format!("/charges/{}", charged.id()),
        }));
        let read = client.get(&format!("/charges/{}", charged.id())).await;
        assert_eq!(read.json(), charged.json());
        // It is stored as any refusal is.
        client.charge(&key).await.assert_replays(&late);
        assert_eq!(database.charges().await, charges);
        // Time and again.
        expire_and_sweep(database).await;
        let later = client.charge(&key).await;
        assert_eq!(error(&later), expired());
        assert_eq!(later.json(), late.json());
        assert_eq!(database.charges().await, charges);
        expire_and_sweep(database).await;
    }
}

#[tokio::test]
async fn another_request_with_a_remembered_key_is_told_so_and_other_keys_are_new() {
    let (server, client) = TestServer::with_client(REMEMBERING).await;
    let charged = client.charge("key-1").await;
    let refused = client.post("/charges", "key-2", &json!({})).await;
    assert_eq!(refused.status, 400);
    expire_and_sweep(&server.database).await;
    let other = client.post("/charges", "key-1", &another_charge()).await;
    assert_eq!(error(&other), expired());
    let told = other.json()["error"].clone();
    told.assert_shows(json!({"resource": charged.id()}));
    assert!(
        told["advice"].as_str().unwrap().contains("another request"),
        "{told}"
    );
    // A refusal made nothing, and its key is not new either.
    let late = client.post("/charges", "key-2", &json!({})).await;
    assert_eq!(error(&late), expired());
    assert!(late.json()["error"].get("resource").is_none());
    assert_eq!(client.charge("key-3").await.status, 201);
    let elsewhere = client_of_account(&server, "other").await;
    assert_eq!(elsewhere.charge("key-1").await.status, 201);
    assert_eq!(server.database.charges().await, 3);
}

/// The claim waits for the sweep's transaction, and its snapshot is older than the tombstone.
#[tokio::test]
async fn a_sweep_that_commits_while_a_claim_waits_for_it_is_noticed() {
    for alone in [&[YEAR, FORGETFUL][..], &[YEAR, FORGETFUL, ALONE]] {
        let (server, client) = TestServer::with_client(alone).await;
        let database = &server.database;
        for round in 0..5 {
            let key = format!("key-{round}");
            assert_eq!(client.charge(&key).await.status, 201);
            let expire = format!(
                "UPDATE idempotency_keys SET created_at = now() - interval '25 hours',
                        expires_at = now() - interval '1 hour' WHERE key = '{key}'"
            );
            // In one transaction: the server's own first sweep must not come between the two.
            let mut sweeping = database.holding(expire).await;
            assert_eq!(sweep(&mut sweeping, pace(365)).await.unwrap(), 1);
            // On a busy machine, one claim may have given up before this test sees it wait.
            let late = client.sending_and_waiting(30, "/charges", &key, charge());
            let waiting = "SELECT count(*) FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock'";
            database.comes_to(waiting, 1).await;
            sweeping.commit().await.unwrap();
            let mut late = late.await.unwrap();
            if error(&late) == (409, "idempotency_key_in_use".into()) {
                late = definite(|| client.charge(&key)).await;
            }
            assert_eq!(error(&late), expired());
            assert_eq!(database.charges().await, round + 1);
        }
    }
}

#[tokio::test]
async fn of_forty_racers_for_remembered_keys_none_executes() {
    let database = TestDatabase::create().await;
    let replicas = [(); 2].map(|()| ServerProcess::start(&database, REMEMBERING));
    let first = all_at_once(20, |number| {
        let client = replicas[0].client.clone();
        async move { client.charge(&format!("key-{number}")).await }
    });
    for answer in first.await {
        assert_eq!(answer.status, 201);
    }
    database.expire_records().await;
    let mut sweeping = PgConnection::connect(&database.url).await.unwrap();
    let sweeping = sweep(&mut sweeping, pace(365));
    // Among them are keys that were not used before: batches have both.
    let racers = all_at_once(60, |racer| {
        let client = replicas[racer % 2].client.clone();
        async move {
            let key = format!("key-{}", racer / 2);
            definite(|| client.charge(&key)).await
        }
    });
    let (swept, answers) = tokio::join!(sweeping, racers);
    swept.unwrap();
    for answer in answers {
        let key = answer.header("idempotency-key").unwrap();
        let number: usize = key.trim_start_matches("key-").parse().unwrap();
        let wanted = if number < 20 { 409 } else { 201 };
        assert_eq!(answer.status.as_u16(), wanted, "{answer:?}");
    }
    assert_eq!(database.charges().await, 30);
}

#[tokio::test]
async fn a_key_is_forgotten_when_its_time_is_over_and_not_before() {
    let (server, client) = TestServer::with_client(&[("KEY_MEMORY", "30d"), FORGETFUL]).await;
    let database = &server.database;
    assert_eq!(client.charge("key-1").await.status, 201);
    database.expire_records().await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    sweep(&mut connection, pace(30)).await.unwrap();
    let age = |days: u32| {
        format!(
            "UPDATE idempotency_tombstones SET expired_at = now() - interval '{days} days'
              WHERE expired_at < 'infinity'"
        )
    };
    database.execute(age(29)).await;
    sweep(&mut connection, pace(30)).await.unwrap();
    assert_eq!(database.count(TOMBSTONES).await, 1);
    assert_eq!(
        client.get("/idempotency-keys/key-1").await.json()["status"],
        "expired"
    );
    database.execute(age(31)).await;
    // Whether it was swept or not.
    assert_eq!(client.get("/idempotency-keys/key-1").await.status, 404);
    sweep(&mut connection, pace(30)).await.unwrap();
    assert_eq!(database.count(TOMBSTONES).await, 0);
    assert_eq!(client.charge("key-1").await.status, 201);
    assert_eq!(database.charges().await, 2);
}

#[tokio::test]
async fn a_tombstone_is_small_and_a_long_sweep_leaves_one_of_each_key() {
    let (server, client) = TestServer::with_client(REMEMBERING).await;
    let database = &server.database;
    assert_eq!(client.charge("key-1").await.status, 201);
    let more = "INSERT INTO idempotency_keys
         SELECT account_id, 'old-' || number, 1, fingerprint, method, path, request_id, NULL,
                created_at, expires_at, status, headers, body, resource_id
           FROM idempotency_keys, generate_series(1, 1234) AS number
        UNION ALL
         SELECT account_id, ',step-' || number, 1, fingerprint, method, path, request_id, NULL,
                created_at, expires_at, status, headers, body, repeat('x', 40)
           FROM idempotency_keys, generate_series(1, 10) AS number";
    database.execute(more).await;
    assert_eq!(expire_and_sweep(database).await, 1245);
    // A step's key is known to its request alone.
    assert_eq!(database.count(TOMBSTONES).await, 1235);
    let largest = "SELECT max(pg_column_size(id) + pg_column_size(request)
                              + pg_column_size(expired_at) + pg_column_size(resource_id))
                     FROM idempotency_tombstones";
    let largest: i32 = database.value(largest).await;
    assert!(largest <= 64, "{largest} bytes");
    assert_eq!(error(&client.charge("old-1000").await), expired());
}

#[tokio::test]
async fn a_remembered_key_is_not_given_up_and_a_key_that_was_given_up_is_remembered() {
    let (server, client) = TestServer::with_client(REMEMBERING).await;
    let charged = client.charge("key-1").await;
    let abandon = async |key: &str, own: &str| {
        let path = format!("/idempotency-keys/{key}/abandon");
        client.post(&path, own, &json!({})).await
    };
    assert_eq!(abandon("key-2", "own-2").await.status, 200);
    for is_swept in [false, true] {
        if is_swept {
            expire_and_sweep(&server.database).await;
        } else {
            server.database.expire_records().await;
        }
        let told = abandon("key-1", &format!("own-{is_swept}")).await;
        assert_eq!(error(&told), expired());
        told.json()["error"].assert_shows(json!({"resource": charged.id()}));
        assert!(told.json()["error"].get("advice").is_none(), "{told:?}");
        let known = client.get("/idempotency-keys/key-1").await;
        assert_eq!(known.json()["status"], "expired");
    }
    let late = client.charge("key-2").await;
    assert_eq!(error(&late), expired());
    // It was not used for another request.
    assert!(late.json()["error"].get("advice").is_none());
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_key_that_is_older_than_the_retention_by_its_own_time_is_refused_where_that_is_wanted() {
    let old = "01890a5d-ac96-774b-bcce-b302099a8057";
    let (server, client) = TestServer::with_client(&[("REFUSE_OLD_KEYS", "true")]).await;
    let refused = client.charge(old).await;
    assert_eq!(error(&refused), expired());
    let told = refused.json()["error"].clone();
    assert!(told.get("resource").is_none() && told.get("advice").is_none());
    client.charge(old).await.assert_replays(&refused);
    // Young ones, those of other versions, and what is no UUID.
    let young = Uuid::now_v7().to_string();
    for key in [
        &young,
        "01890a5d-ac96-474b-bcce-b302099a8057",
        "order-6735/pay",
    ] {
        assert_eq!(client.charge(key).await.status, 201, "{key}");
    }
    let (_server, by_default) = TestServer::with_client(&[]).await;
    assert_eq!(by_default.charge(old).await.status, 201);
    assert_eq!(server.database.charges().await, 3);
}

#[tokio::test]
async fn a_test_account_s_keys_expire_as_others_do_and_are_forgotten_with_it() {
    let server = TestServer::start_with(&[YEAR, FAULTS]).await;
    let client = client_of_test_account(&server.client).await;
    assert_eq!(client.charge("key-1").await.status, 201);
    let expiring = client.post_new("/test/expire_keys", &json!({})).await;
    assert_eq!(expiring.status, 200);
    assert_eq!(error(&client.charge("key-1").await), expired());
    expire_and_sweep(&server.database).await;
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    let owners = "SELECT id FROM accounts WHERE test_until IS NOT NULL";
    let owner: Uuid = server.database.value(owners).await;
    let kept = server.database.count(TOMBSTONES).await;
    assert!(kept > 0);
    let forgotten = charge_once::idempotency::forget(&mut connection, Uuid::new_v4(), None);
    assert_eq!(forgotten.await.unwrap().rows, 0);
    let forgotten = charge_once::idempotency::forget(&mut connection, owner, None);
    assert!(forgotten.await.unwrap().rows > 0);
    assert!(server.database.count(TOMBSTONES).await < kept);
    assert_eq!(client.charge("key-1").await.status, 201);
}

/// It would execute what the other processes refuse, and its sweep would forget what it removes.
#[tokio::test]
async fn a_process_without_a_memory_does_not_use_a_database_that_has_one() {
    let database = TestDatabase::create_unsharded().await;
    let server = TestServer::start_on(database, REMEMBERING).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    expire_and_sweep(&server.database).await;
    let database = server.stop().await;
    let url = [("DATABASE_URL", &*database.url), ANY_PORT];
    let complaint = complaint_of(&["serve"], &url, 1);
    complaint.must_have(&["KEY_MEMORY must be set", "TRUNCATE idempotency_tombstones"]);
    let complaint = complaint_of(&["sweep"], &url, 1);
    complaint.must_have(&["keys are remembered in this database"]);
    // Also when the last of them is forgotten.
    database
        .execute("DELETE FROM idempotency_tombstones WHERE expired_at < 'infinity'")
        .await;
    let complaint = complaint_of(&["serve"], &url, 1);
    complaint.must_have(&["KEY_MEMORY must be set"]);
    database.execute("TRUNCATE idempotency_tombstones").await;
    let server = TestServer::start_on(database, &[]).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
}

/// Before anything has expired: its sweep would forget what the other one is to remember.
#[tokio::test]
async fn the_first_process_with_a_memory_says_so_and_from_then_on_none_sweeps_without_one() {
    let database = TestDatabase::create_unsharded().await;
    let without = ServerProcess::start(&database, &[FORGETFUL]);
    assert_eq!(without.client.charge("key-1").await.status, 201);
    let url = [("DATABASE_URL", &*database.url), ANY_PORT];
    printed_by(&["sweep"], &url);
    let with = ServerProcess::start(&database, REMEMBERING);
    assert_eq!(database.count(TOMBSTONES).await, 0);
    database.expire_records().await;
    complaint_of(&["sweep"], &url, 1).must_have(&["keys are remembered in this database"]);
    complaint_of(&["serve"], &url, 1).must_have(&["KEY_MEMORY must be set"]);
    // The old one, which has been running since before, doesn't either.
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let swept = sweep(&mut connection, SweepPace::default()).await;
    assert!(
        matches!(swept, Err(sqlx::Error::Configuration(_))),
        "{swept:?}"
    );
    sweep(&mut connection, pace(365)).await.unwrap();
    assert_eq!(error(&with.client.charge("key-1").await), expired());
    assert_eq!(database.charges().await, 1);
}

/// A sweep that states it first: a worker may be the only process with the variable.
#[tokio::test]
async fn a_sweep_with_a_memory_says_so_too_and_once() {
    let database = TestDatabase::create_unsharded().await;
    let url = [("DATABASE_URL", &*database.url)];
    for _ in 0..2 {
        printed_by(&["sweep"], &[url[0], YEAR]);
    }
    assert_eq!(database.count_of("idempotency_tombstones").await, 1);
    complaint_of(&["sweep"], &url, 1).must_have(&["keys are remembered in this database"]);
}

#[tokio::test]
async fn a_lock_on_the_table_of_remembered_keys_is_no_key_in_use() {
    for variables in [REMEMBERING, &[YEAR, FORGETFUL, ALONE]] {
        let (server, client) = TestServer::with_client(variables).await;
        let lock = "LOCK TABLE idempotency_tombstones";
        let locked = server.database.holding(lock).await;
        let refused = client.charge("key-1").await;
        assert_eq!(error(&refused), (503, "service_unavailable".to_owned()));
        locked.rollback().await.unwrap();
        assert_eq!(client.charge("key-1").await.status, 201);
    }
}
