//! What keeps intents apart: other accounts, other keys, and rules of the schema that hold alone.

use sqlx::Connection;

use crate::support::{
    harness::violated,
    holder_pages::open,
    intents::{STATUSES, act, create, events, paid_with, path, retrieve, standing, terms_with},
    prelude::*,
    resources::{attached, customer, method},
};

/// One intent in each status, one setup intent, and their customer with a method.
struct Owned {
    customer: String,
    method: String,
    loose: String,
    charge: String,
    paid: String,
    held: String,
    waiting: String,
    page: String,
    setup: String,
}

const SETUP: &str = "pm_card_threeDSecure2Required";

impl Owned {
    async fn by(client: &Client) -> Self {
        let customer = customer(client).await;
        let of = json!({"customer": customer});
        let attached = attached(client, "pm_card_visa", &customer).await;
        let paid = paid_with(client, &attached, of.clone()).await;
        let waiting = paid_with(client, "pm_card_authenticationRequired", of).await;
        let setup = json!({
            "customer": customer, "payment_method": SETUP, "confirm": true,
            "payment_method_types": ["card"],
        });
        Self {
            method: attached,
            loose: method(client, "tok_visa").await,
            charge: paid.text_of("latest_charge"),
            paid: paid.id(),
            held: standing(client, "requires_capture").await,
            page: page_of(&waiting),
            waiting: waiting.id(),
            setup: client.post_new("/setup_intents", &setup).await.id(),
            customer,
        }
    }

    /// All of it, as its account sees it.
    async fn seen_by(&self, client: &Client) -> Vec<Value> {
        let mut seen = Vec::new();
        for path in [
            path(&self.paid, ""),
            path(&self.held, ""),
            path(&self.waiting, ""),
            format!("/setup_intents/{}", self.setup),
            format!("/payment_methods/{}", self.method),
            format!("/payment_methods/{}", self.loose),
            format!("/customers/{}", self.customer),
            format!("/charges/{}", self.charge),
        ] {
            let answer = client.get(&path).await;
            assert_eq!(answer.status, 200, "{path}");
            seen.push(answer.json());
        }
        seen
    }

    /// What another account, which owns `mine`, must not do with it: a path, a body, and the
    /// parameter that names what isn't there.
    fn requests(&self, mine: &Self) -> Vec<(String, Value, String)> {
        let (customer, loose) = (&self.customer, &self.loose);
        let setup = |id: &str, verb: &str| {
            let path = format!("/setup_intents/{id}/{verb}");
            path.trim_end_matches('/').to_owned()
        };
        let words = json!({"metadata": {"seen": "yes"}});
        let with_customer = json!({"customer": customer});
        let with_method = json!({"payment_method": loose});
        let confirmed = json!({"payment_method": loose, "confirm": true});
        rows(json!([
            [path(&self.waiting, "confirm"), {}, "intent"],
            [path(&self.held, "capture"), {}, "intent"],
            [path(&self.held, "cancel"), {}, "intent"],
            [path(&self.paid, ""), words, "intent"],
            ["/payment_intents", terms_with(with_customer.clone()), "customer"],
            ["/payment_intents", terms_with(with_method.clone()), "payment_method"],
            ["/payment_intents", terms_with(confirmed), "payment_method"],
            [path(&mine.waiting, ""), with_customer, "customer"],
            [path(&mine.waiting, ""), with_method, "payment_method"],
            [path(&mine.waiting, "confirm"), with_method, "payment_method"],
            ["/refunds", {"payment_intent": self.paid}, "payment_intent"],
            ["/refunds", {"charge": self.charge}, "charge"],
            [setup(&self.setup, "confirm"), {}, "intent"],
            [setup(&self.setup, "cancel"), {}, "intent"],
            [setup(&self.setup, ""), words, "intent"],
            ["/setup_intents", with_customer, "customer"],
            ["/setup_intents", with_method, "payment_method"],
            [setup(&mine.setup, ""), with_customer, "customer"],
            [setup(&mine.setup, ""), with_method, "payment_method"],
            [setup(&mine.setup, "confirm"), with_method, "payment_method"],
        ]))
    }
}

