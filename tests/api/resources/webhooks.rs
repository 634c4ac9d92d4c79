//! Webhooks: delivered at least once, signed, retried, and never in anybody's way.

use std::{collections::BTreeSet, io::Read, time::Duration};

use charge_once::store::webhook_deliveries::{Busy, claim};
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use sqlx::{Postgres, Transaction};
use tokio::io::AsyncWriteExt;

use crate::{
    idempotency::keys::client_of_account,
    resources::webhook_endpoints::{delete, endpoint},
    support::{
        harness::{Answer, Client, ServerProcess, TestDatabase, TestServer, charge, eventually},
        receiver::{Received, Receiver},
    },
};

/// Receivers on this machine, and no longer pauses than needed.
const QUICK: &[(&str, &str)] = &[
    ("WEBHOOK_ALLOW_PRIVATE", "true"),
    ("WEBHOOK_POLL_INTERVAL", "10ms"),
    ("WEBHOOK_RETRY_MIN", "1ms"),
    ("WEBHOOK_RETRY_MAX", "2ms"),
];

/// [`QUICK`] with some variables set otherwise.
fn quick_but<'a>(variables: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [variables, QUICK].concat()
}

/// An endpoint: its id and its secret.
struct Endpoint {
    id: String,
    secret: String,
}

impl Endpoint {
    /// For events of all types.
    async fn at(client: &Client, url: &str) -> Self {
        Self::with(client, &endpoint(url)).await
    }

    async fn with(client: &Client, body: &Value) -> Self {
        let key = uuid::Uuid::now_v7().to_string();
        let created = client.post("/webhook_endpoints", &key, body).await;
        assert_eq!(created.status, 201, "{}", created.json());
        let secret = created.json()["secret"].as_str().unwrap().to_owned();
        Self {
            id: created.id(),
            secret,
        }
    }

    /// Newest first.
    async fn deliveries(&self, client: &Client) -> Vec<Value> {
        let path = format!("/webhook_endpoints/{}/deliveries", self.id);
        let list = client.get(&path).await;
        assert_eq!(list.status, 200);
        list.json()["data"].as_array().unwrap().clone()
    }

    /// Waits until the newest delivery looks as it should.
    async fn newest_delivery(
        &self,
        client: &Client,
        what: &str,
        looks_right: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, || async {
            let deliveries = self.deliveries(client).await;
            deliveries.first().is_some_and(&looks_right)
        })
        .await;
        self.deliveries(client).await.remove(0)
    }

    async fn newest_succeeds(&self, client: &Client) -> Value {
        let succeeded = |delivery: &Value| delivery["status"] == "succeeded";
        self.newest_delivery(client, "the delivery succeeds", succeeded)
            .await
    }
}

