//! Every alert fires when its fault is made, and none does where there is no fault.
//!
//! All faults are made at once, each in a deployment of its own, which is a job of Prometheus. The
//! rules are the committed ones, and time is shortened in one way only: every duration in them,
//! such as `5m`, is divided by [`HASTE`]. Thresholds stay as they are. What must be hours old is
//! made as old in the database.

use std::any::Any;

use regex::Captures;
use tokio::time::interval;
use uuid::{NoContext, Timestamp};

use crate::support::{
    harness::IMPATIENT, prelude::*, processor, sharding::second, webhooks::PENDING,
};

/// How much faster time passes. Five minutes are six seconds: a dozen scrapes.
const HASTE: u32 = 50;

/// How long alerts may take to fire: the slowest waits for 24 seconds, after a window of 18.
const LIMIT: Duration = Duration::from_secs(90);

/// Few connections for each server: there are ten, in front of a PostgreSQL that other tests use
/// too.
const MODEST: &[(&str, &str)] = &[("POOL_CONNECTIONS", "3"), ("BATCH_CONNECTIONS", "1")];

const HEALTHY: &str = "charge-once-healthy";

/// Divides every duration of the rules. Texts for people stay.
fn hastened(rules: &str) -> String {
    let duration = Regex::new(r"\b(\d+)([smhd])\b").unwrap();
    let hasten = |found: &Captures<'_>| {
        let unit = match &found[2] {
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => 86_400_000,
        };
        let milliseconds = found[1].parse::<u32>().unwrap() * unit / HASTE;
        format!("{milliseconds}ms")
    };
    let lines = rules.lines().map(|line| {
        let is_prose = |prose: &&str| line.trim_start().starts_with(prose);
        match ["#", "summary:", "description:"].iter().any(is_prose) {
            true => line.into(),
            false => duration.replace_all(line, hasten),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn time_is_shortened_and_nothing_else_is() {
    let rules = "record: job:x:rate5m\nexpr: rate(a_5m[5m]) > 14.4 * 0.001\nfor: 1h\nsummary: '5m'";
    let expected = "record: job:x:rate5m\nexpr: rate(a_5m[6000ms]) > 14.4 * 0.001\nfor: 72000ms\nsummary: '5m'";
    assert_eq!(hastened(rules), expected);
}

/// Deployments that are in trouble, and what should be told of them.
#[derive(Default)]
struct Trouble {
    jobs: Vec<Job>,
    /// Job and alert.
    expected: Vec<(&'static str, &'static str)>,
    /// Clients, who go on until the end.
    clients: JoinSet<()>,
    /// What lives until then.
    kept: Vec<Box<dyn Any>>,
}

impl Trouble {
    fn at(&mut self, job: &'static str, scrapers: &[&Client], alerts: &'static str) {
        let replicas = scrapers.iter().map(|scraper| scraper.address).collect();
        let name = job;
        self.jobs.push(Job { name, replicas });
        let alerts = alerts.split_whitespace().map(|alert| (job, alert));
        self.expected.extend(alerts);
    }

    fn keep(&mut self, value: impl Any) {
        self.kept.push(Box::new(value));
    }

    /// A client does something again and again, about as often as the milliseconds say.
    fn repeat<F>(
        &mut self,
        client: &Client,
        milliseconds: u64,
        mut act: impl FnMut(Client, u32) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let client = client.clone();
        self.clients.spawn(async move {
            let mut ticks = interval(Duration::from_millis(milliseconds));
            for number in 0.. {
                ticks.tick().await;
                act(client.clone(), number).await;
            }
        });
    }

    /// As load balancers do.
    fn probe(&mut self, client: &Client) {
        self.repeat(client, 200, |client, _| async move {
            Answer::of(client.bare(Method::GET, "/readyz")).await;
        });
    }
}

fn keyed(number: u32) -> String {
    format!("key-{number}")
}

/// Holds all rows of a table, of which there are some.
async fn locked(database: &TestDatabase, table: &str) -> Transaction<'static, Postgres> {
    let mut tx = database.pool.begin().await.unwrap();
    let lock = sqlx::raw_sql(AssertSqlSafe(format!("SELECT FROM {table} FOR UPDATE")));
    let locked = lock.execute(&mut *tx).await.unwrap();
    assert!(locked.rows_affected() > 0, "{table}");
    tx
}

/// Nothing is wrong here, and clients retry as they should.
async fn nothing_is_wrong(trouble: &mut Trouble) {
    let variables = [MODEST, &quick_but(&[("EXPIRY_SWEEP_INTERVAL", "1s")])].concat();
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
    let receiver = Receiver::start().await;
    Endpoint::at(&server.client, &receiver.url()).await;
    acknowledge_all(receiver);
    trouble.at(HEALTHY, &[&scraper], "");
    trouble.probe(&server.client);
    trouble.repeat(&server.client, 200, |client, number| async move {
        for _ in 0..2 {
            assert_eq!(client.charge(&keyed(number)).await.status, 201);
        }
    });
    trouble.keep(server);
}

/// The way to the database is cut. A stalled one would leave PostgreSQL, which all tests share,
/// with a session for each attempt.
async fn the_database_is_away(trouble: &mut Trouble) {
    let database = TestDatabase::create().await;
    let proxy = PostgresProxy::in_front_of(&database.url).await;
    let sweep_often = ("EXPIRY_SWEEP_INTERVAL", "1s");
    let variables = [MODEST, IMPATIENT, &[sweep_often]].concat();
    let (server, scraper) =
        TestServer::start_with_metrics_through(database, &proxy.url, &variables).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    let swept = r#"charge_once_sweep_last_success_timestamp_seconds{part="old_rows"}"#;
    exceeds(&scraper, swept, 0.0).await;
    proxy.inject(NetworkFault::Cut);
    let alerts = "ChargeOnceNotReady ChargeOnceErrorBudgetBurnsFast \
                  ChargeOnceErrorBudgetBurnsSlowly ChargeOnceDatabaseMetricsStale \
                  ChargeOnceSweepFails";
    trouble.at("charge-once-cut-off", &[&scraper], alerts);
    trouble.probe(&server.client);
    for _ in 0..2 {
        trouble.repeat(&server.client, 200, |client, _| async move {
            assert_eq!(client.post_new("/charges", &charge()).await.status, 503);
        });
    }
    trouble.keep((server, proxy));
}

/// The processor executes what it is asked for, and says nothing. A client retries later, and uses
/// keys twice.
async fn the_processor_is_silent(trouble: &mut Trouble) {
    let processor = Processor::start().await;
    let url = processor.url();
    let database = TestDatabase::create().await;
    let processor_at = [("PROCESSOR_URL", &*url), ("PROCESSOR_TIMEOUT", "3s")];
    let variables = [MODEST, &processor_at].concat();
    let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
    a_refund_is_refused(&server, &processor).await;

    // Begun two hours ago, and never retried.
    let lost = json!({"fault": "drop_after"});
    processor.set_fault(lost.clone()).await;
    assert_eq!(server.client.charge("never-retried").await.status, 503);
    let two_hours_ago = chrono::Utc::now().timestamp() - 7200;
    let begun = Timestamp::from_unix(NoContext, u64::try_from(two_hours_ago).unwrap(), 0);
    let age = format!(
        "UPDATE idempotency_leases
            SET operation = '{}', recover_after = now() + interval '1 hour'
          WHERE key = 'never-retried'",
        Uuid::new_v7(begun)
    );
    let database = &server.database;
    database.is_left_broken("a lease names an operation that never was");
    assert_eq!(database.execute(age).await, 1);

    let alerts = "ChargeOnceUnknownOutcomes ChargeOnceTakeovers ChargeOnceKeysReused \
                  ChargeOnceProcessorFails ChargeOnceOperationsInDoubt \
                  ChargeOnceRequestsUnfinished ChargeOnceRefundRefused";
    trouble.at("charge-once-processor", &[&scraper], alerts);
    let processor = Arc::new(processor);
    trouble.repeat(&server.client, 100, move |client, number| {
        let (key, processor, lost) = (keyed(number), processor.clone(), lost.clone());
        async move {
            processor.set_fault(lost).await;
            assert_eq!(client.charge(&key).await.status, 503);
            processor.reset_faults().await;
            assert_eq!(client.charge(&key).await.status, 201);
            let reuse = client.post("/charges", &key, &another_charge()).await;
            assert_eq!(reuse.status, 422);
        }
    });
    trouble.keep(server);
}

/// The processor has given a checkout's money back already, under a key that isn't ours.
async fn a_refund_is_refused(server: &TestServer, processor: &Processor) {
    let client = &server.client;
    stock(client, "mug", 1).await;
    let keys = ",/checkouts/%/create_refund%";
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, keys).await;
    let sending = client.sending("/checkouts", "refused", checkout());
    pause.is_reached().await;
    let listed = client.get("/checkouts").await.json();
    let charge = listed["data"][0]["charge"].as_str().unwrap().to_owned();
    let elsewhere = processor::refund(&charge, 2400);
    assert!(processor.put(Uuid::now_v7(), &elsewhere).await.is_some());
    pause.release().await;
    assert_eq!(sending.await.unwrap().code(), "service_unavailable");
}

/// A row stays locked that every client wants to change, the pool is small, the account has more
/// requests in progress than its limit allows, and connections die.
async fn a_row_is_locked(trouble: &mut Trouble) {
    let database = TestDatabase::create().await;
    let variables = [
        ("POOL_CONNECTIONS", "2"),
        ("POOL_WAIT", "300ms"),
        ("IN_PROGRESS_LIMIT_PER_ACCOUNT", "10"),
    ];
    let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
    let id = server.client.charge("key-1").await.id();
    let pool = server.database.pool.clone();
    let locked = locked(&server.database, "charges").await;
    let alerts = "ChargeOnceSlow ChargeOncePoolTimeouts ChargeOncePoolSaturated \
                  ChargeOnceConnectionsDiscarded ChargeOnceLockTimeouts ChargeOnceRequestsShed";
    trouble.at("charge-once-locked", &[&scraper], alerts);
    for _ in 0..12 {
        let path = format!("/charges/{id}");
        trouble.repeat(&server.client, 100, move |client, _| {
            let path = path.clone();
            async move {
                let update = json!({"description": "x"});
                let answer = client.post_new(&path, &update).await;
                assert!([409, 503].contains(&answer.status.as_u16()), "{answer:?}");
            }
        });
    }
    trouble.repeat(&server.client, 1000, move |_, _| {
        let pool = pool.clone();
        async move {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE application_name = 'charge-once' AND datname = current_database()
                          AND state <> 'idle' LIMIT 1";
            sqlx::query(cut).execute(&pool).await.unwrap();
        }
    });
    trouble.keep((server, locked));
}

/// The data was changed by hand, and a receiver answers 500. Deliveries and expired keys that are
/// hours old are held by another session, so that workers pass over them.
async fn workers_have_no_success(trouble: &mut Trouble) {
    let variables = [MODEST, &quick_but(&[("EXPIRY_SWEEP_INTERVAL", "1s")])].concat();
    let server = TestServer::start_with(&variables).await;
    let mut receiver = Receiver::start().await;
    let orders = json!({"url": receiver.url(), "enabled_events": ["order.created"]});
    let late = Endpoint::with(&server.client, &orders).await;
    open_order(&server.client).await;
    receiver.next().await.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(server.client.charge("changed").await.status, 201);
    let database = server.stop().await;
    database.is_left_broken("a hand in the data");
    // The last check found it three days ago.
    let by_hand = "UPDATE charges SET amount_refunded = 500";
    database.execute(by_hand).await;
    database.command("check").failed(1);
    let ago = "UPDATE last_check SET finished_at = now() - interval '3 days'";
    database.execute(ago).await;
    add_backlog(&database, &late, 3).await;
    assert_eq!(database.count(PENDING).await, 3);
    let age = "UPDATE webhook_deliveries
                  SET ready = true, next_attempt_at = now() - interval '2 hours'
                WHERE status = 'pending';
               UPDATE idempotency_keys SET created_at = now() - interval '3 days',
                      expires_at = now() - interval '2 days'";
    database.execute(age).await;
    let held = [
        locked(&database, "webhook_deliveries").await,
        locked(&database, "idempotency_keys").await,
    ];

    let (server, scraper) = TestServer::start_with_metrics(database, &variables).await;
    let mut receiver = Receiver::start().await;
    let charges = json!({"url": receiver.url(), "enabled_events": ["charge.succeeded"]});
    Endpoint::with(&server.client, &charges).await;
    trouble.clients.spawn(async move {
        loop {
            receiver.next().await.answer(500).await;
        }
    });
    let alerts = "ChargeOnceWebhooksLate ChargeOnceWebhooksFail ChargeOnceWebhooksGivenUp \
                  ChargeOnceExpiredKeysPileUp ChargeOnceInvariantViolated ChargeOnceCheckOverdue";
    trouble.at("charge-once-workers", &[&scraper], alerts);
    trouble.repeat(&server.client, 1000, |client, number| async move {
        assert_eq!(client.charge(&keyed(number)).await.status, 201);
    });
    trouble.keep((server, held));
}

/// Clients open connections, say nothing, and stay. The server keeps files back for other things,
/// so it takes a limit of two thousand until four fifths of them are connections.
async fn file_descriptors_run_out(trouble: &mut Trouble) {
    let database = TestDatabase::create().await;
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 2048 && exec \"$0\""]);
    limited.arg(env!("CARGO_BIN_EXE_charge-once"));
    let variables = [
        ("POOL_CONNECTIONS", "2"),
        ("REQUEST_HEAD_TIMEOUT", "1h"),
        ("WORKERS", "1"),
    ];
    let (server, scraper) =
        ServerProcess::start_with_metrics_by(limited, Stdio::null(), &database, &variables);
    for _ in 0..1640 {
        let connection = TcpStream::connect(server.client.address).await.unwrap();
        trouble.keep(connection);
    }
    let alert = "ChargeOnceFileDescriptors";
    trouble.at("charge-once-crowded", &[&scraper], alert);
    trouble.keep(server);
}

