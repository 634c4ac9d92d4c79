//! The roles of `deploy/postgres/roles.sql`: each can do what its command does, and no more.

use crate::{scale::statements, support::prelude::*};

/// A database that the migrator has migrated, with the roles.
async fn prepared() -> TestDatabase {
    let database = TestDatabase::create_empty().await;
    let password = [("CHARGE_ONCE_APP_PASSWORD", "it's secret")];
    apply_roles(&database.url, &password);
    let url = as_role(&database.url, "charge_once_migrator");
    printed_by(&["migrate"], &[("DATABASE_URL", &url)]);
    // As in a database where PUBLIC may execute nothing.
    let revoke = "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC";
    database.execute(revoke).await;
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
    let variables = |url| [("DATABASE_URL", url), ("MIGRATE_ON_START", "false")];
    let server = ServerProcess::start(&database, &variables(&app));
    let client = &server.client;
    let first = client.charge("key-1").await;
    assert_eq!(first.status, 201);
    client.charge("key-1").await.assert_replays(&first);
    let refund = json!({"charge": first.id(), "amount": 500});
    assert_eq!(client.post_new("/refunds", &refund).await.status, 201);
    stock(client, "mug", 2).await;
    assert_eq!(client.post_new("/checkouts", &checkout()).await.status, 201);
    Endpoint::at(client, "https://example.com/hook").await;

    let forget = ["keys", "forget", "key-1", "--by", "Ada", "--yes"];
    for url in [&reader, &sweeper] {
        let complaint = complaint_of(&forget, &variables(url), 1);
        assert_has(&complaint, "permission denied");
    }
    printed_by(&forget, &variables(&app));
    let create = ["api-key", "create", "--account", "shop"];
    printed_by(&create, &variables(&app));
    assert!(printed_by(&["check"], &variables(&reader)).contains("invariants hold."));
    let recorded = "SELECT count(*) FROM last_check WHERE violations = 0";
    assert_eq!(database.count(recorded).await, 1);
    // A role that may not insert it still learns the result.
    let forget = "DELETE FROM last_check;
                  REVOKE INSERT, UPDATE ON last_check FROM charge_once_reader";
    database.execute(forget).await;
    let checked = Run::of(run(&["check"], &variables(&reader)));
    assert_has(&checked.stderr, "INSERT and UPDATE on last_check");
    checked.succeeded();
    assert_eq!(database.count(recorded).await, 0);
    printed_by(&["keys", "list", "--in-flight"], &variables(&reader));
    printed_by(&["sweep", "--dry-run"], &variables(&reader));
    printed_by(&["shards"], &variables(&reader));
    database.expire_records().await;
    let swept = Run::of(run(&["sweep"], &variables(&sweeper)));
    let left = "test accounts that ended are left to the servers";
    assert_has(&swept.stderr, left);
    let told = swept.succeeded();
    assert!(!told.contains("Removed 0 expired"), "{told}");

    let denied = Some("42501".to_owned());
    for line in DENIED.trim().lines() {
        let (role, statement) = line.split_once(": ").unwrap();
        let url = match role {
            "app" => &app,
            "sweeper" => &sweeper,
            _ => &reader,
        };
        assert_eq!(sqlstate(url, statement).await, denied, "{line}");
    }
    let complaint = complaint_of(&["migrate"], &[("DATABASE_URL", &app)], 1);
    assert_has(&complaint, "permission denied");
}

const DENIED: &str = "
app: CREATE TABLE mine (id integer)
app: CREATE TEMPORARY TABLE mine (id integer)
app: ALTER TABLE charges DROP CONSTRAINT refunds_never_exceed_what_was_captured
app: DROP INDEX an_order_has_one_succeeded_charge
app: TRUNCATE charges CASCADE
app: DELETE FROM _sqlx_migrations
app: UPDATE idempotency_migrations SET success = false
app: SET ROLE charge_once_migrator
sweeper: INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), 'x')
sweeper: DROP TABLE events
sweeper: DELETE FROM charges
sweeper: UPDATE api_keys SET hash = hash
app: UPDATE api_keys SET hash = hash
reader: SELECT secret FROM webhook_endpoints
reader: SELECT body FROM idempotency_keys
reader: SELECT client_secret FROM payment_intents
reader: SELECT object FROM events
reader: DELETE FROM events
reader: UPDATE accounts SET name = 'x'
reader: DELETE FROM last_check";

