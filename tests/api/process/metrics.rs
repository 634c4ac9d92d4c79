//! `/metrics`: that it tells what happened, all of what is documented, and nothing of an account.

use charge_once::telemetry::catalog::METRICS;
use charge_once_service::prometheus::{PROCESS_METRICS, markdown_table};

use crate::support::{connection::request, prelude::*, webhooks::told};

#[test]
fn the_table_of_metrics_is_the_code_s() {
    let document = read("docs/operations.md");
    let table = document.between("<!-- metrics:begin -->\n", "<!-- metrics:end -->");
    let expected = markdown_table(METRICS);
    assert!(table == expected, "the table must be:\n{expected}");
}

/// A server with a processor across the network, a webhook endpoint, and everything that it counts.
struct World {
    server: TestServer,
    scraper: Client,
    processor: Processor,
}

impl World {
    async fn new() -> Self {
        Self::of(TestDatabase::create().await).await
    }

    async fn of(database: TestDatabase) -> Self {
        let processor = Processor::start().await;
        let url = processor.url();
        let variables = quick_but(&[
            ("PROCESSOR_URL", &url),
            ("PROCESSOR_TIMEOUT", "3s"),
            ("EXPIRY_SWEEP_INTERVAL", "100ms"),
            // Whatever the other tests run with.
            ("BATCH", "on"),
            ("REPLAY_CACHE", "32MiB"),
        ]);
        let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
        Self {
            server,
            scraper,
            processor,
        }
    }

    async fn post(&self, path: &str, key: &str, body: &Value) -> u16 {
        let answer = self.server.client.post(path, key, body).await;
        answer.status.as_u16()
    }

    async fn charge(&self, key: &str) -> u16 {
        self.post("/charges", key, &charge()).await
    }

    /// Every outcome that a key can have, and each once.
    async fn provoke_every_outcome(&self) {
        assert_eq!(self.charge("key-1").await, 201, "executed");
        assert_eq!(self.charge("key-1").await, 201, "replayed");
        let wrong = json!({"amount": 0, "currency": "usd"});
        assert_eq!(self.post("/charges", "key-2", &wrong).await, 400, "refused");
        let reused = self.post("/charges", "key-1", &another_charge()).await;
        assert_eq!(reused, 422, "reused");
        let elsewhere = hold_key(&self.server.database, "key-3").await;
        assert_eq!(self.charge("key-3").await, 409, "in use");
        elsewhere.rollback().await.unwrap();
        let refuse = json!({"fault": "refuse", "count": 3});
        self.processor.set_fault(refuse).await;
        assert_eq!(self.charge("key-4").await, 503, "failed");
        self.processor.reset_faults().await;
        let lose = json!({"fault": "drop_after"});
        self.processor.set_fault(lose).await;
        assert_eq!(self.charge("key-5").await, 503, "unknown");
        self.processor.reset_faults().await;
        // Under the other prefix it would be another request.
        assert_eq!(self.charge("key-5").await, 201, "taken over");
    }

    async fn pay_as_a_holder(&self) {
        let intent = json!({"amount": 2000, "currency": "usd"});
        let client = &self.server.client;
        let intent = client.post("/payment_intents", "intent-1", &intent);
        let path = format!("/payment_intents/{}/confirm", intent.await.id());
        let card = json!({
            "payment_method": "pm_card_authenticationRequired",
            "return_url": "https://shop.test/back",
        });
        let page = page_of(&client.post(&path, "intent-2", &card).await);
        let page = url::Url::parse(&page).unwrap();
        let page = format!("http://{}{}", client.address, page.path());
        assert_eq!(press(&page, "complete").await.status, 303);
    }

