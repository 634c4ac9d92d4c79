//! `/checkouts`: an order, its charge and its items in one request.

use crate::support::{
    checkouts::{
        across_a_network, assert_sold_out, checkout_of, level, mugs_and_cups, steps,
        types_of_events,
    },
    prelude::*,
    processor,
    program::operations,
    racers::until_definite,
    resources::assert_is_created,
};

/// What the checkout names as its order, charge or refund.
async fn part(client: &Client, checkout: &Value, kind: &str) -> Value {
    let path = format!("/{kind}s/{}", checkout[kind].as_str().unwrap());
    client.get(&path).await.json()
}

#[tokio::test]
async fn a_checkout_creates_the_order_charges_it_and_allocates_the_items() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let made = client.post("/checkouts", "key-1", &checkout()).await;
    assert_is_created(&client, &made, "/checkouts", "co_").await;
    let body = made.json();
    body.assert_shows(json!({"status": "completed", "amount": 2400, "failure_code": null}));
    let expected = "create_order done 1, create_charge done 1, allocate_inventory done 1";
    assert_eq!(steps(&body).join(", "), expected);
    let order = part(&client, &body, "order").await;
    let charge = part(&client, &body, "charge").await;
    order.assert_shows(json!({
        "status": "paid", "charge": charge["id"], "metadata": {"cart": "7"},
    }));
    charge.assert_shows(json!({
        "status": "succeeded", "order": order["id"], "amount": 2400, "customer": "jenny",
    }));
    assert_eq!(level(&client, "mug").await, 3);
    let again = client.post("/checkouts", "key-1", &checkout()).await;
    again.assert_replays(&made);
    assert_eq!(level(&client, "mug").await, 3);
    let told = "order.created charge.succeeded order.paid checkout.completed";
    assert_eq!(types_of_events(&client).await.join(" "), told);
    // Events name what the client sent, not the keys of the steps.
    let events = client.get("/events").await.json();
    for event in events["data"].as_array().unwrap() {
        assert_eq!(event["request"]["idempotency_key"], "key-1");
        let original = made.header("original-request");
        assert_eq!(event["request"]["id"], original.unwrap());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_decline_cancels_the_order_and_is_stored() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let body = checkout_with("tok_chargeDeclinedInsufficientFunds");
    let declined = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(declined.status, 402);
    let error = &declined.json()["error"];
    error.assert_shows(json!({"code": "card_declined", "decline_code": "insufficient_funds"}));
    let replay = client.post("/checkouts", "key-1", &body).await;
    replay.assert_replays(&declined);
    let checkout = checkout_of(&client, "key-1").await;
    assert_eq!(checkout["status"], "canceled");
    assert_eq!(checkout["failure_code"], "card_declined");
    assert_eq!(checkout["charge"], error["charge"]);
    let expected = "create_order done 1, create_charge refused 1, allocate_inventory skipped 0, \
                    cancel_order done 1";
    assert_eq!(steps(&checkout).join(", "), expected);
    let order = part(&client, &checkout, "order").await;
    assert_eq!(order["status"], "canceled");
    assert_eq!(level(&client, "mug").await, 5);
    let told = "order.created charge.failed order.canceled checkout.canceled";
    assert_eq!(types_of_events(&client).await.join(" "), told);
    server.stop().await;
}

