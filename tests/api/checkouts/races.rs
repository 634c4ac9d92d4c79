//! Checkouts and who could get in between: other requests, late holders, operators, another
//! configuration, a stop, the sweep.

use charge_once::{
    commands::Origin,
    domain::{
        checkout::StepName,
        dialect::Dialect,
        ids::{AccountId, CheckoutId},
        operation::AskedBy,
    },
    idempotency::{Idempotency, LeaseSettings, Outcome, Phases, Request, Settings},
    store,
    wire::checkouts::CreateCheckoutParams,
    work::{CheckoutSteps, CreateCheckout, SlowLane},
};
use charge_once_strict_params::{Encoding, ParameterSet, Params};

use crate::support::{
    checkouts::{assert_sold_out, end_the_outage, level, mugs_and_cups, two_replicas},
    effects::request,
    harness::{KEYS_IN_FLIGHT, LOCK_WAITS},
    prelude::*,
    racers::until_definite,
    workflows,
};

#[tokio::test]
async fn a_checkout_that_is_running_ends_before_the_server_does() {
    let mut server = TestServer::start().await;
    let client = server.client.clone();
    stock(&client, "mug", 5).await;
    let sending = client.sending("/checkouts", "key-1", checkout_with("tok_slow"));
    let orders = "SELECT count(*) FROM orders";
    server.database.comes_to(orders, 1).await;
    server.begin_stopping();
    let made = sending.await.unwrap();
    assert_eq!(made.status, 201, "{made:?}");
    let database = server.stop().await;
    assert_eq!(database.count(KEYS_IN_FLIGHT).await, 0);
}

#[tokio::test]
async fn with_a_short_retention_a_checkout_outlives_the_records_of_its_steps() {
    let variables = [
        ("IDEMPOTENCY_TTL", "100ms"),
        ("ALLOW_SHORT_TTL", "true"),
        ("EXPIRY_SWEEP_INTERVAL", "50ms"),
    ];
    let (server, client) = TestServer::with_client(&variables).await;
    stock(&client, "mug", 5).await;
    let body = checkout_with("tok_outage");
    client.post("/checkouts", "key-1", &body).await;
    let holds = || async { server.database.records().await == 1 };
    eventually("only the client's key is left", holds).await;
    for _ in 0..3 {
        let failed = client.post("/checkouts", "key-1", &body).await;
        assert_eq!(failed.code(), "service_unavailable");
        let other = client.post("/checkouts", "key-1", &checkout()).await;
        assert_eq!(other.code(), "idempotency_key_reused");
    }
    end_the_outage(&server.database).await;
    assert_eq!(client.post("/checkouts", "key-1", &body).await.status, 201);
    assert_eq!(server.database.orders().await, 1);
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(level(&client, "mug").await, 3);
    server.stop().await;
}

/// The worker doesn't know which dialect the retry will have.
#[tokio::test]
async fn what_a_worker_completes_answers_in_the_dialect_and_workflow_of_its_request() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let body = checkout_with("tok_outage");
    let send = || workflows::post(&client, "cart-7", "/v1/checkouts", "key-1", &body);
    let failed = send().await;
    assert_eq!(failed.status, 503);
    let workflow = client.get("/workflows/cart-7").await.json();
    assert_eq!(workflow["data"].as_array().unwrap().len(), 1);
    assert_eq!(workflow["data"][0]["status"], "in_doubt");
    end_the_outage(&server.database).await;
    server.database.expire_leases().await;
    // A worker completes it.
    server.database.comes_to(KEYS_IN_FLIGHT, 0).await;
    let made = send().await;
    let location = format!("/v1/checkouts/{}", made.id());
    assert!(made.is_replay());
    assert_eq!(made.header("location"), Some(location.as_str()));
    // The first request began it.
    assert_eq!(made.header("original-request"), failed.header("request-id"));
    let workflow = client.get("/workflows/cart-7").await.json();
    assert_eq!(workflow["data"].as_array().unwrap().len(), 1);
    assert_eq!(workflow["data"][0]["resource"], made.id());
    server.stop().await;
}

