//! A key that its client gives up: nothing is executed with it later.

use crate::support::{
    prelude::*,
    racers::{all_at_once, definite},
    records::hold_key,
};

/// Gives a key up, with a key of its own.
async fn abandon(client: &Client, key: &str, own_key: &str) -> Answer {
    let path = format!("/idempotency-keys/{key}/abandon");
    client.post(&path, own_key, &json!({})).await
}

fn abandoned() -> (u16, String) {
    (409, "idempotency_key_abandoned".to_owned())
}

#[tokio::test]
async fn nothing_is_executed_with_a_key_that_was_given_up() {
    let (server, client) = TestServer::with_client(&[]).await;
    let given_up = abandon(&client, "key-1", "own-1").await;
    assert_eq!(given_up.status, 200);
    given_up.json().assert_shows(json!({
        "object": "idempotency_key", "key": "key-1", "status": "abandoned", "response_status": 409,
        "resource": null, "request": given_up.header("request-id").unwrap(),
    }));
    // Each request, and in both dialects.
    let late = client.charge("key-1").await;
    assert_eq!(error(&late), abandoned());
    assert!(late.is_replay());
    assert_eq!(
        late.header("original-request"),
        given_up.header("request-id")
    );
    assert_eq!(late.header("stripe-should-retry"), Some("false"));
    let described_by = "</errors#idempotency_key_abandoned>; rel=\"describedby\"";
    assert_eq!(late.header("link"), Some(described_by));
    let order = client.post("/v1/orders", "key-1", &json!({"a": "b"})).await;
    assert_eq!(order.body, late.body);
    let deletion = client.request(Method::DELETE, "/customers/cus_1");
    let deletion = Answer::of(deletion.header("idempotency-key", "key-1")).await;
    assert_eq!(error(&deletion), abandoned());
    // Its own retry is a replay, and another one finds it given up.
    abandon(&client, "key-1", "own-1")
        .await
        .assert_replays(&given_up);
    let again = abandon(&client, "key-1", "own-2").await;
    assert_eq!(
        (again.status.as_u16(), again.json()),
        (200, given_up.json())
    );
    let looked_up = client.get("/idempotency-keys/key-1").await;
    assert_eq!(looked_up.json(), given_up.json());
    assert_eq!(server.database.charges().await, 0);
    // Other keys and other accounts have nothing to do with it.
    assert_eq!(client.charge("key-2").await.status, 201);
    let other = client_of_account(&server, "other").await;
    assert_eq!(other.charge("key-1").await.status, 201);
}

#[tokio::test]
async fn what_was_executed_or_refused_before_is_told_and_stays() {
    let (server, client) = TestServer::with_client(&[FORGETFUL]).await;
    let charged = client.charge("key-1").await;
    let refused = client.post("/charges", "key-2", &json!({})).await;
    for (key, first) in [("key-1", &charged), ("key-2", &refused)] {
        let told = abandon(&client, key, &format!("own-{key}")).await;
        assert_eq!(told.status, 200);
        let status = first.status.as_u16();
        told.json()
            .assert_shows(json!({"status": "completed", "response_status": status}));
    }
    client.charge("key-1").await.assert_replays(&charged);
    assert_eq!(server.database.charges().await, 1);
    // A record that has expired is as none.
    server.database.expire_records().await;
    let told = abandon(&client, "key-1", "own-3").await;
    assert_eq!(told.json()["status"], "abandoned");
    assert_eq!(error(&client.charge("key-1").await), abandoned());
    assert_eq!(server.database.charges().await, 1);
}

/// Twenty requests and twenty that give their key up, through two replicas: one side wins.
#[tokio::test]
async fn a_request_and_the_one_that_gives_its_key_up_never_both_win() {
    let database = TestDatabase::create().await;
    let replicas = [(); 2].map(|()| ServerProcess::start(&database, &[]));
    let mut wins = [0; 2];
    for round in 0..10 {
        let key = format!("key-{round}");
        let before = database.charges().await;
        let answers = all_at_once(40, |racer| {
            let (client, key) = (replicas[racer % 2].client.clone(), key.clone());
            async move {
                // Who begins differs from round to round.
                if (racer / 2 + round) % 2 == 0 {
                    definite(|| client.charge(&key)).await
                } else {
                    let own = format!("{key}-own-{racer}");
                    definite(|| abandon(&client, &key, &own)).await
                }
            }
        })
        .await;
        let charged = database.charges().await - before;
        assert!(charged <= 1, "{charged} charges");
        let (told, status) = match charged {
            1 => ("completed", 201),
            _ => ("abandoned", 409),
        };
        for answer in answers {
            if answer.status == 200 {
                answer
                    .json()
                    .assert_shows(json!({"status": told, "response_status": status}));
            } else {
                assert_eq!(answer.status.as_u16(), status, "{answer:?}");
            }
        }
        wins[usize::from(charged == 1)] += 1;
    }
    report(&format!("given up and executed: {wins:?}"));
}