#[tokio::test]
async fn another_account_finds_nothing_of_an_intent_and_changes_nothing() {
    let server = TestServer::start().await;
    let (client, other) = (&server.client, client_of_account(&server, "other").await);
    let (own, mine) = (Owned::by(client).await, Owned::by(&other).await);
    let before = (own.seen_by(client).await, mine.seen_by(&other).await);
    let charges = server.database.charges().await;

    for (path, body, param) in own.requests(&mine) {
        let refused = other.post_new(&path, &body).await;
        let missing = refusal("resource_missing", &param);
        assert_eq!(refused.refusal(), missing, "{path} {body}");
    }
    let mixed = json!({"payment_intent": mine.paid, "charge": own.charge});
    let mixed = other.post_new("/refunds", &mixed).await;
    mixed.assert_refusal(400, "parameter_invalid", "charge");
    for path in [path(&own.paid, ""), format!("/setup_intents/{}", own.setup)] {
        assert_eq!(other.get(&path).await.status, 404, "{path}");
    }
    for list in [
        format!("/payment_intents?customer={}", own.customer),
        format!("/charges?payment_intent={}", own.paid),
        format!("/refunds?payment_intent={}", own.paid),
        format!("/setup_intents?customer={}", own.customer),
        format!("/setup_intents?payment_method={}", own.method),
    ] {
        let listed = other.get(&list).await;
        let empty = listed.status == 200 && listed.json()["data"] == json!([]);
        assert!(
            empty || [400, 404].contains(&listed.status.as_u16()),
            "{list}"
        );
    }
    for cursor in ["limit=9", "starting_after=", "ending_before="] {
        let at = if cursor.ends_with('=') { &own.paid } else { "" };
        let list = format!("/payment_intents?expand[]=data.latest_charge&{cursor}{at}");
        let listed = other.get(&list).await.json()["data"].to_string();
        for hidden in [&own.paid, &own.held, &own.charge, &own.customer] {
            assert!(!listed.contains(hidden.as_str()), "{list}: {hidden}");
        }
    }
    // The token is the right one, and the account another's.
    let account = |page: &str| page.split('/').nth(4).unwrap().to_owned();
    let elsewhere = own.page.replace(&account(&own.page), &account(&mine.page));
    assert_ne!(elsewhere, own.page);
    assert_eq!(open(&elsewhere).await.status, 410);
    assert_eq!(press(&elsewhere, "complete").await.status, 410);

    let after = (own.seen_by(client).await, mine.seen_by(&other).await);
    assert_eq!(after, before);
    assert_eq!(server.database.charges().await, charges);
    assert_eq!(server.database.count_of("refunds").await, 0);
}

/// A method that is another customer's may not be given, whatever is asked of it.
#[tokio::test]
async fn a_method_of_another_customer_is_given_to_no_intent() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let own = Owned::by(&client).await;
    let stranger = customer(&client).await;
    let theirs = json!({"customer": stranger});
    let given = json!({"payment_method": own.method});
    let with_both = json!({"customer": stranger, "payment_method": own.method});
    let id = create(&client, theirs.clone()).await.id();
    let setup = client.post_new("/setup_intents", &theirs).await.id();
    let fit = json!({"customer": own.customer, "payment_method": own.method});
    let fit = create(&client, fit).await.id();
    for (path, body) in [
        ("/payment_intents".to_owned(), terms_with(with_both.clone())),
        (path(&id, ""), given.clone()),
        (path(&id, "confirm"), given.clone()),
        (path(&fit, ""), theirs),
        (format!("/setup_intents/{setup}"), given.clone()),
        (format!("/setup_intents/{setup}/confirm"), given),
        ("/setup_intents".to_owned(), with_both),
    ] {
        let refused = client.post_new(&path, &body).await;
        let (status, _, named) = refused.refusal();
        let told = (status, named.as_deref());
        assert_eq!(told, (400, Some("payment_method")), "{path} {body}");
    }
    let unpaid = retrieve(&client, &id).await;
    assert_eq!(unpaid["status"], "requires_payment_method");
    assert_eq!(retrieve(&client, &fit).await["customer"], own.customer);
}

