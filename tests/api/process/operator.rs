//! What a person runs who was called: `check`, `keys`, `sweep --dry-run`, and completions.

use charge_once::{
    domain::ids::{ChargeId, EventId, WebhookDeliveryId},
    store::invariants::{INVARIANTS, Invariant},
};

use crate::support::{
    checkouts::checkout_of,
    intents::{retrieve, standing},
    prelude::*,
    resources::{charge_with, customer, uncaptured},
};

/// What the command prints as JSON, and its exit code.
fn json_of(database: &TestDatabase, command: &str) -> (Value, Option<i32>) {
    let ended = database.command(&format!("{command} --json"));
    let printed = serde_json::from_str(&ended.stdout);
    let printed = printed.unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (printed, ended.code)
}

/// What `check` found: the name of the invariant, and the object.
fn violations(database: &TestDatabase) -> Vec<(String, String)> {
    let (checked, code) = json_of(database, "check");
    let mut found = Vec::new();
    for invariant in checked["invariants"].as_array().unwrap() {
        let name = invariant["name"].as_str().unwrap();
        let violations = invariant["violations"].as_array().unwrap();
        assert_eq!(invariant["holds"], violations.is_empty(), "{name}");
        for violation in violations {
            let object = violation["object"].as_str().unwrap();
            found.push((name.to_owned(), object.to_owned()));
        }
    }
    assert_eq!(checked["holds"], found.is_empty());
    assert_eq!(code, Some(i32::from(!found.is_empty())), "{checked}");
    found
}

async fn paid_order(client: &Client) -> String {
    let items = json!([{"quantity": 1, "unit_amount": 2000}]);
    let order = json!({"currency": "usd", "items": items});
    let order = client.post_new("/orders", &order).await.id();
    let card = json!({"source": "tok_visa"});
    let pay = format!("/orders/{order}/pay");
    assert_eq!(client.post_new(&pay, &card).await.status, 200);
    order
}

/// A refund of a quarter of a new charge.
async fn refund(client: &Client) -> String {
    let charge = client.charge(&Uuid::now_v7().to_string()).await.id();
    let refund = json!({"charge": charge, "amount": 500});
    client.post_new("/refunds", &refund).await.id()
}