/// What a receiver does: `t` from the header, HMAC-SHA256 of `t.body`, compared with `v1`.
fn verifies(secret: &str, signature: &str, body: &[u8]) -> bool {
    let (t, v1) = signature.split_once(",v1=").unwrap();
    let t = t.strip_prefix("t=").unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(t.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.verify_slice(&hex::decode(v1).unwrap()).is_ok()
}

fn sent_at(received: &Received) -> i64 {
    let (t, _) = received.signature().split_once(',').unwrap();
    t.strip_prefix("t=").unwrap().parse().unwrap()
}

const DELIVERIES: &str = "SELECT count(*) FROM webhook_deliveries";
const PENDING: &str = "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'";

async fn everything_is_delivered(database: &TestDatabase) {
    eventually("everything is delivered", || async {
        database.count(PENDING).await == 0
    })
    .await;
}

#[tokio::test]
async fn an_event_arrives_as_the_api_shows_it_with_a_signature_that_verifies() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    let charge = client.charge("key-1").await;

    let received = receiver.next().await;
    assert_eq!(received.line, "POST /hook?tenant=7 HTTP/1.1");
    assert_eq!(received.headers["content-type"], "application/json");
    assert!(received.headers["user-agent"].starts_with("charge-once/"));
    let path = format!("/events/{}", received.event_id());
    let shown = client.get(&path).await;
    assert_eq!(shown.json()["pending_webhooks"], 1);
    assert_eq!(received.body, shown.body, "to the byte");
    assert_eq!(received.event()["type"], "charge.succeeded");
    assert_eq!(received.event()["data"]["object"], charge.json());

    let (secret, signature, body) = (&endpoint.secret, received.signature(), &received.body);
    assert!(verifies(secret, signature, body));
    assert!(!verifies("whsec_another", signature, body));
    let mut tampered = body.clone();
    tampered[10] ^= 1;
    assert!(!verifies(secret, signature, &tampered));
    let moved = signature.replacen("t=", "t=1", 1);
    assert!(!verifies(secret, &moved, body));

    let (event, at) = (received.event_id(), sent_at(&received));
    let under_way = endpoint.deliveries(client).await.remove(0);
    assert_eq!(under_way["status"], "pending");
    assert_eq!(under_way["next_attempt"], Value::Null);
    received.answer(204).await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(client.get(&path).await.json()["pending_webhooks"], 0);
    assert!(delivery["id"].as_str().unwrap().starts_with("whd_"));
    let attempt = &delivery["attempts"][0];
    let expected = json!({
        "id": delivery["id"], "object": "webhook_delivery", "created": delivery["created"],
        "attempts": [{
            "at": at, "response_status": 204, "error": null, "duration_ms": attempt["duration_ms"],
        }],
        "delivered": delivery["delivered"], "endpoint": endpoint.id, "event": event,
        "event_type": "charge.succeeded", "next_attempt": null, "status": "succeeded",
    });
    assert_eq!(delivery, expected);
    assert!(delivery["delivered"].is_i64() && attempt["duration_ms"].is_i64());
}

#[tokio::test]
async fn an_endpoint_gets_the_types_it_enabled_and_a_star_gets_all() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let (mut some, mut all) = (Receiver::start().await, Receiver::start().await);
    let failed = json!({"url": some.url(), "enabled_events": ["refund.created", "charge.failed"]});
    Endpoint::with(client, &failed).await;
    Endpoint::at(client, &all.url()).await;

    let paid = client.charge("key-1").await.id();
    let mut declined = charge();
    declined["source"] = "tok_chargeDeclined".into();
    client.post("/charges", "key-2", &declined).await;
    client
        .post("/refunds", "key-3", &json!({"charge": paid}))
        .await;
    let mut types = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2 {
        let received = some.next().await;
        types
            .0
            .insert(received.event()["type"].as_str().unwrap().to_owned());
        received.answer(200).await;
    }
    for _ in 0..4 {
        let received = all.next().await;
        types
            .1
            .insert(received.event()["type"].as_str().unwrap().to_owned());
        received.answer(200).await;
    }
    assert!(types.0.iter().eq(["charge.failed", "refund.created"]));
    let expected = [
        "charge.failed",
        "charge.refunded",
        "charge.succeeded",
        "refund.created",
    ];
    assert!(types.1.iter().eq(expected), "{types:?}");
    everything_is_delivered(&server.database).await;
    assert_eq!(server.database.count(DELIVERIES).await, 6);
}

#[tokio::test]
async fn replays_and_refusals_and_failures_tell_nobody() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    assert!(client.charge("key-1").await.is_replay());
    let refused = client
        .post("/charges", "key-2", &json!({"amount": 0}))
        .await;
    assert_eq!(refused.status, 400);
    let mut outage = charge();
    outage["source"] = "tok_outage".into();
    assert_eq!(client.post("/charges", "key-3", &outage).await.status, 503);
    receiver.next().await.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(server.database.count(DELIVERIES).await, 1);
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn an_event_and_its_deliveries_are_committed_together_or_not_at_all() {
    let server = TestServer::start_with(QUICK).await;
    let receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    sqlx::raw_sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON webhook_deliveries
             FOR EACH ROW EXECUTE FUNCTION refuse();",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    let answer = server.client.charge("key-1").await;
    assert_eq!(answer.status, 500);
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(
        server.database.count("SELECT count(*) FROM events").await,
        0
    );
}