/// What a role may read: each column of each table and view.
const READABLE: &str = "
    SELECT format('SELECT string_agg(%I::text, E''\\n'') FROM %I', attname, relname)
      FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
     WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
       AND attnum > 0 AND NOT attisdropped
       AND has_column_privilege(pg_class.oid, attnum, 'SELECT')";

#[tokio::test]
async fn the_reader_reads_no_credential() {
    let database = prepared().await;
    let [app, reader] =
        ["app", "reader"].map(|role| as_role(&database.url, &format!("charge_once_{role}")));
    let with_console = [("MIGRATE_ON_START", "false"), ("CONSOLE", "true")];
    let variables = [&[("DATABASE_URL", &*app)], &with_console[..]].concat();
    let server = ServerProcess::start(&database, &variables);
    let client = &server.client;
    let endpoint = Endpoint::at(client, "https://example.com/hook").await;
    let mut secrets = vec![API_KEY.to_owned(), endpoint.secret];
    // For each of them: a card that is declined, a page that waits, and one that is answered.
    let terms = json!({"amount": 700, "currency": "usd"});
    for (path, terms) in [("/payment_intents", terms), ("/setup_intents", json!({}))] {
        for card in ["pm_card_chargeDeclined", "pm_card_threeDSecure2Required"] {
            for is_answered in [false, true] {
                let mut body = terms.clone();
                body["payment_method_types"] = json!(["card"]);
                let intent = client.post_new(path, &body).await;
                let secret = intent.json()["client_secret"].as_str().unwrap().to_owned();
                secrets.push(secret.rsplit('_').next().unwrap().to_owned());
                let confirm = format!("{path}/{}/confirm", intent.id());
                let back = "https://shop.example/done";
                let card = json!({"payment_method": card, "return_url": back});
                let confirmed = client.post_new(&confirm, &card).await;
                if confirmed.status == 402 {
                    continue;
                }
                let page = page_of(&confirmed);
                secrets.push(page.rsplit('/').next().unwrap().to_owned());
                if is_answered {
                    assert_eq!(press(&page, "complete").await.status, 303);
                }
            }
        }
    }
    assert_eq!(secrets.len(), 2 + 8 + 4);
    let logged = "SELECT count(*) FROM request_log";
    let are_logged = async || database.count(logged).await >= 17;
    eventually("the requests are in the request log", are_logged).await;

    let mut connection = PgConnection::connect(&reader).await.unwrap();
    let columns = sqlx::query_scalar(READABLE).fetch_all(&mut connection);
    let columns: Vec<String> = columns.await.unwrap();
    assert!(columns.len() > 200, "{}", columns.len());
    let mut masked = 0;
    for column in columns {
        let read = sqlx::query_scalar::<_, Option<String>>(AssertSqlSafe(column.clone()));
        let read = read.fetch_one(&mut connection).await.unwrap();
        let read = read.unwrap_or_default();
        for secret in &secrets {
            assert!(!read.contains(secret), "{column}: {secret}");
        }
        masked += read.matches("_secret_***").count() + read.matches("/***\"").count();
    }
    // Events are there, without them.
    assert!(masked > 12, "{masked}");
}