/// A checkout of two mugs, of which there are as many as `stocked`.
async fn checked_out(client: &Client, stocked: i64) -> String {
    stock(client, "mug", stocked).await;
    let key = Uuid::now_v7().to_string();
    client.post("/checkouts", &key, &checkout()).await;
    let checkout = checkout_of(client, &key).await;
    checkout["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn everything_holds_after_requests_of_every_kind() {
    let server = TestServer::start().await;
    let client = &server.client;
    client.charge("key-1").await;
    let declined = charge_with(client, &[("source", json!("tok_chargeDeclined"))]).await;
    assert_eq!(declined.status, 402);
    let (first, second) = (uncaptured(client).await, uncaptured(client).await);
    let capture = format!("/charges/{first}/capture");
    assert_eq!(client.post_new(&capture, &json!({})).await.status, 200);
    let release = json!({"charge": second});
    assert_eq!(client.post_new("/refunds", &release).await.status, 201);
    paid_order(client).await;
    refund(client).await;
    checked_out(client, 2).await;
    checked_out(client, 1).await;
    assert_eq!(violations(&server.database), []);

    let told = server.database.printed_by("check");
    assert_eq!(told.lines().count(), INVARIANTS.len() + 1, "{told}");
    let all = format!("All {} invariants hold.\n", INVARIANTS.len());
    assert!(told.ends_with(&all), "{told}");
}

#[test]
fn every_invariant_is_documented_and_no_other() {
    let page = read("docs/reliability.md");
    let mut sections = page.split("## ");
    let section = sections.find(|section| section.starts_with("What always holds"));
    let lines = section.expect("a section").lines();
    let documented: Vec<_> = lines.filter(|line| line.starts_with("| `")).collect();
    let row = |one: &Invariant| format!("| `{}` | {} |", one.name, one.promise);
    assert_eq!(documented, INVARIANTS.iter().map(row).collect::<Vec<_>>());
}

/// Faults that a constraint would refuse, or that no request of this program makes: the invariant,
/// what is made for it, and what is done then to the row with its `$id`, or of its `$name`.
const FAULTS_OF_OBJECTS: &str = "
refunds_add_up | charge | UPDATE charges SET amount_refunded = 500 WHERE id = '$id';
charges_within_bounds | charge | UPDATE charges SET amount_captured = amount + 1 WHERE id = '$id';
refunds_in_the_currency_of_their_charge | refund |
    UPDATE refunds SET currency = 'eur' WHERE id = '$id';
orders_paid_in_full | order | UPDATE orders SET amount = amount + 1 WHERE id = '$id';
intents_show_their_money | succeeded |
    UPDATE charges SET amount_captured = amount_captured - 1 WHERE payment_intent_id = '$id';
processing_intents_in_flight | requires_payment_method |
    UPDATE payment_intents SET status = 'processing', status_before = status WHERE id = '$id';
checkouts_all_or_nothing | checkout |
    UPDATE orders SET status = 'open', charge_id = NULL
     WHERE id = (SELECT order_id FROM checkouts WHERE id = '$id');
checkouts_all_or_nothing | failed checkout |
    UPDATE charges SET amount_refunded = 0
     WHERE order_id = (SELECT order_id FROM checkouts WHERE id = '$id');
stock_never_negative | sku | UPDATE inventory SET quantity = -1 WHERE sku = '$name';
one_execution_per_key | key |
    INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
    SELECT account_id, gen_random_uuid(), 'charge.updated', object, 'req_other', idempotency_key
      FROM events WHERE idempotency_key = '$name';
refunds_told_once | refund |
    DELETE FROM events WHERE type = 'refund.created' AND object ->> 'id' = '$name';
orders_told_once | order |
    DELETE FROM events WHERE type = 'order.created' AND object ->> 'id' = '$name';
intents_told_once | canceled |
    DELETE FROM events WHERE type = 'payment_intent.created' AND object ->> 'id' = '$name';
checkouts_told_once | checkout |
    DELETE FROM events WHERE type = 'checkout.completed' AND object ->> 'id' = '$name';";

/// More of them, of what is in flight.
const FAULTS_IN_FLIGHT: &str = "
operations_in_flight | uuid |
    INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand, request_id,
           idempotency_key)
    SELECT account_id, '$name', 'capture_charge', id, 1, 'ietf', false, 'req_none', 'none'
      FROM charges LIMIT 1;
keys_in_flight | uuid |
    INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
           request_id, created_at, expires_at)
    SELECT id, '$name', 1, sha256('x'), 'POST', '/charges', 'req_none', now(),
           now() + interval '1 day'
      FROM accounts LIMIT 1;
keys_in_flight | uuid |
    INSERT INTO idempotency_leases (account_id, key, kind, operation, token, leased_until,
           recover_after)
    SELECT id, '$name', 'none', gen_random_uuid(), gen_random_uuid(), now(), now()
      FROM accounts LIMIT 1;
pending_charges_in_flight | charge |
    UPDATE charges SET status = 'pending', captured = false, amount_captured = 0 WHERE id = '$id';
pending_refunds_in_flight | refund |
    UPDATE refunds SET status = 'pending' WHERE id = '$id';";

fn uuid_of(shown: &str) -> Uuid {
    let (_, id) = shown.split_once('_').unwrap();
    ChargeId::parse(&format!("ch_{id}")).unwrap().0
}

