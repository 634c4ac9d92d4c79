//! The end of a test account: its keys are refused, its data goes, and its row stays.

use charge_once::workers::{expiry_sweep::Sweep, test_accounts::Closed};
use tokio::time::Instant;

use crate::support::{
    accounts::client_of_test_account,
    intents::paid_with,
    prelude::*,
    resources::{attached, customer},
};

/// Every table with rows of an account.
const ROWS: &str = "
    SELECT count(*) FROM (
        SELECT account_id FROM idempotency_keys UNION ALL SELECT account_id FROM idempotency_leases
        UNION ALL SELECT account_id FROM webhook_deliveries UNION ALL SELECT account_id FROM events
        UNION ALL SELECT account_id FROM webhook_endpoints UNION ALL SELECT account_id FROM operations
        UNION ALL SELECT account_id FROM manual_resolutions UNION ALL SELECT account_id FROM refunds
        UNION ALL SELECT account_id FROM checkouts UNION ALL SELECT account_id FROM checkout_steps
        UNION ALL SELECT account_id FROM charges UNION ALL SELECT account_id FROM orders
        UNION ALL SELECT account_id FROM customers UNION ALL SELECT account_id FROM payment_methods
        UNION ALL SELECT account_id FROM payment_intents
        UNION ALL SELECT account_id FROM setup_intents
        UNION ALL SELECT account_id FROM inventory UNION ALL SELECT account_id FROM request_log
        UNION ALL SELECT account_id FROM fault_plans
        UNION ALL SELECT account_id FROM webhook_replies
        UNION ALL SELECT account_id FROM request_counts) AS rows
      JOIN accounts ON accounts.id = rows.account_id
     WHERE accounts.test_until IS NOT NULL";

const EVENTS: &str = "SELECT count(*) FROM events JOIN accounts ON accounts.id = events.account_id
     WHERE accounts.test_until IS NOT NULL";

const OTHER_ROWS: &str = "
    SELECT (SELECT count(*) FROM charges) + (SELECT count(*) FROM events)
         + (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM api_keys)";

/// Lets every test account have ended so long ago.
async fn end(database: &TestDatabase, ago: &str) {
    let sql = format!(
        "UPDATE accounts SET test_until = now() - interval '{ago}' WHERE test_until IS NOT NULL"
    );
    database.execute(sql).await;
}

/// Sends a new operation, which has this status.
async fn send(client: &Client, path: &str, body: &Value, status: u16) -> Answer {
    let answer = client.post_new(path, body).await;
    assert_eq!(answer.status, status, "{path}: {answer:?}");
    answer
}

/// Something in every table.
async fn fill(client: &Client, database: &TestDatabase) {
    let endpoint = json!({"url": "https://example.invalid/", "enabled_events": ["*"]});
    send(client, "/webhook_endpoints", &endpoint, 201).await;
    stock(client, "mug", 10).await;
    let plan = json!({"event": "*", "fault": "webhook_late"});
    send(client, "/test/faults", &plan, 201).await;
    let charge = client.charge("charge").await.id();
    let refund = json!({"charge": charge, "amount": 1});
    send(client, "/refunds", &refund, 201).await;
    send(client, "/checkouts", &checkout(), 201).await;
    let declined = "tok_chargeDeclined";
    send(client, "/checkouts", &checkout_with(declined), 402).await;
    let pay = format!("/orders/{}/pay", open_order(client).await);
    send(client, &pay, &json!({"source": declined}), 402).await;
    send(client, &pay, &json!({}), 200).await;
    open_order(client).await;
    let customer = customer(client).await;
    let method = attached(client, "pm_card_visa", &customer).await;
    let default = json!({"invoice_settings": {"default_payment_method": method}});
    send(client, &format!("/customers/{customer}"), &default, 200).await;
    // An intent and its charges, one of them declined, name each other.
    for card in ["pm_card_chargeDeclined", "pm_card_visa"] {
        paid_with(client, card, json!({"capture_method": "manual"})).await;
    }
    let setup = json!({"payment_method": "pm_card_visa"});
    send(client, "/setup_intents", &setup, 201).await;
    // What only a processor across a network, a person, and the console make.
    let sql = "
         INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand, request_id,
                idempotency_key, completed_at, outcome)
         SELECT account_id, id, 'capture_charge', id, 1, 'ietf', false, 'req', 'key', now(), 'done'
           FROM charges;
         INSERT INTO manual_resolutions (account_id, operation_id, resolution, resolved_by, operation)
         SELECT account_id, id, 'done', 'Ada', '{}' FROM operations;
         INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us)
         SELECT account_id, id, 'POST', '/charges', 201, 'executed', 1 FROM charges;
         INSERT INTO webhook_replies (account_id, delivery_id, number, reply)
         SELECT account_id, id, 1, 'ok' FROM charges;
         INSERT INTO request_counts (account_id, minute, outcomes, durations, second_effects)
         SELECT account_id, min(created_at), '{1}', '{1}', 0 FROM charges GROUP BY account_id";
    database.execute(sql).await;
}

