//! Keys that an operator has forgotten: `charge-once keys forget`.

use charge_once::idempotency::{SweepPace, forget_key, sweep};
use sqlx::Connection;

use crate::support::prelude::*;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const REMEMBERING: &[(&str, &str)] = &[("KEY_MEMORY", "365d"), FORGETFUL];

/// `charge-once keys forget`, with these arguments more.
fn forget(database: &TestDatabase, arguments: &[&str]) -> Run {
    let arguments = [&["keys", "forget", "--by", "Ada"], arguments].concat();
    let variables = [("DATABASE_URL", &*database.url), ("RUST_LOG", "warn")];
    Run::of(run(&arguments, &variables))
}

#[tokio::test]
async fn a_key_is_new_once_a_person_has_said_so_twice_and_then_executes_again() {
    let (server, client) = TestServer::with_client(&[FORGETFUL]).await;
    let database = &server.database;
    let first = client.charge("key-1").await;
    let asked = forget(database, &["key-1"]);
    let shown = ["POST /charges", &*first.id()];
    asked.stdout.must_have(&shown);
    assert_has(&asked.failed(1), "nothing was removed. With --yes");
    client.charge("key-1").await.assert_replays(&first);

    let done = forget(database, &["key-1", "--yes"]);
    // The log names the person, and the key by its hash.
    done.stderr
        .must_have(&["a person has made a key new", "Ada"]);
    done.stderr.must_lack(&["key-1"]);
    let removed = format!(
        "Removed: POST /charges, answered 201, about {}.",
        first.id()
    );
    done.succeeded()
        .must_have(&[&removed, "the next request with it is executed"]);
    let second = client.charge("key-1").await;
    assert_eq!((second.status.as_u16(), second.is_replay()), (201, false));
    assert_ne!(second.id(), first.id());
    assert_eq!(database.charges().await, 2);
    let unknown = forget(database, &["key-2", "--yes", "--account", "dev"]);
    assert_has(&unknown.failed(1), "nothing is stored of this key");
    let nameless = ["keys", "forget", "key-1", "--by", " ", "--yes"];
    let said = complaint_of(&nameless, &[("DATABASE_URL", &database.url)], 1);
    assert_has(&said, "--by must have");
    assert_eq!(database.records().await, 1);
}

#[tokio::test]
async fn what_is_remembered_of_a_key_goes_with_its_record_or_without_it() {
    let (server, client) = TestServer::with_client(REMEMBERING).await;
    let database = &server.database;
    for is_refused in [false, true] {
        let key = format!("key-{is_refused}");
        let first = client.charge(&key).await;
        database.expire_records().await;
        let mut sweeping = PgConnection::connect(&database.url).await.unwrap();
        let pace = SweepPace {
            memory: Some(YEAR),
            ..SweepPace::default()
        };
        // The server's own sweep may have been there before.
        sweep(&mut sweeping, pace).await.unwrap();
        assert_eq!(database.records().await, 0);
        let removed = match is_refused {
            false => "what was remembered of the key",
            true => {
                let late = client.charge(&key).await;
                assert_eq!(late.code(), "idempotency_key_expired");
                "POST /charges, answered 409"
            }
        };
        let removed = format!("Removed: {removed}, about {}.", first.id());
        assert_has(&forget(database, &[&key, "--yes"]).succeeded(), &removed);
        let again = client.charge(&key).await;
        assert_eq!((again.status.as_u16(), again.is_replay()), (201, false));
    }
    assert_eq!(database.charges().await, 4);
}

#[tokio::test]
async fn a_key_that_is_refused_by_the_time_in_it_is_not_new_without_its_record() {
    let old = "01890a5d-ac96-774b-bcce-b302099a8057";
    let refuses = ("REFUSE_OLD_KEYS", "true");
    let (server, client) = TestServer::with_client(&[FORGETFUL, refuses]).await;
    assert_eq!(client.charge(old).await.code(), "idempotency_key_expired");
    let arguments = ["keys", "forget", "--by", "Ada", old, "--yes"];
    let variables = [("DATABASE_URL", &*server.database.url), refuses];
    let ended = Run::of(run(&arguments, &variables));
    assert_has(&ended.stdout, "Removed: POST /charges, answered 409");
    assert_has(&ended.failed(1), "REFUSE_OLD_KEYS is set");
    assert_eq!(server.database.records().await, 0);
}

#[tokio::test]
async fn a_sealed_record_is_forgotten_by_its_key() {
    let secret = ("SEAL_SECRETS", "a-secret-of-32-bytes-or-even-more");
    let variables = [FORGETFUL, secret, ("SEAL_REPLIES", "all")];
    let (server, client) = TestServer::with_client(&variables).await;
    let first = client.charge("key-1").await;
    let told = forget(&server.database, &["key-1", "--yes"]).succeeded();
    assert_has(&told, &format!("answered 201, about {}.", first.id()));
    assert_eq!(server.database.records().await, 0);
    assert!(!client.charge("key-1").await.is_replay());
}

/// In flight at a processor, with a lease; in doubt; and in one transaction that is open.
#[tokio::test]
async fn a_key_in_flight_or_in_doubt_is_not_forgotten() {
    let world = World::new().await;
    let database = &world.database;
    let lost = json!({"fault": "drop_after"});
    world.processor.set_fault(lost).await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let postpone = "UPDATE idempotency_leases SET recover_after = now() + interval '5 minutes'";
    database.execute(postpone).await;
    let refused = |key: &str| {
        let ended = forget(database, &[key, "--yes", "--account", "dev"]);
        assert_has(&ended.failed(1), "a request with this key is at work");
    };
    refused("key-1");
    database
        .execute("UPDATE idempotency_leases SET in_doubt = false")
        .await;
    refused("key-1");
    let owner: Uuid = database
        .value("SELECT account_id FROM idempotency_keys")
        .await;
    let request: String = database
        .value("SELECT request_id FROM idempotency_keys")
        .await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let forgotten = forget_key(&mut connection, owner, "key-1", Some(&request)).await;
    assert_eq!(forgotten.unwrap(), None);
    assert_eq!(database.records().await, 1);
    let held = hold_key(database, "key-2").await;
    refused("key-2");
    held.rollback().await.unwrap();
}

/// A person has seen the record of one request. Meanwhile its key has expired, and belongs to
/// another one, which commits while the command waits for it.
#[tokio::test]
async fn what_has_come_since_a_person_looked_is_not_forgotten() {
    let (server, client) = TestServer::with_client(&[FORGETFUL]).await;
    let database = &server.database;
    client.charge("key-1").await;
    let owner: Uuid = database
        .value("SELECT account_id FROM idempotency_keys")
        .await;
    let seen: String = database
        .value("SELECT request_id FROM idempotency_keys")
        .await;
    let another = "UPDATE idempotency_keys SET request_id = 'req_another'";
    let taking_over = database.holding(another).await;
    let url = database.url.clone();
    let forgetting = tokio::spawn(async move {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        forget_key(&mut connection, owner, "key-1", Some(&seen)).await
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    database.comes_to(waiting, 1).await;
    taking_over.commit().await.unwrap();
    assert_eq!(forgetting.await.unwrap().unwrap(), None);
    assert_eq!(database.records().await, 1);
    database.is_left_broken("a record names a request that has made nothing");
}
