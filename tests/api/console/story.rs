//! A key's story, the objects it made, and keys that have no outcome yet.

use super::*;
use crate::support::workflows::{charge_in, post};

fn link(list: &str, id: &str) -> String {
    format!("<a class=\"mono\" href=\"/console/{list}/{id}\">{id}</a>")
}

#[tokio::test]
async fn the_story_of_a_payment_leads_to_its_intent_its_charge_and_its_customer_and_shows_no_secret()
 {
    let (server, visit) = visited().await;
    let client = &server.client;
    let ann = json!({"email": "ann@shop.test", "payment_method": "pm_card_visa"});
    let customer = client.post("/customers", "key-1", &ann).await.id();
    let path = format!("/customers/{customer}/payment_methods");
    let methods = client.get(&path).await.json();
    let method = methods["data"][0]["id"].as_str().unwrap();
    let payment = json!({
        "amount": 2000, "currency": "usd", "customer": customer, "payment_method": method,
        "confirm": true, "return_url": "https://shop.test/back",
    });
    let paid = client.post("/payment_intents", "key-2", &payment).await;
    assert_eq!(paid.status, 201, "{paid:?}");
    let (intent, paid) = (paid.id(), paid.json());
    let charge = paid["latest_charge"].as_str().unwrap();
    let story = visit.object("keys", "key-2").await;
    let page = visit.object("payment_intents", &intent).await;
    for shown in [&story, &page] {
        shown.must_have(&[
            &link("payment_intents", &intent),
            &link("charges", charge),
            "payment_intent.created",
            "charge.succeeded",
            "payment_intent.succeeded",
        ]);
        shown.must_lack(&[paid["client_secret"].as_str().unwrap()]);
    }
    let page = visit.object("customers", &customer).await;
    page.must_have(&[&link("payment_methods", method)]);
    page.must_have(&[&link("payment_intents", &intent)]);
    let page = visit.object("payment_methods", method).await;
    assert_has(&page, "payment_method.attached");
    assert_eq!(visit.get("/console/payment_methods").await.status, 404);
}

#[tokio::test]
async fn a_story_has_the_first_request_the_replay_the_reuse_the_reply_and_the_event() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let first = charge_in(client, "workflow-1", "key/1").await;
    assert!(charge_in(client, "workflow-1", "key/1").await.is_replay());
    let mut another = another_charge();
    another["description"] = "of-the-reuse".into();
    let reuse = client.post("/charges", "key/1", &another).await;
    assert_eq!(reuse.status, 422);
    log_holds(&server.database, 3).await;
    let page = visit.object("keys", "key%2F1").await;
    let id = first.id();
    let request = first.header("original-request").unwrap();
    page.must_have(&[
        "<p class=\"says good\" data-ended>Executed once. 1 retry got the stored reply again. 1 reuse of the \
         key was refused.</p>",
        "What their bodies held is never kept.",
        &format!("POST /charges, <code data-copy>{request}</code>"),
        &link("charges", &id),
        "<a href=\"/console/workflows?name=workflow-1\">workflow-1</a>",
        "HTTP 201\n",
        "\nlocation: /charges/",
        "&quot;amount&quot;: 2000,\n",
        "charge.succeeded",
        "led: <span class=\"state good\">executed<",
        ">replayed<",
        ">reused<",
    ]);
    // A bar for each request, and what there was none of is not counted.
    assert_eq!(page.matches("<svg class=\"bar\"").count(), 3, "{page}");
    page.must_lack(&["too early", "no reply"]);
    let looked_up = client.get("/idempotency-keys?key=key/1").await.json();
    let fingerprint = looked_up["fingerprint"].as_str().unwrap();
    page.must_have(&[&format!("{}…", &fingerprint[..12])]);
    page.must_lack(&[fingerprint]);
    // What was sent under the key besides is nowhere.
    page.must_lack(&["of-the-reuse", "&quot;amount&quot;: 999"]);
    for key in ["unknown", "%00", "a%20b"] {
        let answer = visit.get(&format!("/console/keys/{key}")).await;
        assert_eq!(answer.status, 404, "{key}");
    }
}