async fn sweep(database: &TestDatabase) -> Sweep {
    Sweep::new(database.connect(&[]).await, &config(&[]), 0)
}

async fn closes_none(sweep: &mut Sweep) {
    let closed = sweep.test_accounts(later()).await.unwrap();
    assert_eq!(closed, Closed::default());
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn an_ended_account_is_refused_and_loses_everything_but_its_row() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let database = &server.database;
    let dev = &server.client;
    dev.charge("dev").await;
    let test = client_of_test_account(dev).await;
    fill(&test, database).await;
    let filled = database.count(ROWS).await;
    assert!(filled > 40, "{filled}");
    let others = database.count(OTHER_ROWS).await;
    let tests = "
        SELECT count(*) FROM (
            SELECT account_id FROM charges UNION ALL SELECT account_id FROM events
            UNION ALL SELECT account_id FROM idempotency_keys) AS rows
          JOIN accounts ON accounts.id = rows.account_id
         WHERE accounts.test_until IS NOT NULL";
    let tests = database.count(tests).await;
    let mut sweep = sweep(database).await;
    closes_none(&mut sweep).await;
    // Its key is refused, and what its last requests write is waited for.
    end(database, "1 minute").await;
    let holds = || async { test.get("/charges").await.status == 401 };
    eventually("its key is refused", holds).await;
    assert_eq!(test.get("/charges").await.code(), "api_key_invalid");
    closes_none(&mut sweep).await;
    end(database, "11 minutes").await;
    let closed = sweep.test_accounts(later()).await.unwrap();
    assert_eq!(closed.accounts, 1);
    assert_eq!(database.count(ROWS).await, 0);
    // Another account lost nothing.
    assert_eq!(database.count(OTHER_ROWS).await, others - tests);
    let row = "SELECT count(*) FROM accounts JOIN api_keys ON api_keys.account_id = accounts.id
                WHERE closed_at IS NOT NULL AND revoked_at IS NOT NULL";
    assert_eq!(database.count(row).await, 1);
    closes_none(&mut sweep).await;
    // The dev account's record shows what it made; its own rows are untouched.
    assert!(dev.charge("dev").await.is_replay());
}

#[tokio::test]
async fn a_large_account_goes_in_batches_and_what_was_interrupted_goes_on() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let database = &server.database;
    let test = client_of_test_account(&server.client).await;
    test.charge("key").await;
    let order = open_order(&test).await;
    send(&test, &format!("/orders/{order}/pay"), &json!({}), 200).await;
    // Orders and charges that name each other, more than a batch of them.
    let sql = "SET session_replication_role = replica;
         CREATE TABLE numbers AS SELECT n, gen_random_uuid() AS id FROM generate_series(1, 1300) AS n;
         INSERT INTO charges SELECT (jsonb_populate_record(c, jsonb_build_object('id', n.id, 'order_id', n.id))).*
           FROM charges AS c, numbers AS n WHERE c.order_id IS NOT NULL;
         INSERT INTO orders SELECT (jsonb_populate_record(o, jsonb_build_object('id', n.id, 'charge_id', n.id))).*
           FROM orders AS o, numbers AS n;
         SET session_replication_role = DEFAULT";
    database.execute(sql).await;
    assert!(database.charges().await > 1300);
    end(database, "11 minutes").await;
    let mut sweep = sweep(database).await;
    // A table that is locked for longer than a statement waits, in the middle.
    let tx = database.holding("LOCK TABLE orders").await;
    let failed = sweep.test_accounts(later()).await.unwrap();
    assert_eq!((failed.accounts, failed.failed_accounts), (0, 1));
    tx.rollback().await.unwrap();
    // What was removed before the interruption stays so.
    assert_eq!(database.count(EVENTS).await, 0);
    let charges = database.charges().await;
    assert!(charges > 1300, "{charges}");
    // The rest takes at least three batches of charges, and three of orders.
    let Closed { rows, accounts, .. } = sweep.test_accounts(later()).await.unwrap();
    assert_eq!(accounts, 1);
    assert!(rows > 2600, "{rows}");
    assert_eq!(database.count(ROWS).await, 0);
}

