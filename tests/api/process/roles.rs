//! The roles of `deploy/postgres/roles.sql`: each can do what its command does, and no more.

use std::{process::Command, sync::Mutex};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{
    scale::statements,
    support::{
        checkouts::{checkout, stock},
        harness::{ServerProcess, TestDatabase},
        program::{printed_by, run, text},
    },
};

/// Roles belong to the whole PostgreSQL of the tests, and two runs of the file at once would collide.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs the file as the owner of the database.
fn apply_roles(database: &TestDatabase) {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let find = Command::new(format!("{root}/scripts/postgres-bin-dir")).output();
    let programs = text(&find.unwrap().stdout);
    let psql = format!("{}/psql", programs.trim());
    let output = Command::new(psql)
        .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
        .args(["--file", &format!("{root}/deploy/postgres/roles.sql")])
        .arg(&database.url)
        .env("CHARGE_ONCE_APP_PASSWORD", "it's secret")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The URL of the database for another role.
fn as_role(database: &TestDatabase, role: &str) -> String {
    let url = database
        .url
        .replacen("charge_once@", &format!("{role}@"), 1);
    assert_ne!(url, database.url);
    url
}

/// A database that the migrator has migrated, with the roles.
async fn prepared() -> TestDatabase {
    let database = TestDatabase::create_empty().await;
    apply_roles(&database);
    let url = as_role(&database, "charge_once_migrator");
    printed_by(&["migrate"], &[("DATABASE_URL", &url)]);
    apply_roles(&database);
    database
}

/// What PostgreSQL says to a statement of a role: 42501 is "insufficient privilege".
async fn sqlstate(url: &str, statement: &'static str) -> Option<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let ran = sqlx::raw_sql(statement).execute(&mut connection).await;
    let error = ran.err()?.into_database_error().unwrap();
    error.code().map(|code| code.into_owned())
}

#[tokio::test]
async fn the_server_works_as_a_role_that_changes_no_table_and_the_sweep_as_one_that_adds_no_row() {
    let database = prepared().await;
    let [app, sweeper, reader] =
        ["app", "sweeper", "reader"].map(|role| as_role(&database, &format!("charge_once_{role}")));
    let server = ServerProcess::start(
        &database,
        &[("DATABASE_URL", &app), ("MIGRATE_ON_START", "false")],
    );
    let client = &server.client;
    let first = client.charge("key-1").await;
    assert_eq!(first.status, 201);
    client.charge("key-1").await.assert_replays(&first);
    let refund = json!({"charge": first.id(), "amount": 500});
    assert_eq!(client.post_new("/refunds", &refund).await.status, 201);
    stock(client, "mug", 2).await;
    assert_eq!(client.post_new("/checkouts", &checkout()).await.status, 201);
    let endpoint = json!({"url": "https://example.com/hook", "enabled_events": ["*"]});
    assert_eq!(
        client
            .post_new("/webhook_endpoints", &endpoint)
            .await
            .status,
        201
    );

    let variables = |url| [("DATABASE_URL", url), ("MIGRATE_ON_START", "false")];
    printed_by(
        &["api-key", "create", "--account", "shop"],
        &variables(&app),
    );
    assert!(printed_by(&["check"], &variables(&reader)).contains("invariants hold."));
    let recorded = "SELECT count(*) FROM last_check WHERE violations = 0";
    assert_eq!(database.count(recorded).await, 1);
    // The sweeper may not insert it, and still learns the result.
    let forget = sqlx::raw_sql("DELETE FROM last_check");
    forget.execute(&database.pool).await.unwrap();
    let output = run(&["check"], &variables(&sweeper));
    let complaint = text(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert!(
        complaint.contains("INSERT and UPDATE on last_check"),
        "{complaint}"
    );
    assert_eq!(database.count(recorded).await, 0);
    printed_by(&["keys", "list", "--in-flight"], &variables(&reader));
    printed_by(&["sweep", "--dry-run"], &variables(&reader));
    database.expire_records().await;
    let swept = printed_by(&["sweep"], &variables(&sweeper));
    assert!(!swept.contains("Removed 0 expired"), "{swept}");

    let denied = Some("42501".to_owned());
    for (url, statement) in [
        (&app, "CREATE TABLE mine (id integer)"),
        (&app, "CREATE TEMPORARY TABLE mine (id integer)"),
        (
            &app,
            "ALTER TABLE charges DROP CONSTRAINT refunds_never_exceed_what_was_captured",
        ),
        (&app, "DROP INDEX an_order_has_one_succeeded_charge"),
        (&app, "TRUNCATE charges CASCADE"),
        (&app, "DELETE FROM _sqlx_migrations"),
        (&app, "UPDATE idempotency_migrations SET success = false"),
        (&app, "SET ROLE charge_once_migrator"),
        (
            &sweeper,
            "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), 'x')",
        ),
        (&sweeper, "DROP TABLE events"),
        (&reader, "DELETE FROM events"),
        (&reader, "UPDATE accounts SET name = 'x'"),
        (&reader, "DELETE FROM last_check"),
    ] {
        assert_eq!(sqlstate(url, statement).await, denied, "{url}: {statement}");
    }
    let output = run(&["migrate"], &[("DATABASE_URL", &app)]);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("permission denied"), "{complaint}");
}

/// PostgreSQL checks the rights of a statement when it explains it.
#[tokio::test]
async fn the_server_s_role_has_the_rights_of_every_statement() {
    let database = prepared().await;
    let url = as_role(&database, "charge_once_app");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut explained = 0;
    for statement in statements::all() {
        let mut tx = connection.begin().await.unwrap();
        let parameters = &statement.parameters;
        let kinds: Vec<_> = parameters.iter().map(|one| &*one.kind).collect();
        let nulls = vec!["NULL"; kinds.len()];
        let list = |items: &[&str]| match items {
            [] => String::new(),
            items => format!("({})", items.join(", ")),
        };
        let prepare = format!("PREPARE planned {} AS {}", list(&kinds), statement.sql);
        let prepared = sqlx::raw_sql(AssertSqlSafe(prepare))
            .execute(&mut *tx)
            .await;
        prepared.unwrap_or_else(|error| panic!("{error}: {}", statement.sql));
        let explain = format!("EXPLAIN EXECUTE planned {}", list(&nulls));
        let plan = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(&mut *tx)
            .await;
        let plan = plan.unwrap_or_else(|error| panic!("{error}: {}", statement.sql));
        assert!(!plan[0].get::<String, _>(0).is_empty());
        explained += 1;
        tx.rollback().await.unwrap();
        let forget = sqlx::raw_sql("DEALLOCATE planned");
        forget.execute(&mut connection).await.unwrap();
    }
    assert!(explained > 100, "only {explained} statements");
}