#[tokio::test]
async fn a_request_at_work_is_waited_for_or_told_and_never_stopped() {
    let (server, client) = TestServer::with_client(&[]).await;
    // Another process works on the key, and gives it back.
    let held = hold_key(&server.database, "key-1").await;
    let busy = abandon(&client, "key-1", "own-1").await;
    assert_eq!(error(&busy), (409, "idempotency_key_in_use".into()));
    assert!(busy.header("retry-after").is_some());
    held.rollback().await.unwrap();
    // That was no outcome: the same request gives it up now.
    let given_up = abandon(&client, "key-1", "own-1").await;
    assert_eq!(given_up.json()["status"], "abandoned");
    assert!(!given_up.is_replay());
    // This process works on the key, and ends.
    let working = client.sending("/charges", "key-2", charge_by("tok_slow"));
    // It is told to be in flight before its transaction has it: what gives it up then may win.
    let asleep = "SELECT count(*) FROM pg_stat_activity
                   WHERE wait_event = 'PgSleep' AND datname = current_database()";
    server.database.comes_to(asleep, 1).await;
    let told = definite(|| abandon(&client, "key-2", "own-2")).await;
    told.json()
        .assert_shows(json!({"status": "completed", "response_status": 201}));
    assert_eq!(working.await.unwrap().status, 201);
    assert_eq!(error(&client.charge("key-1").await), abandoned());
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn what_may_have_been_executed_is_not_given_up() {
    let world = World::new().await;
    world
        .processor
        .set_fault(json!({"fault": "drop_after"}))
        .await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let later = "UPDATE idempotency_leases SET recover_after = now() + interval '40 seconds'";
    world.database.execute(later).await;
    let told = abandon(&world.client(), "key-1", "own-1").await;
    assert_eq!(error(&told), (409, "idempotency_key_in_use".into()));
    // When the server asks for the outcome again.
    let seconds: u64 = told.header("retry-after").unwrap().parse().unwrap();
    assert!((35..=40).contains(&seconds), "{seconds}");
    assert!(
        message(&told).contains("may have been executed"),
        "{told:?}"
    );
    world.processor.reset_faults().await;
    let client = world.client();
    let charged = definite(|| client.charge("key-1")).await;
    assert_eq!(charged.status, 201);
    let told = abandon(&world.client(), "key-1", "own-1").await;
    told.json()
        .assert_shows(json!({"status": "completed", "resource": charged.id()}));
}

#[tokio::test]
async fn wrong_requests_give_nothing_up() {
    let (server, client) = TestServer::with_client(&[]).await;
    let own = abandon(&client, "own-1", "own-1").await;
    assert_eq!(own.refusal(), refusal("parameter_invalid", "key"));
    let path = "/idempotency-keys/key-1/abandon";
    let more = client.post(path, "own-2", &json!({"reason": "late"})).await;
    assert_eq!(more.refusal(), refusal("parameter_unknown", "reason"));
    let keyless = Answer::of(client.request(Method::POST, path)).await;
    assert_eq!(keyless.code(), "idempotency_key_required");
    for key in ["a%20b", "%22", ",", &"k".repeat(256)] {
        let wrong = abandon(&client, key, "own-3").await;
        assert_eq!(
            wrong.refusal(),
            refusal("parameter_invalid", "key"),
            "{key}"
        );
    }
    // It would be stored.
    let secret = abandon(&client, "sk_test_20260101abcdefgh20260101", "own-4").await;
    assert_eq!(secret.code(), "idempotency_key_invalid");
    let records = server.database.records().await;
    assert_eq!(client.charge("key-1").await.status, 201);
    assert_eq!(server.database.records().await, records + 1);
    assert_eq!(server.database.charges().await, 1);
    // Any other key can be given up.
    for (place, key) in ["a/b", "what?", "100%", "%41", "/abandon"]
        .iter()
        .enumerate()
    {
        let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let given_up = abandon(&client, &encoded, &format!("own-4-{place}")).await;
        assert_eq!(given_up.json()["key"], *key);
        assert_eq!(error(&client.charge(key).await), abandoned(), "{key}");
    }
}