/// Others try to pay, cancel, change and capture every order and charge while thirty checkouts run,
/// across a network, through two replicas, and levels are set meanwhile.
#[tokio::test]
async fn who_interferes_with_running_checkouts_changes_nothing_and_nobody_deadlocks() {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let url = processor.url();
    let variables = [("PROCESSOR_URL", url.as_str()), ("POOL_CONNECTIONS", "20")];
    let replicas = [
        TestServer::start_on(database.clone(), &variables).await,
        TestServer::start_on(database.clone(), &variables).await,
    ];
    let client = &replicas[0].client;
    stock(client, "mug", 20).await;
    stock(client, "cup", 20).await;
    let meddling = {
        let (one, other) = (replicas[0].client.clone(), replicas[1].client.clone());
        tokio::spawn(async move {
            let mut codes = Vec::new();
            loop {
                let orders = one.get("/orders?limit=20").await.json();
                for order in orders["data"].as_array().unwrap() {
                    let id = order["id"].as_str().unwrap();
                    for path in [format!("/orders/{id}/cancel"), format!("/orders/{id}/pay")] {
                        codes.push(other.post_new(&path, &json!({})).await);
                    }
                    let update = json!({"metadata": {"seen": "yes"}});
                    one.post_new(&format!("/orders/{id}"), &update).await;
                }
                let charges = one.get("/charges?limit=20").await.json();
                for charge in charges["data"].as_array().unwrap() {
                    let id = charge["id"].as_str().unwrap();
                    let update = json!({"metadata": {"seen": "yes"}});
                    other.post_new(&format!("/charges/{id}"), &update).await;
                    let capture = format!("/charges/{id}/capture");
                    codes.push(one.post_new(&capture, &json!({})).await);
                }
            }
            #[expect(unreachable_code, reason = "for the type")]
            codes
        })
    };
    let answers = all_at_once(30, |index| {
        let (client, body) = (replicas[index % 2].client.clone(), mugs_and_cups(index));
        async move { until_definite(&client, "/checkouts", &body).await }
    })
    .await;
    meddling.abort();
    assert_sold_out(&database, client, &answers, 10).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.count(deadlocks).await, 0);
    let ledger = processor.ledger().await;
    let charges = ledger["charges"].as_array().unwrap();
    let sum = |name: &str| -> i64 {
        let sums = charges.iter().map(|sums| sums[name].as_i64().unwrap());
        sums.sum()
    };
    assert_eq!(sum("captured") - sum("refunded"), 10 * 3000);
    for replica in replicas {
        replica.stop().await;
    }
}

/// Stopped before it claims the key of the charge, overtaken, and woken up when the record of that
/// step has expired: the table alone knows that the charge was made.
#[tokio::test]
async fn a_holder_who_wakes_up_after_the_step_s_record_expired_does_not_charge_again() {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let [late, prompt] = two_replicas(&database, &processor).await;
    let keys = ",/checkouts/%/create_charge";
    let mut pause = PausePoint::at(Stage::Claiming, &database, keys).await;
    let client = &late.client;
    let first = client.sending_and_waiting(30, "/checkouts", "key-1", checkout());
    pause.is_reached().await;
    // The paused request stays where it is; later ones pass.
    let sql = "CREATE OR REPLACE FUNCTION wait_at_pause_point() RETURNS trigger
             LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'";
    database.execute(sql).await;
    database.expire_leases().await;
    let second = &prompt.client;
    eventually("the other one completes it", || async {
        let answer = second.post("/checkouts", "key-1", &checkout()).await;
        answer.status == 201
    })
    .await;
    let sql = "DELETE FROM idempotency_keys WHERE key LIKE ',%'";
    database.execute(sql).await;
    pause.release().await;
    let first = first.await.unwrap();
    let again = second.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!((first.status.as_u16(), &first.body), (201, &again.body));
    assert_eq!(processor.lines().await, 1, "one charge");
    assert_eq!(database.charges().await, 1);
    assert_eq!(database.count(KEYS_IN_FLIGHT).await, 0);
    late.stop().await;
    prompt.stop().await;
}

async fn the_only_checkout(database: &TestDatabase) -> (AccountId, CheckoutId) {
    let row = sqlx::query_as("SELECT account_id, id FROM checkouts");
    let (account, id) = row.fetch_one(&database.pool).await.unwrap();
    (AccountId(account), CheckoutId(id))
}