/// Two accounts were on their way from one database to another when the commands that moved them
/// were killed.
async fn moves_stand_still(trouble: &mut Trouble) {
    let (first, other) = (
        TestDatabase::create_unsharded().await,
        TestDatabase::create_empty().await,
    );
    let shards = second(&other.url);
    let variables = [MODEST, &[("SHARD_URLS", &*shards)]].concat();
    let (server, scraper) = TestServer::start_with_metrics(first, &variables).await;
    let moves = "INSERT INTO moving (account_id, state, other, since)
                 SELECT gen_random_uuid(), state, 'main', now() - interval '2 hours'
                   FROM unnest(ARRAY['frozen', 'copying']) AS state";
    other.execute(moves).await;
    let alerts = "ChargeOnceAccountClosedByMove ChargeOnceMoveUnfinished";
    trouble.at("charge-once-moving", &[&scraper], alerts);
    trouble.keep((server, other));
}

async fn every_replica_is_dead(trouble: &mut Trouble) {
    let database = TestDatabase::create().await;
    let start = || ServerProcess::start_with_metrics(Stdio::null(), &database, MODEST);
    let [(first, of_first), (second, of_second)] = [start(), start()];
    assert_eq!(first.client.charge("key-1").await.status, 201);
    first.kill();
    second.kill();
    let alerts = "ChargeOnceDown ChargeOnceReplicaDown";
    trouble.at("charge-once-dead", &[&of_first, &of_second], alerts);
}

