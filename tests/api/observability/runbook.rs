//! The runbook: a section for each alert, and every command and statement in it runs.

use std::env;

use sqlx::postgres::PgRow;

use crate::support::prelude::*;

const RUNBOOK: &str = "docs/runbook.md";

/// What a statement names that does more than to look.
const ENDS_A_SESSION: &str = "pg_terminate_backend";

/// The title and the text of each section.
fn sections(document: &str) -> Vec<(String, String)> {
    let sections = document.split("\n## ").skip(1);
    let sections = sections.map(|section| section.split_once('\n').unwrap());
    sections
        .map(|(title, text)| (title.into(), text.into()))
        .collect()
}

#[test]
fn each_alert_has_a_section_and_each_section_an_alert() {
    let sections = sections(&read(RUNBOOK));
    let titles: BTreeSet<_> = sections.iter().map(|(title, _)| title.clone()).collect();
    assert_eq!(titles.len(), sections.len(), "a title occurs twice");
    assert_eq!(titles, alerts().into_iter().collect());
    for (title, text) in sections {
        let mut rest = prose(&text);
        for part in "**It means** |**Hurt:** |**Find out** |**Act|**It is over** ".split('|') {
            let after = rest.split_once(part).map(|(_, after)| after.to_owned());
            rest = after.unwrap_or_else(|| panic!("{title} lacks {part:?}"));
        }
        assert!(!blocks(&text).is_empty(), "{title} shows no command");
    }
}

/// What a document quotes of the log: code of three words or more.
fn quoted(document: &str) -> Vec<String> {
    let words = Regex::new("`([a-z][A-Za-z']*(?: [A-Za-z']+){2,})`").unwrap();
    let prose = prose(document);
    let found = words.captures_iter(&prose);
    found.map(|found| found[1].to_owned()).collect()
}

