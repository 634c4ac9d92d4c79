//! Replies that are encrypted where they are stored.

use crate::support::{
    prelude::*,
    racers::{definite, until_definite},
};

const OLD: &str = "old-secret-old-secret-old-secret";
const NEW: &str = "new-secret-new-secret-new-secret";
const ALL: (&str, &str) = ("SEAL_REPLIES", "all");

fn sealed_by(secrets: &str) -> (&str, &str) {
    ("SEAL_SECRETS", secrets)
}

fn hook() -> Value {
    endpoint("https://example.com/hook")
}

async fn create(client: &Client, key: &str) -> Answer {
    client.post("/webhook_endpoints", key, &hook()).await
}

/// The tables whose rows hold this text, as a text or as bytes.
async fn tables_with(database: &TestDatabase, text: &str) -> Vec<String> {
    let tables = "SELECT relname::text FROM pg_class
                   WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";
    let mut found = Vec::new();
    for table in database.values::<String>(tables).await {
        let holds = format!(
            "SELECT EXISTS (SELECT FROM {table} AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, $2) > 0)"
        );
        let holds = sqlx::query_scalar(AssertSqlSafe(holds));
        let holds = holds.bind(text).bind(hex::encode(text));
        if holds.fetch_one(&database.pool).await.unwrap() {
            found.push(table);
        }
    }
    found
}

async fn assert_unavailable_and_not_executed(client: &Client, database: &TestDatabase, key: &str) {
    let endpoints = database.count_of("webhook_endpoints").await;
    for _ in 0..2 {
        assert_eq!(create(client, key).await.status, 503);
    }
    assert_eq!(database.count_of("webhook_endpoints").await, endpoints);
}

#[tokio::test]
async fn a_stolen_database_has_neither_the_key_nor_the_secret_and_a_replay_is_the_same_bytes() {
    let mut holding = Vec::new();
    for secrets in [None, Some(sealed_by(NEW))] {
        let more = [FAULTS, FORGETFUL, ("CONSOLE", "true")];
        let variables: Vec<_> = more.into_iter().chain(secrets).collect();
        let (server, client) = TestServer::with_client(&variables).await;
        let key = "a-key-of-a-client";
        let made = client.post("/test/accounts", key, &json!({})).await;
        let api_key = made.json()["api_key"].as_str().unwrap().to_owned();
        let path = format!("/idempotency-keys/{key}");
        let known = client.get(&path).await.json();
        known.assert_shows(json!({"key": key, "status": "completed", "response_status": 201}));
        let told = client
            .post(&format!("{path}/abandon"), "own-1", &json!({}))
            .await;
        told.json()
            .assert_shows(json!({"key": key, "status": "completed"}));
        let logged = "SELECT count(*) FROM request_log";
        server.database.comes_to(logged, 3).await;

        let database = server.stop().await;
        holding.push(tables_with(&database, key).await);
        holding.push(tables_with(&database, &api_key).await);
        let (hashes, records) = (
            "SELECT count(*) FROM idempotency_keys WHERE key LIKE ',sealed.%'",
            database.records().await,
        );
        let expected = if secrets.is_some() { records } else { 0 };
        assert_eq!(database.count(hashes).await, expected);
        let server = TestServer::start_on(database, &variables).await;
        let again = server.client.post("/test/accounts", key, &json!({})).await;
        again.assert_replays(&made);
        let path = format!("{path}/abandon");
        let again = server.client.post(&path, "own-1", &json!({})).await;
        again.assert_replays(&told);
    }
    let [mut key, secret, key_where_sealed, secret_where_sealed] = holding.try_into().unwrap();
    key.sort();
    assert_eq!(key, ["idempotency_keys", "request_log"]);
    assert_eq!(secret, ["idempotency_keys"]);
    assert_eq!(key_where_sealed, [""; 0]);
    assert_eq!(secret_where_sealed, [""; 0]);
}