#[tokio::test]
async fn out_of_stock_gives_the_charge_back_cancels_the_order_and_is_stored() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    stock(&client, "cup", 1).await;
    let mut body = checkout();
    let cups = json!({"sku": "cup", "quantity": 2, "unit_amount": 300});
    body["items"].as_array_mut().unwrap().push(cups);
    let answer = client.post("/checkouts", "key-1", &body).await;
    let expected = refusal("out_of_stock", "items[1][quantity]");
    assert_eq!(answer.refusal(), expected);
    let replay = client.post("/checkouts", "key-1", &body).await;
    replay.assert_replays(&answer);
    // It isn't a failed one.
    assert_eq!(answer.json()["error"]["charge"], Value::Null);
    let checkout = checkout_of(&client, "key-1").await;
    checkout.assert_shows(json!({"status": "canceled", "failure_code": "out_of_stock"}));
    let expected = "create_order done 1, create_charge done 1, allocate_inventory refused 1, \
                    create_refund done 1, cancel_order done 1";
    assert_eq!(steps(&checkout).join(", "), expected);
    let order = part(&client, &checkout, "order").await;
    assert_eq!(order["status"], "canceled");
    let charge = part(&client, &checkout, "charge").await;
    charge.assert_shows(json!({"refunded": true, "amount_refunded": 3000}));
    let refund = part(&client, &checkout, "refund").await;
    assert_eq!(refund["amount"], 3000);
    // Not one of the items that were there is taken either.
    assert_eq!(level(&client, "mug").await, 5);
    assert_eq!(level(&client, "cup").await, 1);
    let told = "order.created charge.succeeded refund.created charge.refunded order.canceled \
                checkout.canceled";
    assert_eq!(types_of_events(&client).await.join(" "), told);
    server.stop().await;
}

#[tokio::test]
async fn wrong_parameters_are_stored_refusals_and_make_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let cases = json!([
        [{"currency": null}, "parameter_missing", "currency"],
        [{"items": []}, "parameter_invalid", "items"],
        [{"items": [{"quantity": 1, "unit_amount": 1}]}, "parameter_missing", "items[0][sku]"],
        [{"items": [{"sku": "mug", "quantity": 0, "unit_amount": 1}]}, "parameter_invalid",
         "items[0][quantity]"],
        [{"source": "tok_unknown"}, "parameter_invalid", "source"],
        [{"client_order_id": "7"}, "parameter_unknown", "client_order_id"],
    ]);
    let cases = differing_from(&checkout(), cases);
    assert_stores_refusals(&client, "/checkouts", cases).await;
    assert_eq!(server.database.count_of("checkouts").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn as_many_checkouts_complete_as_there_are_items_and_the_others_leave_nothing() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 10).await;
    stock(client, "cup", 10).await;
    // Half of them name the two in the other order. Locks are sorted, so no two deadlock.
    let answers = all_at_once(20, |index| {
        let (client, body) = (client.clone(), mugs_and_cups(index));
        async move { until_definite(&client, "/checkouts", &body).await }
    })
    .await;
    assert_sold_out(&server.database, client, &answers, 5).await;
    server.stop().await;
}

#[tokio::test]
async fn many_with_one_key_make_one_checkout() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    let answers = all_at_once(50, |_| {
        let client = client.clone();
        async move {
            let body = checkout();
            client.post_waiting(20, "/checkouts", "key-1", &body).await
        }
    })
    .await;
    let (executed, replayed): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| !answer.is_replay());
    let [original] = executed.as_slice() else {
        panic!("{} executed", executed.len());
    };
    assert_eq!(original.status, 201);
    for answer in replayed {
        answer.assert_replays(original);
    }
    assert_eq!(server.database.charges().await, 1);
    assert_eq!(level(client, "mug").await, 3);
    server.stop().await;
}

#[tokio::test]
async fn no_client_reads_or_writes_the_key_of_a_step() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    client.post("/checkouts", "key-1", &checkout()).await;
    let sql = "SELECT key FROM idempotency_keys WHERE key LIKE ',%' ORDER BY created_at";
    let keys: Vec<String> = server.database.values(sql).await;
    assert_eq!(keys.len(), 3);
    for key in keys {
        for key in [key.clone(), format!("\"{key}\"")] {
            let refused = client.post("/checkouts", &key, &checkout()).await;
            assert_eq!(refused.code(), "idempotency_key_invalid");
            let encoded = key.replace('/', "%2F").replace('"', "%22");
            let path = format!("/idempotency-keys?key={encoded}");
            let looked_up = client.get(&path).await;
            assert_eq!(looked_up.code(), "parameter_invalid");
        }
    }
    server.stop().await;
}