#[test]
fn every_log_line_that_is_quoted_is_one_of_the_program() {
    let mut program = String::new();
    let folders = "src crates/idempotency/src crates/processor/src crates/webhooks/src";
    for folder in folders.split(' ') {
        for file in files_below(folder) {
            program.push_str(&read(file));
        }
    }
    // A text may go on in the next line.
    let program = Regex::new(r"\\\n\s*").unwrap().replace_all(&program, "");
    let mut count = 0;
    for document in [RUNBOOK, "docs/operations.md"] {
        for line in quoted(&read(document)) {
            assert!(program.contains(&line), "{document} quotes {line:?}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");
}

/// The commands before the first section name what deploy/ and docker-compose.yml have.
#[test]
fn the_runbook_asks_services_that_there_are_for_their_logs() {
    let document = read(RUNBOOK);
    let (beginning, _) = document.split_once("\n## ").unwrap();
    let manifests = read("deploy/kubernetes/base/deployment.yaml");
    let compose = read("docker-compose.yml");
    let kustomization = read("deploy/kubernetes/base/kustomization.yaml");
    beginning.must_have(&[
        "docker compose logs --no-log-prefix charge-once ",
        "docker compose exec postgres psql ",
        " app.kubernetes.io/component=api ",
        "kubectl --namespace charge-once ",
        "journalctl --unit charge-once ",
        "--username=charge_once_reader ",
        "postgres://charge_once_reader:",
    ]);
    for (file, part) in [
        (&compose, "\n  charge-once: &charge-once\n"),
        (&compose, "\n  postgres: &postgres\n"),
        (&manifests, "app.kubernetes.io/component: api\n"),
        (&kustomization, "\nnamespace: charge-once\n"),
        (&read("deploy/postgres/roles.sql"), "charge_once_reader"),
    ] {
        assert_has(file, part);
    }
    assert!(root().join("deploy/systemd/charge-once.service").exists());
}

/// Where everything in the runbook is something: an operation in doubt that is a day old and
/// another one that waits, a key that was reused, and deliveries that were given up.
struct Night {
    database: TestDatabase,
    processor: Processor,
    server: ServerProcess,
    prometheus: Prometheus,
    endpoint: String,
    operation: String,
}

impl Night {
    async fn begin(folder: &Path) -> Self {
        let processor = Processor::start().await;
        let database = TestDatabase::create_unsharded().await;
        let api_key = api_key_of(&database, "shop").await;
        let url = processor.url();
        let variables = quick_but(&[
            ("PROCESSOR_URL", &url),
            ("PROCESSOR_TIMEOUT", "3s"),
            ("POOL_CONNECTIONS", "5"),
            ("LOG_FORMAT", "json"),
            ("RUST_LOG", "info"),
        ]);
        let log = File::create(folder.join("charge-once.log")).unwrap();
        let (server, scraper) = ServerProcess::start_with_metrics(log, &database, &variables);
        let shop = server.client.with_api_key(&api_key);

        let mut receiver = Receiver::start().await;
        let endpoint = Endpoint::at(&shop, &receiver.url()).await;
        assert_eq!(shop.charge("order-1041").await.status, 201);
        endpoint.gives_up(&shop, &mut receiver).await;

        let lost = json!({"fault": "drop_after", "count": 2});
        processor.set_fault(lost).await;
        for key in ["order-1042", "order-1043"] {
            assert_eq!(shop.charge(key).await.status, 503);
        }
        let reuse = shop.post("/charges", "order-1042", &another_charge()).await;
        assert_eq!(reuse.status, 422);
        let age = "UPDATE idempotency_leases
                      SET takeovers = 10, recover_after = now() + interval '5 minutes';
                   UPDATE operations SET created_at = now() - interval '24 hours'
                    WHERE completed_at IS NULL";
        database.execute(age).await;
        database.printed_by("check");
        let operation = "SELECT operation::text FROM idempotency_leases WHERE key = 'order-1042'";

        let job = Job {
            name: "charge-once",
            replicas: vec![scraper.address],
        };
        let prometheus = Prometheus::start(&[job], str::to_owned).await;
        // A rate needs two scrapes. The server reads the result of the check every ten seconds.
        for query in [
            "rate(charge_once_http_requests_total{status=\"503\"}[5m])",
            "charge_once_check_last_run_timestamp_seconds",
        ] {
            within(Duration::from_secs(60), || async {
                let is_seen = prometheus.has_data(query).await;
                (!is_seen).then(|| format!("Prometheus has no {query} yet"))
            })
            .await;
        }
        Self {
            operation: database.value(operation).await,
            endpoint: endpoint.id,
            database,
            processor,
            server,
            prometheus,
        }
    }

    fn typed(&self, shown: &str) -> String {
        shown
            .replace("127.0.0.1:8080", &self.server.client.address.to_string())
            .replace("localhost:9090", &self.prometheus.address())
            .replace("0198a1f2-7c1e-7d1a-9f0e-2b1d7a9c4e55", &self.operation)
            .replace("we_01kar2w7n9e4xt8f5mq0v3z6yd", &self.endpoint)
    }

    /// Runs it in the server's environment, in the folder of its log.
    async fn run(&self, folder: &Path, typed: String) {
        let program = Path::new(env!("CARGO_BIN_EXE_charge-once"));
        let programs = program.parent().unwrap().display();
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", &typed]);
        for variable in VARIABLES {
            shell.env_remove(variable.name);
        }
        shell
            .current_dir(folder)
            .stdin(Stdio::null())
            .env("PATH", format!("{programs}:{}", env::var("PATH").unwrap()))
            .env("DATABASE_URL", &self.database.url)
            .env("PROCESSOR_URL", self.processor.url())
            .env("BIND_ADDRESS", self.server.client.address.to_string())
            .env("RUST_LOG", "error");
        let given_up = Instant::now() + PATIENCE;
        let run = move || {
            loop {
                let output = shell.output().unwrap();
                // A query finds nothing for a moment where Prometheus has missed a scrape on a busy
                // machine.
                let must_find = typed.contains("promtool query") && !typed.contains("> 0");
                let is_repeated = must_find && Instant::now() < given_up;
                if !output.stdout.trim_ascii().is_empty() || !is_repeated {
                    return (typed, output);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        let (typed, output) = tokio::task::spawn_blocking(run).await.unwrap();
        let told = [&*output.stdout, &output.stderr].map(String::from_utf8_lossy);
        assert!(output.status.success(), "{typed}{}", told.concat());
        // A query that finds nothing prints an empty line. Only one that asks for what is above
        // zero may.
        let found = match typed.contains("> 0") {
            true => &*output.stdout,
            false => output.stdout.trim_ascii(),
        };
        assert!(!found.is_empty(), "{typed} tells nothing");
    }
}

#[tokio::test]
async fn the_commands_of_the_runbook_run() {
    let folder = scratch();
    let night = Night::begin(folder.path()).await;
    apply_roles(&night.database.url, &[]);
    let reader = as_role(&night.database.url, "charge_once_reader");
    let mut reader = PgConnection::connect(&reader).await.unwrap();
    let (mut commands, mut statements, mut looks) = (0, 0, 0);
    for (title, text) in sections(&read(RUNBOOK)) {
        for (language, shown) in blocks(&text) {
            let typed = night.typed(&shown);
            match &*language {
                // One by one: each must work, whatever the others do.
                "sh" => {
                    for line in typed.lines() {
                        night.run(folder.path(), format!("{line}\n")).await;
                        commands += 1;
                    }
                }
                "sql" => {
                    let statement = || sqlx::raw_sql(AssertSqlSafe(typed.clone()));
                    let found = statement().fetch_all(&night.database.pool).await;
                    assert!(found.is_ok(), "{title}: {typed}{found:?}");
                    statements += 1;
                    // The role that looks may end no session. The test below has one to end.
                    if !typed.contains(ENDS_A_SESSION) {
                        let found = statement().fetch_all(&mut reader).await;
                        assert!(found.is_ok(), "{title}, as the reader: {typed}{found:?}");
                        looks += 1;
                    }
                }
                other => panic!("{title}: nothing tries a block of {other:?}"),
            }
        }
    }
    assert!(
        commands >= 25 && statements >= 10 && looks + 1 == statements,
        "{commands}, {statements}, {looks}"
    );
    let resolved = "SELECT count(*) FROM manual_resolutions";
    assert_eq!(night.database.count(resolved).await, 1);
}

fn statements_of(title: &str) -> Vec<String> {
    let mut sections = sections(&read(RUNBOOK)).into_iter();
    let (_, text) = sections.find(|(found, _)| found == title).unwrap();
    let mut statements = blocks(&text);
    statements.retain(|(language, _)| language == "sql");
    statements.into_iter().map(|(_, sql)| sql).collect()
}

async fn seen_by(role: &PgPool, statement: &str) -> Result<Vec<PgRow>, sqlx::Error> {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    statement.fetch_all(role).await
}

/// A session, and the process of PostgreSQL that it is.
async fn session(url: &str) -> (PgConnection, i32) {
    let mut session = PgConnection::connect(url).await.unwrap();
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session);
    let pid = pid.await.unwrap();
    (session, pid)
}

#[tokio::test]
async fn the_reader_sees_who_holds_a_lock_and_another_role_ends_its_session() {
    let database = TestDatabase::create().await;
    apply_roles(&database.url, &[]);
    // As the runbook says: it may look, and end sessions of roles that are no superusers.
    let on_call = "CREATE ROLE on_call LOGIN IN ROLE charge_once_reader, pg_signal_backend";
    database.execute(on_call).await;
    let pool_of = |role: &str| PgPool::connect_lazy(&as_role(&database.url, role)).unwrap();
    let [reader, blind, on_call] =
        ["charge_once_reader", "charge_once_sweeper", "on_call"].map(pool_of);

    let server = as_role(&database.url, "charge_once_app");
    let lock = "SELECT FROM accounts FOR UPDATE";
    let (mut holder, holds) = session(&server).await;
    for statement in ["BEGIN", lock] {
        sqlx::raw_sql(statement).execute(&mut holder).await.unwrap();
    }
    let (mut waiter, waits) = session(&server).await;
    let waiting = tokio::spawn(async move { sqlx::query(lock).execute(&mut waiter).await });

    let of_locks = statements_of("ChargeOnceLockTimeouts");
    let [who_waits, end] = &*of_locks else {
        panic!("{of_locks:?}");
    };
    let is_seen = async || !seen_by(&reader, who_waits).await.unwrap().is_empty();
    eventually("the second session waits for the first", is_seen).await;
    let rows = seen_by(&reader, who_waits).await.unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    let pids: (i32, i32) = (row.get("pid"), row.get("blocked_by"));
    assert_eq!(pids, (waits, holds));
    let blocker: (&str, &str) = (row.get("state"), row.get("last_statement"));
    assert_eq!(blocker, ("idle in transaction", lock));
    for title in ["ChargeOnceSlow", "ChargeOncePoolTimeouts"] {
        let rows = seen_by(&reader, &statements_of(title)[0]).await.unwrap();
        let states: Vec<Option<&str>> = rows.iter().map(|row| row.get("state")).collect();
        assert!(states.contains(&Some("idle in transaction")), "{title}");
        assert!(!states.contains(&None), "{title}: {states:?}");
    }

    // Five minutes later.
    let end_now = end.replace("interval '5 minutes'", "interval '0 seconds'");
    assert_ne!(*end, end_now);
    assert!(end_now.contains(ENDS_A_SESSION));
    // To the blind, there is nothing to end.
    let rows = seen_by(&blind, who_waits).await.unwrap();
    assert_eq!(rows[0].get::<Option<&str>, _>("state"), None);
    assert!(seen_by(&blind, &end_now).await.unwrap().is_empty());
    // Who only looks ends nothing.
    let refused = seen_by(&reader, &end_now).await.unwrap_err();
    let refused = refused.into_database_error().unwrap();
    assert_eq!(refused.code().as_deref(), Some("42501"), "{refused}");

    let ended = seen_by(&on_call, &end_now).await.unwrap();
    let told = |row: &PgRow| (row.get("pid"), row.get(ENDS_A_SESSION));
    let ended: Vec<(i32, bool)> = ended.iter().map(told).collect();
    assert_eq!(ended, [(holds, true)]);
    waiting.await.unwrap().unwrap();
    let gone = sqlx::raw_sql("SELECT 1").execute(&mut holder).await;
    assert!(gone.is_err(), "the session that held the lock lives");
}