    async fn provoke_the_rest(&self) {
        let client = &self.server.client;
        let receiver = Receiver::start().await;
        Endpoint::at(client, &receiver.url()).await;
        acknowledge_all(receiver);
        let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 5}]});
        assert_eq!(self.post("/v1/orders", "order-1", &order).await, 201);
        stock(client, "mug", 4).await;
        let bought = self.post("/checkouts", "checkout-1", &checkout()).await;
        assert_eq!(bought, 201);
        let declined = checkout_with("tok_chargeDeclined");
        assert_eq!(self.post("/checkouts", "checkout-2", &declined).await, 402);
        self.pay_as_a_holder().await;
        assert_eq!(client.get("/nowhere").await.status, 404);
        assert_eq!(client.get("/v1/charges?limit=3").await.status, 200);
        let strange = request("BREW", "/charges", "Connection: close\r\n", "");
        let refused = send_raw(client, strange.as_bytes()).await;
        assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
        let charge = client.charge("key-6").await.id();
        let lock = "SELECT FROM charges FOR UPDATE";
        let locked = self.server.database.holding(lock).await;
        let update = json!({"description": "x"});
        let path = format!("/charges/{charge}");
        assert_eq!(self.post(&path, "update", &update).await, 409);
        // A connection that dies in a transaction: the request on it waits for the row.
        let dies = eventually("a connection waits for the row, and dies", || async {
            let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                          WHERE application_name = 'charge-once' AND wait_event_type = 'Lock'
                            AND datname = current_database()";
            self.server.database.count(ended).await > 0
        });
        tokio::join!(self.post(&path, "update-2", &update), dies);
        locked.rollback().await.unwrap();
        let is_updated = async || self.post(&path, "update", &update).await == 200;
        eventually("the server has connections again", is_updated).await;
        self.server.database.expire_records().await;
    }
}

/// When the service's series were last read from the database, which is the last one that is set.
const LAST_READ: &str = "charge_once_database_metrics_last_success_timestamp_seconds";

/// Series without the first part of their names, each with a value.
fn listed(lines: &str) -> impl Iterator<Item = (String, f64)> {
    lines.trim().lines().map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (format!("charge_once_{series}"), value.parse().unwrap())
    })
}

#[tokio::test]
async fn each_outcome_of_a_key_is_counted_by_its_operation() {
    let world = World::new().await;
    world.provoke_every_outcome().await;
    let scrape = Scrape::of(&world.scraper).await;
    let outcomes = "executed replayed refused reused in_use failed unknown taken_over";
    for outcome in outcomes.split(' ') {
        let series = format!(
            "charge_once_idempotency_requests_total{{operation=\"POST /charges\",outcome=\"{outcome}\"}}"
        );
        let value = scrape.values.get(&series);
        assert_eq!(value, Some(&1.0), "{outcome}\n{}", scrape.text);
    }
    for (series, expected) in listed(
        r#"
http_requests_total{method="POST",route="/charges",status="201"} 3
http_requests_total{method="POST",route="/charges",status="503"} 2
http_requests_total{method="POST",route="/charges",status="422"} 1
http_request_duration_seconds_count{method="POST",route="/charges"} 8
idempotency_replay_age_seconds_count 1
idempotency_claim_timeouts_total 1
phases_calls_total{kind="processor",result="answered"} 2
phases_calls_total{kind="processor",result="not_executed"} 1
phases_calls_total{kind="processor",result="unknown"} 1"#,
    ) {
        assert_eq!(scrape.value(&series), expected, "{series}\n{}", scrape.text);
    }
}

/// What a scrape must have where everything has happened, at least.
const EVERYTHING: &str = r#"
http_requests_total{method="GET",route="not_found",status="404"} 1
http_requests_total{method="other",route="/charges",status="405"} 1
http_requests_total{method="GET",route="/v1/charges",status="200"} 1
idempotency_requests_total{operation="POST /orders",outcome="executed"} 1
idempotency_requests_total{operation="POST /payment_intents/{id}/confirm",outcome="executed"} 1
http_requests_total{method="POST",route="/authenticate/{account}/{intent}/{token}",status="303"} 1
row_lock_timeouts_total 1
pool_discarded_total 1
checkouts_ended_total{state="completed"} 1
checkouts_ended_total{state="canceled"} 1
replay_cache_lookups_total{result="miss"} 1
replay_cache_lookups_total{result="hit"} 1
replay_cache_bytes 1
batch_requests_count 1
sweep_duration_seconds_count 1
webhook_lag_seconds_count 1
webhook_attempt_duration_seconds_count 1
phases_call_duration_seconds_count{kind="processor"} 1
pool_wait_seconds_count 10
pool_connections_max 10
pool_connections 1
sweep_last_success_timestamp_seconds{part="idempotency_keys"} 1000000000
sweep_last_success_timestamp_seconds{part="test_accounts"} 1000000000
sweep_last_success_timestamp_seconds{part="old_rows"} 1000000000
database_metrics_last_success_timestamp_seconds 1000000000"#;