#[tokio::test]
async fn a_key_that_was_given_up_is_told_as_one_in_its_story_and_in_the_lists() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let path = "/idempotency-keys/key-1/abandon";
    let request = client.request(Method::POST, path).json(&json!({}));
    let request = request.header("idempotency-key", "own-1");
    let request = request.header("idempotency-workflow", "workflow-1");
    assert_eq!(Answer::of(request).await.status, 200);
    let late = client.charge("key-1").await;
    assert_eq!(late.code(), "idempotency_key_abandoned");
    log_holds(&server.database, 2).await;
    let page = visit.object("keys", "key-1").await;
    page.must_have(&[
        "<p class=\"says warn\" data-ended>Given up: nothing is executed with this key. A request gets 409. \
         1 retry got the stored reply again.</p>",
        "<dt>Given up by</dt>",
        "<span class=\"state warn\">abandoned</span>",
        "HTTP 409\n",
    ]);
    for path in ["/console/requests", "/console/workflows?name=workflow-1"] {
        let list = visit.page(path).await;
        assert_has(&list, "<span class=\"state warn\">abandoned</span>");
    }
}

/// The log has the key as it was, and the record, of a process that seals, its hash.
#[tokio::test]
async fn a_key_that_was_given_up_is_told_as_one_in_the_lists_by_its_sealed_record() {
    let (server, visit) = visited().await;
    let sealing = [
        ("SEAL_SECRETS", "a-secret-of-32-bytes-or-even-more"),
        ("SEAL_REPLIES", "all"),
    ];
    let sealing = ServerProcess::start(&server.database, &sealing);
    let path = "/idempotency-keys/key-1/abandon";
    let gave_up = sealing.client.post(path, "own-1", &json!({})).await;
    assert_eq!(gave_up.status, 200);
    let late = server.client.charge("key-1").await;
    assert_eq!(late.code(), "idempotency_key_abandoned");
    // The other process has no console, and logs nothing.
    log_holds(&server.database, 1).await;
    let list = visit.page("/console/requests").await;
    assert_has(&list, "<span class=\"state warn\">abandoned</span>");
}

/// Nothing was made, so the stored conflict names nothing.
#[tokio::test]
async fn a_key_that_has_expired_is_not_told_as_one_that_was_given_up() {
    let settings = [CONSOLE, FORGETFUL, ("KEY_MEMORY", "365d")];
    let server = TestServer::start_with(&settings).await;
    let visit = Visit::begin(&server).await;
    let client = &server.client;
    let refused = client.post("/charges", "key-1", &json!({})).await;
    assert_eq!(refused.status, 400);
    server.database.expire_records().await;
    let late = client.post("/charges", "key-1", &json!({})).await;
    assert_eq!(late.code(), "idempotency_key_expired");
    let again = client.post("/charges", "key-1", &json!({})).await;
    again.assert_replays(&late);
    log_holds(&server.database, 3).await;
    let told = [
        visit.object("keys", "key-1").await,
        visit.page("/console/requests").await,
    ];
    for page in told {
        assert_has(&page, ">replayed<");
        page.must_lack(&["abandoned"]);
    }
}