/// The processor says that it has given the money back already, under a key that isn't ours.
#[tokio::test]
async fn a_refund_that_the_processor_refuses_is_never_taken_for_one() {
    let (server, processor) = across_a_network().await;
    let client = &server.client;
    stock(client, "mug", 1).await;
    // It stops before the refund.
    let keys = ",/checkouts/%/create_refund%";
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, keys).await;
    let sending = client.sending("/checkouts", "key-1", checkout());
    pause.is_reached().await;
    let listed = client.get("/checkouts").await.json();
    let charge = listed["data"][0]["charge"].as_str().unwrap().to_owned();
    let elsewhere = processor::refund(&charge, 2400);
    let given_back = processor.put(Uuid::now_v7(), &elsewhere).await;
    assert!(given_back.is_some());
    pause.release().await;

    assert_eq!(sending.await.unwrap().code(), "service_unavailable");
    let again = || async {
        let again = client.post("/checkouts", "key-1", &checkout()).await;
        assert_eq!(again.code(), "service_unavailable");
        let failed = "SELECT count(*) FROM refunds WHERE status = 'failed'";
        server.database.count(failed).await
    };
    assert_eq!(again().await, 1);
    assert_eq!(again().await, 1, "another would be refused as well");
    let sql = "UPDATE checkouts SET refund_refused_at = now() - interval '1 hour'";
    server.database.execute(sql).await;
    assert_eq!(again().await, 2, "it may have changed its mind by then");
    let listed = client.get("/checkouts").await.json();
    let unfinished = &listed["data"][0];
    unfinished.assert_shows(json!({"status": "in_progress", "failure_code": "out_of_stock"}));
    assert_eq!(steps(unfinished)[3], "create_refund pending 4");
    let path = format!("/charges/{charge}");
    assert_eq!(client.get(&path).await.json()["amount_refunded"], 0);

    // Only a person can end it, after giving the money back elsewhere.
    let operations = |arguments: &[&str]| operations(&server.database, arguments, &[]);
    let list = operations(&["list"]).stdout;
    assert!(list.contains("refused, and co_"), "{list}");
    assert_eq!(list.lines().count(), 1, "the last one is enough: {list}");
    let id = list.split(' ').next().unwrap();
    let other_word = operations(&["resolve", id, "not-executed", "--by", "Ada"]);
    assert_ne!(other_word.code, Some(0));
    // However many operations have waited longer: a list shows a thousand.
    server.database.is_left_broken("they are in flight nowhere");
    let sql = "SET session_replication_role = replica;
         INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand,
                request_id, idempotency_key, created_at)
         SELECT gen_random_uuid(), gen_random_uuid(), 'capture_charge', gen_random_uuid(), 1,
                'ietf', false, 'req_1', 'older', now() - interval '1 day'
           FROM generate_series(1, 1001);
         RESET session_replication_role";
    server.database.execute(sql).await;
    for is_first in [true, false] {
        let ended = operations(&["resolve", id, "done", "--by", "Ada"]);
        assert_eq!(ended.code == Some(0), is_first, "once");
    }
    assert!(!operations(&["list"]).stdout.contains("refused, and"));

    let answer = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(answer.code(), "out_of_stock");
    assert_eq!(client.get(&path).await.json()["amount_refunded"], 2400);
    let ended = checkout_of(client, "key-1").await;
    assert_eq!(ended["status"], "canceled");
    assert_eq!(steps(&ended)[3], "create_refund done 4");
    let words =
        "SELECT count(*) FROM manual_resolutions WHERE resolved_by = 'Ada' AND resolution = 'done'";
    assert_eq!(server.database.count(words).await, 1);
    server.stop().await;
}