/// Requests with their first answers.
struct Told {
    client: Client,
    answers: Vec<(String, Value, Answer)>,
}

impl Told {
    async fn ask(&mut self, path: String, body: Value, status: u16) -> Value {
        let key = format!("key-{}", self.answers.len());
        let answer = self.client.post(&path, &key, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.json());
        let json = answer.json();
        self.answers.push((path, body, answer));
        json
    }
}

async fn replays_a_whole_life(client: Client) {
    let mut told = Told {
        client,
        answers: Vec::new(),
    };
    let client = told.client.clone();
    let new = terms_with(json!({
        "confirm": true, "payment_method": "pm_card_authenticationRequired",
        "capture_method": "manual",
    }));
    let waiting = told.ask("/payment_intents".to_owned(), new, 201).await;
    let id = waiting["id"].as_str().unwrap().to_owned();
    let page = &waiting["next_action"]["redirect_to_url"]["url"];
    assert_eq!(press(page.as_str().unwrap(), "complete").await.status, 200);
    let visa = json!({"payment_method": "pm_card_visa"});
    for (path, body, status) in rows::<(String, Value, u16)>(json!([
        [path(&id, "confirm"), visa, 400],
        [path(&id, "capture"), {"amount_to_capture": 2001}, 400],
        [path(&id, "capture"), {"amount_to_capture": 1500, "expand": ["latest_charge"]}, 200],
        [path(&id, "capture"), {}, 400],
        [path(&id, "cancel"), {}, 400],
        ["/refunds", {"payment_intent": id, "amount": 500, "expand": ["charge"]}, 201],
        ["/refunds", {"payment_intent": id, "amount": 1001}, 400],
        [path(&id, ""), {"metadata": {"seen": "yes"}}, 200],
        ["/refunds", {"payment_intent": id}, 201],
        ["/refunds", {"payment_intent": id}, 400],
    ])) {
        told.ask(path, body, status).await;
    }
    let declining =
        terms_with(json!({"confirm": true, "payment_method": "pm_card_chargeDeclined"}));
    let declined = told
        .ask("/payment_intents".to_owned(), declining, 402)
        .await;
    let again = declined["error"]["payment_intent"]["id"].as_str().unwrap();
    told.ask(path(again, "confirm"), visa, 200).await;

    let happened = events(&client).await;
    for (number, (path, body, first)) in told.answers.iter().enumerate() {
        let key = format!("key-{number}");
        client.post(path, &key, body).await.assert_replays(first);
    }
    assert_eq!(events(&client).await, happened);
    // The path is part of the request: a key of one intent says nothing about another.
    let body = json!({});
    let reused = client.post(&path(again, "cancel"), "key-5", &body).await;
    assert_eq!(reused.code(), "idempotency_key_reused");
}

#[tokio::test]
async fn each_answer_about_an_intent_is_replayed_to_the_byte_whatever_has_happened_since() {
    for variables in [&[][..], &[FORGETFUL]] {
        let server = TestServer::start_with(variables).await;
        replays_a_whole_life(server.client.clone()).await;
    }
    let world = World::new().await;
    replays_a_whole_life(world.client()).await;
    world.assert_the_ledgers_agree("replays").await;
}

