//! A processor that is slow, dies, moves or refuses, and requests that meet an unfinished
//! operation.

use crate::support::{
    prelude::*,
    processor::refund,
    world::{Verb, start},
};

#[tokio::test]
async fn a_processor_that_is_slower_than_the_lease_is_asked_again_under_the_same_key() {
    let world = World::new().await;
    world.set_delay("delay_before").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    // In progress there: doubt here, as often as it is asked.
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    let pending = world.client().get("/charges").await.json();
    assert_eq!(pending["data"][0]["status"], "pending");
    assert_eq!(pending["data"][0]["outcome"], Value::Null);
    world.processor.reset_faults().await;
    let answer = world.until_definite(&path, &body).await;
    assert_eq!(answer.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("slow").await;
}

/// The replica that works on the key knows that it does, and another one knows only the lease.
#[tokio::test]
async fn who_meets_a_lease_is_told_to_ask_again_soon() {
    let world = World::with_patience().await;
    let replica = start(&world.database, &world.processor);
    world.set_delay("delay_before").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    let first = world.client().sending(&path, "key-1", body.clone());
    world.processor.delays(1).await;
    let same = world.client().post(&path, "key-1", &body).await;
    assert_eq!(same.code(), "idempotency_key_in_use");
    assert_eq!(same.header("retry-after"), Some("1"));
    // However long the lease is, its holder may end at any time.
    for lease in ["20 seconds", "2 hours"] {
        let sql =
            format!("UPDATE idempotency_leases SET leased_until = now() + interval '{lease}'");
        world.database.execute(&sql).await;
        let elsewhere = replica.client.post(&path, "key-1", &body).await;
        assert_eq!(elsewhere.code(), "idempotency_key_in_use");
        assert_eq!(elsewhere.header("retry-after"), Some("2"), "{lease}");
    }
    world.processor.reset_faults().await;
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test]
async fn another_request_under_a_key_whose_first_one_is_at_the_processor_is_a_reuse() {
    let world = World::with_patience().await;
    world.set_delay("delay_before").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    let first = world.client().sending(&path, "key-1", body.clone());
    world.processor.delays(1).await;
    let other = json!({"amount": 1, "currency": "usd"});
    for (path, status) in [("/charges", 422), ("/v1/charges", 400)] {
        // With its ten seconds under /v1 it would outwait the first one.
        let answer = world.client().post(path, "key-1", &other).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.code(), "idempotency_key_reused");
    }
    let same = world.client().post(&path, "key-1", &body).await;
    assert_eq!(same.code(), "idempotency_key_in_use");
    assert_eq!(world.processor.lines().await, 0, "the first is still out");
    world.processor.reset_faults().await;
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test]
async fn an_attempt_that_is_late_in_the_network_counts_though_a_later_one_was_refused() {
    let world = World::new().await;
    world.set_delay("delay_arrival").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    // All sends of the second attempt are certainly not executed; the first one still may be.
    let refuse = json!({"fault": "refuse", "count": 3});
    world.processor.set_fault(refuse).await;
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    assert_eq!(world.in_flight().await, 1);
    world.processor.reset_faults().await;
    assert_eq!(world.until_definite(&path, &body).await.status, 201);
    world.processor.reaches_lines(1).await;
    world.assert_the_ledgers_agree("late").await;
}

#[tokio::test]
async fn two_partial_refunds_are_two_effects_and_a_retry_of_each_is_none() {
    let world = World::new().await;
    let charge = world.client().charge("key-1").await.id();
    let part = json!({"charge": charge, "amount": 500});
    for _ in 0..2 {
        for key in ["refund-1", "refund-2"] {
            let refunded = world.client().post("/refunds", key, &part).await;
            assert_eq!(refunded.status, 201);
        }
    }
    assert_eq!(world.processor.sums(&charge).await, [2000, 2000, 0, 1000]);
    world.assert_the_ledgers_agree("two refunds").await;
}

#[tokio::test]
async fn an_outcome_that_can_not_be_written_is_unknown_and_never_called_busy() {
    let world = World::new().await;
    world.set_delay("delay_after").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    let sending = world.client().sending(&path, "key-1", body.clone());
    world.processor.delays(1).await;
    let lock = "SELECT FROM charges WHERE status = 'pending' FOR UPDATE";
    let locked = world.database.holding(lock).await;
    world.processor.reset_faults().await;
    // "Busy" says that nothing was done; here the card is charged.
    let answer = sending.await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("stripe-should-retry"), Some("true"));
    assert_eq!(world.processor.lines().await, 1);
    locked.rollback().await.unwrap();
    assert_eq!(world.until_definite(&path, &body).await.status, 201);
    world.assert_the_ledgers_agree("locked").await;
}