#[tokio::test]
async fn every_secret_opens_and_without_it_a_retry_is_503_and_nothing_is_done() {
    let server = TestServer::start_with(&[FORGETFUL, sealed_by(OLD)]).await;
    let by_old = create(&server.client, "key-1").await;
    assert_eq!(by_old.status, 201);
    let database = server.stop().await;

    let both = format!("{NEW},{OLD}");
    let server = TestServer::start_on(database, &[FORGETFUL, sealed_by(&both)]).await;
    create(&server.client, "key-1")
        .await
        .assert_replays(&by_old);
    let by_new = create(&server.client, "key-2").await;
    assert_eq!(by_new.status, 201);
    let database = server.stop().await;

    let server = TestServer::start_on(database, &[FORGETFUL, sealed_by(NEW)]).await;
    create(&server.client, "key-2")
        .await
        .assert_replays(&by_new);
    assert_unavailable_and_not_executed(&server.client, &server.database, "key-1").await;
    // Another request under the key is told so: that takes no secret.
    let reused = server.client.charge("key-1").await;
    assert_eq!(reused.code(), "idempotency_key_reused");
    let database = server.stop().await;

    let server = TestServer::start_on(database, &[FORGETFUL]).await;
    for key in ["key-1", "key-2"] {
        assert_unavailable_and_not_executed(&server.client, &server.database, key).await;
        let reused = server.client.charge(key).await;
        assert_eq!(reused.code(), "idempotency_key_reused");
    }
    assert_eq!(create(&server.client, "key-3").await.status, 201);
    assert_eq!(server.database.count_of("webhook_endpoints").await, 3);
}

#[tokio::test]
async fn what_was_changed_in_the_table_does_not_open_and_is_not_executed_again() {
    let server = TestServer::start_with(&[FORGETFUL, sealed_by(NEW)]).await;
    let (client, database) = (&server.client, &server.database);
    let made = create(client, "key-1").await;
    create(client, "key-2").await;
    let bodies = "SELECT body FROM idempotency_keys ORDER BY created_at";
    let [first, second] = database.values::<Vec<u8>>(bodies).await.try_into().unwrap();
    let mut changed = first.clone();
    *changed.last_mut().unwrap() ^= 1;
    let first_one = "UPDATE idempotency_keys SET body = $1
                      WHERE created_at = (SELECT min(created_at) FROM idempotency_keys)";
    let put = async |body: &[u8]| {
        let put = sqlx::query(first_one).bind(body);
        put.execute(&database.pool).await.unwrap();
    };
    for body in [&changed, &second, b"{}".as_slice()] {
        put(body).await;
        assert_unavailable_and_not_executed(client, database, "key-1").await;
    }
    put(&first).await;
    create(client, "key-1").await.assert_replays(&made);
}

#[tokio::test]
async fn a_key_is_one_key_whether_its_reply_is_sealed_or_not() {
    for alone in [None, Some(ALONE)] {
        let variables: Vec<_> = [FORGETFUL, sealed_by(NEW)]
            .into_iter()
            .chain(alone)
            .collect();
        let (server, client) = TestServer::with_client(&variables).await;
        assert_eq!(create(&client, "key-1").await.status, 201);
        assert_eq!(client.charge("key-2").await.status, 201);
        let order = json!({"items": [{"sku": "a", "quantity": 1}]});
        for reused in [
            client.charge("key-1").await,
            client.post("/orders", "key-1", &order).await,
            create(&client, "key-2").await,
        ] {
            assert_eq!(
                (reused.status.as_u16(), &*reused.code()),
                (422, "idempotency_key_reused")
            );
        }
        let database = &server.database;
        assert_eq!((database.records().await, database.charges().await), (2, 1));

        // An expired record makes room for one of the other kind, and stays one.
        database.expire_records().await;
        assert_eq!(client.charge("key-1").await.status, 201);
        let made = create(&client, "key-2").await;
        assert_eq!((made.status.as_u16(), made.is_replay()), (201, false));
        create(&client, "key-2").await.assert_replays(&made);
        let plain = "SELECT array_agg(key) FROM idempotency_keys WHERE key NOT LIKE ',sealed.%'";
        assert_eq!(database.value::<Vec<String>>(plain).await, ["key-1"]);
        assert_eq!(database.records().await, 2);
    }
}

