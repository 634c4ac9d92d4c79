//! Checkouts and the inventory that they sell.

use crate::support::prelude::*;

pub async fn stock(client: &Client, sku: &str, quantity: i64) {
    let (path, key) = (format!("/inventory/{sku}"), Uuid::now_v7().to_string());
    let level = json!({"quantity": quantity});
    assert_eq!(client.put(&path, &key, &level).await.status, 200);
}

/// Two mugs.
pub fn checkout() -> Value {
    json!({
        "currency": "usd", "source": "tok_visa", "customer": "jenny",
        "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
        "metadata": {"cart": "7"},
    })
}

/// Two mugs, paid with `card`.
pub fn checkout_with(card: &str) -> Value {
    let mut body = checkout();
    body["source"] = card.into();
    body
}

/// Two mugs and two cups. Every other one names them in the other order.
pub fn mugs_and_cups(index: usize) -> Value {
    let mut items = vec![
        json!({"sku": "mug", "quantity": 2, "unit_amount": 1200}),
        json!({"sku": "cup", "quantity": 2, "unit_amount": 300}),
    ];
    if index.is_multiple_of(2) {
        items.reverse();
    }
    json!({"currency": "usd", "items": items})
}

/// Of these checkouts of mugs and cups `sold` took all that there was, and the others nothing.
pub async fn assert_sold_out(
    database: &TestDatabase,
    client: &Client,
    answers: &[Answer],
    sold: usize,
) {
    let refused = answers.len() - sold;
    let with = |status: u16| {
        let answers = answers.iter();
        answers.filter(|answer| answer.status == status).count()
    };
    assert_eq!((with(201), with(400)), (sold, refused));
    for sku in ["mug", "cup"] {
        assert_eq!(level(client, sku).await, 0, "{sku}");
    }
    let paid = "SELECT count(*) FROM orders WHERE status = 'paid'";
    let canceled = "SELECT count(*) FROM orders WHERE status = 'canceled'";
    let kept = "SELECT sum(amount_captured - amount_refunded)::bigint FROM charges";
    for (what, sql, expected) in [
        ("paid", paid, sold),
        ("canceled", canceled, refused),
        ("kept", kept, sold * 3000),
        ("in flight", KEYS_IN_FLIGHT, 0),
    ] {
        assert_eq!(database.count(sql).await, expected as i64, "{what}");
    }
}

/// The card processor of `tok_outage`, of the checkouts that wait for it, is up again.
pub async fn end_the_outage(database: &TestDatabase) {
    let up = "UPDATE checkouts SET card_token = 'tok_visa'";
    database.execute(up).await;
}

/// A server with a card processor across a network.
pub async fn across_a_network() -> (TestServer, Processor) {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let url = processor.url();
    let server = TestServer::start_on(database, &[("PROCESSOR_URL", &url)]).await;
    (server, processor)
}

/// Two patient servers on `database`, with `processor` across a network and five mugs to sell.
pub async fn two_replicas(database: &TestDatabase, processor: &Processor) -> [TestServer; 2] {
    let url = processor.url();
    let variables = [PATIENT, &[("PROCESSOR_URL", url.as_str())]].concat();
    let one = TestServer::start_on(database.clone(), &variables).await;
    let other = TestServer::start_on(database.clone(), &variables).await;
    stock(&one.client, "mug", 5).await;
    [one, other]
}

pub async fn level(client: &Client, sku: &str) -> i64 {
    let level = client.get(&format!("/inventory/{sku}")).await;
    level.json()["quantity"].as_i64().unwrap()
}

/// `name state attempts` of each step.
pub fn steps(checkout: &Value) -> Vec<String> {
    let step = |step: &Value| {
        let text = |name: &str| step[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("name"), text("state"), step["attempts"])
    };
    let steps = checkout["steps"].as_array().unwrap();
    steps.iter().map(step).collect()
}

/// The checkout that the key made, whatever it answered.
pub async fn checkout_of(client: &Client, key: &str) -> Value {
    let record = client.get(&format!("/idempotency-keys/{key}")).await.json();
    let id = record["resource"].as_str().unwrap();
    client.get(&format!("/checkouts/{id}")).await.json()
}

pub use super::intents::events as types_of_events;

/// Repeats the checkout under one key until the reply is definite.
pub async fn until_definite_under(client: &Client, key: &str) -> Answer {
    let mut answer = client.post("/checkouts", key, &checkout()).await;
    while [409, 503].contains(&answer.status.as_u16()) {
        answer = client.post_waiting(5, "/checkouts", key, &checkout()).await;
    }
    answer
}