#[tokio::test]
async fn a_scrape_has_every_documented_metric_and_no_other_and_names_no_account() {
    let database = TestDatabase::create_unsharded().await;
    database.printed_by("check");
    let world = World::of(database).await;
    world.provoke_every_outcome().await;
    world.provoke_the_rest().await;
    let scraper = &world.scraper;
    let swept = "charge_once_sweep_rows_total{kind=\"idempotency_keys\"}";
    exceeds(scraper, swept, 0.0).await;
    let sent = "charge_once_webhook_attempts_total{result=\"succeeded\"}";
    exceeds(scraper, sent, 1.0).await;
    let scrape = Scrape::of(scraper).await;
    let of_process = PROCESS_METRICS.iter().map(|(name, kind, _)| (*name, *kind));
    let documented = METRICS
        .iter()
        .map(|metric| (metric.name, metric.type_name()));
    let documented: BTreeSet<_> = documented.chain(of_process).collect();
    let served = scrape.types.iter();
    let served: BTreeSet<_> = served.map(|(name, kind)| (&**name, &**kind)).collect();
    assert_eq!(served, documented);
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| (*label).to_owned());
        let (name, labels) = (metric.name, labels.collect());
        assert_eq!(scrape.labels(name), labels, "{name}");
    }
    for (series, at_least) in listed(EVERYTHING) {
        let value = scrape.value(&series);
        assert!(value >= at_least, "{series}\n{}", scrape.text);
    }
    let account = "SELECT id::text FROM accounts WHERE name = 'dev'";
    let account: String = world.server.database.value(account).await;
    let id = "(acct|ch|re|or|co|cus|pi|pm|seti|evt|we|whd|req|card)_[0-9a-z]{26}";
    let id = Regex::new(id).unwrap();
    let sent = "key-1 order-1 checkout-1 jenny";
    for line in scrape.text.lines() {
        assert!(!id.is_match(line), "{line}");
        for secret in sent.split(' ').chain([&*account, API_KEY]) {
            assert!(!line.contains(secret), "{secret}: {line}");
        }
    }
}

#[tokio::test]
async fn the_claim_of_each_request_counts_where_many_share_a_transaction() {
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &[("BATCH", "on")]).await;
    let charged = all_at_once(20, |number| {
        let client = server.client.clone();
        async move { client.charge(&format!("key-{number}")).await }
    });
    for answer in charged.await {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let scrape = Scrape::of(&scraper).await;
    assert!(scrape.value("charge_once_batch_requests_sum") > 1.0);
    let claims = scrape.value("charge_once_idempotency_claim_duration_seconds_count");
    // A batch that fails after its claims leaves its requests to claim again.
    assert!(claims >= 20.0, "{}", scrape.text);
}