#[tokio::test]
async fn racers_with_a_sealed_verb_through_two_replicas_make_one_endpoint_and_see_one_reply() {
    let database = TestDatabase::create().await;
    let variables = [FORGETFUL, sealed_by(NEW)];
    let replicas = [(); 2].map(|()| ServerProcess::start(&database, &variables));
    let answers = all_at_once(40, |racer| {
        let client = replicas[racer % 2].client.clone();
        async move { definite(|| create(&client, "key-1")).await }
    })
    .await;
    let first = answers
        .iter()
        .find(|answer| !answer.is_replay())
        .unwrap_or(&answers[0]);
    assert_eq!(first.status, 201);
    for answer in answers.iter().filter(|answer| answer.is_replay()) {
        answer.assert_replays(first);
    }
    assert_eq!(database.count_of("webhook_endpoints").await, 1);
    // An endpoint and a charge that race for a key: one of them has it.
    let answers = all_at_once(40, |racer| {
        let client = replicas[racer % 2].client.clone();
        async move {
            match racer / 2 % 2 {
                0 => definite(|| client.charge("key-2")).await,
                _ => definite(|| create(&client, "key-2")).await,
            }
        }
    })
    .await;
    let won = answers.iter().filter(|answer| answer.status == 201);
    let reused = answers.iter().filter(|answer| answer.status == 422);
    assert_eq!((won.count(), reused.count()), (20, 20));
    let made = database.charges().await + database.count_of("webhook_endpoints").await;
    assert_eq!((made, database.records().await), (2, 2));
}

/// As in the middle of a rollout that changes the setting.
#[tokio::test]
async fn replicas_with_different_settings_never_execute_a_key_twice() {
    let database = TestDatabase::create().await;
    let replicas = [
        ServerProcess::start(&database, &[FORGETFUL, sealed_by(NEW), ALL]),
        ServerProcess::start(&database, &[FORGETFUL, sealed_by(NEW)]),
        ServerProcess::start(&database, &[FORGETFUL]),
    ];
    for number in 0..4 {
        let answers = all_at_once(30, |racer| {
            let client = replicas[racer % 3].client.clone();
            let key = format!("key-{number}");
            async move {
                match racer % 3 {
                    // One that knows no secret can't open what another one has sealed.
                    2 => client.charge(&key).await,
                    _ => definite(|| client.charge(&key)).await,
                }
            }
        })
        .await;
        let charged: Vec<_> = answers
            .iter()
            .filter(|answer| answer.status == 201)
            .collect();
        assert!(charged.len() >= 20, "{answers:?}");
        for answer in &charged {
            assert_eq!(answer.body, charged[0].body);
        }
        let others = answers.iter().filter(|answer| answer.status != 201);
        for answer in others {
            assert!([409, 503].contains(&answer.status.as_u16()), "{answer:?}");
        }
    }
    assert_eq!((database.charges().await, database.records().await), (4, 4));
}

#[tokio::test]
async fn with_all_replies_sealed_no_table_has_the_key_of_a_charge_and_its_event_names_none() {
    for alone in [None, Some(ALONE)] {
        let variables: Vec<_> = [FORGETFUL, sealed_by(NEW), ALL, ("CONSOLE", "true")]
            .into_iter()
            .chain(alone)
            .collect();
        let (server, client) = TestServer::with_client(&variables).await;
        let key = "a-key-of-a-client";
        let charged = client.charge(key).await;
        assert_eq!(charged.status, 201);
        client.charge(key).await.assert_replays(&charged);
        let refund = json!({"charge": charged.id(), "amount": 500});
        let refunded = client.post("/refunds", "key-2", &refund).await;
        assert_eq!(refunded.status, 201);
        client
            .post("/refunds", "key-2", &refund)
            .await
            .assert_replays(&refunded);
        let refused = client.post("/charges", "key-3", &json!({})).await;
        client
            .post("/charges", "key-3", &json!({}))
            .await
            .assert_replays(&refused);
        let events = client.get("/events").await.json();
        assert_eq!(events["data"][0]["request"]["idempotency_key"], Value::Null);
        let logged = "SELECT count(*) FROM request_log";
        server.database.comes_to(logged, 7).await;
        assert_eq!(tables_with(&server.database, key).await, [""; 0]);
        // A checkout takes several transactions: its record is stored as it is.
        stock(&client, "mug", 2).await;
        let checkout = until_definite(&client, "/checkouts", &checkout()).await;
        assert_eq!(checkout.status, 201, "{checkout:?}");
        let plain = "SELECT count(*) FROM idempotency_keys
                      WHERE key NOT LIKE ',%' AND path = '/checkouts'";
        assert_eq!(server.database.count(plain).await, 1);
    }
}

