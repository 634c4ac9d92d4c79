//! What a person runs who was called: `check`, `keys`, `sweep --dry-run`, and completions.

use charge_once::{
    domain::ids::{
        AccountId, ChargeId, CheckoutId, CustomerId, EventId, OrderId, PaymentIntentId,
        PaymentMethodId, RefundId, WebhookDeliveryId,
    },
    store::invariants::{INVARIANTS, Invariant},
};

use crate::support::{
    checkouts::checkout_of,
    intents::{retrieve, standing},
    prelude::*,
    records::{refuse_to_remove_events, with_old_rows},
    resources::customer,
};

/// What the command prints as JSON, and its exit code.
fn json_of(database: &TestDatabase, arguments: &[&str]) -> (Value, Option<i32>) {
    let arguments = [arguments, &["--json"]].concat();
    let output = run(&arguments, &[("DATABASE_URL", &database.url)]);
    let printed = serde_json::from_slice(&output.stdout);
    let printed = printed.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (printed, output.status.code())
}

/// What `check` found: the name of the invariant, and the object.
fn violations(database: &TestDatabase) -> Vec<(String, String)> {
    let (checked, code) = json_of(database, &["check"]);
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

/// An order that is paid.
async fn paid_order(client: &Client) -> String {
    let items = json!([{"quantity": 1, "unit_amount": 2000}]);
    let order = json!({"currency": "usd", "items": items});
    let order = client.post_new("/orders", &order).await.id();
    let card = json!({"source": "tok_visa"});
    let paid = client
        .post_new(&format!("/orders/{order}/pay"), &card)
        .await;
    assert_eq!(paid.status, 200);
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
    let declined = json!({"amount": 2000, "currency": "usd", "source": "tok_chargeDeclined"});
    assert_eq!(client.post_new("/charges", &declined).await.status, 402);
    let promised =
        json!({"amount": 2000, "currency": "usd", "source": "tok_visa", "capture": false});
    let first = client.post_new("/charges", &promised).await.id();
    let second = client.post_new("/charges", &promised).await.id();
    let capture = format!("/charges/{first}/capture");
    assert_eq!(client.post_new(&capture, &json!({})).await.status, 200);
    let release = json!({"charge": second});
    assert_eq!(client.post_new("/refunds", &release).await.status, 201);
    paid_order(client).await;
    refund(client).await;
    checked_out(client, 2).await;
    checked_out(client, 1).await;
    assert_eq!(violations(&server.database), []);

    let variables = [("DATABASE_URL", server.database.url.as_str())];
    let told = printed_by(&["check"], &variables);
    assert_eq!(told.lines().count(), INVARIANTS.len() + 1, "{told}");
    let all = format!("All {} invariants hold.\n", INVARIANTS.len());
    assert!(told.ends_with(&all), "{told}");
}

#[test]
fn every_invariant_is_documented_and_no_other() {
    let page = read("docs/reliability.md");
    let section = page
        .split("## ")
        .find(|section| section.starts_with("What always holds"));
    let documented: Vec<_> = section
        .expect("a section")
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(str::to_owned)
        .collect();
    let row = |one: &Invariant| format!("| `{}` | {} |", one.name, one.promise);
    assert_eq!(documented, INVARIANTS.iter().map(row).collect::<Vec<_>>());
}

/// Each fault is one that a constraint would refuse, or that no request of this program makes.
#[tokio::test]
async fn each_invariant_finds_what_was_planted_by_hand() {
    let server = TestServer::start().await;
    let (client, pool) = (&server.client, &server.database.pool);
    server.database.is_left_broken("it is planted");
    for constraint in [
        "charges DROP CONSTRAINT a_capture_never_exceeds_the_charge",
        "inventory DROP CONSTRAINT inventory_is_never_negative",
    ] {
        let drop = format!("ALTER TABLE {constraint}");
        let drop = sqlx::raw_sql(sqlx::AssertSqlSafe(drop));
        drop.execute(pool).await.unwrap();
    }
    let drop = sqlx::raw_sql("DROP INDEX an_order_has_one_succeeded_charge");
    drop.execute(pool).await.unwrap();

    let mut planted: Vec<(&str, String)> = Vec::new();
    // `$1` is the id of the object, or `$1` is its name.
    let by_id = async |sql: &'static str, id: Uuid| {
        let done = sqlx::query(sql).bind(id).execute(pool).await.unwrap();
        assert!(done.rows_affected() > 0, "{sql}");
    };
    let by_name = async |sql: &'static str, name: &str| {
        let done = sqlx::query(sql).bind(name).execute(pool).await.unwrap();
        assert!(done.rows_affected() > 0, "{sql}");
    };
    let charge = async |key: &str| {
        let id = client.charge(key).await.id();
        (ChargeId::parse(&id).unwrap().0, id)
    };

    let (id, shown) = charge("key-refunded").await;
    by_id("UPDATE charges SET amount_refunded = 500 WHERE id = $1", id).await;
    planted.push(("refunds_add_up", shown));

    let (id, shown) = charge("key-captured").await;
    by_id(
        "UPDATE charges SET amount_captured = amount + 1 WHERE id = $1",
        id,
    )
    .await;
    planted.push(("charges_within_bounds", shown));

    let shown = refund(client).await;
    let id = RefundId::parse(&shown).unwrap().0;
    by_id("UPDATE refunds SET currency = 'eur' WHERE id = $1", id).await;
    planted.push(("refunds_in_the_currency_of_their_charge", shown));

    let shown = paid_order(client).await;
    let id = OrderId::parse(&shown).unwrap().0;
    by_id("UPDATE orders SET amount = amount + 1 WHERE id = $1", id).await;
    planted.push(("orders_paid_in_full", shown));

    let shown = paid_order(client).await;
    let order = OrderId::parse(&shown).unwrap().0;
    let (_, second) = charge("key-second").await;
    let link = "UPDATE charges SET order_id = $1 WHERE amount_captured = 2000 AND id = (
                    SELECT id FROM charges ORDER BY id DESC LIMIT 1)";
    by_id(link, order).await;
    planted.push(("orders_charged_once", shown));
    planted.push(("charges_pay_their_order", second));

    let shown = standing(client, "succeeded").await;
    let id = PaymentIntentId::parse(&shown).unwrap().0;
    let keep = "UPDATE charges SET amount_captured = amount_captured - 1
                 WHERE payment_intent_id = $1";
    by_id(keep, id).await;
    planted.push(("intents_show_their_money", shown));

    let unpaid = standing(client, "requires_payment_method").await;
    let (_, stray) = charge("key-stray").await;
    let link = "UPDATE charges SET payment_intent_id = $1, payment_method_id = gen_random_uuid()
                 WHERE id = (SELECT id FROM charges ORDER BY id DESC LIMIT 1)";
    by_id(link, PaymentIntentId::parse(&unpaid).unwrap().0).await;
    planted.push(("charges_pay_their_intent", stray));

    let shown = standing(client, "requires_payment_method").await;
    let id = PaymentIntentId::parse(&shown).unwrap().0;
    let stuck = "UPDATE payment_intents SET status = 'processing', status_before = status
                  WHERE id = $1";
    by_id(stuck, id).await;
    planted.push(("processing_intents_in_flight", shown));

    // It pays again, or pays and becomes a customer's, or pays and is new.
    let customer = CustomerId::parse(&customer(client).await).unwrap().0;
    for (wrong, by) in [
        (
            "UPDATE charges SET payment_method_id = $1 WHERE payment_intent_id = $2",
            None,
        ),
        (
            "UPDATE payment_methods SET used_up_at = NULL, customer_id = $2 WHERE id = $1",
            Some(customer),
        ),
        (
            "UPDATE payment_methods SET used_up_at = NULL WHERE id = $1 AND id <> $2",
            Some(customer),
        ),
    ] {
        let paid = retrieve(client, &standing(client, "succeeded").await).await;
        let shown = paid["payment_method"].as_str().unwrap().to_owned();
        let other = standing(client, "succeeded").await;
        let id = PaymentMethodId::parse(&shown).unwrap().0;
        let by = by.unwrap_or(PaymentIntentId::parse(&other).unwrap().0);
        let done = sqlx::query(wrong).bind(id).bind(by).execute(pool).await;
        assert_eq!(done.unwrap().rows_affected(), 1, "{wrong}");
        planted.push(("methods_pay_once_or_for_one_customer", shown));
    }

    let shown = checked_out(client, 2).await;
    let id = CheckoutId::parse(&shown).unwrap().0;
    let reopen = "UPDATE orders SET status = 'open', charge_id = NULL
                   WHERE id = (SELECT order_id FROM checkouts WHERE id = $1)";
    by_id(reopen, id).await;
    planted.push(("checkouts_all_or_nothing", shown));

    let shown = checked_out(client, 1).await;
    let id = CheckoutId::parse(&shown).unwrap().0;
    let keep = "UPDATE charges SET amount_refunded = 0
                 WHERE order_id = (SELECT order_id FROM checkouts WHERE id = $1)";
    by_id(keep, id).await;
    planted.push(("checkouts_all_or_nothing", shown));

    stock(client, "oversold", 1).await;
    by_name(
        "UPDATE inventory SET quantity = -1 WHERE sku = $1",
        "oversold",
    )
    .await;
    planted.push(("stock_never_negative", "oversold".into()));

    charge("key-twice").await;
    let again = "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
                 SELECT account_id, 'ffffffff-ffff-7fff-bfff-ffffffffffff', type, object,
                        request_id, idempotency_key
                   FROM events WHERE idempotency_key = $1";
    by_name(again, "key-twice").await;
    let first: Uuid = sqlx::query_scalar(
        "SELECT id FROM events WHERE idempotency_key = 'key-twice' ORDER BY id LIMIT 1",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    planted.push(("one_change_per_execution", EventId(first).to_string()));

    let (_, shown) = charge("key-version").await;
    let words = json!({"description": "later"});
    client.post_new(&format!("/charges/{shown}"), &words).await;
    let same = "UPDATE events SET object_version = 7 WHERE object ->> 'id' = $1";
    by_name(same, &shown).await;
    planted.push(("versions_tell_changes_apart", shown));

    charge("key-stolen").await;
    let other = "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
                 SELECT account_id, gen_random_uuid(), 'charge.updated', object, 'req_other',
                        idempotency_key
                   FROM events WHERE idempotency_key = $1";
    by_name(other, "key-stolen").await;
    planted.push(("one_execution_per_key", "key-stolen".into()));

    let (_, shown) = charge("key-forgotten").await;
    by_name(
        "DELETE FROM events WHERE idempotency_key = $1",
        "key-forgotten",
    )
    .await;
    planted.push(("answers_left_their_change", "key-forgotten".into()));
    planted.push(("charges_told_once", shown));

    for unknown in ["ch_00000000000000000000000000", "ch_nonsense"] {
        let told = "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
                    SELECT id, gen_random_uuid(), 'charge.succeeded', json_build_object('id', $1::text),
                           'req_none', $1::text
                      FROM accounts LIMIT 1";
        by_name(told, unknown).await;
        planted.push(("charges_told_once", unknown.into()));
    }

    for (name, kind, shown) in [
        ("refunds_told_once", "refund.created", refund(client).await),
        (
            "orders_told_once",
            "order.created",
            paid_order(client).await,
        ),
        (
            "intents_told_once",
            "payment_intent.created",
            standing(client, "canceled").await,
        ),
        (
            "checkouts_told_once",
            "checkout.completed",
            checked_out(client, 2).await,
        ),
    ] {
        let forget = sqlx::query("DELETE FROM events WHERE type = $1 AND object ->> 'id' = $2");
        let forgotten = forget.bind(kind).bind(&shown).execute(pool).await.unwrap();
        assert_eq!(forgotten.rows_affected(), 1, "{kind}");
        planted.push((name, shown));
    }

    let operation = Uuid::now_v7();
    let write = "INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand,
                        request_id, idempotency_key)
                 SELECT account_id, $1, 'capture_charge', id, 1, 'ietf', false, 'req_none', 'none'
                   FROM charges LIMIT 1";
    by_id(write, operation).await;
    planted.push(("operations_in_flight", operation.to_string()));

    let stuck = "INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint,
                        method, path, request_id, created_at, expires_at)
                 SELECT id, $1, 1, sha256('x'), 'POST', '/charges', 'req_none', now(),
                        now() + interval '1 day'
                   FROM accounts LIMIT 1";
    by_name(stuck, "key-stuck").await;
    planted.push(("keys_in_flight", "key-stuck".into()));
    let lease = "INSERT INTO idempotency_leases (account_id, key, kind, operation, token,
                        leased_until, recover_after)
                 SELECT id, $1, 'none', gen_random_uuid(), gen_random_uuid(), now(), now()
                   FROM accounts LIMIT 1";
    by_name(lease, "key-leased").await;
    planted.push(("keys_in_flight", "key-leased".into()));

    let (id, shown) = charge("key-pending").await;
    let pend = "UPDATE charges SET status = 'pending', captured = false, amount_captured = 0
                 WHERE id = $1";
    by_id(pend, id).await;
    planted.push(("pending_charges_in_flight", shown));

    let shown = refund(client).await;
    let id = RefundId::parse(&shown).unwrap().0;
    by_id("UPDATE refunds SET status = 'pending' WHERE id = $1", id).await;
    planted.push(("pending_refunds_in_flight", shown));

    stock(client, "foreign", 1).await;
    let give = "UPDATE inventory SET account_id = gen_random_uuid() WHERE sku = $1";
    by_name(give, "foreign").await;
    planted.push(("rows_belong_to_accounts", "inventory".into()));

    let twins = [paid_order(client).await, paid_order(client).await];
    // Requests need the first of these constraints, so this comes last.
    let drop = "ALTER TABLE orders DROP CONSTRAINT a_client_order_id_names_one_order;
                ALTER TABLE accounts DROP CONSTRAINT an_account_name_is_unique";
    sqlx::raw_sql(drop).execute(pool).await.unwrap();
    for shown in twins {
        let id = OrderId::parse(&shown).unwrap().0;
        by_id(
            "UPDATE orders SET client_order_id = 'twin' WHERE id = $1",
            id,
        )
        .await;
        planted.push(("natural_keys_name_one_object", shown));
    }
    let accounts = "INSERT INTO accounts (id, name)
                    SELECT gen_random_uuid(), $1 FROM generate_series(1, 2)";
    by_name(accounts, "twins").await;
    planted.push(("natural_keys_name_one_object", "twins".into()));

    let found = violations(&server.database);
    for (name, object) in &planted {
        let is_found = found.iter().any(|(by, what)| by == name && what == object);
        assert!(is_found, "{name} misses {object}: {found:#?}");
    }
    for invariant in INVARIANTS {
        let is_proven = planted.iter().any(|(name, _)| *name == invariant.name);
        assert!(is_proven, "nothing was planted for {}", invariant.name);
    }

    let output = run(&["check"], &[("DATABASE_URL", &server.database.url)]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    let wrong = told
        .lines()
        .filter(|line| line.starts_with("WRONG"))
        .count();
    assert_eq!(wrong, INVARIANTS.len(), "{told}");
    assert!(text(&output.stderr).contains("checking refunds_add_up, 1 of"));

    // The rows of a test account that has ended are removed in batches, so any may be missing.
    let end = sqlx::query("UPDATE accounts SET test_until = now() - interval '1 minute'");
    end.execute(pool).await.unwrap();
    let left = violations(&server.database);
    let foreign = ("rows_belong_to_accounts".to_owned(), "inventory".to_owned());
    assert_eq!(left, [foreign]);

    // The other tables, in which each of these rows contradicts several invariants.
    let mut tx = pool.begin().await.unwrap();
    let delivery = Uuid::now_v7();
    let unchecked = "SET LOCAL session_replication_role = replica";
    let deliver = format!(
        "INSERT INTO webhook_deliveries
                (account_id, id, endpoint_id, event_id, status, next_attempt_at, delivered_at)
         SELECT account_id, '{delivery}', gen_random_uuid(), id, 'succeeded', NULL, now()
           FROM events LIMIT 1"
    );
    let reopen = "UPDATE accounts SET test_until = NULL";
    for change in [unchecked, reopen, &*deliver] {
        sqlx::raw_sql(AssertSqlSafe(change.to_owned()))
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let tables = [
        "charges",
        "orders",
        "refunds",
        "events",
        "checkouts",
        "payment_methods",
    ];
    for table in tables {
        let give = format!(
            "UPDATE {table} SET account_id = gen_random_uuid() WHERE id = (SELECT id FROM {table} LIMIT 1)"
        );
        let given = sqlx::raw_sql(AssertSqlSafe(give)).execute(&mut *tx).await;
        assert_eq!(given.unwrap().rows_affected(), 1, "{table}");
    }
    tx.commit().await.unwrap();
    let found = violations(&server.database);
    let delivery = WebhookDeliveryId(delivery).to_string();
    for object in tables.into_iter().chain([&*delivery]) {
        let wanted = ("rows_belong_to_accounts".to_owned(), object.to_owned());
        assert!(found.contains(&wanted), "{object}: {found:#?}");
    }

    // As a replica leaves a test account that doesn't know all of its tables.
    let close = "UPDATE accounts SET test_until = now(), closed_at = now()";
    sqlx::raw_sql(close).execute(pool).await.unwrap();
    let found = violations(&server.database);
    let left = (
        "rows_belong_to_accounts".to_owned(),
        "payment_intents".to_owned(),
    );
    assert!(found.contains(&left), "{found:#?}");
}

#[tokio::test]
async fn check_ends_with_2_where_it_can_not_tell() {
    let database = TestDatabase::create().await;
    let variables = [("DATABASE_URL", database.url.as_str())];
    // A migration is under way.
    let mut migration = database.pool.begin().await.unwrap();
    let lock = sqlx::query("LOCK TABLE refunds IN ACCESS EXCLUSIVE MODE");
    lock.execute(&mut *migration).await.unwrap();
    let output = run(&["check", "--timeout", "1s"], &variables);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("nothing is known: "), "{complaint}");
    assert_eq!(text(&output.stdout), "");
    migration.rollback().await.unwrap();

    let output = run(&["check", "--timeout", "soon"], &variables);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("from 1s to 24h"));

    let empty = TestDatabase::create_empty().await;
    let output = run(&["check"], &[("DATABASE_URL", &empty.url)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("charge-once migrate"));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(empty.count(tables).await, 0, "it migrates nothing");
}

