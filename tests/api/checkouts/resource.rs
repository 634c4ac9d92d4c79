//! `/checkouts`: an order, its charge and its items in one request.

use crate::support::{
    checkouts::{checkout_of, level, steps, types_of_events},
    harness::KEYS_IN_FLIGHT,
    prelude::*,
    processor,
    racers::until_definite,
};

#[tokio::test]
async fn a_checkout_creates_the_order_charges_it_and_allocates_the_items() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;

    let made = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let body = made.json();
    let id = made.id();
    assert_eq!(
        made.header("location"),
        Some(format!("/checkouts/{id}").as_str())
    );
    assert_eq!(body["status"], "completed");
    assert_eq!(body["amount"], 2400);
    assert_eq!(body["failure_code"], Value::Null);
    assert_eq!(
        steps(&body),
        [
            "create_order done 1",
            "create_charge done 1",
            "allocate_inventory done 1"
        ]
    );

    let order = client
        .get(&format!("/orders/{}", body["order"].as_str().unwrap()))
        .await
        .json();
    let charge = client
        .get(&format!("/charges/{}", body["charge"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(
        (&order["status"], &order["charge"]),
        (&json!("paid"), &charge["id"])
    );
    assert_eq!(
        (&charge["status"], &charge["order"]),
        (&json!("succeeded"), &order["id"])
    );
    assert_eq!(
        (&charge["amount"], &charge["customer"]),
        (&json!(2400), &json!("jenny"))
    );
    assert_eq!(order["metadata"], json!({"cart": "7"}));
    assert_eq!(level(client, "mug").await, 3);

    assert_eq!(client.get(&format!("/checkouts/{id}")).await.json(), body);
    let again = client.post("/checkouts", "key-1", &checkout()).await;
    again.assert_replays(&made);
    assert_eq!(level(client, "mug").await, 3);
    assert_eq!(
        types_of_events(client).await,
        [
            "order.created",
            "charge.succeeded",
            "order.paid",
            "checkout.completed"
        ]
    );
    // Events name what the client sent, not the keys of the steps.
    let events = client.get("/events").await.json();
    for event in events["data"].as_array().unwrap() {
        assert_eq!(event["request"]["idempotency_key"], "key-1");
        assert_eq!(
            event["request"]["id"],
            made.header("original-request").unwrap()
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_decline_cancels_the_order_and_is_stored() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    let body = checkout_with("tok_chargeDeclinedInsufficientFunds");

    let declined = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(declined.status, 402);
    let error = &declined.json()["error"];
    assert_eq!(error["code"], "card_declined");
    assert_eq!(error["decline_code"], "insufficient_funds");
    client
        .post("/checkouts", "key-1", &body)
        .await
        .assert_replays(&declined);

    let checkout = checkout_of(client, "key-1").await;
    assert_eq!(checkout["status"], "canceled");
    assert_eq!(checkout["failure_code"], "card_declined");
    assert_eq!(checkout["charge"], error["charge"]);
    assert_eq!(
        steps(&checkout),
        [
            "create_order done 1",
            "create_charge refused 1",
            "allocate_inventory skipped 0",
            "cancel_order done 1",
        ]
    );
    let order = client
        .get(&format!("/orders/{}", checkout["order"].as_str().unwrap()))
        .await;
    assert_eq!(order.json()["status"], "canceled");
    assert_eq!(level(client, "mug").await, 5);
    assert_eq!(
        types_of_events(client).await,
        [
            "order.created",
            "charge.failed",
            "order.canceled",
            "checkout.canceled"
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn out_of_stock_gives_the_charge_back_cancels_the_order_and_is_stored() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    stock(client, "cup", 1).await;
    let mut body = checkout();
    body["items"].as_array_mut().unwrap().push(json!(
        {"sku": "cup", "quantity": 2, "unit_amount": 300}
    ));

    let refused = client.post("/checkouts", "key-1", &body).await;
    let (status, code, param) = refused.refusal();
    assert_eq!((status, code.as_str()), (400, "out_of_stock"));
    assert_eq!(param.as_deref(), Some("items[1][quantity]"));
    client
        .post("/checkouts", "key-1", &body)
        .await
        .assert_replays(&refused);

    assert_eq!(
        refused.json()["error"]["charge"],
        Value::Null,
        "it isn't a failed one"
    );

    let checkout = checkout_of(client, "key-1").await;
    assert_eq!(checkout["status"], "canceled");
    assert_eq!(checkout["failure_code"], "out_of_stock");
    assert_eq!(
        steps(&checkout),
        [
            "create_order done 1",
            "create_charge done 1",
            "allocate_inventory refused 1",
            "create_refund done 1",
            "cancel_order done 1",
        ]
    );
    let get = |kind: &str, member: &str| {
        let path = format!("/{kind}/{}", checkout[member].as_str().unwrap());
        async move { client.get(&path).await.json() }
    };
    assert_eq!(get("orders", "order").await["status"], "canceled");
    let charge = get("charges", "charge").await;
    assert_eq!(
        (&charge["refunded"], &charge["amount_refunded"]),
        (&json!(true), &json!(3000))
    );
    assert_eq!(get("refunds", "refund").await["amount"], 3000);
    // Not one of the items that were there is taken either.
    assert_eq!(
        (level(client, "mug").await, level(client, "cup").await),
        (5, 1)
    );
    assert_eq!(
        types_of_events(client).await,
        [
            "order.created",
            "charge.succeeded",
            "refund.created",
            "charge.refunded",
            "order.canceled",
            "checkout.canceled",
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn wrong_parameters_are_stored_refusals_and_make_nothing() {
    let server = TestServer::start().await;
    let client = &server.client;
    for (change, code, param) in [
        (("currency", Value::Null), "parameter_missing", "currency"),
        (("items", json!([])), "parameter_invalid", "items"),
        (
            ("items", json!([{"quantity": 1, "unit_amount": 1}])),
            "parameter_missing",
            "items[0][sku]",
        ),
        (
            (
                "items",
                json!([{"sku": "mug", "quantity": 0, "unit_amount": 1}]),
            ),
            "parameter_invalid",
            "items[0][quantity]",
        ),
        (
            ("source", "tok_unknown".into()),
            "parameter_invalid",
            "source",
        ),
        (
            ("client_order_id", "7".into()),
            "parameter_unknown",
            "client_order_id",
        ),
    ] {
        let mut body = checkout();
        body[change.0] = change.1;
        let key = uuid::Uuid::now_v7().to_string();
        let refused = client.post("/checkouts", &key, &body).await;
        let expected = (400, code.to_owned(), Some(param.to_owned()));
        assert_eq!(refused.refusal(), expected);
        client
            .post("/checkouts", &key, &body)
            .await
            .assert_replays(&refused);
    }
    assert_eq!(
        server
            .database
            .count("SELECT count(*) FROM checkouts")
            .await,
        0
    );
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
        let client = client.clone();
        let mut items = vec![
            json!({"sku": "mug", "quantity": 2, "unit_amount": 1200}),
            json!({"sku": "cup", "quantity": 2, "unit_amount": 300}),
        ];
        if index % 2 == 0 {
            items.reverse();
        }
        let body = json!({"currency": "usd", "items": items});
        async move { until_definite(&client, "/checkouts", &body).await }
    })
    .await;
    let with = |status: u16| {
        let answers = answers.iter();
        answers.filter(|answer| answer.status == status).count()
    };
    assert_eq!((with(201), with(400)), (5, 15));
    assert_eq!(
        (level(client, "mug").await, level(client, "cup").await),
        (0, 0)
    );
    for (what, sql, expected) in [
        (
            "paid",
            "SELECT count(*) FROM orders WHERE status = 'paid'",
            5,
        ),
        (
            "canceled",
            "SELECT count(*) FROM orders WHERE status = 'canceled'",
            15,
        ),
        (
            "kept",
            "SELECT sum(amount_captured - amount_refunded)::bigint FROM charges",
            5 * 3000,
        ),
        ("in flight", KEYS_IN_FLIGHT, 0),
    ] {
        assert_eq!(server.database.count(sql).await, expected, "{what}");
    }
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
            client
                .post_waiting(20, "/checkouts", "key-1", &checkout())
                .await
        }
    })
    .await;
    let executed: Vec<_> = answers
        .iter()
        .filter(|answer| !answer.is_replay())
        .collect();
    let [original] = executed.as_slice() else {
        panic!("{} executed", executed.len());
    };
    assert_eq!(original.status, 201);
    for answer in answers.iter().filter(|answer| answer.is_replay()) {
        answer.assert_replays(original);
    }
    assert_eq!(
        (server.database.charges().await, level(client, "mug").await),
        (1, 3)
    );
    server.stop().await;
}

#[tokio::test]
async fn no_client_reads_or_writes_the_key_of_a_step() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    client.post("/checkouts", "key-1", &checkout()).await;
    let sql = "SELECT key FROM idempotency_keys WHERE key LIKE ',%' ORDER BY created_at";
    let keys: Vec<String> = sqlx::query_scalar(sql)
        .fetch_all(&server.database.pool)
        .await
        .unwrap();
    assert_eq!(keys.len(), 3);
    for key in keys {
        for key in [key.clone(), format!("\"{key}\"")] {
            let refused = client.post("/checkouts", &key, &checkout()).await;
            assert_eq!(refused.code(), "idempotency_key_invalid");
            let encoded = key.replace('/', "%2F").replace('"', "%22");
            let looked_up = client
                .get(&format!("/idempotency-keys?key={encoded}"))
                .await;
            assert_eq!(looked_up.code(), "parameter_invalid");
        }
    }
    server.stop().await;
}

/// The processor says that it has given the money back already, under a key that isn't ours.
#[tokio::test]
async fn a_refund_that_the_processor_refuses_is_never_taken_for_one() {
    let database = TestDatabase::create().await;
    let processor = Processor::start().await;
    let url = processor.url();
    let server = TestServer::start_on(database, &[("PROCESSOR_URL", &url)]).await;
    let client = &server.client;
    stock(client, "mug", 1).await;
    // It stops before the refund.
    let mut pause = PausePoint::at(
        Stage::Claiming,
        &server.database,
        ",/checkouts/%/create_refund%",
    )
    .await;
    let sending = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/checkouts", "key-1", &checkout()).await })
    };
    pause.is_reached().await;
    let listed = client.get("/checkouts").await.json();
    let charge = listed["data"][0]["charge"].as_str().unwrap().to_owned();
    let elsewhere = processor::refund(&charge, 2400);
    assert!(
        processor
            .put(uuid::Uuid::now_v7(), &elsewhere)
            .await
            .is_some()
    );
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
    sqlx::query("UPDATE checkouts SET refund_refused_at = now() - interval '1 hour'")
        .execute(&server.database.pool)
        .await
        .unwrap();
    assert_eq!(
        again().await,
        2,
        "an hour later it may have changed its mind"
    );
    let listed = client.get("/checkouts").await.json();
    let unfinished = &listed["data"][0];
    assert_eq!(unfinished["status"], "in_progress");
    assert_eq!(unfinished["failure_code"], "out_of_stock");
    assert_eq!(steps(unfinished)[3], "create_refund pending 4");
    let path = format!("/charges/{charge}");
    assert_eq!(client.get(&path).await.json()["amount_refunded"], 0);

    // Only a person can end it, after giving the money back elsewhere.
    let operations = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_charge-once"))
            .arg("operations")
            .args(arguments)
            .env("DATABASE_URL", &server.database.url)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (_, list) = operations(&["list"]);
    assert!(list.contains("refused, and co_"), "{list}");
    assert_eq!(list.lines().count(), 1, "the last one is enough: {list}");
    let id = list.split(' ').next().unwrap();
    assert!(!operations(&["resolve", id, "not-executed", "--by", "Ada"]).0);
    // However many operations have waited longer: a list shows a thousand.
    server.database.is_left_broken("they are in flight nowhere");
    sqlx::raw_sql(
        "SET session_replication_role = replica;
         INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand,
                request_id, idempotency_key, created_at)
         SELECT gen_random_uuid(), gen_random_uuid(), 'capture_charge', gen_random_uuid(), 1,
                'ietf', false, 'req_1', 'older', now() - interval '1 day'
           FROM generate_series(1, 1001);
         RESET session_replication_role",
    )
    .execute(&server.database.pool)
    .await
    .unwrap();
    assert!(operations(&["resolve", id, "done", "--by", "Ada"]).0);
    assert!(
        !operations(&["resolve", id, "done", "--by", "Ada"]).0,
        "once"
    );
    assert!(!operations(&["list"]).1.contains("refused, and"));

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