/// All rights of the roles that own nothing: a right without columns is one to the whole table.
const RIGHTS: &str = "\
app _sqlx_migrations: SELECT
app accounts: SELECT, INSERT, UPDATE (closed_at)
app api_keys: SELECT, INSERT, UPDATE (revoked_at from_dev_api_key)
app api_keys_migrations: SELECT
app charges: SELECT, INSERT, UPDATE, DELETE
app checkout_steps: SELECT, INSERT, UPDATE
app checkouts: SELECT, INSERT, UPDATE, DELETE
app customers: SELECT, INSERT, UPDATE, DELETE
app events: SELECT, INSERT, UPDATE (traceparent), DELETE
app events_without_secrets: SELECT
app fault_plans: SELECT, INSERT, UPDATE, DELETE
app idempotency_keys: SELECT, INSERT, UPDATE, DELETE
app idempotency_leases: SELECT, INSERT, UPDATE, DELETE
app idempotency_migrations: SELECT
app idempotency_tombstones: SELECT, INSERT, UPDATE, DELETE
app inventory: SELECT, INSERT, UPDATE, DELETE
app last_check: SELECT, INSERT, UPDATE
app manual_resolutions: SELECT, INSERT, DELETE
app operations: SELECT, INSERT, UPDATE, DELETE
app orders: SELECT, INSERT, UPDATE, DELETE
app payment_intents: SELECT, INSERT, UPDATE, DELETE
app payment_methods: SELECT, INSERT, UPDATE, DELETE
app refunds: SELECT, INSERT, UPDATE, DELETE
app request_counts: SELECT, INSERT, UPDATE, DELETE
app request_log: SELECT, INSERT, UPDATE (path), DELETE
app request_log_migrations: SELECT
app setup_intents: SELECT, INSERT, UPDATE, DELETE
app webhook_deliveries: SELECT, INSERT, UPDATE, DELETE
app webhook_endpoints: SELECT, INSERT, UPDATE, DELETE
app webhook_replies: SELECT, INSERT, DELETE
app webhooks_migrations: SELECT
reader _sqlx_migrations: SELECT
reader accounts: SELECT
reader api_keys: SELECT (account_id last4 created_at revoked_at from_dev_api_key)
reader api_keys_migrations: SELECT
reader charges: SELECT
reader checkout_steps: SELECT
reader checkouts: SELECT
reader customers: SELECT
reader events: SELECT (account_id id type request_id idempotency_key created_at traceparent api_version \
object_version)
reader events_without_secrets: SELECT
reader fault_plans: SELECT
reader idempotency_keys: SELECT (account_id key fingerprint_version fingerprint method path request_id label \
created_at expires_at status resource_id)
reader idempotency_leases: SELECT
reader idempotency_migrations: SELECT
reader idempotency_tombstones: SELECT
reader inventory: SELECT
reader last_check: SELECT, INSERT, UPDATE
reader manual_resolutions: SELECT
reader operations: SELECT
reader orders: SELECT
reader payment_intents: SELECT (account_id id amount amount_capturable amount_received \
automatic_payment_methods cancellation_reason canceled_at capture_method charge_id confirmation_method created_at \
currency customer_id description is_authenticated last_payment_error latest_charge_id metadata payment_method_id \
receipt_email released request_three_d_secure return_url setup_future_usage shipping statement_descriptor_suffix \
status status_before version details)
reader payment_methods: SELECT
reader refunds: SELECT
reader request_counts: SELECT
reader request_log: SELECT
reader request_log_migrations: SELECT
reader setup_intents: SELECT (account_id id automatic_payment_methods cancellation_reason created_at \
customer_id description last_setup_error metadata payment_method_id return_url status usage version)
reader webhook_deliveries: SELECT
reader webhook_endpoints: SELECT (account_id id url enabled_events description metadata created_at deleted_at \
disabled canceled_at api_version standard_webhooks)
reader webhook_replies: SELECT (account_id delivery_id number created_at)
reader webhooks_migrations: SELECT
sweeper _sqlx_migrations: SELECT
sweeper accounts: SELECT (id closed_at)
sweeper api_keys_migrations: SELECT
sweeper checkouts: SELECT (account_id id status)
sweeper events: SELECT (account_id id created_at), UPDATE (traceparent), DELETE
sweeper idempotency_keys: SELECT (ctid account_id key fingerprint expires_at status resource_id), UPDATE \
(expires_at), DELETE
sweeper idempotency_migrations: SELECT
sweeper idempotency_tombstones: SELECT, INSERT, UPDATE, DELETE
sweeper operations: SELECT (account_id id checkout_id created_at completed_at), UPDATE (request_id), DELETE
sweeper request_counts: SELECT (account_id minute), DELETE
sweeper request_log: SELECT (account_id id created_at), UPDATE (path), DELETE
sweeper request_log_migrations: SELECT
sweeper webhook_deliveries: SELECT (account_id event_id status), DELETE
sweeper webhook_replies: SELECT (account_id delivery_id created_at), DELETE
sweeper webhooks_migrations: SELECT";