#[tokio::test]
async fn replicas_share_the_work_and_leave_an_account_with_a_key_in_flight() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let database = &server.database;
    for _ in 0..3 {
        fill_a_little(&client_of_test_account(&server.client).await).await;
    }
    let busy = "
        INSERT INTO idempotency_leases (account_id, key, kind, operation, token, leased_until, recover_after)
         SELECT id, 'key', 'checkout', id, id, now(), now() FROM accounts
          WHERE test_until IS NOT NULL ORDER BY id LIMIT 1
         RETURNING account_id";
    let busy: Uuid = database.value(busy).await;
    end(database, "11 minutes").await;
    let (mut one, mut other) = (sweep(database).await, sweep(database).await);
    let mut closed = 0;
    while closed < 2 {
        let (one, other) = tokio::join!(one.test_accounts(later()), other.test_accounts(later()));
        closed += one.unwrap().accounts + other.unwrap().accounts;
    }
    assert_eq!(closed, 2);
    let open = "SELECT id FROM accounts WHERE test_until IS NOT NULL AND closed_at IS NULL";
    assert_eq!(database.values::<Uuid>(open).await, [busy]);
    database.execute("DELETE FROM idempotency_leases").await;
    assert_eq!(one.test_accounts(later()).await.unwrap().accounts, 1);
}

async fn fill_a_little(client: &Client) {
    for key in ["key-1", "key-2"] {
        assert_eq!(client.charge(key).await.status, 201);
    }
}

#[tokio::test]
async fn an_account_that_can_not_be_closed_or_takes_long_holds_up_no_other() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let database = &server.database;
    for _ in 0..3 {
        fill_a_little(&client_of_test_account(&server.client).await).await;
    }
    // The oldest one has a row that can't be removed, and the next one more rows than fit into one
    // visit.
    let sql = "CREATE TABLE ended AS
             SELECT id, row_number() OVER (ORDER BY id) AS place FROM accounts WHERE test_until IS NOT NULL;
         UPDATE accounts SET test_until = now() - (20 - place) * interval '1 hour'
           FROM ended WHERE ended.id = accounts.id;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF old.account_id = (SELECT id FROM ended WHERE place = 1) THEN RAISE 'no'; END IF;
             RETURN old; END $$;
         CREATE TRIGGER refuse BEFORE DELETE ON charges FOR EACH ROW EXECUTE FUNCTION refuse();
         INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us)
         SELECT id, gen_random_uuid(), 'POST', '/charges', 201, 'executed', 1
           FROM ended, generate_series(1, 15000) WHERE place = 2;";
    database.execute(sql).await;
    let open = async || {
        let places = "SELECT place FROM ended JOIN accounts USING (id)
                       WHERE closed_at IS NULL ORDER BY place";
        database.values::<i64>(places).await
    };
    let mut sweep = sweep(database).await;
    let closed = sweep.test_accounts(later()).await.unwrap();
    assert_eq!((closed.accounts, closed.failed_accounts), (2, 1));
    let (failed, why) = closed.last_failure.unwrap();
    let oldest: Uuid = database.value("SELECT id FROM ended WHERE place = 1").await;
    assert_eq!(failed.0, oldest);
    assert_eq!(why, "no", "as PostgreSQL says it");
    assert_eq!(open().await, [1]);
    // A sweep that has no time goes on behind the account that failed.
    let closed = sweep.test_accounts(Instant::now()).await.unwrap();
    assert_eq!(closed.accounts, 0);

    database.execute("DROP TRIGGER refuse ON charges").await;
    let closed = sweep.test_accounts(later()).await.unwrap();
    assert_eq!((closed.accounts, closed.failed_accounts), (1, 0));
    assert!(open().await.is_empty());
    assert_eq!(database.count(ROWS).await, 0);
}

/// The program's own worker does it.
#[tokio::test]
async fn a_server_closes_ended_accounts_by_itself() {
    let variables = [FAULTS, ("EXPIRY_SWEEP_INTERVAL", "100ms")];
    let server = TestServer::start_with(&variables).await;
    let test = client_of_test_account(&server.client).await;
    fill_a_little(&test).await;
    end(&server.database, "11 minutes").await;
    let closed = "SELECT count(*) FROM accounts WHERE closed_at IS NOT NULL";
    server.database.comes_to(closed, 1).await;
    assert_eq!(server.database.count(ROWS).await, 0);
}