#[tokio::test]
async fn what_is_not_taken_is_sent_again_the_same_and_signed_anew_until_it_is() {
    // Signatures are dated in seconds: with pauses of a second, each date is another one.
    let pauses = [("WEBHOOK_RETRY_MIN", "1s"), ("WEBHOOK_RETRY_MAX", "2s")];
    let server = TestServer::start_with(&quick_but(&pauses)).await;
    let client = &server.client;
    let (mut receiver, mut sibling) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    Endpoint::at(client, &sibling.url()).await;
    client.charge("key-1").await;
    // Another endpoint's success changes what is pending, and must not change what is sent.
    let to_sibling = sibling.next().await;
    to_sibling.answer(200).await;

    let first = receiver.next().await;
    let (body, first_t) = (first.body.clone(), sent_at(&first));
    assert!(verifies(&endpoint.secret, first.signature(), &body));
    first.answer(500).await;
    let failed_once = |delivery: &Value| delivery["attempts"][0]["response_status"] == 500;
    let delivery = endpoint
        .newest_delivery(client, "the failure shows", failed_once)
        .await;
    assert_eq!(delivery["status"], "pending");
    let pause = delivery["next_attempt"].as_i64().unwrap() - first_t;
    assert!((1..=3).contains(&pause), "{pause}");

    let second = receiver.next().await;
    assert_eq!(second.body, body);
    assert!(sent_at(&second) > first_t);
    assert!(verifies(&endpoint.secret, second.signature(), &body));
    second.answer(200).await;
    let delivery = endpoint.newest_succeeds(client).await;
    let statuses: Vec<_> = delivery["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["response_status"].as_i64().unwrap())
        .collect();
    assert_eq!(statuses, [500, 200]);
    assert_eq!(delivery["next_attempt"], Value::Null);
}

#[tokio::test]
async fn after_the_last_attempt_the_delivery_has_failed() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    for _ in 0..24 {
        receiver.next().await.answer(503).await;
    }
    let failed = |delivery: &Value| delivery["status"] == "failed";
    let delivery = endpoint
        .newest_delivery(client, "it is given up", failed)
        .await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 24);
    assert_eq!(delivery["delivered"], Value::Null);
    assert_eq!(delivery["next_attempt"], Value::Null);
    let event = client
        .get(&format!("/events/{}", delivery["event"].as_str().unwrap()))
        .await;
    assert_eq!(event.json()["pending_webhooks"], 0);
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let (mut receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    let location = format!("Location: {}\r\n", elsewhere.url());
    receiver.next().await.answer_with(307, &location).await;
    receiver.next().await.answer(200).await;
    let delivery = endpoint.newest_succeeds(client).await;
    let attempt = &delivery["attempts"][0];
    assert_eq!(attempt["response_status"], 307);
    assert_eq!(attempt["error"], "redirects are not followed");
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_receiver_that_never_answers_times_out() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_TIMEOUT", "200ms")])).await;
    let client = &server.client;
    let mut silent = Receiver::start().await;
    let endpoint = Endpoint::at(client, &silent.url()).await;
    client.charge("key-1").await;
    let held = silent.next().await;
    shows_the_failure(&endpoint, client, "timed out").await;
    drop(held);
}

/// With the usual time limit: on a busy machine a short one could pass before the failure is known.
#[tokio::test]
async fn a_receiver_that_is_gone_is_told_from_one_that_was_never_there() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let no_tls = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let without_tls = format!("https://{}/", no_tls.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = no_tls.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let cases = [
        (Endpoint::at(client, &nobody).await, "connection refused"),
        (
            Endpoint::at(client, "http://nowhere.invalid/").await,
            "host not found",
        ),
        (
            Endpoint::at(client, &without_tls).await,
            "could not connect",
        ),
    ];
    client.charge("key-1").await;
    for (endpoint, error) in &cases {
        shows_the_failure(endpoint, client, error).await;
    }
}

/// The first attempt of the newest delivery ended without a reply, in `error`.
async fn shows_the_failure(endpoint: &Endpoint, client: &Client, error: &str) {
    let shows = |delivery: &Value| delivery["attempts"][0].is_object();
    let delivery = endpoint.newest_delivery(client, error, shows).await;
    let attempt = &delivery["attempts"][0];
    assert_eq!(attempt["error"], error);
    assert_eq!(attempt["response_status"], Value::Null);
}

