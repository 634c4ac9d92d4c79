//! What is past the processor's memory of keys: never sent again, only looked up, and resolved by a
//! person.

use crate::support::{
    intents::{act, create, path, retrieve, standing},
    prelude::*,
    program::{self, Run, operations},
    resources::uncaptured,
};

fn resolve(world: &World, id: Uuid, word: &str) -> Run {
    program::resolve(&world.database, &world.processor, id, word)
}

/// The words that were kept: what was said, by whom, and of which verb.
async fn words(database: &TestDatabase) -> Vec<(String, String, String)> {
    let words = "SELECT resolution, resolved_by, operation ->> 'verb' FROM manual_resolutions";
    let words = sqlx::query_as(words).fetch_all(&database.pool);
    words.await.unwrap()
}

fn word(word: &str) -> Vec<(String, String, String)> {
    vec![[word, "Ada", "create_charge"].map(str::to_owned).into()]
}

fn charge(card: &str) -> Value {
    json!({"amount": 2000, "currency": "usd", "source": card})
}

/// The operations that are listed: their ids, and what is said of them.
fn listed(database: &TestDatabase) -> Vec<(Uuid, String)> {
    let text = operations(database, &["list"], &[]).succeeded();
    let lines = text.lines().map(|line| line.split_once("  ").unwrap());
    lines
        .map(|(id, about)| (id.parse().unwrap(), about.to_owned()))
        .collect()
}

/// A charge that was asked for a day ago and whose outcome is unknown. The reconciler pauses longer
/// than a test runs by then.
async fn in_doubt_for_a_day(fault: &str) -> (World, Uuid) {
    in_doubt_for_a_day_by(fault, "tok_visa").await
}

async fn in_doubt_for_a_day_by(fault: &str, card: &str) -> (World, Uuid) {
    let world = World::new().await;
    world.set_fault(json!({"fault": fault})).await;
    let body = charge(card);
    let answer = world.client().post("/charges", "key-1", &body).await;
    assert_eq!(answer.status, 503);
    let id = world.database.a_day_later().await;
    let [(listed, about)] = listed(&world.database).try_into().unwrap();
    assert_eq!(listed, id);
    for words in ["create_charge", "in doubt"] {
        assert!(about.contains(words), "{about}");
    }
    let list = operations(&world.database, &["list", "--json"], &[]);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let [operation] = list["operations"].as_array().unwrap().as_slice() else {
        panic!("{list}");
    };
    operation.assert_shows(json!({"operation": id, "kind": "create_charge", "in_doubt": true}));
    assert_eq!(list["refused_refunds"], json!([]));
    (world, id)
}

/// Makes all operations that old.
async fn age(world: &World, age: &str) {
    let sql = format!("UPDATE operations SET created_at = now() - interval '{age}'");
    world.database.execute(sql).await;
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
    resolve(&world, id, "not-executed").succeeded();
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
        resolve(&world, id, said).succeeded();
        let answer = world.client().charge("key-1").await;
        assert_eq!(answer.status, status, "{said}");
        assert!(answer.is_replay());
        assert_eq!(world.processor.lines().await, 0);
        assert_eq!(words(&world.database).await, word(said));
    }
}

#[tokio::test]
async fn an_intent_whose_capture_or_cancellation_is_declined_is_as_it_was_and_told_whole() {
    let (world, client) = World::with_client().await;
    let id = standing(&client, "requires_capture").await;
    let before = retrieve(&client, &id).await;
    let capture = json!({"metadata": {"shipped": "yes"}, "statement_descriptor_suffix": "SPRING"});
    for (verb, body) in [
        ("capture", capture),
        ("cancel", json!({"cancellation_reason": "abandoned"})),
    ] {
        world.set_fault(json!({"fault": "drop_before"})).await;
        let path = format!("/payment_intents/{id}/{verb}");
        assert_eq!(client.post(&path, verb, &body).await.status, 503);
        let operation = world.database.a_day_later().await;
        resolve(&world, operation, "declined").succeeded();
        let declined = client.post(&path, verb, &body).await;
        assert_eq!(declined.status, 402, "{verb}");
        let error = &declined.json()["error"];
        assert_eq!(error["payment_intent"], before, "{verb}");
        assert_eq!(error["payment_method"]["id"], before["payment_method"]);
        assert_eq!(error["message"], "Your card was declined.");
        assert_eq!(
            error["advice"],
            "Another attempt needs a new idempotency key."
        );
        assert_eq!(retrieve(&client, &id).await, before, "{verb}");
    }
}