#[tokio::test]
async fn a_story_shows_who_waited_and_whose_reply_was_lost() {
    let settings = [PATIENT, &[CONSOLE, FAULTS]].concat();
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &settings).await;
    let client = &server.client;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let first = tokio::spawn({
        let (client, body, fault) = (client.clone(), charge(), "reply_lost");
        async move {
            client
                .post_with_fault(fault, "/charges", "key-1", &body)
                .await
        }
    });
    pause.is_reached().await;
    let second = client.sending_and_waiting(20, "/charges", "key-1", charge());
    reaches(&scraper, "charge_once_idempotency_waiters", 1.0).await;
    pause.release().await;
    assert!(first.await.unwrap().is_none());
    assert!(second.await.unwrap().is_replay());
    log_holds(&server.database, 2).await;
    let visit = Visit::begin(&server).await;
    let page = visit.object("keys", "key-1").await;
    page.must_have(&[
        "Executed once. 1 retry got the stored reply again. 1 request got no reply.</p>",
        "led, and its reply was <span class=\"state bad\">lost<",
        "waited, then <span class=\"state good\">replayed<",
        "<rect class=\"waited\"",
    ]);
}

#[tokio::test]
async fn an_outcome_that_no_reply_has_told_is_said_to_be_one() {
    let server = TestServer::start_with(&[CONSOLE, FAULTS]).await;
    let client = &server.client;
    let body = charge();
    let lost = client.post_with_fault("reply_lost", "/charges", "key-1", &body);
    assert!(lost.await.is_none());
    log_holds(&server.database, 1).await;
    let visit = Visit::begin(&server).await;
    let untold = "No reply has told it yet: a retry with this key gets it.</p>";
    visit.object("keys", "key-1").await.must_have(&[untold]);
    assert!(client.post("/charges", "key-1", &body).await.is_replay());
    log_holds(&server.database, 2).await;
    visit.object("keys", "key-1").await.must_lack(&[untold]);
}

#[tokio::test]
async fn a_pause_in_a_story_is_labeled_with_its_length() {
    let (server, visit) = visited().await;
    for _ in 0..3 {
        server.client.charge("key-1").await;
    }
    log_holds(&server.database, 3).await;
    visit
        .object("keys", "key-1")
        .await
        .must_lack(&["without a request"]);
    // The last one came two minutes later: its id begins with the millisecond.
    let last = "
        UPDATE request_log
           SET id = overlay(replace(id::text, '-', '') placing
                            lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint + 125000), 12, '0')
                            from 1 for 12)::uuid
         WHERE id = (SELECT max(id::text)::uuid FROM request_log)";
    server.database.execute(last).await;
    let page = visit.object("keys", "key-1").await;
    let rows: Vec<_> = page.split("<tr>").collect();
    let is_label = |row: &&str| row.contains("2 min ") && row.contains(" s without a request");
    let place = rows.iter().position(is_label).unwrap();
    assert!(rows[place + 1].contains("replayed"), "{page}");
    assert_eq!(page.matches("without a request").count(), 1, "{page}");
}

#[tokio::test]
async fn a_story_lists_what_was_committed_with_the_key() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let endpoint = Endpoint::at(client, "https://receiver.invalid/hook").await;
    let charge = client.charge("key-1").await.id();
    client.charge("key-2").await;
    let page = visit.object("keys", "key-1").await;
    let table = page.between("aria-label=\"Committed under this key\"", "</table>");
    let rows: Vec<_> = table.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), 4, "{table}");
    let (charge, id) = (link("charges", &charge), &endpoint.id);
    rows[0].must_have(&["<td>Key</td>", "key-1", "its reply: 201"]);
    rows[1].must_have(&["<td>Object</td>", &charge, "as it is now", ">succeeded<"]);
    rows[2].must_have(&["<td>Event</td>", &charge, "charge.succeeded"]);
    rows[3].must_have(&[
        "<td>Delivery</td>",
        &link("webhook_endpoints", id),
        "pending",
    ]);
    // The event and the endpoint have pages, with the delivery and its button.
    let event = rows[2].between("/console/events/", "\"");
    let one = visit.object("events", event).await;
    one.must_have(&[
        "Event charge.succeeded",
        "Data: Object",
        "$20.00",
        &link("keys", "key-1"),
        "Retry now",
    ]);
    let list = visit.page("/console/events").await;
    list.must_have(&[&link("events", event), &charge]);
    let one = visit.object("webhook_endpoints", id).await;
    one.must_have(&["https://receiver.invalid/hook", "charge.succeeded"]);
    assert_eq!(one.matches("Retry now: whd_").count(), 2, "{one}");
    one.must_lack(&[&endpoint.secret, "whsec_"]);
}

