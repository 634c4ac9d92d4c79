//! Webhook endpoints to begin with.

use charge_once::domain::ids::WebhookEndpointId;
use hmac::{Hmac, KeyInit, Mac};

use crate::support::prelude::*;

pub fn endpoint(url: &str) -> Value {
    json!({"url": url, "enabled_events": ["*"]})
}

pub async fn delete(client: &Client, id: &str) -> Answer {
    Answer::of(client.request(Method::DELETE, &format!("/webhook_endpoints/{id}"))).await
}

/// How often a webhook is tried before it is given up.
pub const ATTEMPTS: usize = 24;

/// Receivers on this machine, and no longer pauses than needed.
pub const QUICK: &[(&str, &str)] = &[
    ("WEBHOOK_ALLOW_PRIVATE", "true"),
    ("WEBHOOK_POLL_INTERVAL", "10ms"),
    ("WEBHOOK_RETRY_MIN", "1ms"),
    ("WEBHOOK_RETRY_MAX", "2ms"),
];

/// [`QUICK`] with some variables set otherwise.
pub fn quick_but<'a>(variables: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [variables, QUICK].concat()
}

/// Nothing is sent from now on: a worker can claim no delivery, until [`let_go`].
pub async fn hold_back(database: &TestDatabase) {
    let held =
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                CREATE TRIGGER held_back BEFORE UPDATE ON webhook_deliveries
                   FOR EACH ROW EXECUTE FUNCTION skip()";
    database.execute(held).await;
}

/// What was held back can be sent. A worker that has looked finds it when it looks again.
pub async fn let_go(database: &TestDatabase) {
    // Unlike DROP, it doesn't wait for locks of rows.
    let off = "ALTER TABLE webhook_deliveries DISABLE TRIGGER held_back";
    database.execute(off).await;
}

pub struct Endpoint {
    pub id: String,
    pub secret: String,
}

impl Endpoint {
    /// For events of all types.
    pub async fn at(client: &Client, url: &str) -> Self {
        Self::with(client, &endpoint(url)).await
    }

    pub async fn with(client: &Client, body: &Value) -> Self {
        let created = client.post_new("/webhook_endpoints", body).await;
        assert_eq!(created.status, 201, "{}", created.json());
        let secret = created.json()["secret"].as_str().unwrap().to_owned();
        Self {
            id: created.id(),
            secret,
        }
    }

    pub async fn disable(&self, client: &Client, disabled: bool) {
        let path = format!("/webhook_endpoints/{}", self.id);
        let updated = client.post_new(&path, &json!({"disabled": disabled})).await;
        assert_eq!(updated.status, 200, "{}", updated.json());
    }

    /// Newest first.
    pub async fn deliveries(&self, client: &Client) -> Vec<Value> {
        let path = format!("/webhook_endpoints/{}/deliveries", self.id);
        let list = client.get(&path).await;
        assert_eq!(list.status, 200);
        list.json()["data"].as_array().unwrap().clone()
    }