/// What a program before `details` kept of an intent while a processor was asked, and its row.
const KEPT_BEFORE: &str = "
    UPDATE payment_intents
       SET description = details->>'description', receipt_email = details->>'receipt_email',
           shipping = nullif(details->'shipping', 'null'), details = NULL,
           before_operation = (
           SELECT json_object_agg(key, value)
             FROM (SELECT *
                     FROM json_each(before_operation)
                    WHERE key IN ('cancellation_reason', 'capture_method', 'holder_page_url',
                                  'is_authenticated', 'last_payment_error', 'latest_charge_id',
                                  'metadata', 'request_three_d_secure', 'return_url',
                                  'setup_future_usage', 'status')
                    UNION ALL
                   SELECT * FROM json_each(before_operation->'details')) AS kept)
     WHERE before_operation IS NOT NULL";

#[tokio::test]
async fn an_intent_is_as_it_was_whichever_program_kept_it() {
    let (world, client) = World::with_client().await;
    let described = json!({"description": "Two mugs"});
    let id = create(&client, described).await.id();
    let declining = json!({"payment_method": "pm_card_chargeDeclined"});
    act(&client, &id, "confirm", declining).await;
    let before = client.get(&path(&id, "")).await;
    assert_eq!(before.json()["last_payment_error"]["code"], "card_declined");
    let body = json!({
        "payment_method": "pm_card_visa", "capture_method": "manual",
        "receipt_email": "anna@example.com", "shipping": {"name": "Anna", "address": {}},
    });
    for kept in [KEPT_BEFORE, "SELECT"] {
        world.set_fault(json!({"fault": "drop_before"})).await;
        let lost = client.post_new(&path(&id, "confirm"), &body).await;
        assert_eq!(lost.status, 503);
        world.database.execute(kept).await;
        let meanwhile = client.get(&path(&id, "")).await.json();
        assert_eq!(meanwhile["status"], "processing", "{kept}");
        assert_eq!(meanwhile["receipt_email"], "anna@example.com", "{kept}");
        assert_eq!(meanwhile["shipping"]["name"], "Anna", "{kept}");
        let operation = world.database.a_day_later().await;
        resolve(&world, operation, "not-executed").succeeded();
        assert_eq!(client.get(&path(&id, "")).await.body, before.body, "{kept}");
    }
}

/// The decline changes nothing of the charge: all that is written is the answer.
#[tokio::test]
async fn a_capture_that_the_processor_declines_is_over_and_the_charge_is_free() {
    let (world, client) = World::with_client().await;
    let id = uncaptured(&client).await;
    let books = &world.processor.database;
    let took = "UPDATE processor.charges SET released = authorized";
    books.execute(took).await;
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
    books.execute(back).await;
    let captured = client.post(&path, "again", &json!({})).await;
    assert_eq!(captured.status, 200);
}

#[tokio::test]
async fn no_word_is_taken_against_the_processor_s_own() {
    let declining = "tok_chargeDeclinedInsufficientFunds";
    let reason: Value = "insufficient_funds".into();
    for (card, says, other, reason) in [
        ("tok_visa", "done", "declined", Value::Null),
        (declining, "declined", "done", reason),
    ] {
        let (world, id) = in_doubt_for_a_day_by("drop_after", card).await;
        for other in [other, "not-executed"] {
            let refusal = resolve(&world, id, other).failed(1);
            assert!(refusal.contains(&format!("says \"{says}\"")), "{refusal}");
        }
        assert_eq!(world.in_flight().await, 1);
        assert_eq!(words(&world.database).await, []);
        resolve(&world, id, says).succeeded();
        let body = charge(card);
        let answer = world.client().post("/charges", "key-1", &body).await;
        assert!(answer.is_replay());
        // The processor's reason, where a person knows none.
        assert_eq!(answer.json()["error"]["decline_code"], reason, "{says}");
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
        let without = operations(&world.database, &arguments, &[("PROCESSOR_URL", url)]);
        let refusal = without.failed(1);
        assert!(refusal.contains("PROCESSOR_NAME"), "{refusal}");
        assert!(refusal.contains(&world.processor.url()), "{refusal}");
    }
    // Nothing answers there, and the name says that it is the one that was asked.
    let name = world.processor.url();
    let other = [
        ("PROCESSOR_URL", "http://127.0.0.1:9"),
        ("PROCESSOR_NAME", &name),
    ];
    operations(&world.database, &arguments, &other).succeeded();
    assert_eq!(world.client().charge("key-1").await.status, 201);
    world.assert_the_ledgers_agree("by another's word").await;
}