#[tokio::test]
async fn each_role_has_these_rights_to_each_table_and_no_other() {
    let database = prepared().await;
    let found = "SELECT role || ' ' || relname || ': ' || string_agg(verb || columns, ', ' ORDER BY position)
           FROM unnest(ARRAY['app', 'sweeper', 'reader']) AS role
          CROSS JOIN (SELECT oid, relname FROM pg_class
                       WHERE relnamespace = 'public'::regnamespace
                         AND relkind IN ('r', 'p', 'v', 'm', 'f')) AS tables
          CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])
                WITH ORDINALITY AS verbs (verb, position)
          CROSS JOIN LATERAL (
             SELECT CASE
                 WHEN has_table_privilege('charge_once_' || role, oid, verb) THEN ''
                 WHEN verb IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') THEN (
                     SELECT ' (' || string_agg(attname, ' ' ORDER BY attnum) || ')'
                       FROM pg_attribute
                      WHERE attrelid = oid AND NOT attisdropped
                        AND has_column_privilege('charge_once_' || role, oid, attnum, verb))
             END AS columns) AS allowed
          WHERE columns IS NOT NULL
          GROUP BY role, relname
          ORDER BY role || ' ' || relname COLLATE \"C\"";
    let found: Vec<String> = database.values(found).await;
    let found: BTreeSet<_> = found.iter().map(String::as_str).collect();
    let expected: BTreeSet<_> = RIGHTS.lines().collect();
    let unneeded: Vec<_> = found.difference(&expected).collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    let both = (unneeded, missing);
    assert_eq!(both, (vec![], vec![]), "not needed, and missing");
}

/// PostgreSQL checks the rights of a statement when it explains it.
#[tokio::test]
async fn the_server_s_role_has_the_rights_of_every_statement() {
    let database = prepared().await;
    let url = as_role(&database.url, "charge_once_app");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut explained = 0;
    for statement in statements::all() {
        let nulls = vec!["NULL"; statement.parameters.len()];
        let plan = statement.explain(&mut connection, "", "FORMAT JSON", &nulls);
        let plan = plan.await;
        assert!(plan.is_ok(), "{plan:?}: {}", statement.sql);
        explained += 1;
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
    // A superuser may grant everything.
    assert_eq!(apply_roles(&url, &[]), "");
    let superuser = PgPool::connect_lazy(&url).unwrap();
    let superuser = TestDatabase::elsewhere(url.clone(), superuser);
    let hand_over = "REVOKE pg_read_all_stats FROM charge_once_reader;
         CREATE ROLE customer LOGIN IN ROLE charge_once_migrator;
         ALTER DATABASE managed OWNER TO customer;
         ALTER SCHEMA public OWNER TO customer";
    superuser.execute(hand_over).await;

    let told = apply_roles(&as_role(&url, "customer"), &[]);
    let unseen = "charge_once_reader can't see what sessions of other roles do";
    assert_has(&told, unseen);
    // Where an administrator has granted it, nothing is missing.
    let granted = "GRANT pg_read_all_stats TO charge_once_reader";
    superuser.execute(granted).await;
    assert_eq!(apply_roles(&as_role(&url, "customer"), &[]), "");
}