#[tokio::test]
async fn a_workflow_is_listed_in_its_order_with_what_came_of_each_request() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let charge = charge_in(client, "order/7", "key-1").await.id();
    let declined = json!({"amount": 500, "currency": "usd", "source": "tok_chargeDeclined"});
    post(client, "order/7", "/charges", "key-2", &declined).await;
    let page = visit.page("/console/workflows?name=order/7").await;
    let rows: Vec<_> = page.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), 2, "{page}");
    rows[0].must_have(&[&link("keys", "key-1"), &link("charges", &charge)]);
    rows[1].must_have(&[">declined<", "402"]);
    let after = "/console/workflows?name=order/7&after=key-1";
    let later = visit.page(after).await;
    later.must_have(&["key-2</a>"]);
    later.must_lack(&["key-1</a>"]);
    let none = visit.page("/console/workflows?name=order-8").await;
    none.must_have(&["Nothing is recorded under this name."]);
    for wrong in ["a%20b", "order-8&after=key-1", "order/7&after=%00"] {
        let path = format!("/console/workflows?name={wrong}");
        let answer = visit.get(&path).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn an_object_is_a_page_with_money_and_links_and_a_checkout_a_line_of_steps() {
    let (server, visit) = visited().await;
    let client = &server.client;
    stock(client, "mug%2F1", 0).await;
    let mut items = checkout();
    items["items"][0]["sku"] = "mug/1".into();
    assert_eq!(client.post("/checkouts", "key-1", &items).await.status, 400);
    let made = client.get("/checkouts").await.json()["data"][0].clone();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let page = visit.object("checkouts", &text("id")).await;
    page.must_have(&[
        "Checkout of $24.00",
        &link("charges", &text("charge")),
        &link("orders", &text("order")),
        "<strong>allocate inventory</strong>: <span class=\"state warn\">refused<",
        "<strong>create refund</strong> undoes what was done, <span class=\"state good\">done<",
        "<strong>cancel order</strong> undoes what was done, ",
        // The lines, with what each costs.
        "<td class=\"number\">$12.00</td>",
        "<details><summary>JSON</summary>",
    ]);
    // Each step that made something says when.
    let steps = page.between("<ol class=\"steps\">", "</ol>");
    assert_eq!(steps.matches("<time ").count(), 4, "{steps}");
    let charge = visit.object("charges", &text("charge")).await;
    charge.must_have(&["<dt>Amount refunded</dt><dd>$24.00</dd>"]);
    let list = visit.page("/console/charges").await;
    list.must_have(&["<td class=\"number\">$24.00</td>"]);
    let level = "<a class=\"mono\" href=\"/console/inventory/mug%2F1\">mug/1</a>";
    visit.page("/console/inventory").await.must_have(&[level]);
    let level = visit.object("inventory", "mug%2F1").await;
    level.must_have(&["<dt>Quantity</dt><dd>0</dd>"]);
    for (path, status) in [
        ("/console/inventory/cup", 404),
        ("/console/inventory/%00", 404),
        ("/console/inventory?after=cup", 200),
        ("/console/inventory?after=%00", 400),
        ("/console/events/evt_1", 404),
        ("/console/events?after=evt_1", 400),
        ("/console/webhook_endpoints/we_1", 404),
    ] {
        assert_eq!(visit.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_story_says_what_a_stored_refusal_means() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let declined = json!({"amount": 2000, "currency": "usd", "source": "tok_chargeDeclined"});
    let negative = json!({"amount": -1, "currency": "usd"});
    stock(client, "mug", 0).await;
    let charged = "Executed once, and declined: nothing was charged.";
    let refused = "Refused: nothing was executed, and nothing charged.";
    let returned = "Executed once, and refused at the end: what was charged was given back.";
    for (path, key, body, status, says) in [
        ("/charges", "declined", declined, 402, charged),
        ("/charges", "negative", negative, 400, refused),
        ("/checkouts", "sold-out", checkout(), 400, returned),
    ] {
        assert_eq!(client.post(path, key, &body).await.status, status, "{key}");
        let page = visit.object("keys", key).await;
        page.must_have(&[&format!("{says} The answer is stored.</p>")]);
        page.must_lack(&["Executed once."]);
    }
}

#[tokio::test]
async fn a_secret_in_a_stored_reply_is_masked() {
    let (server, visit) = visited().await;
    let body = endpoint("https://example.com/webhooks");
    let created = server.client.post("/webhook_endpoints", "key-1", &body);
    let created = created.await.json();
    let page = visit.object("keys", "key-1").await;
    page.must_have(&["&quot;secret&quot;: &quot;••••••••&quot;"]);
    page.must_lack(&[created["secret"].as_str().unwrap(), "whsec_", API_KEY]);
}

#[tokio::test]
async fn the_token_of_a_holder_s_page_is_masked_wherever_an_intent_is_shown() {
    let (server, visit) = visited().await;
    let body = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "payment_method_types": ["card"], "return_url": "https://shop.test/back",
    });
    let setup = server.client.post("/setup_intents", "key-1", &body).await;
    let url = page_of(&setup);
    let (address, token) = url.rsplit_once('/').unwrap();
    let events = server.client.get("/events").await.json();
    let (events, setup) = (events["data"].as_array().unwrap(), setup.id());
    let events = events
        .iter()
        .map(|event| ("events", event["id"].as_str().unwrap()));
    let shown = events.chain([("keys", "key-1"), ("setup_intents", &setup)]);
    let mut masked = 0;
    for (list, id) in shown {
        let page = visit.object(list, id).await;
        page.must_lack(&[token]);
        masked += usize::from(page.contains(&format!("{address}/••••••••")));
    }
    assert!(masked >= 3, "{masked}");
}

#[tokio::test]
async fn a_key_in_flight_says_so_and_is_listed_with_its_time() {
    let server = TestServer::start_with(&[PATIENT, &[CONSOLE]].concat()).await;
    let visit = Visit::begin(&server).await;
    let in_flight = "/console/in-flight";
    visit.page(in_flight).await.must_have(&["There is none."]);
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let first = server.client.charging("key-1");
    pause.is_reached().await;
    let live = "/console/live/keys/key-1";
    let page = visit.object("keys", "key-1").await;
    page.must_have(&[
        "<p class=\"says warn\">In flight: there is no outcome yet. Its request is POST /charges. ",
        "None has been answered yet.",
        "<td>nothing yet</td>",
        "No event yet.",
        &format!("data-live=\"{live}\""),
    ]);
    visit.page(live).await.must_lack(&["data-ended"]);
    let list = visit.page(in_flight).await;
    list.must_have(&[">key-1</a>", "This process works on it.", " s</td>"]);
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    log_holds(&server.database, 1).await;
    let ended = visit.page(live).await;
    ended.must_have(&["Executed once.", "data-ended"]);
    let page = visit.object("keys", "key-1").await;
    page.must_have(&[&ended]);
    page.must_lack(&["data-live"]);
    visit.page(in_flight).await.must_have(&["There is none."]);
}

#[tokio::test]
async fn a_key_in_doubt_says_why() {
    let (server, visit) = visited().await;
    let charge = server.client.charge("key-1").await.id();
    visit.object("charges", &charge).await.must_lack(&["Now "]);
    let sql = "
        INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
               request_id, created_at, expires_at)
        SELECT id, 'doubt-1', 1, sha256('x'), 'POST', '/charges', 'req_1', now() - interval '2 minutes',
               now() + interval '1 day'
          FROM accounts;
        INSERT INTO idempotency_leases (account_id, key, kind, operation, token, leased_until,
               recover_after, takeovers, in_doubt)
        SELECT id, 'doubt-1', 'test', gen_random_uuid(), gen_random_uuid(), now() - interval '1 second',
               now() + interval '1 hour', 2, true
          FROM accounts;";
    server.database.execute(sql).await;
    let about =
        format!("UPDATE idempotency_keys SET resource_id = '{charge}' WHERE key = 'doubt-1'");
    server.database.execute(&about).await;
    let list = visit.page("/console/in-flight").await;
    let in_doubt = "<span class=\"state bad\">in doubt</span>";
    list.must_have(&[
        "doubt-1",
        in_doubt,
        "2 min ",
        "An attempt may have been executed",
        "Taken over 2 times",
    ]);
    let page = visit.object("keys", "doubt-1").await;
    page.must_have(&[
        "<p class=\"says bad\">In doubt: the processor may have charged. Its request is POST /charges. The \
         reconciler asks for its answer at <time ",
        "A retry with this key is safe.</p>",
        in_doubt,
    ]);
    // Who starts with the charge finds the story.
    let link =
        format!("Now {in_doubt} under the key <a class=\"mono\" href=\"/console/keys/doubt-1\">");
    visit.object("charges", &charge).await.must_have(&[&link]);
    let looked_up = server.client.get("/idempotency-keys/doubt-1").await;
    assert_eq!(looked_up.json()["status"], "in_doubt");
}

