//! The schema of the tables: found once, whatever `search_path` a later session begins with.

use charge_once::database;

use super::pgbouncer::pinned;
use crate::support::prelude::*;

/// The URL of a database, for sessions with this `search_path`, encoded as in a URL.
fn asking(url: &str, search_path: &str) -> String {
    format!("{url}&options=-csearch_path%3D{search_path}")
}

/// What every program says that begins with this database.
fn refused(url: &str) -> Vec<String> {
    let variables = [("DATABASE_URL", url), ANY_PORT];
    let mut told = Vec::new();
    for (arguments, code) in [
        (&["serve"][..], 1),
        (&["migrate"], 1),
        (&["check"], 2),
        (&["check", "--server"], 1),
    ] {
        let ended = Run::of(run(arguments, &variables));
        assert_eq!(ended.code, Some(code), "{arguments:?} {ended:?}");
        told.push(ended.stdout + &ended.stderr);
    }
    told
}

async fn tables_are_in(database: &TestDatabase, expected: &str) {
    let schemas = "SELECT DISTINCT quote_ident(schemaname) FROM pg_tables
                    WHERE tablename IN ('idempotency_keys', 'charges', '_sqlx_migrations')";
    let schemas: Vec<String> = database.values(schemas).await;
    assert_eq!(schemas, [expected]);
}

#[tokio::test]
async fn a_later_search_path_makes_no_second_set_of_tables_and_no_second_charge() {
    let of_the_database = |set: &str| {
        format!(
            "CREATE SCHEMA other; \
             DO $$ BEGIN EXECUTE format('ALTER {set} SET search_path = other', current_database()); END $$"
        )
    };
    let create = "CREATE SCHEMA charge_once";
    for (defaults, search_path) in [
        (create.to_owned(), None),
        (of_the_database("ROLE charge_once IN DATABASE %I"), None),
        (of_the_database("DATABASE %I"), None),
        (create.to_owned(), Some("%22$user%22,public")),
    ] {
        let database = TestDatabase::create_unsharded().await;
        let steady = ServerProcess::start(&database, &[FORGETFUL]);
        let first = steady.client.charge("key-1").await;
        assert_eq!(first.status, 201);
        database.execute(&defaults).await;
        database.end_sessions().await;

        let url = search_path.map_or(database.url.clone(), |path| asking(&database.url, path));
        let variables = [("DATABASE_URL", &*url), FORGETFUL];
        let restarted = ServerProcess::start(&database, &variables);
        let replay = restarted.client.charge("key-1").await;
        replay.assert_replays(&first);
        let second = restarted.client.charge("key-2").await;
        let again = steady.client.charge_until_definite("key-2").await;
        again.assert_replays(&second);
        for server in [&steady, &restarted] {
            assert_eq!(server.client.get("/readyz").await.status, 200, "{defaults}");
        }
        assert_has(&printed_by(&["check"], &variables), "invariants hold.");
        tables_are_in(&database, "public").await;
        let charges = "SELECT count(*) FROM public.charges";
        assert_eq!(database.count(charges).await, 2, "{defaults}");
        // For the look at the end of the test.
        let reset = "DO $$ BEGIN
             EXECUTE format('ALTER ROLE charge_once IN DATABASE %I RESET search_path', current_database());
             EXECUTE format('ALTER DATABASE %I RESET search_path', current_database());
         END $$";
        database.execute(reset).await;
    }
}

#[tokio::test]
async fn tables_elsewhere_and_tables_in_two_schemas_are_refused() {
    let database = TestDatabase::create_unsharded().await;
    let server = ServerProcess::start(&database, &[]);
    database.execute("CREATE SCHEMA other").await;
    for asked in ["other", "nowhere"] {
        let expected = format!("in the schema public, and the connection asks for {asked}");
        for told in refused(&asking(&database.url, asked)) {
            assert_has(&told, &expected);
        }
    }
    tables_are_in(&database, "public").await;
    assert_eq!(server.client.get("/readyz").await.status, 200);

    // As another service has it that is built on the crate.
    let copy = "CREATE TABLE other.idempotency_migrations (LIKE idempotency_migrations)";
    database.execute(copy).await;
    assert_has(&database.printed_by("check"), "invariants hold.");
    assert_eq!(server.client.get("/readyz").await.status, 200);

    let second = "CREATE TABLE other.charges (LIKE charges)";
    database.execute(second).await;
    for told in refused(&database.url) {
        assert_has(&told, "in several schemas of this database, other, public");
    }
    let is_not_ready = || async {
        let answer = server.client.get("/readyz").await;
        String::from_utf8_lossy(&answer.body).contains("the tables in another schema")
    };
    eventually("readiness says that there are two sets", is_not_ready).await;
    let mv = "DROP TABLE other.idempotency_migrations, other.charges;
              ALTER TABLE idempotency_migrations SET SCHEMA other;
              ALTER TABLE charges SET SCHEMA other";
    database.execute(mv).await;
    eventually("readiness says that they were moved", is_not_ready).await;
    let back = "ALTER TABLE other.idempotency_migrations SET SCHEMA public;
                ALTER TABLE other.charges SET SCHEMA public";
    database.execute(back).await;
}