    pub async fn newest_delivery(
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

    pub async fn with_a_waiting_delivery(
        client: &Client,
        receiver: &mut Receiver,
    ) -> (Self, Value) {
        let endpoint = Self::at(client, &receiver.url()).await;
        client.charge("key-1").await;
        receiver.next().await.answer(500).await;
        let waits = |delivery: &Value| !delivery["next_attempt"].is_null();
        let waiting = endpoint.newest_delivery(client, "it waits", waits).await;
        (endpoint, waiting)
    }

    /// Refuses every attempt of the newest delivery, which has failed then.
    pub async fn gives_up(&self, client: &Client, receiver: &mut Receiver) -> Value {
        for _ in 0..ATTEMPTS {
            receiver.next().await.answer(500).await;
        }
        let failed = |delivery: &Value| delivery["status"] == "failed";
        self.newest_delivery(client, "it is given up", failed).await
    }

    pub async fn newest_succeeds(&self, client: &Client) -> Value {
        let succeeded = |delivery: &Value| delivery["status"] == "succeeded";
        self.newest_delivery(client, "the delivery succeeds", succeeded)
            .await
    }
}

/// A server, a receiver, and its endpoint, which is told of everything.
pub async fn told(variables: &[(&str, &str)]) -> (TestServer, Receiver, Endpoint) {
    let server = TestServer::start_with(variables).await;
    let receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    (server, receiver, endpoint)
}

/// As [`told`] makes them, and a charge of which the receiver is being told.
pub async fn being_told(variables: &[(&str, &str)]) -> (TestServer, Receiver, Endpoint, Received) {
    let (server, mut receiver, endpoint) = told(variables).await;
    server.client.charge("key-1").await;
    let received = receiver.next().await;
    (server, receiver, endpoint, received)
}

/// What a receiver does: `t` from the header, HMAC-SHA256 of `t.body`, compared with `v1`.
pub fn verifies(secret: &str, signature: &str, body: &[u8]) -> bool {
    let (t, v1) = signature.split_once(",v1=").unwrap();
    let t = t.strip_prefix("t=").unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(t.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac.verify_slice(&hex::decode(v1).unwrap()).is_ok()
}

pub fn sent_at(received: &Received) -> i64 {
    let (t, _) = received.signature().split_once(',').unwrap();
    t.strip_prefix("t=").unwrap().parse().unwrap()
}

/// Queues `count` more events for an endpoint that has been sent one, as so many charges would.
pub async fn add_backlog(database: &TestDatabase, endpoint: &Endpoint, count: i32) {
    database.is_left_broken("many events tell of one charge");
    let id = WebhookEndpointId::parse(&endpoint.id).unwrap();
    sqlx::query(
        "WITH copied AS (
             INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT account_id, gen_random_uuid(), type, object, request_id, idempotency_key
               FROM (SELECT event.*
                       FROM events AS event
                       JOIN webhook_deliveries AS delivery
                         ON delivery.account_id = event.account_id AND delivery.event_id = event.id
                      WHERE delivery.endpoint_id = $1
                      LIMIT 1) AS original, generate_series(1, $2)
             RETURNING account_id, id
         )
         INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id)
         SELECT account_id, gen_random_uuid(), $1, id FROM copied",
    )
    .bind(id.0)
    .bind(count)
    .execute(&database.pool)
    .await
    .unwrap();
}

/// Adds `count` accounts, each with an endpoint at `url` and so many events for it. They come
/// before all others in the order in which workers look for endpoints.
pub async fn add_accounts(database: &TestDatabase, count: i32, url: &str, events: i32) {
    database.is_left_broken("events tell of nothing");
    sqlx::query(
        "WITH account AS (
             INSERT INTO accounts (id, name)
             SELECT lpad(number::text, 32, '0')::uuid, 'other ' || number
               FROM generate_series(1, $1) AS number
             RETURNING id
         ), endpoint AS (
             INSERT INTO webhook_endpoints (account_id, id, url, enabled_events, metadata, secret)
             SELECT id, id, $2, '{*}', '{}', 'whsec_' FROM account
         ), event AS (
             INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT id, gen_random_uuid(), 'charge.succeeded',
                    json_build_object('object', 'charge', 'description', repeat('x', 500)),
                    'req_1', 'key-1'
               FROM account, generate_series(1, $3)
             RETURNING account_id, id
         )
         INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id)
         SELECT account_id, id, account_id, id FROM event",
    )
    .bind(count)
    .bind(url)
    .bind(events)
    .execute(&database.pool)
    .await
    .unwrap();
}

/// Acknowledges everything, one request after the other, for as long as the test runs.
pub fn acknowledge_all(mut receiver: Receiver) {
    tokio::spawn(async move {
        loop {
            receiver.next().await.answer(200).await;
        }
    });
}

pub const DELIVERIES: &str = "SELECT count(*) FROM webhook_deliveries";

pub const PENDING: &str = "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'";

pub async fn everything_is_delivered(database: &TestDatabase) {
    database.comes_to(PENDING, 0).await;
}
