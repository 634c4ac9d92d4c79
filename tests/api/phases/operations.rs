//! What is past the processor's memory of keys: never sent again, only looked up, and resolved by a
//! person.

use std::process::Output;

use crate::support::{
    intents::{act, create, path, retrieve, standing},
    prelude::*,
};

/// `charge-once operations …`
fn operations(database: &TestDatabase, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_charge-once"));
    command
        .arg("operations")
        .args(arguments)
        .env("DATABASE_URL", &database.url)
        .env("DEV_API_KEY", API_KEY)
        .env("RUST_LOG", "error");
    command
}

/// `charge-once operations resolve`, beside the processor that was asked.
fn resolve(world: &World, id: Uuid, word: &str) -> Output {
    let id = id.to_string();
    operations(&world.database, &["resolve", &id, word, "--by", "Ada"])
        .env("PROCESSOR_URL", world.processor.url())
        .output()
        .unwrap()
}

fn resolved(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

/// What a refusal says.
fn refused(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The words that were kept: what was said, by whom, and of which verb.
async fn words(database: &TestDatabase) -> Vec<(String, String, String)> {
    sqlx::query_as("SELECT resolution, resolved_by, operation ->> 'verb' FROM manual_resolutions")
        .fetch_all(&database.pool)
        .await
        .unwrap()
}

fn word(word: &str) -> Vec<(String, String, String)> {
    let said = [word, "Ada", "create_charge"].map(str::to_owned);
    vec![said.into()]
}

fn charge(card: &str) -> Value {
    json!({"amount": 2000, "currency": "usd", "source": card})
}

/// The operations that are listed: their ids, and what is said of them.
fn listed(database: &TestDatabase) -> Vec<(Uuid, String)> {
    let output = operations(database, &["list"]).output().unwrap();
    resolved(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let (id, about) = line.split_once("  ").unwrap();
            (id.parse().unwrap(), about.to_owned())
        })
        .collect()
}

/// A charge that was asked for a day ago and whose outcome is unknown. The reconciler pauses longer
/// than a test runs by then.
async fn in_doubt_for_a_day(fault: &str) -> (World, Uuid) {
    in_doubt_for_a_day_by(fault, "tok_visa").await
}

async fn in_doubt_for_a_day_by(fault: &str, card: &str) -> (World, Uuid) {
    let world = World::new().await;
    world.processor.set_fault(json!({"fault": fault})).await;
    let answer = world
        .client()
        .post("/charges", "key-1", &charge(card))
        .await;
    assert_eq!(answer.status, 503);
    let id = a_day_later(&world).await;
    let [(listed, about)] = listed(&world.database).try_into().unwrap();
    assert_eq!(listed, id);
    assert!(
        about.contains("create_charge") && about.contains("in doubt"),
        "{about}"
    );
    let output = operations(&world.database, &["list", "--json"]).output();
    let list: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let [operation] = list["operations"].as_array().unwrap().as_slice() else {
        panic!("{list}");
    };
    assert_eq!(operation["operation"], id.to_string());
    assert_eq!(operation["kind"], "create_charge");
    assert_eq!(operation["in_doubt"], true);
    assert_eq!(list["refused_refunds"], json!([]));
    (world, id)
}

/// Makes the operation that waits as old as if it had been tried all day. Returns its id.
async fn a_day_later(world: &World) -> Uuid {
    sqlx::query(
        "UPDATE idempotency_leases SET takeovers = 10, recover_after = now() + interval '5 minutes'",
    )
    .execute(&world.database.pool)
    .await
    .unwrap();
    sqlx::query_scalar(
        "UPDATE operations SET created_at = now() - interval '24 hours'
          WHERE completed_at IS NULL RETURNING id",
    )
    .fetch_one(&world.database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn past_the_window_an_operation_is_looked_up_and_never_sent_again() {
    let (world, _) = in_doubt_for_a_day("drop_before").await;
    for _ in 0..2 {
        assert_eq!(world.client().charge("key-1").await.status, 503);
    }
    assert_eq!(world.processor.lines().await, 0);
    assert_eq!(world.in_flight().await, 1);

    let (world, _) = in_doubt_for_a_day("drop_after").await;
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("looked up").await;
}

#[tokio::test]
async fn a_person_resolves_what_was_never_executed_and_the_key_is_free() {
    let (world, id) = in_doubt_for_a_day("drop_before").await;
    resolved(&resolve(&world, id, "not-executed"));
    assert_eq!(listed(&world.database), []);
    assert_eq!(world.database.charges().await, 0);
    // All that is left of it.
    assert_eq!(words(&world.database).await, word("not_executed"));
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("resolved by hand").await;
}

#[tokio::test]
async fn a_person_s_word_is_an_answer_like_the_processor_s_and_is_kept() {
    for (said, status) in [("done", 201), ("declined", 402)] {
        let (world, id) = in_doubt_for_a_day("drop_before").await;
        resolved(&resolve(&world, id, said));
        let answer = world.client().charge("key-1").await;
        assert_eq!(answer.status, status, "{said}");
        assert!(answer.is_replay());
        assert_eq!(world.processor.lines().await, 0);
        assert_eq!(words(&world.database).await, word(said));
    }
}

#[tokio::test]
async fn an_intent_whose_capture_or_cancellation_is_declined_is_as_it_was_and_told_whole() {
    let world = World::new().await;
    let client = world.client();
    let id = standing(&client, "requires_capture").await;
    let before = retrieve(&client, &id).await;
    for (verb, body) in [
        (
            "capture",
            json!({"metadata": {"shipped": "yes"}, "statement_descriptor_suffix": "SPRING"}),
        ),
        ("cancel", json!({"cancellation_reason": "abandoned"})),
    ] {
        let fault = json!({"fault": "drop_before"});
        world.processor.set_fault(fault).await;
        let path = format!("/payment_intents/{id}/{verb}");
        assert_eq!(client.post(&path, verb, &body).await.status, 503);
        let operation = a_day_later(&world).await;
        resolved(&resolve(&world, operation, "declined"));
        let declined = client.post(&path, verb, &body).await;
        assert_eq!(declined.status, 402, "{verb}");
        let error = &declined.json()["error"];
        assert_eq!(error["payment_intent"], before, "{verb}");
        assert_eq!(error["payment_method"]["id"], before["payment_method"]);
        let message = error["message"].as_str().unwrap();
        assert!(
            message.ends_with("needs a new idempotency key."),
            "{message}"
        );
        assert_eq!(retrieve(&client, &id).await, before, "{verb}");
    }
}

/// What the release before kept of an intent while a processor was asked: these columns of its row.
const KEPT_BEFORE: &str = "
    UPDATE payment_intents
       SET before_operation = (
           SELECT json_object_agg(key, value)
             FROM json_each(before_operation)
            WHERE key IN ('cancellation_reason', 'capture_method', 'holder_page_url',
                          'is_authenticated', 'last_payment_error', 'latest_charge_id', 'metadata',
                          'receipt_email', 'request_three_d_secure', 'return_url',
                          'setup_future_usage', 'shipping', 'statement_descriptor_suffix',
                          'status'))
     WHERE before_operation IS NOT NULL";

/// How that release made an intent what it was.
const RESTORED_BEFORE: &str = "
    UPDATE payment_intents
       SET (cancellation_reason, capture_method, holder_page_url, is_authenticated,
            last_payment_error, latest_charge_id, metadata, receipt_email, request_three_d_secure,
            return_url, setup_future_usage, shipping, statement_descriptor_suffix, status)
           = (SELECT kept.cancellation_reason, kept.capture_method, kept.holder_page_url,
                     kept.is_authenticated, kept.last_payment_error, kept.latest_charge_id,
                     kept.metadata, kept.receipt_email, kept.request_three_d_secure,
                     kept.return_url, kept.setup_future_usage, kept.shipping,
                     kept.statement_descriptor_suffix, kept.status
                FROM json_populate_record(payment_intents, before_operation) AS kept),
           status_before = NULL, before_operation = NULL
     WHERE before_operation IS NOT NULL";

/// Replicas of two releases run side by side while one replaces the other.
#[tokio::test]
async fn an_intent_is_as_it_was_whichever_release_kept_it_and_whichever_restores_it() {
    let world = World::new().await;
    let (client, pool) = (world.client(), &world.database.pool);
    let id = create(&client, json!({})).await.id();
    let declining = json!({"payment_method": "pm_card_chargeDeclined"});
    act(&client, &id, "confirm", declining).await;
    let before = client.get(&path(&id, "")).await;
    assert_eq!(before.json()["last_payment_error"]["code"], "card_declined");
    const ROW: &str = "SELECT concat_ws(' ', status, capture_method, receipt_email, shipping,
                                        last_payment_error::text) FROM payment_intents";
    let row: String = sqlx::query_scalar(ROW).fetch_one(pool).await.unwrap();
    let body = json!({
        "payment_method": "pm_card_visa", "capture_method": "manual",
        "receipt_email": "anna@example.com", "shipping": {"name": "Anna", "address": {}},
    });
    let lose_it = async |key| {
        let fault = json!({"fault": "drop_before"});
        world.processor.set_fault(fault).await;
        let lost = client.post(&path(&id, "confirm"), key, &body).await;
        assert_eq!(lost.status, 503);
        assert_ne!(client.get(&path(&id, "")).await.body, before.body);
        a_day_later(&world).await
    };

    let operation = lose_it("kept-by-the-release-before").await;
    sqlx::query(KEPT_BEFORE).execute(pool).await.unwrap();
    resolved(&resolve(&world, operation, "not-executed"));
    assert_eq!(client.get(&path(&id, "")).await.body, before.body);

    lose_it("restored-by-the-release-before").await;
    let mut tx = pool.begin().await.unwrap();
    sqlx::query(RESTORED_BEFORE)
        .execute(&mut *tx)
        .await
        .unwrap();
    let restored: String = sqlx::query_scalar(ROW).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(restored, row);
}

/// The decline changes nothing of the charge: all that is written is the answer.
#[tokio::test]
async fn a_capture_that_the_processor_declines_is_over_and_the_charge_is_free() {
    let world = World::new().await;
    let client = world.client();
    let promise =
        json!({"amount": 2000, "currency": "usd", "source": "tok_visa", "capture": false});
    let id = client.post_new("/charges", &promise).await.id();
    let took = "UPDATE processor.charges SET released = authorized";
    let pool = &world.processor.database.pool;
    sqlx::query(took).execute(pool).await.unwrap();
    let path = format!("/charges/{id}/capture");
    for is_replay in [false, true] {
        let declined = client.post(&path, "capture", &json!({})).await;
        assert_eq!(declined.status, 402);
        assert_eq!(declined.is_replay(), is_replay);
    }
    assert_eq!(listed(&world.database), []);
    assert_eq!(world.in_flight().await, 0);
    let words = json!({"description": "free"});
    let updated = client.post_new(&format!("/charges/{id}"), &words).await;
    assert_eq!(updated.status, 200);
    let back = "UPDATE processor.charges SET released = 0";
    sqlx::query(back).execute(pool).await.unwrap();
    let captured = client.post(&path, "again", &json!({})).await;
    assert_eq!(captured.status, 200);
}

#[tokio::test]
async fn no_word_is_taken_against_the_processor_s_own() {
    let card = "tok_chargeDeclinedInsufficientFunds";
    for (card, says, others) in [
        ("tok_visa", "done", ["declined", "not-executed"]),
        (card, "declined", ["done", "not-executed"]),
    ] {
        let (world, id) = in_doubt_for_a_day_by("drop_after", card).await;
        for other in others {
            let refusal = refused(resolve(&world, id, other));
            assert!(refusal.contains(&format!("says \"{says}\"")), "{refusal}");
        }
        assert_eq!(world.in_flight().await, 1);
        assert_eq!(words(&world.database).await, []);
        resolved(&resolve(&world, id, says));
        let body = charge(card);
        let answer = world.client().post("/charges", "key-1", &body).await;
        assert!(answer.is_replay());
        // The processor's reason, where a person knows none.
        let reason = &answer.json()["error"]["decline_code"];
        let reasons = [
            ("done", Value::Null),
            ("declined", "insufficient_funds".into()),
        ];
        assert!(reasons.contains(&(says, reason.clone())), "{reason}");
        world.assert_the_ledgers_agree(says).await;
    }
}

#[tokio::test]
async fn a_person_s_word_is_enough_where_the_processor_that_was_asked_is_gone() {
    let (world, id) = in_doubt_for_a_day("drop_after").await;
    let id = id.to_string();
    let arguments = ["resolve", &id, "done", "--by", "Ada"];
    // From a shell that doesn't have the servers' settings, or has another's.
    for url in ["", "http://127.0.0.1:9"] {
        let without = operations(&world.database, &arguments)
            .env("PROCESSOR_URL", url)
            .output();
        let refusal = refused(without.unwrap());
        assert!(refusal.contains("PROCESSOR_NAME"), "{refusal}");
        assert!(refusal.contains(&world.processor.url()), "{refusal}");
    }
    // Nothing answers there, and the name says that it is the one that was asked.
    let other = operations(&world.database, &arguments)
        .env("PROCESSOR_URL", "http://127.0.0.1:9")
        .env("PROCESSOR_NAME", world.processor.url())
        .output();
    resolved(&other.unwrap());
    assert_eq!(world.client().charge("key-1").await.status, 201);
    world.assert_the_ledgers_agree("by another's word").await;
}

#[tokio::test]
async fn nothing_is_resolved_by_hand_that_is_young_unknown_done_or_at_work() {
    let (world, id) = in_doubt_for_a_day("drop_before").await;
    let aged = |age: &'static str| {
        sqlx::query("UPDATE operations SET created_at = now() - $1::interval")
            .bind(age)
            .execute(&world.database.pool)
    };
    aged("59 minutes").await.unwrap();
    assert!(refused(resolve(&world, id, "done")).contains("younger than an hour"));
    aged("61 minutes").await.unwrap();
    let unknown = refused(resolve(&world, Uuid::now_v7(), "done"));
    assert!(unknown.contains("no such operation in flight"));
    sqlx::query("UPDATE idempotency_leases SET leased_until = now() + interval '1 minute'")
        .execute(&world.database.pool)
        .await
        .unwrap();
    assert!(refused(resolve(&world, id, "done")).contains("at work on it"));
    assert_eq!(world.in_flight().await, 1);
    assert_eq!(words(&world.database).await, []);
    sqlx::query("UPDATE idempotency_leases SET leased_until = now()")
        .execute(&world.database.pool)
        .await
        .unwrap();
    resolved(&resolve(&world, id, "done"));
    refused(resolve(&world, id, "done"));
}

#[tokio::test]
async fn what_may_still_arrive_is_not_resolved_as_if_it_never_would() {
    let world = World::new().await;
    // The last attempt of many hangs in the network, and the processor doesn't know of it.
    let late = json!({"fault": "delay_arrival", "milliseconds": 60_000});
    world.processor.set_fault(late).await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let id = a_day_later(&world).await;
    let aged = |age: &'static str| {
        sqlx::query("UPDATE operations SET created_at = now() - $1::interval")
            .bind(age)
            .execute(&world.database.pool)
    };
    for age in ["2 hours", "23 hours"] {
        aged(age).await.unwrap();
        for word in ["not-executed", "declined"] {
            let refusal = refused(resolve(&world, id, word));
            assert!(refusal.contains("may have been sent"), "{refusal}");
        }
    }
    assert_eq!(world.in_flight().await, 1);
    assert_eq!(words(&world.database).await, []);
    // It arrives, and the key that was kept says so.
    world.processor.reset_faults().await;
    eventually("it has arrived", || async {
        world.processor.lines().await == 1
    })
    .await;
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("late").await;
}