#[tokio::test]
async fn an_endpoint_that_never_answers_delays_neither_the_others_nor_requests() {
    // Two connections, so that deliveries that held them would be felt.
    let variables = quick_but(&[("WEBHOOK_TIMEOUT", "60s"), ("POOL_CONNECTIONS", "2")]);
    let server = TestServer::start_with(&variables).await;
    let client = &server.client;
    let (mut stuck, mut lively) = (Receiver::start().await, Receiver::start().await);
    Endpoint::at(client, &stuck.url()).await;
    // More than one replica sends at once.
    let many = (0..70)
        .map(|number| async move { client.charge_until_definite(&format!("key-{number}")).await });
    for answer in join_all(many).await {
        assert_eq!(answer.status, 201);
    }
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(stuck.next().await);
    }
    Endpoint::at(client, &lively.url()).await;
    client.charge("another").await;
    lively.next().await.answer(200).await;
    assert!(stuck.arrived().is_none(), "four at once are enough");
    eventually("the other endpoint's delivery is marked", || async {
        server.database.count(PENDING).await == 71
    })
    .await;
    // A place that is free again is used.
    held.remove(0).answer(200).await;
    stuck.next().await;
}

#[tokio::test]
async fn an_account_whose_endpoints_never_answer_delays_no_other_account() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_TIMEOUT", "60s")])).await;
    let client = &server.client;
    let (mut stuck, mut lively) = (Receiver::start().await, Receiver::start().await);
    // As many as an account may have, and for each more than one replica sends to it at once:
    // together, more than one replica sends at all.
    for _ in 0..16 {
        Endpoint::at(client, &stuck.url()).await;
    }
    for number in 0..5 {
        client.charge(&format!("key-{number}")).await;
    }
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(stuck.next().await);
    }
    let other = client_of_account(&server, "other").await;
    let endpoint = Endpoint::at(&other, &lively.url()).await;
    other.charge("key-1").await;
    lively.next().await.answer(200).await;
    endpoint.newest_succeeds(&other).await;
    assert!(stuck.arrived().is_none(), "sixteen at once are enough");
    // A place that is free again is used.
    held.remove(0).answer(200).await;
    stuck.next().await;
}

#[tokio::test]
async fn a_host_with_a_private_address_is_refused_when_it_is_to_be_sent_to() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_ALLOW_PRIVATE", "false")])).await;
    let client = &server.client;
    let receiver = Receiver::start().await;
    let url = format!("http://localhost:{}/", receiver.address.port());
    let endpoint = Endpoint::at(client, &url).await;
    client.charge("key-1").await;
    let shows = |delivery: &Value| delivery["attempts"][0].is_object();
    let delivery = endpoint
        .newest_delivery(client, "the refusal shows", shows)
        .await;
    assert_eq!(delivery["attempts"][0]["error"], "refused: private address");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn an_address_that_was_allowed_is_refused_once_it_is_not() {
    let server = TestServer::start_with(QUICK).await;
    let receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    let database = server.stop().await;
    let strict = quick_but(&[("WEBHOOK_ALLOW_PRIVATE", "false")]);
    let server = TestServer::start_on(database, &strict).await;
    let client = &server.client;
    client.charge("key-1").await;
    let shows = |delivery: &Value| delivery["attempts"][0].is_object();
    let delivery = endpoint
        .newest_delivery(client, "the refusal shows", shows)
        .await;
    assert_eq!(delivery["attempts"][0]["error"], "refused: private address");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn two_replicas_share_the_work_and_deliver_nothing_twice() {
    let database = TestDatabase::create().await;
    let replicas = [
        ServerProcess::start(&database, QUICK),
        ServerProcess::start(&database, QUICK),
    ];
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&replicas[0].client, &receiver.url()).await;
    for number in 0..20 {
        let client = &replicas[number % 2].client;
        assert_eq!(client.charge(&format!("key-{number}")).await.status, 201);
    }
    // One replica sends four at once to an endpoint, so eight are the work of two.
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(receiver.next().await);
    }
    let mut events = BTreeSet::new();
    for _ in 0..20 {
        let received = match held.pop() {
            Some(received) => received,
            None => receiver.next().await,
        };
        assert!(events.insert(received.event_id()), "delivered twice");
        received.answer(200).await;
    }
    everything_is_delivered(&database).await;
    assert!(receiver.arrived().is_none());
    let path = format!("/webhook_endpoints/{}/deliveries?limit=100", endpoint.id);
    let deliveries = replicas[1].client.get(&path).await.json();
    for delivery in deliveries["data"].as_array().unwrap() {
        assert_eq!(
            delivery["attempts"].as_array().unwrap().len(),
            1,
            "{delivery}"
        );
    }
}

