//! Payment intents where the card processor is across a network: an intent is processing while an
//! answer is out, and the process that gets the answer ends it.

use crate::support::{
    holder_pages::open,
    intents::{act, create, events, paid_with, path, retrieve, standing, terms_with},
    prelude::*,
    racers::{definite, until_definite},
    resources::{attach, customer, method},
};

const VISA: &str = "pm_card_visa";
const METHODS: &str = "SELECT count(*) FROM payment_methods";

/// Sends a request that the processor executes, and whose answer is lost.
async fn lose_the_answer(world: &World, path: &str, body: &Value) {
    world.set_fault(json!({"fault": "drop_after"})).await;
    let lost = world.client().post(path, "key-1", body).await;
    assert_eq!(lost.status, 503, "{path}");
}

/// The processor refuses the next instructions: certainly not executed.
async fn refuse(world: &World) {
    let refuse = json!({"fault": "refuse", "count": 3});
    world.set_fault(refuse).await;
}

#[tokio::test]
async fn a_confirmation_without_an_answer_leaves_the_intent_processing_and_a_retry_ends_it() {
    let (world, client) = World::with_client().await;
    let id = create(&client, json!({})).await.id();
    let (confirm, body) = (path(&id, "confirm"), json!({"payment_method": VISA}));
    lose_the_answer(&world, &confirm, &body).await;
    let processing = retrieve(&client, &id).await;
    assert_eq!(processing["status"], "processing");
    let pending = processing["latest_charge"].as_str().unwrap();
    let pending = client.get(&format!("/charges/{pending}")).await.json();
    assert_eq!(pending["status"], "pending");
    assert_eq!(events(&client).await, ["payment_intent.created"]);

    // No other request decides meanwhile, and nothing is stored.
    let records = world.database.records().await;
    let refund = json!({"payment_intent": id});
    for (path, body) in [
        (confirm.clone(), body.clone()),
        (path(&id, "capture"), json!({})),
        (path(&id, "cancel"), json!({})),
        (path(&id, ""), json!({"amount": 1})),
        (path(&id, ""), json!({"metadata": {"seen": "yes"}})),
        ("/refunds".to_owned(), refund),
    ] {
        let busy = client.post(&path, "key-2", &body).await;
        assert_eq!(error(&busy), (409, "resource_busy".into()), "{path}");
    }
    assert_eq!(world.database.records().await, records);
    let answer = world.until_definite(&confirm, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(answer.json()["status"], "succeeded");
    let replay = client.post(&confirm, "key-1", &body).await;
    replay.assert_replays(&answer);
    assert_eq!(world.processor.lines().await, 1);
    let told = ["charge.succeeded", "payment_intent.succeeded"];
    assert_eq!(events(&client).await[1..], told);
    world.assert_the_ledgers_agree("confirm").await;
}

#[tokio::test]
async fn the_reconciler_ends_a_processing_intent_and_its_events_come_then() {
    let mut world = World::new().await;
    let client = world.client();
    let body = terms_with(json!({
        "confirm": true, "payment_method": "pm_card_chargeDeclinedInsufficientFunds",
    }));
    lose_the_answer(&world, "/payment_intents", &body).await;
    let listed = client.get("/payment_intents").await.json();
    let id = listed["data"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed["data"][0]["status"], "processing");
    assert_eq!(events(&client).await, Vec::<String>::new());
    // The client never retries, and the process that asked is gone.
    world.kill_and_start();
    world.the_lease_runs_out().await;
    let client = world.client();
    let holds = || async { retrieve(&client, &id).await["status"] != "processing" };
    eventually("the reconciler has the answer", holds).await;
    let intent = retrieve(&client, &id).await;
    assert_eq!(intent["status"], "requires_payment_method");
    let decline_code = &intent["last_payment_error"]["decline_code"];
    assert_eq!(decline_code, "insufficient_funds");
    let told = "payment_intent.created charge.failed payment_intent.payment_failed";
    assert_eq!(events(&client).await.join(" "), told);
    let declined = client.post("/payment_intents", "key-1", &body).await;
    assert_eq!(declined.status, 402);
    assert_eq!(declined.json()["error"]["payment_intent"], intent);
    world.assert_the_ledgers_agree("reconciled").await;
}

#[tokio::test]
async fn what_was_never_asked_leaves_the_intent_as_it_was_and_a_new_one_does_not_exist() {
    let (world, client) = World::with_client().await;
    refuse(&world).await;
    let new = terms_with(json!({"confirm": true, "payment_method": VISA}));
    let refused = client.post("/payment_intents", "new", &new).await;
    assert_eq!(refused.status, 503);
    let rows = "SELECT (SELECT count(*) FROM payment_intents) + (SELECT count(*) FROM charges)
                       + (SELECT count(*) FROM payment_methods)";
    assert_eq!(world.database.count(rows).await, 0);

    world.processor.reset_faults().await;
    let card = json!({"type": "card", "card": {"token": "tok_outage"}});
    let down = terms_with(json!({"confirm": true, "payment_method_data": card}));
    for _ in 0..5 {
        let tried = client.post("/payment_intents", "down", &down).await;
        assert_eq!(tried.status, 503);
    }
    assert_eq!(world.database.count(rows).await, 0);

    let kept = method(&client, "tok_visa").await;
    let declining = json!({"payment_method": "pm_card_chargeDeclined"});
    let declined = create(&client, json!({})).await.id();
    act(&client, &declined, "confirm", declining).await;
    let confirm = json!({
        "payment_method": VISA, "capture_method": "manual", "receipt_email": "anna@example.com",
        "setup_future_usage": "on_session",
        "shipping": {"name": "Anna", "address": {"city": "Bonn"}},
    });
    let new = standing(&client, "requires_payment_method").await;
    let waiting = standing(&client, "requires_action").await;
    let promised = standing(&client, "requires_capture").await;
    let also_promised = standing(&client, "requires_capture").await;
    let capture = json!({"metadata": {"shipped": "yes"}, "statement_descriptor_suffix": "SPRING"});
    let cancel = json!({"cancellation_reason": "abandoned"});
    for (id, verb, body) in [
        (declined, "confirm", confirm.clone()),
        (new, "confirm", json!({"payment_method": kept})),
        (waiting, "confirm", confirm),
        (promised, "capture", capture),
        (also_promised, "cancel", cancel),
    ] {
        let before = client.get(&path(&id, "")).await;
        let methods = world.database.count(METHODS).await;
        refuse(&world).await;
        let key = format!("{verb} {id}").replace(' ', "-");
        let refused = client.post(&path(&id, verb), &key, &body).await;
        assert_eq!(refused.status, 503, "{verb}");
        // To the byte: the last error too.
        let shown = |answer: &Answer| String::from_utf8(answer.body.clone()).unwrap();
        let after = client.get(&path(&id, "")).await;
        assert_eq!(shown(&after), shown(&before), "{verb}");
        assert_eq!(world.database.count(METHODS).await, methods, "{verb}");
        if let Some(action) = before.json()["next_action"]["redirect_to_url"]["url"].as_str() {
            assert_eq!(open(action).await.status, 200);
        }
        world.processor.reset_faults().await;
        let done = client.post(&path(&id, verb), &key, &body).await;
        assert_eq!(done.status, 200, "{verb}: {}", done.json());
    }
    assert_eq!(world.in_flight().await, 0);
}

#[tokio::test]
async fn no_verb_takes_a_new_method_while_the_processor_is_asked_to_charge_it() {
    let (world, client) = World::with_client().await;
    // Asks no processor, on the same database.
    let simulating = ServerProcess::start(&world.database, &[]);
    let ann = customer(&client).await;
    // Asks its holder on a page, if the holder is there.
    let method = method(&client, "tok_authenticationRequiredSetupForOffSession").await;
    let named = json!({"payment_method": method});
    let setup =
        json!({"payment_method_types": ["card"], "confirm": true, "payment_method": method});
    let mut pages = vec![page_of(&client.post_new("/setup_intents", &setup).await)];
    let waiting = paid_with(&client, &method, json!({})).await;
    pages.push(page_of(&waiting));
    let first = create(&client, json!({})).await.id();
    let second = create(&client, json!({})).await.id();
    let cards = json!({"payment_method_types": ["card"]});
    let begun = client.post_new("/setup_intents", &cards).await;
    let begun = format!("/setup_intents/{}", begun.id());
    let off_session = json!({"payment_method": method, "off_session": true});
    let paying = path(&first, "confirm");
    lose_the_answer(&world, &paying, &off_session).await;

    let records = world.database.records().await;
    let mut confirmed = terms_with(off_session.clone());
    confirmed["confirm"] = true.into();
    let verb = |verb: &str| format!("/payment_methods/{method}{verb}");
    let default = json!({"invoice_settings": {"default_payment_method": method}});
    let others = [
        (verb("/attach"), json!({"customer": ann})),
        (verb("/detach"), json!({})),
        (verb(""), json!({"metadata": {"seen": "yes"}})),
        ("/customers".to_owned(), named.clone()),
        (format!("/customers/{ann}"), default),
        ("/setup_intents".to_owned(), setup),
        (begun.clone(), named.clone()),
        (format!("{begun}/confirm"), named.clone()),
        ("/payment_intents".to_owned(), terms_with(named.clone())),
        ("/payment_intents".to_owned(), confirmed),
        (path(&second, ""), named),
        (path(&second, "confirm"), off_session.clone()),
        (path(&waiting.id(), "confirm"), json!({})),
    ];
    for server in [&client, &simulating.client] {
        for (path, body) in &others {
            let busy = server.post_new(path, body).await;
            assert_eq!(error(&busy), (409, "resource_busy".into()), "{path} {body}");
        }
        let (own, other) = (client.address.to_string(), server.address.to_string());
        for page in &pages {
            let page = page.replace(&own, &other);
            assert_eq!(press(&page, "complete").await.status, 409, "{page}");
        }
    }
    assert_eq!(world.database.records().await, records);

    let paid = world.until_definite(&paying, &off_session).await;
    assert_eq!(paid.status, 200);
    for path in [verb("/attach"), path(&second, "confirm")] {
        let (_, body) = others.iter().find(|other| other.0 == path).unwrap();
        let used = client.post_new(&path, body).await;
        assert_eq!(used.code(), "payment_method_unexpected_state", "{path}");
    }
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("one method").await;
}

#[tokio::test]
async fn a_method_that_declined_after_an_answer_was_out_is_free() {
    let (world, client) = World::with_client().await;
    let method = method(&client, "tok_chargeCustomerFail").await;
    let ann = customer(&client).await;
    let confirm = path(&create(&client, json!({})).await.id(), "confirm");
    let body = json!({"payment_method": method});
    lose_the_answer(&world, &confirm, &body).await;
    assert_eq!(attach(&client, &method, &ann).await.status, 409);
    assert_eq!(world.until_definite(&confirm, &body).await.status, 402);
    assert_eq!(attach(&client, &method, &ann).await.status, 200);
}

#[tokio::test]
async fn a_capture_and_a_cancellation_wait_for_the_processor() {
    for (verb, status, sums) in [
        ("capture", "succeeded", [2000, 2000, 0, 0]),
        ("cancel", "canceled", [2000, 0, 2000, 0]),
    ] {
        let (world, client) = World::with_client().await;
        let id = standing(&client, "requires_capture").await;
        let (path, nothing) = (path(&id, verb), json!({}));
        lose_the_answer(&world, &path, &nothing).await;
        assert_eq!(retrieve(&client, &id).await["status"], "requires_capture");
        let update = json!({"metadata": {"seen": "yes"}});
        for other in ["confirm", "capture", "cancel", ""] {
            let body = if other.is_empty() { &update } else { &nothing };
            let busy = act(&client, &id, other, body.clone()).await;
            assert_eq!(busy.code(), "resource_busy", "{verb} and {other}");
        }
        let answer = world.until_definite(&path, &nothing).await;
        assert_eq!(answer.json()["status"], status, "{}", answer.json());
        assert_eq!(answer.json(), retrieve(&client, &id).await);
        let charge = answer.json()["latest_charge"].clone();
        let charge = charge.as_str().unwrap();
        assert_eq!(world.processor.sums(charge).await, sums, "{verb}");
        assert_eq!(world.in_flight().await, 0);
    }
}

#[tokio::test]
async fn a_holder_who_authenticated_lands_when_the_card_has_answered() {
    let (world, client) = World::with_client().await;
    let waiting = paid_with(&client, "pm_card_authenticationRequired", json!({})).await;
    assert_eq!(waiting.json()["status"], "requires_action");
    assert_eq!(world.processor.lines().await, 0);
    let page = page_of(&waiting);
    refuse(&world).await;
    assert_eq!(press(&page, "complete").await.status, 503);
    assert_eq!(retrieve(&client, &waiting.id()).await, waiting.json());
    world.processor.reset_faults().await;
    world.set_fault(json!({"fault": "drop_after"})).await;
    assert_eq!(press(&page, "complete").await.status, 503);
    assert_eq!(open(&page).await.status, 200);
    world.the_lease_runs_out().await;
    let holds = || async { press(&page, "complete").await.status == 200 };
    eventually("the answer is asked for again", holds).await;
    assert_eq!(open(&page).await.status, 410);
    let intent = retrieve(&client, &waiting.id()).await;
    assert_eq!(intent["status"], "succeeded");
    let charge = intent["latest_charge"].as_str().unwrap();
    let charge = client.get(&format!("/charges/{charge}")).await.json();
    let card = &charge["payment_method_details"]["card"];
    assert_eq!(card["three_d_secure"]["result"], "authenticated");
    assert_eq!(press(&page, "fail").await.status, 200);
    assert_eq!(retrieve(&client, &waiting.id()).await, intent);
    world.assert_the_ledgers_agree("authenticated").await;
}

#[tokio::test]
async fn an_intent_tells_the_same_events_and_replies_in_both_modes() {
    let simulated = TestServer::start().await;
    let world = World::new().await;
    let mut told = Vec::new();
    for client in [&simulated.client, &world.client()] {
        let mut statuses: Vec<Value> = Vec::new();
        for card in [VISA, "pm_card_chargeDeclined"] {
            let answer = paid_with(client, card, json!({})).await;
            statuses.push(answer.status.as_u16().into());
        }
        let manual = json!({"capture_method": "manual"});
        for verb in ["capture", "cancel"] {
            let id = paid_with(client, VISA, manual.clone()).await.id();
            let answer = act(client, &id, verb, json!({})).await;
            statuses.push(answer.json()["status"].clone());
        }
        let id = standing(client, "succeeded").await;
        let refund = json!({"payment_intent": id, "amount": 500});
        let refund = client.post_new("/refunds", &refund).await;
        statuses.push(refund.json()["status"].clone());
        told.push((statuses, events(client).await));
    }
    assert_eq!(told[0], told[1]);
}

#[tokio::test]
async fn the_reconciler_and_retries_at_once_end_a_verb_once() {
    for (verb, status, ended) in [
        ("confirm", "requires_confirmation", "succeeded"),
        ("capture", "requires_capture", "succeeded"),
        ("cancel", "requires_capture", "canceled"),
    ] {
        let (world, client) = World::with_client().await;
        let id = standing(&client, status).await;
        let asked = world.processor.lines().await;
        let (path, nothing) = (path(&id, verb), json!({}));
        lose_the_answer(&world, &path, &nothing).await;
        world.the_lease_runs_out().await;
        let answers = all_at_once(20, |_| {
            let (client, path, nothing) = (client.clone(), path.clone(), nothing.clone());
            async move { definite(|| client.post(&path, "key-1", &nothing)).await }
        })
        .await;
        for answer in &answers {
            assert_eq!(answer.status, 200, "{verb}: {}", answer.json());
            assert_eq!(answer.body, answers[0].body, "{verb}");
        }
        assert_eq!(retrieve(&client, &id).await, answers[0].json());
        assert_eq!(world.processor.lines().await, asked + 1, "{verb}");
        let (told, ended) = (events(&client).await, format!("payment_intent.{ended}"));
        assert_eq!(told.iter().filter(|told| **told == ended).count(), 1);
        world.assert_the_ledgers_agree(verb).await;
    }
}

#[tokio::test]
async fn of_two_verbs_under_two_keys_at_once_the_processor_is_asked_for_one() {
    let (world, client) = World::with_client().await;
    let nothing = json!({});
    for _ in 0..10 {
        for (status, one, other) in [
            ("requires_confirmation", "confirm", "confirm"),
            ("requires_confirmation", "confirm", "cancel"),
            ("requires_capture", "capture", "capture"),
            ("requires_capture", "capture", "cancel"),
        ] {
            let id = standing(&client, status).await;
            let (one, other) = (path(&id, one), path(&id, other));
            let (first, second) = tokio::join!(
                until_definite(&client, &one, &nothing),
                until_definite(&client, &other, &nothing),
            );
            let (done, refused) = match first.status.is_success() {
                true => (first, second),
                false => (second, first),
            };
            assert_eq!(done.status, 200, "{one} {other}: {}", done.json());
            assert_eq!(refused.code(), "payment_intent_unexpected_state");
            let seen = &refused.json()["error"]["payment_intent"];
            assert_eq!(*seen, retrieve(&client, &id).await);
        }
    }
    world.assert_the_ledgers_agree("two verbs").await;
}

#[tokio::test]
async fn a_holder_who_answers_while_a_confirmation_is_in_doubt_charges_nothing_more() {
    let (world, client) = World::with_client().await;
    let waiting = paid_with(&client, "pm_card_authenticationRequired", json!({})).await;
    let (id, page) = (waiting.id(), page_of(&waiting));
    let (confirm, visa) = (path(&id, "confirm"), json!({"payment_method": VISA}));
    lose_the_answer(&world, &confirm, &visa).await;
    for outcome in ["complete", "fail"] {
        assert_eq!(press(&page, outcome).await.status, 409);
    }
    // As often as a browser loads it: that is no guess.
    for _ in 0..40 {
        let shown = open(&page).await;
        assert_eq!(shown.status, 200);
        assert_eq!(shown.header("refresh"), Some("3"));
        assert!(String::from_utf8_lossy(&shown.body).contains("Please wait"));
    }
    assert_eq!(retrieve(&client, &id).await["status"], "processing");
    let answer = world.until_definite(&confirm, &visa).await;
    assert_eq!(answer.json()["status"], "succeeded", "{}", answer.json());
    assert_eq!(press(&page, "complete").await.status, 410);
    assert_eq!(retrieve(&client, &id).await, answer.json());
    assert_eq!(world.processor.lines().await, 1);
    world.assert_the_ledgers_agree("in doubt").await;
}

#[tokio::test]
async fn a_refund_by_intent_waits_for_one_by_charge_that_is_in_doubt_and_the_other_way_around() {
    let (world, client) = World::with_client().await;
    for by_intent in [true, false] {
        let id = standing(&client, "succeeded").await;
        let charge = retrieve(&client, &id).await["latest_charge"].clone();
        let mut bodies = [json!({"payment_intent": id}), json!({"charge": charge})];
        if !by_intent {
            bodies.reverse();
        }
        world.set_fault(json!({"fault": "drop_after"})).await;
        let key = format!("refund-{by_intent}");
        assert_eq!(client.post("/refunds", &key, &bodies[0]).await.status, 503);
        let busy = client.post_new("/refunds", &bodies[1]).await;
        assert_eq!(busy.code(), "resource_busy", "{by_intent}");
        world.the_lease_runs_out().await;
        let spent = until_definite(&client, "/refunds", &bodies[1]).await;
        assert_eq!(spent.code(), "charge_already_refunded");
        assert_eq!(client.post("/refunds", &key, &bodies[0]).await.status, 201);
    }
    world.assert_the_ledgers_agree("refunds").await;
}