#[tokio::test]
async fn who_locks_a_checkout_second_waits_and_sees_what_the_first_one_did() {
    let server = TestServer::start().await;
    let client = &server.client;
    let body = checkout_with("tok_outage");
    client.post("/checkouts", "key-1", &body).await;
    let sql = "UPDATE idempotency_leases SET recover_after = 'infinity'";
    server.database.execute(sql).await;
    let (account, id) = the_only_checkout(&server.database).await;
    let mut first = server.database.pool.begin().await.unwrap();
    let locked = store::checkouts::lock_all(&mut first, &[(account, id)]).await;
    let (_, found) = locked.unwrap().into_iter().next().unwrap();
    assert_eq!(found.next(), Some(StepName::CreateCharge));
    let second = {
        let pool = server.database.pool.clone();
        tokio::spawn(async move {
            let mut second = pool.begin().await.unwrap();
            let locked = store::checkouts::lock_all(&mut second, &[(account, id)]).await;
            locked.unwrap().into_iter().next().unwrap().1.next()
        })
    };
    let holds = || async { server.database.count(LOCK_WAITS).await > 0 || second.is_finished() };
    eventually("the second one waits", holds).await;
    assert!(!second.is_finished(), "both have it");
    let version = found.version;
    let done = found.done("ch_1".to_owned());
    let updated = store::checkouts::update_all(&mut first, &[(account, &done, version)]).await;
    updated.unwrap();
    let put = store::checkouts::put_steps(&mut first, [(account, &done)].into_iter()).await;
    put.unwrap();
    first.commit().await.unwrap();
    assert_eq!(second.await.unwrap(), Some(StepName::AllocateInventory));
    server.stop().await;
}

#[tokio::test]
async fn no_checkout_ends_with_a_step_to_run_or_is_forgotten_once_one_ran() {
    let server = TestServer::start().await;
    let body = checkout_with("tok_outage");
    server.client.post("/checkouts", "key-1", &body).await;
    let (account, id) = the_only_checkout(&server.database).await;
    let mut tx = server.database.pool.begin().await.unwrap();
    let found = store::checkouts::find(&mut tx, account, id).await.unwrap();
    assert!(found.unwrap().ended().is_none());
    let deleted = store::checkouts::delete_all(&mut tx, &[(account, id)]).await;
    assert!(deleted.is_err(), "{deleted:?}");
    drop(tx);
    server.stop().await;
}

/// Where the beginning took so long that the lease has no time left for a run, no step was run: the
/// key is free, and there is nothing of the checkout.
#[tokio::test]
async fn a_checkout_that_begins_too_late_to_be_run_leaves_nothing() {
    let database = TestDatabase::create().await;
    let connected = database.connect(&[]).await;
    let settings = Settings {
        retention: Duration::from_secs(3600),
        database_deadline: Duration::from_secs(5),
    };
    let idempotency = Idempotency::new(connected.pool().clone(), settings).unwrap();
    let steps = CheckoutSteps {
        idempotency: idempotency.clone(),
        database: connected.clone(),
        slow_lane: SlowLane::new(4),
        processor: None,
        network: None,
        step_wait: Duration::from_secs(6),
    };
    let short = LeaseSettings {
        lease: Duration::from_secs(10),
        // To begin takes longer than a microsecond.
        call_limit: Duration::from_micros(4_999_999),
    };
    let phases = Phases::new(idempotency, steps, short).unwrap();
    let account: Uuid = database.value("SELECT id FROM accounts LIMIT 1").await;
    let request = Request {
        account_id: account,
        path: "/checkouts".to_owned(),
        request_id: "req_1".to_owned(),
        ..request("{}", Duration::ZERO)
    };
    let Value::Object(tree) = checkout() else {
        unreachable!("a checkout is an object")
    };
    let parsed = CreateCheckoutParams::parse(&Params::new(Encoding::Json, Ok(tree)));
    let create = CreateCheckout {
        origin: Origin {
            account: AccountId(account),
            asked_by: AskedBy {
                dialect: Dialect::Ietf,
                api_version: None,
                request_id: "req_1".to_owned(),
                idempotency_key: "key-1".to_owned(),
            },
            traceparent: None,
            path_id: String::new(),
        },
        new: Ok(parsed.unwrap().into()),
    };
    let outcome = phases.run(request, create).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    for table in [
        "SELECT count(*) FROM checkouts",
        "SELECT count(*) FROM checkout_steps",
        "SELECT count(*) FROM idempotency_keys",
    ] {
        assert_eq!(database.count(table).await, 0, "{table}");
    }
}