#[tokio::test]
async fn a_delivery_that_another_replica_is_claiming_is_passed_over() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_POLL_INTERVAL", "60s")])).await;
    let (client, database) = (&server.client, &server.database);
    let mut receiver = Receiver::start().await;
    Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    client.charge("key-2").await;
    let mut other_replica = database.pool.begin().await.unwrap();
    let first: uuid::Uuid = sqlx::query_scalar(
        "SELECT event_id FROM webhook_deliveries ORDER BY next_attempt_at LIMIT 1 FOR UPDATE",
    )
    .fetch_one(&mut *other_replica)
    .await
    .unwrap();
    let replica = ServerProcess::start(database, QUICK);
    let received = receiver.next().await;
    let first = charge_once::domain::ids::EventId(first).to_string();
    assert_ne!(received.event_id(), first);
    received.answer(200).await;
    other_replica.rollback().await.unwrap();
    let received = receiver.next().await;
    assert_eq!(received.event_id(), first);
    received.answer(200).await;
    everything_is_delivered(database).await;
    drop(replica);
}

#[tokio::test]
async fn an_endpoint_whose_deliveries_are_all_being_claimed_is_passed_over() {
    let server = TestServer::start_with(&quick_but(&[("WEBHOOK_POLL_INTERVAL", "60s")])).await;
    let (client, database) = (&server.client, &server.database);
    let (claimed, mut receiver) = (Receiver::start().await, Receiver::start().await);
    Endpoint::at(client, &claimed.url()).await;
    client.charge("key-1").await;
    let other_replica = hold_deliveries(database).await;
    Endpoint::at(client, &receiver.url()).await;
    client.charge("key-2").await;
    let replica = ServerProcess::start(database, QUICK);
    receiver.next().await.answer(200).await;
    other_replica.rollback().await.unwrap();
    drop(replica);
}

#[tokio::test]
async fn a_claim_reads_one_delivery_of_a_busy_endpoint_whatever_its_backlog() {
    let server = TestServer::start_with(&[("WEBHOOK_POLL_INTERVAL", "60s")]).await;
    let client = &server.client;
    for _ in 0..2 {
        Endpoint::at(client, "https://example.invalid/").await;
    }
    client.charge("key-1").await;
    let database = server.stop().await;
    let mut tx = database.pool.begin().await.unwrap();
    // Rows without their events: what would refuse them is off.
    sqlx::raw_sql(
        "SET LOCAL session_replication_role = replica;
         UPDATE webhook_deliveries SET status = 'pending', next_attempt_at = now(), claim = NULL,
                                       attempts = '[]', delivered_at = NULL;
         INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id, next_attempt_at)
         SELECT account_id, gen_random_uuid(), endpoint_id, gen_random_uuid(), now() - interval '1 d'
           FROM (SELECT * FROM webhook_deliveries ORDER BY endpoint_id LIMIT 1) AS busy,
                generate_series(1, 5000)",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let endpoints: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT id FROM webhook_endpoints ORDER BY id")
            .fetch_all(&database.pool)
            .await
            .unwrap();
    let busy = Busy {
        accounts: Vec::new(),
        endpoints: vec![endpoints[0]],
    };

    let mut tx = database.pool.begin().await.unwrap();
    let claimed = claim(
        &mut tx,
        uuid::Uuid::new_v4(),
        Duration::from_secs(60),
        &busy,
    )
    .await;
    assert_eq!(claimed.unwrap().unwrap().endpoint_id.0, endpoints[1]);
    let read: i64 = sqlx::query_scalar(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
          WHERE relname = 'webhook_deliveries'",
    )
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    assert!((1..50).contains(&read), "{read}");
    tx.rollback().await.unwrap();
}

