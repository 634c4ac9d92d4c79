//! The roles of `deploy/postgres/roles.sql`: each can do what its command does, and no more.

use charge_once_embedded_postgres::Throwaway;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{
    scale::statements,
    support::{
        checkouts::{checkout, stock},
        harness::{ServerProcess, TestDatabase},
        program::{printed_by, run, text},
        roles::{apply_roles, as_role},
    },
};

/// A database that the migrator has migrated, with the roles.
async fn prepared() -> TestDatabase {
    let database = TestDatabase::create_empty().await;
    let password = [("CHARGE_ONCE_APP_PASSWORD", "it's secret")];
    apply_roles(&database.url, &password);
    let url = as_role(&database.url, "charge_once_migrator");
    printed_by(&["migrate"], &[("DATABASE_URL", &url)]);
    apply_roles(&database.url, &password);
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
    let [app, sweeper, reader] = ["app", "sweeper", "reader"]
        .map(|role| as_role(&database.url, &format!("charge_once_{role}")));
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
    let url = as_role(&database.url, "charge_once_app");
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

/// As with a managed PostgreSQL, whose customers own their database and are no superusers.
#[tokio::test]
async fn a_runner_that_may_not_grant_it_is_told_that_the_reader_sees_no_sessions() {
    // Roles are shared by all databases, and other tests need the right that is missing here.
    let postgres = Throwaway::start("charge_once").await.unwrap();
    let url = postgres.create_database("managed", "template0").await;
    let url = url.unwrap();
    assert_eq!(
        apply_roles(&url, &[]),
        "",
        "a superuser may grant everything"
    );
    let mut superuser = PgConnection::connect(&url).await.unwrap();
    let hand_over = "REVOKE pg_read_all_stats FROM charge_once_reader;
         CREATE ROLE customer LOGIN IN ROLE charge_once_migrator;
         ALTER DATABASE managed OWNER TO customer;
         ALTER SCHEMA public OWNER TO customer";
    let hand_over = sqlx::raw_sql(hand_over).execute(&mut superuser).await;
    hand_over.unwrap();

    let told = apply_roles(&as_role(&url, "customer"), &[]);
    assert!(
        told.contains("charge_once_reader can't see what sessions of other roles do"),
        "{told}"
    );
    // Where an administrator has granted it, nothing is missing.
    let granted = "GRANT pg_read_all_stats TO charge_once_reader";
    let granted = sqlx::raw_sql(granted).execute(&mut superuser).await;
    granted.unwrap();
    assert_eq!(apply_roles(&as_role(&url, "customer"), &[]), "");
}