#[tokio::test]
async fn a_workflow_has_the_requests_whose_replies_are_sealed_and_its_pages_lead_on() {
    let (_server, client) = TestServer::with_client(&[sealed_by(NEW), ALL]).await;
    for number in 1..=3 {
        let request = client.request(Method::POST, "/charges").json(&charge());
        let request = request.header("idempotency-key", format!("key-{number}"));
        let made = Answer::of(request.header("idempotency-workflow", "trip-1")).await;
        assert_eq!(made.status, 201);
    }
    let (mut resources, mut path) = (Vec::new(), "/workflows/trip-1?limit=1".to_owned());
    loop {
        let page = client.get(&path).await.json();
        let step = &page["data"][0];
        let key = step["key"].as_str().unwrap();
        assert!(key.starts_with(",sealed."), "{key}");
        resources.push(step["resource"].as_str().unwrap().to_owned());
        if page["has_more"] == false {
            break;
        }
        path = format!("/workflows/trip-1?limit=1&starting_after={key}");
    }
    resources.dedup();
    assert_eq!(resources.len(), 3);
}

#[tokio::test]
async fn a_sealed_record_is_found_by_its_key_and_told_to_be_sealed() {
    let variables = [FORGETFUL, sealed_by(NEW), ("CONSOLE", "true")];
    let (server, client) = TestServer::with_client(&variables).await;
    let made = create(&client, "key-1").await;
    let logged = "SELECT count(*) FROM request_log";
    server.database.comes_to(logged, 1).await;
    let url = [("DATABASE_URL", &*server.database.url)];
    let shown = printed_by(&["keys", "show", "key-1"], &url);
    let reply = format!("reply    201, sealed, about {}\n", made.id());
    assert!(
        shown.contains(&reply) && shown.contains("POST /webhook_endpoints"),
        "{shown}"
    );
    let shown = printed_by(&["keys", "show", "key-1", "--json"], &url);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown.assert_shows(json!({"state": "completed", "status": 201, "sealed": true}));
    // Given up, it stays what it is; once it has expired, it is as none.
    let give_up = async |own_key: &str| {
        let path = "/idempotency-keys/key-1/abandon";
        client.post(path, own_key, &json!({})).await.json()
    };
    assert_eq!(give_up("own-1").await["status"], "completed");
    server.database.expire_records().await;
    assert_eq!(give_up("own-2").await["status"], "abandoned");
    assert_eq!(
        create(&client, "key-1").await.code(),
        "idempotency_key_abandoned"
    );
    let own = client
        .post("/idempotency-keys/own-3/abandon", "own-3", &json!({}))
        .await;
    assert_eq!(own.refusal(), refusal("parameter_invalid", "key"));
}

/// As after a mistake of the program, in the middle of a rollout that changes the setting.
#[tokio::test]
async fn a_second_execution_is_found_whichever_of_them_was_sealed() {
    let (server, client) = TestServer::with_client(&[FORGETFUL, sealed_by(NEW), ALL]).await;
    let database = &server.database;
    let plain = ServerProcess::start(database, &[FORGETFUL, sealed_by(NEW)]);
    assert_eq!(client.charge("sealed").await.status, 201);
    assert_eq!(plain.client.charge("plain").await.status, 201);
    let url = [("DATABASE_URL", &*database.url)];
    printed_by(&["check"], &url);
    let owner: Uuid = database
        .value("SELECT account_id FROM charges LIMIT 1")
        .await;
    let sealed = charge_once::idempotency::sealed_key(owner, "sealed");
    let again = charge_once::idempotency::sealed_key(owner, "plain");
    // Of each record: what another request has changed, under this spelling of its key.
    for (record, spelled) in [
        (&*sealed, "sealed"),
        (&sealed, &sealed),
        ("plain", &again),
        ("plain", "plain"),
    ] {
        let second = format!(
            "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT account_id, gen_random_uuid(), 'charge.updated', object, 'req_other', '{spelled}'
               FROM events LIMIT 1"
        );
        assert_eq!(database.execute(second).await, 1);
        let checked = Run::of(run(&["check", "--json"], &url));
        assert_eq!(checked.code, Some(1), "{checked:?}");
        let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
        let invariants = checked["invariants"].as_array().unwrap();
        let found = invariants
            .iter()
            .find(|one| one["name"] == "one_execution_per_key");
        let violations = found.unwrap()["violations"].as_array().unwrap();
        let objects: Vec<_> = violations.iter().map(|one| &one["object"]).collect();
        assert_eq!(objects, [record], "{spelled}");
        let undone = "DELETE FROM events WHERE request_id = 'req_other'";
        assert_eq!(database.execute(undone).await, 1);
    }
}