/// Holds every delivery, so that marking one has to wait.
async fn hold_deliveries(database: &TestDatabase) -> Transaction<'static, Postgres> {
    let mut obstacle = database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM webhook_deliveries FOR UPDATE")
        .execute(&mut *obstacle)
        .await
        .unwrap();
    obstacle
}

async fn a_mark_waits(database: &TestDatabase) {
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
    eventually("a mark waits", || async {
        database.count(waiting).await == 1
    })
    .await;
}

#[tokio::test]
async fn after_kill_9_between_send_and_mark_another_replica_delivers_again() {
    let database = TestDatabase::create().await;
    // A claim lives three times as long as an attempt may take.
    let variables = quick_but(&[("WEBHOOK_TIMEOUT", "1s")]);
    let victim = ServerProcess::start(&database, &variables);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&victim.client, &receiver.url()).await;
    assert_eq!(victim.client.charge("key-1").await.status, 201);
    let first = receiver.next().await;
    let event = first.event_id();
    let obstacle = hold_deliveries(&database).await;
    first.answer(200).await;
    a_mark_waits(&database).await;
    victim.kill();
    obstacle.rollback().await.unwrap();

    let survivor = ServerProcess::start(&database, &variables);
    let second = receiver.next().await;
    assert_eq!(second.event_id(), event);
    second.answer(200).await;
    let delivery = endpoint.newest_succeeds(&survivor.client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn an_attempt_that_ends_after_its_claim_undoes_nothing() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    let late = receiver.next().await;
    // As if the lease had run out.
    sqlx::query("UPDATE webhook_deliveries SET next_attempt_at = now()")
        .execute(&database.pool)
        .await
        .unwrap();
    let taken_over = receiver.next().await;
    assert_eq!(taken_over.event_id(), late.event_id());
    taken_over.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    late.answer(500).await;
    // What ended later is marked later.
    client.charge("key-2").await;
    receiver.next().await.answer(200).await;
    endpoint
        .newest_delivery(client, "the second event is delivered", |delivery| {
            delivery["event"] != delivered["event"] && delivery["status"] == "succeeded"
        })
        .await;
    assert_eq!(endpoint.deliveries(client).await.remove(1), delivered);
}

#[tokio::test]
async fn a_deleted_endpoint_is_sent_nothing_more() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let (mut receiver, mut other) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    let received = receiver.next().await;
    let event = format!("/events/{}", received.event_id());
    assert_eq!(client.get(&event).await.json()["pending_webhooks"], 1);
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    assert_eq!(client.get(&event).await.json()["pending_webhooks"], 0);
    received.answer(500).await;
    let given_up = "SELECT count(*) FROM webhook_deliveries
                     WHERE status = 'failed' AND jsonb_array_length(attempts) = 1";
    eventually("the retry is given up", || async {
        database.count(given_up).await == 1
    })
    .await;
    Endpoint::at(client, &other.url()).await;
    client.charge("key-2").await;
    other.next().await.answer(200).await;
    everything_is_delivered(database).await;
    assert_eq!(database.count(DELIVERIES).await, 2);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn deleting_an_endpoint_does_not_wait_for_charges_nor_charges_for_it() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let endpoint = Endpoint::at(client, "https://example.invalid/").await;
    let mut charging = database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM webhook_endpoints FOR KEY SHARE")
        .execute(&mut *charging)
        .await
        .unwrap();
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    charging.rollback().await.unwrap();

    let endpoint = Endpoint::at(client, "https://example.invalid/").await;
    let mut deleting = database.pool.begin().await.unwrap();
    sqlx::query("UPDATE webhook_endpoints SET deleted_at = now(), secret = NULL")
        .execute(&mut *deleting)
        .await
        .unwrap();
    assert_eq!(client.charge("key-1").await.status, 201);
    deleting.rollback().await.unwrap();
    assert_eq!(endpoint.deliveries(client).await.len(), 1);
}