/// The first page that a holder was given opens nothing when another one has taken its place.
#[tokio::test]
async fn a_page_that_was_replaced_answers_for_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let three = json!({"payment_method": "pm_card_authenticationRequired"});
    let first = paid_with(&client, "pm_card_authenticationRequired", json!({})).await;
    let id = first.id();
    let second = act(&client, &id, "confirm", three).await;
    assert_ne!(page_of(&second), page_of(&first));
    for outcome in ["complete", "fail"] {
        assert_eq!(press(&page_of(&first), outcome).await.status, 410);
    }
    assert_eq!(retrieve(&client, &id).await["status"], "requires_action");
    assert_eq!(press(&page_of(&second), "complete").await.status, 200);
    let paid = retrieve(&client, &id).await;
    assert_eq!(paid["status"], "succeeded");
    // When its record has expired, the state of the intent alone is the guard.
    server.database.expire_records().await;
    for outcome in ["complete", "fail"] {
        assert_eq!(press(&page_of(&second), outcome).await.status, 410);
    }
    // What has become of the intent comes before what has become of its method, which is used up.
    for (verb, body) in [("confirm", json!({})), ("", json!({"amount": 2000}))] {
        let refused = act(&client, &id, verb, body).await;
        assert_eq!(refused.code(), "payment_intent_unexpected_state");
    }
    assert_eq!(retrieve(&client, &id).await, paid);
    assert_eq!(server.database.charges().await, 1);
}

/// Each rule, and below it what it alone refuses.
const BREACHES: &str = "
an_intent_is_1_to_99999999
  payment_intents SET amount = 0 WHERE status = 'requires_confirmation';
  payment_intents SET amount = 100000000 WHERE status = 'requires_confirmation';
an_intent_currency_is_three_lower_case_letters
  payment_intents SET currency = 'USD' WHERE status = 'requires_confirmation';
an_intent_status_is_known
  payment_intents SET status = 'paid' WHERE status = 'requires_confirmation';
an_intent_capture_method_is_known
  payment_intents SET capture_method = 'never' WHERE status = 'succeeded';
captured_and_released_money_is_what_was_authorized
  payment_intents SET amount_received = amount + 1 WHERE status = 'succeeded';
  payment_intents SET amount_received = 1 WHERE status = 'requires_capture';
only_a_paid_intent_has_a_charge
  payment_intents SET charge_id = NULL WHERE status = 'succeeded';
  payment_intents SET charge_id = (SELECT id FROM charges AS charge
    WHERE charge.account_id = payment_intents.account_id AND payment_intent_id IS NULL)
    WHERE status = 'requires_confirmation';
a_charge_pays_one_intent
  payment_intents SET charge_id = (SELECT other.charge_id FROM payment_intents AS other
    WHERE status = 'requires_capture') WHERE status = 'succeeded';
an_intent_is_paid_by_a_charge_of_its_own_account
  payment_intents SET charge_id = (SELECT id FROM charges AS charge
    WHERE charge.account_id <> payment_intents.account_id) WHERE status = 'succeeded';
an_intent_belongs_to_a_customer_of_its_own_account
  payment_intents SET customer_id = (SELECT id FROM customers
    WHERE customers.account_id <> payment_intents.account_id) WHERE status = 'succeeded';
an_intent_has_a_payment_method_of_its_own_account
  payment_intents SET payment_method_id = (SELECT id FROM payment_methods AS method
    WHERE method.account_id <> payment_intents.account_id LIMIT 1) WHERE status = 'succeeded';
a_canceled_intent_stays_canceled
  payment_intents SET canceled_at = now() WHERE status = 'requires_confirmation';
  payment_intents SET canceled_at = NULL WHERE status = 'canceled';
only_a_canceled_intent_is_released
  payment_intents SET released = true WHERE status = 'succeeded';
an_intent_that_is_asked_for_money_has_a_payment_method
  payment_intents SET payment_method_id = NULL WHERE status = 'succeeded';
only_an_intent_that_requires_action_has_a_page
  payment_intents SET holder_page_url = NULL WHERE status = 'requires_action';
  payment_intents SET holder_page_url = 'x' WHERE status = 'succeeded';
only_a_processing_intent_remembers_its_status
  payment_intents SET status_before = 'requires_confirmation' WHERE status = 'succeeded';
a_charge_of_an_intent_has_a_payment_method
  charges SET payment_method_id = NULL WHERE payment_intent_id IS NOT NULL;
a_charge_pays_an_intent_of_its_own_account
  charges SET payment_method_id = gen_random_uuid(), payment_intent_id =
    (SELECT id FROM payment_intents AS intent
    WHERE intent.account_id <> charges.account_id AND status = 'requires_confirmation')
    WHERE payment_intent_id IS NULL;