const RESTARTING: &str = "charge-once-restarting";

/// A replica that is killed as soon as Prometheus has seen it, and started again at the same
/// address.
async fn restart_again_and_again(
    prometheus: &Prometheus,
    start: impl Fn() -> (ServerProcess, Client),
    first: ServerProcess,
) {
    let started = format!("process_start_time_seconds{{job=\"{RESTARTING}\"}}");
    let seen = async || {
        let series = prometheus.query(&started).await;
        let value = series.first()?["value"][1].as_str()?;
        value.parse::<i64>().ok()
    };
    let mut replica = first;
    let mut before = None;
    loop {
        within(LIMIT, || async {
            let now = seen().await;
            // A start whose time is the same would not be seen. The time is in whole seconds, and
            // the kernel's own clock may be behind by part of one.
            let is_over = now.is_some_and(|now| now + 2 <= chrono::Utc::now().timestamp());
            (now == before || !is_over).then(|| format!("{now:?}, a restart was not seen"))
        })
        .await;
        before = seen().await;
        replica.kill();
        (replica, _) = start();
    }
}

/// Job and alert of each series of `ALERTS` in a state, at any time.
async fn told(prometheus: &Prometheus, state: &str) -> Vec<(String, String)> {
    let ever = format!("count_over_time(ALERTS{{alertstate=\"{state}\"}}[10m])");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let series = prometheus.query(&ever).await;
    let labels = series.iter().map(|series| &series["metric"]);
    labels
        .map(|of| (text(&of["job"]), text(&of["alertname"])))
        .collect()
}