#[tokio::test]
async fn what_a_client_named_keeps_its_name_and_nothing_is_read_into_it() {
    let (server, visit) = visited().await;
    let metadata = json!({
        "order_id": "7", "paid_at": "1795000000", "status": "requires_capture", "object": "note",
    });
    let body = json!({"amount": 2000, "currency": "usd", "metadata": metadata});
    let charge = server.client.post_new("/charges", &body).await.id();
    let page = visit.object("charges", &charge).await;
    for (name, value) in metadata.as_object().unwrap() {
        let value = value.as_str().unwrap();
        page.must_have(&[&format!("<dt>{name}</dt><dd>{value}</dd>")]);
    }
    // Members of the API's have names that people read.
    page.must_have(&["<dt>Amount captured</dt>"]);
}

#[tokio::test]
async fn every_object_has_a_page_with_its_state_and_its_events() {
    let (server, visit) = visited().await;
    let client = &server.client;
    stock(client, "mug", 10).await;
    let charge = client.charge("charge-1").await.id();
    let refund = json!({"charge": charge, "amount": 500});
    let refund = client.post("/refunds", "refund-1", &refund).await.id();
    let items = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 700}]});
    let order = client.post("/orders", "order-1", &items).await.id();
    let checkout = client.post("/checkouts", "checkout-1", &checkout()).await;
    assert_eq!(checkout.status, 201, "{}", checkout.json());
    let openapi = client.get("/openapi.json").await.json();
    for (noun, id, state, event) in [
        ("charge", &charge, "partly refunded", "charge.succeeded"),
        ("refund", &refund, "succeeded", "refund.created"),
        ("order", &order, "open", "order.created"),
        ("checkout", &checkout.id(), "completed", "checkout."),
    ] {
        let list = &format!("{noun}s");
        let path = format!("/console/{list}");
        let page = visit.page(&path).await;
        page.must_have(&[&link(list, id), &format!(">{state}<")]);
        let one = visit.object(list, id).await;
        let shown = format!("&quot;id&quot;: &quot;{id}&quot;");
        one.must_have(&[&shown, event, &link("keys", &format!("{noun}-1"))]);
        // Where Swagger UI has the operation that retrieves it.
        let operation = &openapi["paths"][format!("/{list}/{{id}}")]["get"];
        let (tag, name) = (&operation["tags"][0], &operation["operationId"]);
        let (tag, name) = (tag.as_str().unwrap(), name.as_str().unwrap());
        one.must_have(&[&format!("<a href=\"/swagger-ui/#/{tag}/{name}\">")]);
        let other = if id.ends_with('0') { '1' } else { '0' };
        for missing in [
            format!("{path}/{}{other}", &id[..id.len() - 1]),
            format!("{path}/x"),
        ] {
            assert_eq!(visit.get(&missing).await.status, 404, "{missing}");
        }
        assert_eq!(visit.get(&format!("{path}?after=x")).await.status, 400);
    }
    let of_charge = visit.object("charges", &charge).await;
    of_charge.must_have(&["refund.created", "charge.refunded"]);
}