#[tokio::test]
async fn nothing_is_resolved_by_hand_that_is_young_unknown_done_or_at_work() {
    let (world, id) = in_doubt_for_a_day("drop_before").await;
    age(&world, "59 minutes").await;
    assert!(
        resolve(&world, id, "done")
            .failed(1)
            .contains("younger than an hour")
    );
    age(&world, "61 minutes").await;
    let unknown = resolve(&world, Uuid::now_v7(), "done").failed(1);
    assert!(unknown.contains("no such operation in flight"));
    let sql = "UPDATE idempotency_leases SET leased_until = now() + interval '1 minute'";
    world.database.execute(sql).await;
    assert!(
        resolve(&world, id, "done")
            .failed(1)
            .contains("at work on it")
    );
    assert_eq!(world.in_flight().await, 1);
    assert_eq!(words(&world.database).await, []);
    let sql = "UPDATE idempotency_leases SET leased_until = now()";
    world.database.execute(sql).await;
    resolve(&world, id, "done").succeeded();
    resolve(&world, id, "done").failed(1);
}

#[tokio::test]
async fn what_may_still_arrive_is_not_resolved_as_if_it_never_would() {
    let world = World::new().await;
    // The last attempt of many hangs in the network, and the processor doesn't know of it.
    world.set_delay("delay_arrival").await;
    assert_eq!(world.client().charge("key-1").await.status, 503);
    let id = world.database.a_day_later().await;
    for hours in ["2 hours", "23 hours"] {
        age(&world, hours).await;
        for word in ["not-executed", "declined"] {
            let refusal = resolve(&world, id, word).failed(1);
            assert!(refusal.contains("may have been sent"), "{refusal}");
        }
    }
    assert_eq!(world.in_flight().await, 1);
    assert_eq!(words(&world.database).await, []);
    // It arrives, and the key that was kept says so.
    world.processor.reset_faults().await;
    world.processor.reaches_lines(1).await;
    assert_eq!(world.client().charge("key-1").await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("late").await;
}

#[tokio::test]
async fn a_word_has_a_name() {
    let database = TestDatabase::create().await;
    let id = Uuid::now_v7().to_string();
    operations(&database, &["resolve", &id, "done"], &[]).failed(2);
    for name in ["", " ", &"a".repeat(101)] {
        let arguments = ["resolve", &id, "done", "--by", name];
        let refusal = operations(&database, &arguments, &[]).failed(1);
        assert!(refusal.contains("--by must have"), "{name:?}");
    }
}

#[tokio::test]
async fn what_no_command_of_this_release_begins_is_never_sent() {
    let (world, client) = World::with_client().await;
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 1}]});
    assert_eq!(client.post_new("/orders", &order).await.status, 201);
    let capture = format!("/charges/{}/capture", uncaptured(&client).await);
    world.set_fault(json!({"fault": "drop_before"})).await;
    assert_eq!(client.post(&capture, "key-1", &json!({})).await.status, 503);
    world.processor.reset_faults().await;

    // A newer release may capture for an order, and this one runs beside it.
    let newer =
        "UPDATE operations SET order_id = (SELECT id FROM orders) WHERE completed_at IS NULL";
    world.database.execute(newer).await;
    let before = world.processor.lines().await;
    for _ in 0..2 {
        let answer = client.post(&capture, "key-1", &json!({})).await;
        assert!(answer.status.is_server_error(), "{answer:?}");
    }
    assert_eq!(world.processor.lines().await, before);
    assert_eq!(world.in_flight().await, 1);
    let known = "UPDATE operations SET order_id = NULL WHERE completed_at IS NULL";
    world.database.execute(known).await;
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
    let body = json!({"charge": world.client().charge("charge").await.id()});
    world.set_fault(json!({"fault": "drop_before"})).await;
    let lost = world.client().post("/refunds", "key-1", &body).await;
    assert_eq!(lost.status, 503);
    let id = world.database.a_day_later().await;
    is_not_undone(&world, id, "UPDATE refunds SET status = 'succeeded'").await;
}

async fn is_not_undone(world: &World, id: Uuid, tampered: &'static str) {
    world.database.is_left_broken(tampered);
    world.database.execute(tampered).await;
    let refusal = resolve(world, id, "not-executed").failed(1);
    for words in ["nothing was resolved", "`charge-once check`"] {
        assert!(refusal.contains(words), "{refusal}");
    }
    assert_eq!(world.in_flight().await, 1, "{tampered}");
    assert_eq!(words(&world.database).await, [], "{tampered}");
}