#[tokio::test]
async fn what_one_processor_was_asked_is_never_sent_to_another() {
    let mut world = World::new().await;
    world.set_fault(json!({"fault": "drop_after"})).await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    let other = Processor::start().await;
    let started = start(&world.database, &other);
    std::mem::replace(&mut world.server, started).kill();
    for _ in 0..2 {
        assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    }
    assert_eq!(other.lines().await, 0);
    world.kill_and_start();
    assert_eq!(world.until_definite(&path, &body).await.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("two processors").await;
}

#[tokio::test]
async fn a_processor_that_dies_after_the_effect_is_asked_again_when_it_is_back() {
    let mut world = World::new().await;
    world.set_delay("delay_after").await;
    let (path, body, _) = world.prepare(Verb::Charge).await;
    let sending = world.client().sending(&path, "key-1", body.clone());
    world.processor.delays(1).await;
    world.processor.signal(Signal::SIGKILL);
    assert_eq!(sending.await.unwrap().status, 503);
    // The refused connection says that this attempt did nothing. It says nothing about the first.
    assert_eq!(world.client().post(&path, "key-1", &body).await.status, 503);
    assert_eq!(world.in_flight().await, 1);
    let address = world.processor.address.to_string();
    let books = world.processor.database.clone();
    world.processor = Processor::start_on(books, &[("PROCESSOR_BIND_ADDRESS", &address)]);
    let answer = world.until_definite(&path, &body).await;
    assert_eq!(answer.status, 201);
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("the processor died").await;
}

#[tokio::test]
async fn who_meets_an_unfinished_operation_is_told_that_it_is_busy_and_nothing_is_stored() {
    let (world, client) = World::with_client().await;
    let charge = client.charge("paid").await.id();
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 2000}]});
    let order = client.post_new("/orders", &order).await.id();
    for verb in ["refund", "authorize"] {
        let fault = json!({"fault": "drop_after", "verb": verb});
        world.set_fault(fault).await;
    }
    let part = json!({"charge": charge, "amount": 500});
    let pay = format!("/orders/{order}/pay");
    assert_eq!(client.post("/refunds", "refund", &part).await.status, 503);
    assert_eq!(client.post(&pay, "pay", &json!({})).await.status, 503);
    // Reserved: it counts, and is not completed.
    let reserved = client.get(&format!("/charges/{charge}")).await.json();
    assert_eq!(reserved["amount_refunded"], 500);
    let reserved_refund = client.get("/refunds").await.json()["data"][0].clone();
    assert_eq!(reserved_refund["status"], "pending");
    let pending = client.get("/charges").await.json()["data"][0].clone();
    assert_eq!(pending["status"], "pending");
    let id = |of: &Value| of["id"].as_str().unwrap().to_owned();
    let update = |kind: &str, of: &Value| {
        let path = format!("/{kind}/{}", id(of));
        (path, json!({"metadata": {"seen": "yes"}}))
    };
    let records = world.database.records().await;
    let refund = |charge: &str, amount: i64| {
        let body = json!({"charge": charge, "amount": amount});
        ("/refunds".to_owned(), body)
    };
    let others = [
        refund(&charge, 2000),
        (format!("/charges/{charge}/capture"), json!({})),
        (pay.clone(), json!({})),
        (format!("/orders/{order}/cancel"), json!({})),
        // No processor has taken the money of a pending charge yet, and none was simulated.
        (format!("/charges/{}/capture", id(&pending)), json!({})),
        refund(&id(&pending), 3000),
        // They would be forgotten if the processor was never asked.
        update("refunds", &reserved_refund),
        update("charges", &pending),
    ];
    for (path, body) in &others {
        let busy = client.post_new(path, body).await;
        assert_eq!(error(&busy), (409, "resource_busy".into()), "{path}");
        assert_eq!(busy.header("stripe-should-retry"), Some("true"), "{path}");
    }
    assert_eq!(world.database.records().await, records);
    assert_eq!(client.post("/refunds", "refund", &part).await.status, 201);
    assert_eq!(client.post(&pay, "pay", &json!({})).await.status, 200);
    let codes = [
        "refund_amount_too_large",
        "charge_already_captured",
        "order_already_paid",
        "order_already_paid",
        "charge_already_captured",
        "refund_amount_too_large",
    ];
    for ((path, body), code) in others.iter().zip(codes) {
        assert_eq!(client.post_new(path, body).await.code(), code, "{path}");
    }
    for (path, body) in &others[codes.len()..] {
        assert_eq!(client.post_new(path, body).await.status, 200, "{path}");
    }
    world.assert_the_ledgers_agree("busy").await;
}