#[tokio::test]
async fn keys_show_what_is_in_doubt_and_what_became_of_it() {
    let world = World::new().await;
    let database = &world.database;
    assert_eq!(
        json_of(database, &["keys", "list", "--in-flight"]).0["keys"],
        json!([])
    );
    world
        .processor
        .set_fault(json!({"fault": "drop_after"}))
        .await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let postpone = "UPDATE idempotency_leases SET recover_after = now() + interval '5 minutes'";
    sqlx::query(postpone).execute(&database.pool).await.unwrap();

    for which in ["--in-flight", "--in-doubt"] {
        let (listed, code) = json_of(database, &["keys", "list", which, "--account", "dev"]);
        assert_eq!(code, Some(0));
        assert_eq!(listed["has_more"], false);
        let keys = listed["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 1, "{listed}");
        assert_eq!(keys[0]["key"], "key-1");
        assert_eq!(keys[0]["account_name"], "dev");
        assert_eq!(keys[0]["in_doubt"], true);
    }
    let show = ["keys", "show", "key-1", "--account", "dev"];
    let (shown, code) = json_of(database, &show);
    assert_eq!((&shown["state"], code), (&json!("in_doubt"), Some(0)));
    let operation: Uuid = sqlx::query_scalar("SELECT id FROM operations")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!(shown["lease"]["operation"], operation.to_string());
    // What one command prints is found in the others: by key, name and id.
    let (operations, _) = json_of(database, &["operations", "list"]);
    let (listed, _) = json_of(database, &["keys", "list"]);
    for one in [
        &operations["operations"][0],
        &listed["keys"][0],
        &shown["lease"],
    ] {
        for name in ["key", "account", "account_name", "operation"] {
            let of_key = if name == "operation" {
                &shown["lease"]
            } else {
                &shown
            };
            assert_eq!(one[name], of_key[name], "{name} of {one}");
        }
        assert_eq!(one["in_doubt"], true, "{one}");
    }
    let variables = [("DATABASE_URL", database.url.as_str())];
    let account = format!("dev ({})", shown["account"].as_str().unwrap());
    for (command, named) in [
        (
            &["operations", "list"][..],
            format!("{operation}  key-1  {account}  "),
        ),
        (&["keys", "list"], format!("key-1  {account}  ")),
        (
            &["keys", "show", "key-1"],
            format!("account  {account}\nkey      key-1\n"),
        ),
    ] {
        let told = printed_by(command, &variables);
        assert!(told.starts_with(&named), "{named} in {told}");
        assert!(told.contains("in doubt"), "{told}");
        assert!(!told.contains("in flight"), "{told}");
    }
    assert_eq!(shown["path"], "/charges");
    // What is in flight contradicts nothing.
    assert_eq!(violations(database), []);
    // Nothing of it is in doubt in another account.
    let other = [
        "keys",
        "list",
        "--in-flight",
        "--account",
        "acct_00000000000000000000000000",
    ];
    assert_eq!(json_of(database, &other).0["keys"], json!([]));

    world.processor.reset_faults().await;
    world.the_lease_runs_out().await;
    eventually("the key has its outcome", || async {
        world.client().charge("key-1").await.status == 201
    })
    .await;
    let (shown, _) = json_of(database, &show);
    assert_eq!(shown["state"], "completed");
    assert_eq!(shown["status"], 201);
    assert_eq!(shown["lease"], Value::Null);
    assert_eq!(shown["events"][0]["type"], "charge.succeeded");
    assert_eq!(shown["events"][0]["object"], shown["resource"]);
    let told = printed_by(&show, &variables);
    assert!(told.contains("state    completed\n"), "{told}");
    assert!(told.contains(shown["resource"].as_str().unwrap()), "{told}");
    assert_eq!(violations(database), []);

    let (unknown, code) = json_of(database, &["keys", "show", "key-2", "--account", "dev"]);
    assert_eq!((&unknown["state"], code), (&json!("nothing"), Some(1)));
    assert_eq!(world.database.records().await, 1, "a look leaves nothing");
}

#[tokio::test]
async fn keys_say_what_is_wrong_with_their_arguments_and_show_no_secret() {
    let server = TestServer::start().await;
    let variables = [("DATABASE_URL", server.database.url.as_str())];
    for (arguments, code, complaint) in [
        (
            &["keys", "list", "--in-doubt", "--in-flight"][..],
            2,
            "--in-doubt",
        ),
        (&["keys", "show", "key-1"], 1, "no account has"),
        (
            &["keys", "show", "key-1", "--account", "nowhere"],
            1,
            "api-key list",
        ),
        (&["keys", "show", "two words", "--account", "dev"], 1, "KEY"),
    ] {
        let output = run(arguments, &variables);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(complaint), "{arguments:?}: {said}");
    }
    let alice = client_of_account(&server, "alice").await;
    for client in [&server.client, &alice] {
        assert_eq!(client.charge("shared").await.status, 201);
    }
    let shared = run(&["keys", "show", "shared"], &variables);
    let said = text(&shared.stderr);
    assert_eq!(shared.status.code(), Some(1), "{said}");
    for part in [
        "several accounts",
        "dev (acct_",
        "alice (acct_",
        "--account",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let endpoint = json!({"url": "https://example.com/hook", "enabled_events": ["*"]});
    let made = server
        .client
        .post("/webhook_endpoints", "key-1", &endpoint)
        .await;
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    let show = ["keys", "show", "key-1", "--account", "dev"];
    let told = printed_by(&show, &variables);
    assert!(
        told.contains("/webhook_endpoints") && !told.contains(&secret),
        "{told}"
    );
    let (shown, _) = json_of(&server.database, &show);
    assert!(!shown.to_string().contains(&secret));
}

#[tokio::test]
async fn what_a_client_sent_stays_on_its_line_when_a_key_is_shown() {
    let server = TestServer::start().await;
    let path = "/charges/ch_1%0Areply    201%1B[2J%E2%80%AE";
    let refused = server.client.post(path, "key-1", &json!({})).await;
    assert_eq!(refused.status, 404);
    let show = ["keys", "show", "key-1", "--account", "dev"];
    let told = printed_by(&show, &[("DATABASE_URL", &server.database.url)]);
    let escaped = r"POST /charges/ch_1\u000areply    201\u001b[2J\u202e";
    assert!(told.contains(escaped), "{told}");
    let replies: Vec<_> = told
        .lines()
        .filter(|line| line.starts_with("reply"))
        .collect();
    assert_eq!(replies, ["reply    404"], "{told}");
    let (shown, _) = json_of(&server.database, &show);
    assert_eq!(
        shown["path"],
        "/charges/ch_1\nreply    201\u{1b}[2J\u{202e}"
    );
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
    let (counted, code) = json_of(&database, &["sweep", "--dry-run"]);
    assert_eq!((counted, code), (old_rows(), Some(0)));
    assert_eq!(database.records().await, 3);
    let variables = [("DATABASE_URL", database.url.as_str())];
    let removed = printed_by(&["sweep"], &variables);
    assert!(
        removed.contains("Removed 3 expired idempotency keys."),
        "{removed}"
    );
    assert!(removed.contains("Removed 2 events"), "{removed}");
    let left = printed_by(&["sweep", "--dry-run"], &variables);
    assert!(left.contains("remove 0 expired idempotency keys"), "{left}");
    assert!(left.contains("remove 0 events"), "{left}");
}

#[tokio::test]
async fn a_sweep_prints_what_it_removed_as_the_document_of_its_dry_run() {
    let database = with_old_rows().await;
    assert_eq!(json_of(&database, &["sweep"]), (old_rows(), Some(0)));
    assert_eq!(database.records().await, 0);
}

#[tokio::test]
async fn a_sweep_names_an_account_whose_rows_it_could_not_remove() {
    let database = with_old_rows().await;
    refuse_to_remove_events(&database).await;
    let output = run(&["sweep"], &[("DATABASE_URL", database.url.as_str())]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("Removed 0 events"), "{printed}");
    let account: Uuid = sqlx::query_scalar("SELECT DISTINCT account_id FROM events")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    let account = AccountId(account);
    let complaint = text(&output.stderr);
    let expected =
        format!("accounts whose old rows could not be removed: 1; the last one is {account}: ");
    assert!(complaint.contains(&expected), "{complaint}");
    assert!(complaint.contains("events stay"), "{complaint}");
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