#[tokio::test]
async fn what_another_account_has_is_not_there() {
    let (server, visit) = visited().await;
    let alice = client_of_account(&server, "alice").await;
    let charge = alice.charge("alice-1").await.id();
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 700}]});
    let order = alice.post("/orders", "alice-2", &order).await.id();
    let refund = json!({"charge": charge});
    let refund = alice.post("/refunds", "alice-3", &refund).await.id();
    log_holds(&server.database, 3).await;
    for (list, id) in [
        ("keys", "alice-1"),
        ("charges", &charge),
        ("orders", &order),
        ("refunds", &refund),
    ] {
        let answer = visit.get(&format!("/console/{list}/{id}")).await;
        assert_eq!(answer.status, 404, "{list}");
    }
    let lists = "charges orders refunds checkouts in-flight deliveries events inventory";
    for list in lists.split(' ') {
        let page = visit.page(&format!("/console/{list}")).await;
        assert!(page.contains("There is none"), "{list}: {page}");
    }
}

#[tokio::test]
async fn a_long_list_has_a_second_page() {
    let (server, visit) = visited().await;
    for _ in 0..26 {
        server.client.post_new("/charges", &charge()).await;
    }
    let first = visit.page("/console/charges").await;
    assert_eq!(first.matches("<tr>").count(), 26);
    let next = first.between("href=\"/console/charges?after=", "\"");
    let second = visit.page(&format!("/console/charges?after={next}")).await;
    assert_eq!(second.matches("<tr>").count(), 2);
}