// A second thread: the start of a process blocks the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it judges latencies, so it wants the machine for itself"]
async fn every_alert_fires_when_its_fault_is_made_and_none_where_there_is_no_fault() {
    let mut trouble = Trouble::default();
    nothing_is_wrong(&mut trouble).await;
    the_database_is_away(&mut trouble).await;
    the_processor_is_silent(&mut trouble).await;
    a_row_is_locked(&mut trouble).await;
    workers_have_no_success(&mut trouble).await;
    file_descriptors_run_out(&mut trouble).await;
    moves_stand_still(&mut trouble).await;
    every_replica_is_dead(&mut trouble).await;
    let database = TestDatabase::create().await;
    let address = lasting_address();
    let variables = [&[("METRICS_ADDRESS", &*address)], MODEST].concat();
    let start = || ServerProcess::start_with_metrics(Stdio::null(), &database, &variables);
    let (replica, scraper) = start();
    trouble.at(RESTARTING, &[&scraper], "ChargeOnceRestarting");

    let mut covered: Vec<_> = trouble.expected.iter().map(|(_, alert)| *alert).collect();
    let mut committed = alerts();
    covered.sort_unstable();
    committed.sort_unstable();
    assert_eq!(covered, committed, "each alert has one fault");

    let prometheus = Prometheus::start(&trouble.jobs, hastened).await;
    let all_fire = within(LIMIT, || async {
        let firing = told(&prometheus, "firing").await;
        let missing = trouble.expected.iter().find(|(job, alert)| {
            let is_it = |(of, name): &(String, String)| of == job && name == alert;
            !firing.iter().any(is_it)
        });
        missing.map(|(job, alert)| format!("{alert} of {job} does not fire; {firing:?} do"))
    });
    tokio::select! {
        () = restart_again_and_again(&prometheus, start, replica) => {}
        () = all_fire => {}
    }

    let firing = told(&prometheus, "firing").await;
    let false_alarms: Vec<_> = firing.iter().filter(|(job, _)| job == HEALTHY).collect();
    assert!(false_alarms.is_empty(), "{false_alarms:?}");
    let pending = told(&prometheus, "pending").await;
    for fired in &firing {
        assert!(pending.contains(fired), "{fired:?} did not wait");
    }
    every_alert_tells_a_person_what_to_do(&prometheus.rules().await);
    // Clients that failed would have made no trouble.
    while let Some(ended) = trouble.clients.try_join_next() {
        ended.unwrap();
    }
}

fn every_alert_tells_a_person_what_to_do(rules: &[Value]) {
    let runbook = prose(&read("docs/runbook.md"));
    for rule in rules.iter().filter(|rule| rule["type"] == "alerting") {
        let name = rule["name"].as_str().unwrap();
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["lastError"], Value::Null, "{rule}");
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["page", "ticket"].contains(&severity), "{rule}");
        assert!(rule["duration"].as_f64() > Some(0.0), "{rule}");
        let anchor = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], anchor);
        assert!(runbook.contains(&format!("## {name}\n")), "{name}");
        let instances = rule["alerts"].as_array().unwrap();
        assert!(!instances.is_empty(), "{rule}");
        for alert in instances {
            for text in ["summary", "description"] {
                let told = alert["annotations"][text].as_str().unwrap();
                let is_rendered = !told.contains("{{") && !told.contains("<error");
                assert!(told.len() > 20 && is_rendered, "{name}: {told}");
            }
        }
    }
}