an_intent_has_one_succeeded_charge
  charges SET payment_method_id = gen_random_uuid(), payment_intent_id =
    (SELECT id FROM payment_intents AS intent
    WHERE intent.account_id = charges.account_id AND status = 'succeeded')
    WHERE payment_intent_id IS NULL;
a_setup_intent_status_is_known
  setup_intents SET status = 'ready' WHERE status = 'succeeded';
a_setup_intent_usage_is_known
  setup_intents SET usage = 'never' WHERE status = 'succeeded';
a_setup_intent_that_has_one_has_a_payment_method
  setup_intents SET payment_method_id = NULL WHERE status = 'succeeded';
only_a_setup_intent_that_requires_action_has_a_page
  setup_intents SET holder_page_url = NULL WHERE status = 'requires_action';
  setup_intents SET holder_page_url = 'x' WHERE status = 'succeeded';
a_setup_intent_belongs_to_a_customer_of_its_own_account
  setup_intents SET customer_id = (SELECT id FROM customers
    WHERE customers.account_id <> setup_intents.account_id) WHERE status = 'succeeded';
a_setup_intent_has_a_payment_method_of_its_own_account
  setup_intents SET payment_method_id = (SELECT id FROM payment_methods AS method
    WHERE method.account_id <> setup_intents.account_id LIMIT 1) WHERE status = 'succeeded';";

/// Each rule is also taken away, and the same statement then passes: no other rule stands in for
/// it.
#[tokio::test]
async fn each_rule_of_the_schema_alone_refuses_what_breaks_it() {
    let (server, client) = TestServer::with_client(&[]).await;
    for status in STATUSES {
        standing(&client, status).await;
    }
    client.charge("key-1").await;
    for card in ["pm_card_visa", SETUP] {
        let setup = json!({
            "payment_method": card, "confirm": true, "payment_method_types": ["card"],
        });
        client.post_new("/setup_intents", &setup).await;
    }
    let other = client_of_account(&server, "other").await;
    other.charge("key-1").await;
    other.post_new("/customers", &json!({})).await;
    standing(&other, "requires_confirmation").await;

    // Of one account: what the other one has is only referred to.
    let own = "account_id = (SELECT account_id FROM payment_intents WHERE status = 'canceled')";
    let mut connection = server.database.pool.acquire().await.unwrap();
    let mut rule = "";
    for breach in BREACHES.split_terminator(';') {
        let mut change = breach.trim();
        if !breach.starts_with("\n  ") {
            (rule, change) = change.split_once("\n  ").unwrap();
        }
        let (table, _) = change.split_once(' ').unwrap();
        let statement = format!("UPDATE {change} AND {table}.{own}");
        let run = async |tx: &mut PgConnection| {
            let statement = sqlx::query(AssertSqlSafe(statement.clone()));
            statement.execute(tx).await
        };
        let mut tx = connection.begin().await.unwrap();
        // Some wait for COMMIT.
        let at_once = sqlx::query("SET CONSTRAINTS ALL IMMEDIATE");
        at_once.execute(&mut *tx).await.unwrap();
        let error = run(&mut tx).await.expect_err(rule);
        assert_eq!(violated(&error), Some(rule), "{statement}: {error}");
        tx.rollback().await.unwrap();

        let mut tx = connection.begin().await.unwrap();
        let drop = match rule {
            "an_intent_has_one_succeeded_charge" => format!("DROP INDEX {rule}"),
            _ => format!("ALTER TABLE {table} DROP CONSTRAINT {rule} CASCADE"),
        };
        let drop = sqlx::query(AssertSqlSafe(drop));
        drop.execute(&mut *tx).await.unwrap();
        let passed = run(&mut tx).await;
        let passed = passed.unwrap_or_else(|error| panic!("{rule} is not alone: {error}"));
        assert!(passed.rows_affected() > 0, "{statement}");
        tx.rollback().await.unwrap();
    }
}