#[tokio::test]
async fn a_key_that_the_server_assigned_says_so_and_no_other() {
    let server = TestServer::start_with(&[CONSOLE, ("KEYS", "assign")]).await;
    let visit = Visit::begin(&server).await;
    let charging = server.client.request(Method::POST, "/charges");
    let charged = Answer::of(charging.json(&charge())).await;
    server.client.charge("key-1").await;
    let says = "The request came without a key";
    let key = charged.header("idempotency-key").unwrap();
    visit.object("keys", key).await.must_have(&[says]);
    visit.object("keys", "key-1").await.must_lack(&[says]);
}

#[tokio::test]
async fn a_sealed_reply_is_told_to_be_sealed_and_the_log_has_a_hash_in_place_of_its_key() {
    let sealed = ("SEAL_SECRETS", "a-secret-of-thirty-two-characters");
    let server = TestServer::start_with(&[CONSOLE, sealed]).await;
    let visit = Visit::begin(&server).await;
    let body = endpoint("https://example.com/hook");
    let made = server
        .client
        .post("/webhook_endpoints", "key-1", &body)
        .await;
    log_holds(&server.database, 1).await;
    let sealed = "<span class=\"state plain\">sealed</span>";
    let page = visit.object("keys", "key-1").await;
    page.must_have(&[sealed, &made.id(), "executed", "POST /webhook_endpoints"]);
    page.must_lack(&["enabled_events", made.json()["secret"].as_str().unwrap()]);
    let page = visit.page("/console/requests").await;
    page.must_have(&[sealed, "/webhook_endpoints"]);
    page.must_lack(&[",sealed.", "%2Csealed"]);
}