/// What was planted: the invariant, and the object.
type Planted = Vec<(&'static str, String)>;

async fn plant(server: &TestServer, faults: &'static str, planted: &mut Planted) {
    let client = &server.client;
    for fault in faults.split(';').filter(|fault| !fault.is_empty()) {
        let parts: Vec<_> = fault.splitn(3, '|').map(str::trim).collect();
        let name = Uuid::now_v7().to_string();
        let (shown, id) = match parts[1] {
            "sku" => {
                stock(client, "oversold", 1).await;
                ("oversold".to_owned(), None)
            }
            "key" => {
                client.charge(&name).await;
                (name, None)
            }
            "uuid" => (name, None),
            object => {
                let shown = match object {
                    "charge" => client.charge(&name).await.id(),
                    "refund" => refund(client).await,
                    "order" => paid_order(client).await,
                    "checkout" => checked_out(client, 2).await,
                    "failed checkout" => checked_out(client, 1).await,
                    status => standing(client, status).await,
                };
                let id = uuid_of(&shown);
                (shown, Some(id))
            }
        };
        let id = id.map_or(String::new(), |id| id.to_string());
        let change = parts[2].replace("$id", &id).replace("$name", &shown);
        assert_eq!(server.database.execute(change).await, 1, "{fault}");
        planted.push((parts[0], shown));
    }
}

async fn plant_between_objects(server: &TestServer, planted: &mut Planted) {
    let (client, database) = (&server.client, &server.database);
    let order = paid_order(client).await;
    let second = client.charge("key-second").await.id();
    let link = format!(
        "UPDATE charges SET order_id = '{}' WHERE amount_captured = 2000 AND id = '{}'",
        uuid_of(&order),
        uuid_of(&second)
    );
    assert_eq!(database.execute(link).await, 1);
    planted.push(("orders_charged_once", order));
    planted.push(("charges_pay_their_order", second));

    let unpaid = uuid_of(&standing(client, "requires_payment_method").await);
    let stray = client.charge("key-stray").await.id();
    let link = format!(
        "UPDATE charges SET payment_intent_id = '{unpaid}', payment_method_id = gen_random_uuid()
          WHERE id = '{}'",
        uuid_of(&stray)
    );
    assert_eq!(database.execute(link).await, 1);
    planted.push(("charges_pay_their_intent", stray));

    // It pays again, or pays and becomes a customer's, or pays and is new.
    let customer = uuid_of(&customer(client).await);
    for wrong in [
        "UPDATE charges SET payment_method_id = '$method' WHERE payment_intent_id = '$intent'",
        "UPDATE payment_methods SET used_up_at = NULL, customer_id = '$customer'
          WHERE id = '$method'",
        "UPDATE payment_methods SET used_up_at = NULL WHERE id = '$method'",
    ] {
        let paid = retrieve(client, &standing(client, "succeeded").await).await;
        let shown = paid["payment_method"].as_str().unwrap().to_owned();
        let other = uuid_of(&standing(client, "succeeded").await);
        let wrong = wrong
            .replace("$method", &uuid_of(&shown).to_string())
            .replace("$intent", &other.to_string())
            .replace("$customer", &customer.to_string());
        assert_eq!(database.execute(&wrong).await, 1, "{wrong}");
        planted.push(("methods_pay_once_or_for_one_customer", shown));
    }
}

async fn plant_in_events(server: &TestServer, planted: &mut Planted) {
    let (client, database) = (&server.client, &server.database);
    client.charge("key-twice").await;
    let again = "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
                 SELECT account_id, 'ffffffff-ffff-7fff-bfff-ffffffffffff', type, object,
                        request_id, idempotency_key
                   FROM events WHERE idempotency_key = 'key-twice'";
    assert_eq!(database.execute(again).await, 1);
    let first = "SELECT id FROM events WHERE idempotency_key = 'key-twice' ORDER BY id LIMIT 1";
    let first = EventId(database.value(first).await).to_string();
    planted.push(("one_change_per_execution", first));

    let shown = client.charge("key-version").await.id();
    let words = json!({"description": "later"});
    client.post_new(&format!("/charges/{shown}"), &words).await;
    let same = format!("UPDATE events SET object_version = 7 WHERE object ->> 'id' = '{shown}'");
    assert!(database.execute(same).await > 0);
    planted.push(("versions_tell_changes_apart", shown));

    let shown = client.charge("key-forgotten").await.id();
    let forget = "DELETE FROM events WHERE idempotency_key = 'key-forgotten'";
    assert_eq!(database.execute(forget).await, 1);
    planted.push(("answers_left_their_change", "key-forgotten".into()));
    planted.push(("charges_told_once", shown));

    for unknown in ["ch_00000000000000000000000000", "ch_nonsense"] {
        let told = format!(
            "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT id, gen_random_uuid(), 'charge.succeeded', json_build_object('id', '{unknown}'),
                    'req_none', '{unknown}'
               FROM accounts LIMIT 1"
        );
        assert_eq!(database.execute(told).await, 1);
        planted.push(("charges_told_once", unknown.into()));
    }
}

/// Rows of an account that there isn't, and two objects with a name that is for one.
async fn plant_foreigners_and_twins(server: &TestServer, planted: &mut Planted) {
    let (client, database) = (&server.client, &server.database);
    stock(client, "foreign", 1).await;
    let give = "UPDATE inventory SET account_id = gen_random_uuid() WHERE sku = 'foreign'";
    assert_eq!(database.execute(give).await, 1);
    planted.push(("rows_belong_to_accounts", "inventory".into()));

    let twins = [paid_order(client).await, paid_order(client).await];
    // Requests need the first of these constraints, so this comes last.
    let drop = "ALTER TABLE orders DROP CONSTRAINT a_client_order_id_names_one_order;
                ALTER TABLE accounts DROP CONSTRAINT an_account_name_is_unique";
    database.execute(drop).await;
    for shown in twins {
        let id = uuid_of(&shown);
        let name = format!("UPDATE orders SET client_order_id = 'twin' WHERE id = '{id}'");
        assert_eq!(database.execute(name).await, 1);
        planted.push(("natural_keys_name_one_object", shown));
    }
    let accounts = "INSERT INTO accounts (id, name)
                    SELECT gen_random_uuid(), 'twins' FROM generate_series(1, 2)";
    assert_eq!(database.execute(accounts).await, 2);
    planted.push(("natural_keys_name_one_object", "twins".into()));
}

#[tokio::test]
async fn each_invariant_finds_what_was_planted_by_hand() {
    let server = TestServer::start().await;
    let database = &server.database;
    database.is_left_broken("it is planted");
    let drop = "ALTER TABLE charges DROP CONSTRAINT a_capture_never_exceeds_the_charge;
                ALTER TABLE inventory DROP CONSTRAINT inventory_is_never_negative;
                DROP INDEX an_order_has_one_succeeded_charge";
    database.execute(drop).await;
    let mut planted = Planted::new();
    plant(&server, FAULTS_OF_OBJECTS, &mut planted).await;
    plant_between_objects(&server, &mut planted).await;
    plant_in_events(&server, &mut planted).await;
    plant(&server, FAULTS_IN_FLIGHT, &mut planted).await;
    plant_foreigners_and_twins(&server, &mut planted).await;

    let found = violations(database);
    for (name, object) in &planted {
        let is_found = found.iter().any(|(by, what)| by == name && what == object);
        assert!(is_found, "{name} misses {object}: {found:#?}");
    }
    for invariant in INVARIANTS {
        let is_proven = planted.iter().any(|(name, _)| *name == invariant.name);
        assert!(is_proven, "nothing was planted for {}", invariant.name);
    }
    let checked = database.command("check");
    assert_eq!(checked.code, Some(1));
    let lines = checked.stdout.lines();
    let wrong = lines.filter(|line| line.starts_with("WRONG")).count();
    assert_eq!(wrong, INVARIANTS.len(), "{checked:?}");
    assert!(checked.stderr.contains("checking refunds_add_up, 1 of"));
    rows_of_ended_and_unknown_accounts_are_found(database).await;
}

async fn rows_of_ended_and_unknown_accounts_are_found(database: &TestDatabase) {
    // The rows of a test account that has ended are removed in batches, so any may be missing.
    let end = "UPDATE accounts SET test_until = now() - interval '1 minute'";
    database.execute(end).await;
    let foreign = |table: &str| ("rows_belong_to_accounts".to_owned(), table.to_owned());
    assert_eq!(violations(database), [foreign("inventory")]);

    // The other tables, in which each of these rows contradicts several invariants.
    let unchecked = "SET LOCAL session_replication_role = replica;
                     UPDATE accounts SET test_until = NULL";
    let mut tx = database.holding(unchecked).await;
    let delivery = Uuid::now_v7();
    let deliver = format!(
        "INSERT INTO webhook_deliveries
                (account_id, id, endpoint_id, event_id, status, next_attempt_at, delivered_at)
         SELECT account_id, '{delivery}', gen_random_uuid(), id, 'succeeded', NULL, now()
           FROM events LIMIT 1"
    );
    let deliver = sqlx::raw_sql(AssertSqlSafe(deliver));
    deliver.execute(&mut *tx).await.unwrap();
    let tables = "charges orders refunds events checkouts payment_methods";
    for table in tables.split(' ') {
        let give = format!(
            "UPDATE {table} SET account_id = gen_random_uuid() WHERE id = (SELECT id FROM {table} LIMIT 1)"
        );
        let given = sqlx::raw_sql(AssertSqlSafe(give)).execute(&mut *tx).await;
        assert_eq!(given.unwrap().rows_affected(), 1, "{table}");
    }
    tx.commit().await.unwrap();
    let found = violations(database);
    let delivery = WebhookDeliveryId(delivery).to_string();
    for object in tables.split(' ').chain([&*delivery]) {
        assert!(found.contains(&foreign(object)), "{object}: {found:#?}");
    }

    // As a replica leaves a test account that doesn't know all of its tables.
    let close = "UPDATE accounts SET test_until = now(), closed_at = now()";
    database.execute(close).await;
    let found = violations(database);
    assert!(found.contains(&foreign("payment_intents")), "{found:#?}");
}

#[tokio::test]
async fn check_ends_with_2_where_it_can_not_tell() {
    let database = TestDatabase::create().await;
    // A migration is under way.
    let lock = "LOCK TABLE refunds IN ACCESS EXCLUSIVE MODE";
    let migration = database.holding(lock).await;
    let checked = database.command("check --timeout 1s");
    assert_eq!(checked.stdout, "");
    assert_has(&checked.failed(2), "nothing is known: ");
    migration.rollback().await.unwrap();

    let complaint = database.command("check --timeout soon").failed(2);
    assert_has(&complaint, "from 1s to 24h");
    let empty = TestDatabase::create_empty().await;
    assert_has(&empty.command("check").failed(2), "charge-once migrate");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(empty.count(tables).await, 0, "it migrates nothing");
}

/// By key, name and id.
fn each_command_prints_what_is_found_in_the_others(database: &TestDatabase, shown: &Value) {
    let (operations, _) = json_of(database, "operations list");
    let (listed, _) = json_of(database, "keys list");
    let lease = &shown["lease"];
    for one in [&operations["operations"][0], &listed["keys"][0], lease] {
        for name in ["key", "account", "account_name"] {
            assert_eq!(one[name], shown[name], "{name} of {one}");
        }
        assert_eq!(one["operation"], lease["operation"], "{one}");
        assert_eq!(one["in_doubt"], true, "{one}");
    }
    let operation = lease["operation"].as_str().unwrap();
    let account = format!("dev ({})", shown["account"].as_str().unwrap());
    let of_key = format!("account  {account}\nkey      key-1\n");
    for (command, named) in [
        (
            "operations list",
            format!("{operation}  key-1  {account}  "),
        ),
        ("keys list", format!("key-1  {account}  ")),
        ("keys show key-1", of_key),
    ] {
        let told = database.printed_by(command);
        assert!(told.starts_with(&named), "{named} in {told}");
        told.must_have(&["in doubt"]);
        told.must_lack(&["in flight"]);
    }
}

#[tokio::test]
async fn keys_show_what_is_in_doubt_and_what_became_of_it() {
    let world = World::new().await;
    let database = &world.database;
    let (listed, _) = json_of(database, "keys list --in-flight");
    assert_eq!(listed["keys"], json!([]));
    let lost = json!({"fault": "drop_after"});
    world.processor.set_fault(lost).await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let postpone = "UPDATE idempotency_leases SET recover_after = now() + interval '5 minutes'";
    database.execute(postpone).await;

    for which in ["--in-flight", "--in-doubt"] {
        let (listed, code) = json_of(database, &format!("keys list {which} --account dev"));
        assert_eq!((code, &listed["has_more"]), (Some(0), &json!(false)));
        let keys = listed["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 1, "{listed}");
        let told = ["key", "account_name", "in_doubt"].map(|name| &keys[0][name]);
        assert_eq!(json!(told), json!(["key-1", "dev", true]));
    }
    let show = "keys show key-1 --account dev";
    let (shown, code) = json_of(database, show);
    assert_eq!((&shown["state"], code), (&json!("in_doubt"), Some(0)));
    let operation: Uuid = database.value("SELECT id FROM operations").await;
    assert_eq!(shown["lease"]["operation"], operation.to_string());
    assert_eq!(shown["path"], "/charges");
    each_command_prints_what_is_found_in_the_others(database, &shown);
    // What is in flight contradicts nothing.
    assert_eq!(violations(database), []);
    // Nothing of it is in doubt in another account.
    let other = "keys list --in-flight --account acct_00000000000000000000000000";
    assert_eq!(json_of(database, other).0["keys"], json!([]));

    world.processor.reset_faults().await;
    world.the_lease_runs_out().await;
    let is_charged = async || world.client().charge("key-1").await.status == 201;
    eventually("the key has its outcome", is_charged).await;
    let (shown, _) = json_of(database, show);
    let told = ["state", "status", "lease"].map(|name| &shown[name]);
    assert_eq!(json!(told), json!(["completed", 201, null]));
    assert_eq!(shown["events"][0]["type"], "charge.succeeded");
    assert_eq!(shown["events"][0]["object"], shown["resource"]);
    let resource = shown["resource"].as_str().unwrap();
    let told = database.printed_by(show);
    told.must_have(&["state    completed\n", resource]);
    assert_eq!(violations(database), []);

    let (unknown, code) = json_of(database, "keys show key-2 --account dev");
    assert_eq!((&unknown["state"], code), (&json!("nothing"), Some(1)));
    assert_eq!(world.database.records().await, 1, "a look leaves nothing");
}

#[tokio::test]
async fn keys_say_what_is_wrong_with_their_arguments_and_show_no_secret() {
    let server = TestServer::start().await;
    let database = &server.database;
    for (command, code, complaint) in [
        ("list --in-doubt --in-flight", 2, "--in-doubt"),
        ("show key-1", 1, "no account has"),
        ("show key-1 --account nowhere", 1, "api-key list"),
    ] {
        let ended = database.command(&format!("keys {command}"));
        assert_has(&ended.failed(code), complaint);
    }
    let spaced = ["keys", "show", "two words", "--account", "dev"];
    let said = complaint_of(&spaced, &[("DATABASE_URL", &database.url)], 1);
    assert_has(&said, "KEY");
    let alice = client_of_account(&server, "alice").await;
    for client in [&server.client, &alice] {
        assert_eq!(client.charge("shared").await.status, 201);
    }
    let parts = [
        "several accounts",
        "dev (acct_",
        "alice (acct_",
        "--account",
    ];
    let said = database.command("keys show shared").failed(1);
    said.must_have(&parts);
    let endpoint = endpoint("https://example.com/hook");
    let made = server.client.post("/webhook_endpoints", "key-1", &endpoint);
    let secret = made.await.json()["secret"].as_str().unwrap().to_owned();
    let show = "keys show key-1 --account dev";
    let told = database.printed_by(show);
    assert_has(&told, "/webhook_endpoints");
    assert!(!told.contains(&secret), "{told}");
    let (shown, _) = json_of(database, show);
    assert!(!shown.to_string().contains(&secret));
}

#[tokio::test]
async fn what_a_client_sent_stays_on_its_line_when_a_key_is_shown() {
    let server = TestServer::start().await;
    let path = "/charges/ch_1%0Areply    201%1B[2J%E2%80%AE";
    let refused = server.client.post(path, "key-1", &json!({})).await;
    assert_eq!(refused.status, 404);
    let show = "keys show key-1 --account dev";
    let told = server.database.printed_by(show);
    let expected = r"POST /charges/ch_1\u000areply    201\u001b[2J\u202e";
    assert_has(&told, expected);
    let replies = told.lines().filter(|line| line.starts_with("reply"));
    assert_eq!(replies.collect::<Vec<_>>(), ["reply    404"], "{told}");
    let (shown, _) = json_of(&server.database, show);
    let path = "/charges/ch_1\nreply    201\u{1b}[2J\u{202e}";
    assert_eq!(shown["path"], path);
}

/// What is counted in a database [`with_old_rows`], as JSON.
fn old_rows() -> Value {
    json!({
        "idempotency_keys": 3, "test_accounts": 0, "events": 2, "operations": 0,
        "logged_requests": 0,
    })
}

#[tokio::test]
async fn a_dry_run_counts_what_the_sweep_then_removes() {
    let database = with_old_rows().await;
    let counted = json_of(&database, "sweep --dry-run");
    assert_eq!(counted, (old_rows(), Some(0)));
    assert_eq!(database.records().await, 3);
    let removed = ["Removed 3 expired idempotency keys.", "Removed 2 events"];
    database.printed_by("sweep").must_have(&removed);
    let left = ["remove 0 expired idempotency keys", "remove 0 events"];
    database.printed_by("sweep --dry-run").must_have(&left);
}

#[tokio::test]
async fn a_sweep_prints_what_it_removed_as_the_document_of_its_dry_run() {
    let database = with_old_rows().await;
    assert_eq!(json_of(&database, "sweep"), (old_rows(), Some(0)));
    assert_eq!(database.records().await, 0);
}

#[tokio::test]
async fn a_sweep_names_an_account_whose_rows_it_could_not_remove() {
    let database = with_old_rows().await;
    refuse_to_remove_events(&database).await;
    let swept = database.command("sweep");
    assert_has(&swept.stdout, "Removed 0 events");
    let complaint = swept.failed(1);
    let account = "SELECT DISTINCT account_id FROM events";
    let account = AccountId(database.value(account).await);
    let expected =
        format!("accounts whose old rows could not be removed: 1; the last one is {account}: ");
    complaint.must_have(&[&expected, "events stay"]);
}

#[test]
fn completions_are_scripts_that_the_shell_reads() {
    let script = printed_by(&["completions", "bash"], &[]);
    assert!(script.contains("--in-doubt") && script.contains("dry-run"));
    let parsed = Command::new("bash").args(["-n", "-c", &script]).output();
    let parsed = parsed.unwrap();
    assert!(parsed.status.success(), "{}", text(&parsed.stderr));
    for shell in ["zsh", "fish"] {
        assert!(printed_by(&["completions", shell], &[]).contains("in-doubt"));
    }
}