#[tokio::test]
async fn a_schema_of_any_name_serves_and_later_sessions_need_not_name_it() {
    let empty = TestDatabase::create_empty().await;
    let url = asking(&empty.url, "%22Shard%5C%20b%22%22%22");
    for told in refused(&url) {
        assert!(told.contains("names no schema that exists"), "{told}");
    }
    let name = r#""Shard b""""#;
    empty.execute(&format!("CREATE SCHEMA {name}")).await;
    // As Prisma names it.
    let of_prisma = format!("{}&schema=Shard%20b%22", empty.url);
    printed_by(&["migrate"], &[("DATABASE_URL", &of_prisma)]);
    tables_are_in(&empty, name).await;

    let migrated = database::connect(&url, &config(&[])).await.unwrap();
    ensure_dev_key(&migrated, API_KEY).await.unwrap();
    let first = {
        let server = ServerProcess::start(&empty, &[("DATABASE_URL", &url)]);
        server.client.charge("key-1").await
    };
    assert_eq!(first.status, 201);
    let server = ServerProcess::start(&empty, &[("CONSOLE", "true")]);
    server.client.charge("key-1").await.assert_replays(&first);
    let rows = r#"SELECT count(*) FROM "Shard b""".request_log"#;
    let writes = async || empty.count(rows).await > 0;
    eventually("a worker writes there, too", writes).await;
    assert_has(&empty.printed_by("check"), "invariants hold.");
    let list = empty.printed_by("check --server");
    assert_has(&list, &format!("advice   search_path: {name}\n"));
    assert_has(&list, &format!("SET search_path = {name};"));
}

/// `CREATE SCHEMA AUTHORIZATION` names a schema after the role.
#[tokio::test]
async fn schemas_of_the_roles_change_nothing_and_the_roles_have_rights_where_the_tables_are() {
    let database = TestDatabase::create_empty().await;
    apply_roles(&database.url, &[]);
    let [migrator, app] =
        ["migrator", "app"].map(|role| as_role(&database.url, &format!("charge_once_{role}")));
    let create = "CREATE SCHEMA AUTHORIZATION charge_once_migrator;
                  CREATE SCHEMA AUTHORIZATION charge_once_app";
    database.execute(create).await;
    printed_by(&["migrate"], &[("DATABASE_URL", &migrator)]);
    tables_are_in(&database, "charge_once_migrator").await;
    let variables = [("DATABASE_URL", &*app), ("MIGRATE_ON_START", "false")];
    let told = Run::of(run(&["serve"], &variables)).failed(1);
    let expected = "in the schema charge_once_migrator, which the role may not use";
    assert_has(&told, expected);

    apply_roles(&database.url, &[]);
    let created = printed_by(&["api-key", "create", "--account", "shop"], &variables);
    let server = ServerProcess::start(&database, &variables);
    let client = server.client.with_api_key(created.lines().next().unwrap());
    let first = client.charge("key-1").await;
    assert_eq!(first.status, 201);
    client.charge("key-1").await.assert_replays(&first);
    let list = printed_by(&["check", "--server"], &variables);
    assert_has(&list, "search_path: charge_once_migrator\n");
}

#[tokio::test]
async fn a_pooler_that_drops_the_schema_is_refused_where_sessions_do_not_have_it() {
    let database = pinned().await;
    let Some(pooler) = PgBouncer::start(&database, "session", IGNORES_OPTIONS).await else {
        return;
    };
    for told in refused(&asking(&pooler.url, "public")) {
        assert_has(&told, "drops the search_path of DATABASE_URL");
    }
    printed_by(&["migrate"], &[("DATABASE_URL", &pooler.url)]);
    database.execute("CREATE SCHEMA charge_once").await;
    for told in refused(&pooler.url) {
        let expected = r#"ALTER ROLE "charge_once" SET search_path = public;"#;
        assert_has(&told, expected);
    }
    tables_are_in(&database, "public").await;
}