#[tokio::test]
async fn what_the_processor_refuses_for_good_is_stored_and_what_was_reserved_is_given_back() {
    let (world, client) = World::with_client().await;
    let declined = json!({"amount": 1, "currency": "usd", "source": "tok_chargeDeclined"});
    let first = client.post("/charges", "key-1", &declined).await;
    assert_eq!(error(&first), (402, "card_declined".into()));
    let replay = client.post("/charges", "key-1", &declined).await;
    replay.assert_replays(&first);
    // The processor's books say that there is less to give back than ours do.
    let charge = client.charge("key-2").await.id();
    let elsewhere = refund(&charge, 1900);
    world.processor.put(Uuid::now_v7(), &elsewhere).await;
    let too_much = json!({"charge": charge, "amount": 500});
    let refused = client.post("/refunds", "refund", &too_much).await;
    assert_eq!(error(&refused), (402, "processing_error".into()));
    let replay = client.post("/refunds", "refund", &too_much).await;
    replay.assert_replays(&refused);
    let charge = client.get(&format!("/charges/{charge}")).await.json();
    assert_eq!(charge["amount_refunded"], 0);
    let failed = client.get("/refunds").await.json();
    assert_eq!(failed["data"][0]["status"], "failed");
    let types = client.get("/events?limit=1").await.json();
    assert_eq!(types["data"][0]["type"], "refund.failed");
    // What is left there can still be given back.
    let rest = json!({"charge": charge["id"], "amount": 100});
    assert_eq!(client.post_new("/refunds", &rest).await.status, 201);
}

#[tokio::test]
async fn events_and_replies_are_the_same_in_both_modes() {
    let plain = TestServer::start().await;
    let world = World::new().await;
    let mut seen = Vec::new();
    for client in [plain.client.clone(), world.client()] {
        let charge = client.charge("key-1").await;
        let id = charge.id();
        let refund = json!({"charge": id, "amount": 500, "expand": ["charge"]});
        let refund = client.post("/refunds", "key-2", &refund).await;
        let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 5}]});
        let order = client.post("/orders", "key-3", &order).await.id();
        let pay = json!({"source": "tok_amex", "expand": ["charge"]});
        let path = format!("/v1/orders/{order}/pay");
        let paid = client.post(&path, "key-4", &pay).await;
        let events = client.get("/events").await.json();
        let shape = |answer: &Answer| (answer.status, without_ids_and_times(answer.json()));
        let events = events["data"].as_array().unwrap().iter();
        let key = |event: &Value| event["request"]["idempotency_key"].clone();
        let types = events.map(|event| (event["type"].clone(), key(event)));
        let types: Vec<_> = types.collect();
        seen.push((shape(&charge), shape(&refund), shape(&paid), types));
    }
    assert_eq!(seen[0], seen[1]);
}

/// A body without what differs from run to run: ids and times.
fn without_ids_and_times(mut body: Value) -> Value {
    fn blank(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let differs = ["id", "created", "order"].contains(&name.as_str())
                        || (name == "charge" && value.is_string());
                    if differs {
                        *value = Value::Null;
                    } else {
                        blank(value);
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(blank),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    blank(&mut body);
    body
}

/// Started with the other processor, charge-once can't ask about the charges that it has.
#[tokio::test]
async fn who_took_the_money_gives_it_back() {
    let world = World::new().await;
    let promise = json!({"amount": 2000, "currency": "usd", "capture": false});
    let across = world.client().charge("key-1").await.id();
    let promised_across = world.client().post_new("/charges", &promise).await.id();
    let simulating = ServerProcess::start(&world.database, &[]);
    let here = simulating.client.charge("key-2").await.id();
    let promised_here = simulating.client.post_new("/charges", &promise).await.id();
    let (network, simulation) = (world.client(), simulating.client.clone());
    for (wrong, right, charge, promised) in [
        (&simulation, &network, across, promised_across),
        (&network, &simulation, here, promised_here),
    ] {
        let refund = ("/refunds".to_owned(), json!({"charge": charge}));
        let capture = (format!("/charges/{promised}/capture"), json!({}));
        for (path, body) in [refund, capture] {
            let key = format!("{path} {charge}").replace(' ', "-");
            let refused = wrong.post(&path, &key, &body).await;
            assert_eq!(refused.code(), "service_unavailable", "{path}");
            let done = right.post(&path, &key, &body).await;
            assert!(done.status.is_success(), "{path}: {done:?}");
        }
    }
}

/// The ledger is the processor's, wherever it listens; who it is, charge-once can only be told.
#[tokio::test]
async fn a_processor_that_moves_keeps_its_name() {
    let world = World::new().await;
    let charge = world.client().charge("key-1").await.id();
    let refund = json!({"charge": charge});
    let old_name = world.processor.url();
    let moved = Processor::start_on(world.processor.database.clone(), &[]);
    let url = moved.url();
    let before = moved.lines().await;
    let unknown = ServerProcess::start(&world.database, &[("PROCESSOR_URL", &url)]);
    for _ in 0..2 {
        let refused = unknown.client.post("/refunds", "key-2", &refund).await;
        assert_eq!(refused.code(), "service_unavailable");
    }
    assert_eq!(moved.lines().await, before, "nobody was asked");
    assert_eq!(world.in_flight().await, 0, "and the key is free");
    let refunds = "SELECT count(*) FROM refunds";
    assert_eq!(world.database.count(refunds).await, 0);
    let named = [
        ("PROCESSOR_URL", url.as_str()),
        ("PROCESSOR_NAME", &old_name),
    ];
    let known = ServerProcess::start(&world.database, &named);
    let done = known.client.post("/refunds", "key-2", &refund).await;
    assert_eq!(done.status, 201, "{done:?}");
    world.assert_the_ledgers_agree("moved").await;
}