#[tokio::test]
async fn a_word_has_a_name() {
    let database = TestDatabase::create().await;
    let id = Uuid::now_v7().to_string();
    let nobody = operations(&database, &["resolve", &id, "done"]).output();
    assert_eq!(nobody.unwrap().status.code(), Some(2));
    for name in ["", " ", &"a".repeat(101)] {
        let arguments = ["resolve", &id, "done", "--by", name];
        let output = operations(&database, &arguments).output().unwrap();
        assert!(refused(output).contains("--by must have"), "{name:?}");
    }
}

#[tokio::test]
async fn what_no_command_of_this_release_begins_is_never_sent() {
    let world = World::new().await;
    let (client, pool) = (world.client(), &world.database.pool);
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 1}]});
    assert_eq!(client.post_new("/orders", &order).await.status, 201);
    let promised =
        json!({"amount": 2000, "currency": "usd", "source": "tok_visa", "capture": false});
    let id = client.post_new("/charges", &promised).await.id();
    let capture = format!("/charges/{id}/capture");
    world
        .processor
        .set_fault(json!({"fault": "drop_before"}))
        .await;
    assert_eq!(client.post(&capture, "key-1", &json!({})).await.status, 503);
    world.processor.reset_faults().await;

    // A newer release may capture for an order, and this one runs beside it.
    let newer =
        "UPDATE operations SET order_id = (SELECT id FROM orders) WHERE completed_at IS NULL";
    sqlx::query(newer).execute(pool).await.unwrap();
    let before = world.processor.lines().await;
    for _ in 0..2 {
        let answer = client.post(&capture, "key-1", &json!({})).await;
        assert!(answer.status.is_server_error(), "{answer:?}");
    }
    assert_eq!(world.processor.lines().await, before);
    assert_eq!(world.in_flight().await, 1);

    let known = "UPDATE operations SET order_id = NULL WHERE completed_at IS NULL";
    sqlx::query(known).execute(pool).await.unwrap();
    let captured = client.post(&capture, "key-1", &json!({})).await;
    assert_eq!(captured.status, 200);
    assert_eq!(world.processor.lines().await, before + 1);
    world.assert_the_ledgers_agree("known again").await;
}