#[tokio::test]
async fn what_is_in_flight_and_who_waits_for_it_is_seen_while_it_is() {
    let world = World::new().await;
    let delay = json!({"fault": "delay_before", "milliseconds": 60_000});
    world.processor.set_fault(delay).await;
    let client = &world.server.client;
    let send = || client.sending_and_waiting(30, "/charges", "key-1", charge());
    let first = send();
    world.processor.delays(1).await;
    let second = send();
    let scraper = &world.scraper;
    reaches(scraper, "charge_once_idempotency_waiters", 1.0).await;
    reaches(scraper, "charge_once_idempotency_keys_in_flight", 1.0).await;
    world.processor.reset_faults().await;
    for answer in [first.await.unwrap(), second.await.unwrap()] {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    reaches(scraper, "charge_once_idempotency_waiters", 0.0).await;
    reaches(scraper, "charge_once_idempotency_keys_in_flight", 0.0).await;
}

#[tokio::test]
async fn what_waits_in_the_database_is_seen_by_a_replica_that_did_not_make_it() {
    let processor = Processor::start().await;
    let url = processor.url();
    let processor_at = [("PROCESSOR_URL", &*url), ("PROCESSOR_TIMEOUT", "3s")];
    let (server, receiver, endpoint) = told(&quick_but(&processor_at)).await;
    let client = &server.client;
    acknowledge_all(receiver);
    open_order(client).await;
    everything_is_delivered(&server.database).await;
    let lost = json!({"fault": "drop_after", "count": 1000});
    processor.set_fault(lost).await;
    assert_eq!(client.charge("key-2").await.status, 503);
    let database = server.stop().await;
    add_backlog(&database, &endpoint, 3).await;
    for change in [
        "UPDATE webhook_deliveries SET ready = true, next_attempt_at = now() - interval '2 hours'
          WHERE status = 'pending'",
        // A retry that no worker takes up.
        "UPDATE webhook_deliveries SET ready = false, next_attempt_at = now() - interval '3 hours'
          WHERE id = (SELECT max(id::text)::uuid FROM webhook_deliveries WHERE status = 'pending')",
        "UPDATE idempotency_keys SET created_at = now() - interval '3 days',
                expires_at = now() - interval '2 days' WHERE status IS NOT NULL",
    ] {
        database.execute(change).await;
    }
    // The workers of the second replica pass over what is locked.
    let lock = "SELECT FROM webhook_deliveries FOR UPDATE;
                SELECT FROM idempotency_keys WHERE status IS NOT NULL FOR UPDATE;
                SELECT FROM idempotency_leases FOR UPDATE";
    let locked = database.holding(lock).await;
    let (_server, scraper) = TestServer::start_with_metrics(database, &processor_at).await;
    exceeds(&scraper, LAST_READ, 0.0).await;
    let scrape = Scrape::of(&scraper).await;
    let due = scrape.value("charge_once_webhooks_due");
    assert_eq!(due, 3.0, "{}", scrape.text);
    let seconds = |series: &str| scrape.value(&format!("charge_once_{series}_seconds"));
    let due = seconds("webhooks_oldest_due");
    let expired = seconds("idempotency_oldest_expired");
    assert!(due >= 10_800.0 && expired >= 172_800.0, "{}", scrape.text);
    for (series, expected) in listed(
        r#"
phases{kind="processor",state="waiting"} 1
phases{kind="processor",state="running"} 0
phases_in_doubt{kind="processor"} 1
phases_in_doubt{kind="checkout"} 0
checkouts{state="in_progress"} 0"#,
    ) {
        let value = scrape.values.get(&series);
        assert_eq!(value, Some(&expected), "{series}\n{}", scrape.text);
    }
    assert!(scrape.value("charge_once_phases_oldest_seconds{kind=\"processor\"}") > 0.0);
    locked.rollback().await.unwrap();
}

#[tokio::test]
async fn what_the_last_check_found_is_seen_after_a_first_one() {
    let mut database = TestDatabase::create_unsharded().await;
    database.is_left_broken("it is planted");
    let began = std::time::SystemTime::now();
    let began = began.duration_since(std::time::UNIX_EPOCH).unwrap();
    let plant = "INSERT INTO inventory (account_id, sku, quantity, updated_at)
                 SELECT gen_random_uuid(), 'mug', 1, now() FROM generate_series(1, 3)";
    for (violations, plant) in [(None, None), (Some(0.0), None), (Some(3.0), Some(plant))] {
        if let Some(plant) = plant {
            database.execute(plant).await;
        }
        if let Some(violations) = violations {
            let checked = database.command("check");
            let is_violated = i32::from(violations > 0.0);
            assert_eq!(checked.code, Some(is_violated), "{checked:?}");
        }
        let (server, scraper) = TestServer::start_with_metrics(database, &[]).await;
        exceeds(&scraper, LAST_READ, 0.0).await;
        let scrape = Scrape::of(&scraper).await;
        let found = scrape.values.get("charge_once_check_violations");
        assert_eq!(found.copied(), violations, "{}", scrape.text);
        let when = "charge_once_check_last_run_timestamp_seconds";
        let when = scrape.values.get(when).copied();
        assert_eq!(when.is_some(), violations.is_some());
        // The test and the database have one clock.
        let is_new = when.is_none_or(|when| when >= began.as_secs_f64());
        assert!(is_new, "{when:?}");
        database = server.stop().await;
    }
}

#[tokio::test]
async fn metrics_have_an_address_of_their_own_and_are_served_nowhere_else() {
    let (server, scraper) = TestServer::start_with_metrics(TestDatabase::create().await, &[]).await;
    for client in [&server.client, &TestServer::start().await.client] {
        for path in ["/metrics", "/v1/metrics"] {
            let answer = client.get(path).await;
            assert_eq!(answer.code(), "route_not_found");
        }
    }
    for path in ["/", "/charges", "/livez"] {
        assert_eq!(scraper.get(path).await.status, 404, "{path}");
    }
    let head = Answer::of(scraper.bare(reqwest::Method::HEAD, "/metrics")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn the_program_says_where_its_metrics_are_and_refuses_an_address_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let database = TestDatabase::create_unsharded().await;
    let (url, address) = (
        ("DATABASE_URL", &*database.url),
        ("METRICS_ADDRESS", &*taken),
    );
    let told = complaint_of(&["serve"], &[ANY_PORT, url, address], 1);
    assert_has(&told, "METRICS_ADDRESS must be an address that is free");

    // It reads the address in the banner.
    let (_server, scraper) = ServerProcess::start_with_metrics(Stdio::null(), &database, &[]);
    let version = charge_once::VERSION;
    let info = format!("charge_once_info{{version=\"{version}\"}}");
    assert_eq!(Scrape::of(&scraper).await.value(&info), 1.0);
}

/// The other parts go on, so that the log was all that told of it.
#[tokio::test]
async fn a_part_of_the_sweep_that_fails_is_counted_by_itself() {
    let database = with_old_rows().await;
    refuse_to_remove_events(&database).await;
    let often = [("EXPIRY_SWEEP_INTERVAL", "100ms")];
    let (server, scraper) = TestServer::start_with_metrics(database, &often).await;
    let failures = |part: &str| format!("charge_once_sweep_failures_total{{part=\"{part}\"}}");
    let success =
        |part: &str| format!("charge_once_sweep_last_success_timestamp_seconds{{part=\"{part}\"}}");
    exceeds(&scraper, &failures("old_rows"), 1.0).await;
    let scrape = Scrape::of(&scraper).await;
    assert_eq!(scrape.value(&success("old_rows")), 0.0);
    for part in ["idempotency_keys", "test_accounts"] {
        assert_eq!(scrape.value(&failures(part)), 0.0, "{}", scrape.text);
        assert!(scrape.value(&success(part)) > 0.0, "{}", scrape.text);
    }
    let allow = "DROP TRIGGER refuse ON events";
    server.database.execute(allow).await;
    exceeds(&scraper, &success("old_rows"), 0.0).await;
    let scrape = Scrape::of(&scraper).await;
    let swept =
        |kind: &str| scrape.value(&format!("charge_once_sweep_rows_total{{kind=\"{kind}\"}}"));
    assert_eq!((swept("idempotency_keys"), swept("events")), (3.0, 2.0));
}

#[tokio::test]
async fn a_part_of_the_sweep_that_hangs_takes_no_time_of_the_next_one() {
    let database = with_old_rows().await;
    let wait = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
                CREATE TRIGGER wait BEFORE UPDATE OF closed_at ON accounts
                    FOR EACH ROW EXECUTE FUNCTION wait();
                INSERT INTO accounts (id, name, test_until)
                VALUES (gen_random_uuid(), 'ended', now() - interval '1 hour')";
    database.execute(wait).await;
    let gate = database.holding("SELECT pg_advisory_xact_lock(42)").await;
    // Each time, the account takes longer than that.
    let often = [("EXPIRY_SWEEP_INTERVAL", "100ms")];
    let (_server, scraper) = TestServer::start_with_metrics(database, &often).await;
    let events = "charge_once_sweep_rows_total{kind=\"events\"}";
    reaches(&scraper, events, 2.0).await;
    let scrape = Scrape::of(&scraper).await;
    let failures = "charge_once_sweep_failures_total{part=\"test_accounts\"}";
    assert!(scrape.value(failures) > 0.0, "{}", scrape.text);
    gate.rollback().await.unwrap();
}

#[tokio::test]
async fn what_falls_out_of_a_batch_is_counted_by_its_reason() {
    let database = TestDatabase::create().await;
    // Whatever the other tests run with.
    let batches = [("BATCH", "on")];
    let (server, scraper) = TestServer::start_with_metrics(database, &batches).await;
    let outage = json!({"amount": 5, "currency": "usd", "source": "tok_outage"});
    for (body, status) in [(charge(), 201), (outage, 503)] {
        let answer = server.client.post_new("/charges", &body).await;
        assert_eq!(answer.status, status);
    }
    let held = hold_key(&server.database, "held").await;
    let count = |scrape: &Scrape, reason: &str| {
        let series = format!("charge_once_batch_fallbacks_total{{reason=\"{reason}\"}}");
        scrape.value(&series)
    };
    // The account runs alone for a second only, and a busy machine may need longer for the next
    // charge.
    eventually("an account is held up", || async {
        assert_eq!(server.client.charge("held").await.status, 409);
        let charged = server.client.post_new("/charges", &charge()).await;
        assert_eq!(charged.status, 201);
        count(&Scrape::of(&scraper).await, "account_held_up") > 0.0
    })
    .await;
    held.rollback().await.unwrap();
    let scrape = Scrape::of(&scraper).await;
    for reason in ["undecided", "batch_failed"] {
        assert!(count(&scrape, reason) > 0.0, "{reason}: {}", scrape.text);
    }
    let failures = scrape.value("charge_once_batch_failures_total");
    let batches = scrape.value("charge_once_batch_duration_seconds_count");
    assert!(0.0 < failures && failures < batches, "{}", scrape.text);
}