#[tokio::test]
async fn one_account_is_never_told_of_another_s_events() {
    let server = TestServer::start_with(QUICK).await;
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    let other = client_of_account(&server, "other").await;
    assert_eq!(other.charge("key-1").await.status, 201);
    let own = server.client.charge("key-1").await;
    let received = receiver.next().await;
    assert_eq!(received.event()["data"]["object"], own.json());
    received.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    assert_eq!(server.database.count(DELIVERIES).await, 1);
}

#[tokio::test]
async fn pages_of_deliveries_lead_through_all_of_them_and_no_other_endpoint_s() {
    let server = TestServer::start_with(&[("WEBHOOK_POLL_INTERVAL", "60s")]).await;
    let client = &server.client;
    let endpoint = Endpoint::at(client, "https://example.invalid/").await;
    let sibling = Endpoint::at(client, "https://example.invalid/").await;
    for number in 0..5 {
        client.charge(&format!("key-{number}")).await;
    }
    let all = endpoint.deliveries(client).await;
    assert_eq!(all.len(), 5);
    let path = format!("/webhook_endpoints/{}/deliveries", endpoint.id);
    let id = |index: usize| all[index]["id"].as_str().unwrap();
    let first = client.get(&format!("/v1{path}?limit=2")).await.json();
    assert_eq!(first["url"], format!("/v1{path}"));
    assert_eq!(
        (&first["has_more"], &first["data"]),
        (&json!(true), &json!(all[..2]))
    );
    let rest = client
        .get(&format!("{path}?starting_after={}", id(1)))
        .await
        .json();
    assert_eq!(
        (&rest["has_more"], &rest["data"]),
        (&json!(false), &json!(all[2..]))
    );
    let before = client
        .get(&format!("{path}?limit=1&ending_before={}", id(2)))
        .await
        .json();
    assert_eq!(before["data"], json!(all[1..2]));
    let foreign = sibling.deliveries(client).await[0]["id"].clone();
    let foreign = format!("{path}?starting_after={}", foreign.as_str().unwrap());
    assert_eq!(client.get(&foreign).await.status, 400);
}

#[tokio::test]
async fn deliveries_go_on_after_the_connection_was_lost_and_nothing_is_sent_twice_for_it() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    let received = receiver.next().await;
    let obstacle = hold_deliveries(database).await;
    received.answer(200).await;
    a_mark_waits(database).await;
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'charge-once'",
    )
    .execute(&database.pool)
    .await
    .unwrap();
    obstacle.rollback().await.unwrap();
    // Sent before and marked after: it is not sent again.
    eventually("the pool has recovered", || async {
        client.get("/charges").await.status == 200
    })
    .await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    client.charge_until_definite("key-2").await;
    receiver.next().await.answer(200).await;
    everything_is_delivered(database).await;
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_it_is_sending_and_begins_nothing_new() {
    let mut server = TestServer::start_with(QUICK).await;
    let mut receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    server.client.charge("key-1").await;
    let received = receiver.next().await;
    server.begin_stopping();
    eventually("it is stopping", || async {
        let ready = server.client.bare(reqwest::Method::GET, "/readyz");
        ready.send().await.is_err()
            || Answer::of(server.client.bare(reqwest::Method::GET, "/readyz"))
                .await
                .status
                == 503
    })
    .await;
    received.answer(500).await;
    let database = server.stop().await;
    let tried_once = "SELECT count(*) FROM webhook_deliveries
                       WHERE status = 'pending' AND claim IS NULL
                         AND jsonb_array_length(attempts) = 1";
    assert_eq!(database.count(tried_once).await, 1);
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn the_secret_is_not_in_the_most_talkative_log() {
    let database = TestDatabase::create().await;
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let talkative = quick_but(&[("RUST_LOG", "trace")]);
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &talkative);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    server.client.charge("key-1").await;
    receiver.next().await.answer(500).await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    delete(&server.client, &endpoint.id).await;
    drop(server);
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert!(text.contains("delivered a webhook"), "{}", text.len());
    assert!(!text.contains("whsec_") && !text.contains(&endpoint.secret));
}