#[tokio::test]
async fn what_is_not_as_it_was_written_down_is_not_undone_and_frees_no_key() {
    for tampered in [
        "UPDATE operations SET completed_at = now(), outcome = 'done'",
        "UPDATE charges SET status = 'succeeded', captured = true, amount_captured = amount",
    ] {
        let (world, id) = in_doubt_for_a_day("drop_before").await;
        is_not_undone(&world, id, tampered).await;
        assert_eq!(world.database.charges().await, 1, "{tampered}");
    }
    let world = World::new().await;
    let id = world
        .client()
        .post_new("/charges", &charge("tok_visa"))
        .await
        .id();
    world
        .processor
        .set_fault(json!({"fault": "drop_before"}))
        .await;
    let body = json!({"charge": id});
    assert_eq!(
        world.client().post("/refunds", "key-1", &body).await.status,
        503
    );
    let id = a_day_later(&world).await;
    is_not_undone(&world, id, "UPDATE refunds SET status = 'succeeded'").await;
}

async fn is_not_undone(world: &World, id: Uuid, tampered: &'static str) {
    world.database.is_left_broken(tampered);
    sqlx::query(tampered)
        .execute(&world.database.pool)
        .await
        .unwrap();
    let refusal = refused(resolve(world, id, "not-executed"));
    assert!(
        refusal.contains("nothing was resolved") && refusal.contains("`charge-once check`"),
        "{refusal}"
    );
    assert_eq!(world.in_flight().await, 1, "{tampered}");
    assert_eq!(words(&world.database).await, [], "{tampered}");
}
