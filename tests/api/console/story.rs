//! A key's story, the objects it made, and keys that have no outcome yet.

use super::visit::{CONSOLE, Visit};
use crate::support::{
    prelude::*,
    webhooks::endpoint,
    workflows::{charge_in, post},
};

async fn requests_of(database: &TestDatabase, count: i64) {
    eventually("the log holds the requests", || async {
        let logged = "SELECT count(*) FROM request_log WHERE idempotency_key IS NOT NULL";
        database.count(logged).await == count
    })
    .await;
}

fn link(list: &str, id: &str) -> String {
    format!("<a class=\"mono\" href=\"/console/{list}/{id}\">{id}</a>")
}

#[tokio::test]
async fn the_story_of_a_payment_leads_to_its_intent_its_charge_and_its_customer_and_shows_no_secret()
 {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let ann = json!({"email": "ann@shop.test", "payment_method": "pm_card_visa"});
    let customer = client.post("/customers", "key-1", &ann).await.id();
    let path = format!("/customers/{customer}/payment_methods");
    let methods = client.get(&path);
    let method = methods.await.json()["data"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let payment = json!({
        "amount": 2000, "currency": "usd", "customer": customer, "payment_method": method,
        "confirm": true, "return_url": "https://shop.test/back",
    });
    let paid = client.post("/payment_intents", "key-2", &payment).await;
    assert_eq!(paid.status, 201, "{paid:?}");
    let (intent, paid) = (paid.id(), paid.json());
    let charge = paid["latest_charge"].as_str().unwrap();
    let visit = Visit::begin(&server).await;
    let story = visit.page("/console/keys/key-2").await;
    let page = visit
        .page(&format!("/console/payment_intents/{intent}"))
        .await;
    for shown in [&story, &page] {
        for part in [
            link("payment_intents", &intent),
            link("charges", charge),
            "payment_intent.created".to_owned(),
            "charge.succeeded".to_owned(),
            "payment_intent.succeeded".to_owned(),
        ] {
            assert!(shown.contains(&part), "{part} in {shown}");
        }
        let secret = paid["client_secret"].as_str().unwrap();
        assert!(!shown.contains(secret), "{shown}");
    }
    let page = visit.page(&format!("/console/customers/{customer}")).await;
    for part in [
        link("payment_methods", &method),
        link("payment_intents", &intent),
    ] {
        assert!(page.contains(&part), "{part} in {page}");
    }
    let page = visit
        .page(&format!("/console/payment_methods/{method}"))
        .await;
    assert!(page.contains("payment_method.attached"), "{page}");
    assert_eq!(visit.get("/console/payment_methods").await.status, 404);
}

#[tokio::test]
async fn a_story_has_the_first_request_the_replay_the_reuse_the_reply_and_the_event() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let first = charge_in(client, "workflow-1", "key/1").await;
    assert!(charge_in(client, "workflow-1", "key/1").await.is_replay());
    let mut another = another_charge();
    another["description"] = "of-the-reuse".into();
    let reuse = client.post("/charges", "key/1", &another).await;
    assert_eq!(reuse.status, 422);
    requests_of(&server.database, 3).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/keys/key%2F1").await;
    let id = first.id();
    let request = first.header("original-request").unwrap();
    for part in [
        "Executed once. 1 retry got the stored reply again. 1 reuse of the key was refused.</p>",
        &format!("POST /charges, <code>{request}</code>"),
        &link("charges", &id),
        "<a href=\"/console/workflows?name=workflow-1\">workflow-1</a>",
        "HTTP 201\n",
        "\nlocation: /charges/",
        "&quot;amount&quot;: 2000,\n",
        "charge.succeeded",
        "led: <span class=\"state good\">executed<",
        ">replayed<",
        ">reused<",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // A bar for each request, and what there was none of is not counted.
    assert_eq!(page.matches("<svg class=\"bar\"").count(), 3, "{page}");
    assert!(
        !page.contains("too early") && !page.contains("no reply"),
        "{page}"
    );
    let looked_up = client.get("/idempotency-keys?key=key/1").await.json();
    let fingerprint = looked_up["fingerprint"].as_str().unwrap();
    assert!(page.contains(&format!("{}…", &fingerprint[..12])) && !page.contains(fingerprint));
    // What was sent under the key besides is nowhere.
    for of_the_reuse in ["of-the-reuse", "&quot;amount&quot;: 999"] {
        assert!(!page.contains(of_the_reuse), "{page}");
    }
    for path in [
        "/console/keys/unknown",
        "/console/keys/%00",
        "/console/keys/a%20b",
    ] {
        assert_eq!(visit.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_story_shows_who_waited_and_whose_reply_was_lost() {
    let settings: Vec<_> = PATIENT.iter().copied().chain([CONSOLE, FAULTS]).collect();
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &settings).await;
    let client = &server.client;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let first = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .post_with_fault("reply_lost", "/charges", "key-1", &charge())
                .await
        }
    });
    pause.is_reached().await;
    let second = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .post_waiting(20, "/charges", "key-1", &charge())
                .await
        }
    });
    eventually("the second request waits", || async {
        let metrics = String::from_utf8(scraper.get("/metrics").await.body).unwrap();
        metrics.contains("\ncharge_once_idempotency_waiters 1\n")
    })
    .await;
    pause.release().await;
    assert!(first.await.unwrap().is_none());
    assert!(second.await.unwrap().is_replay());
    requests_of(&server.database, 2).await;
    let page = Visit::begin(&server)
        .await
        .page("/console/keys/key-1")
        .await;
    for part in [
        "Executed once. 1 retry got the stored reply again. 1 request got no reply.</p>",
        "led, and its reply was <span class=\"state bad\">lost<",
        "waited, then <span class=\"state good\">replayed<",
        "<rect class=\"waited\"",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_story_lists_what_was_committed_with_the_key() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let endpoint = Endpoint::at(client, "https://receiver.invalid/hook").await;
    let charge = client.charge("key-1").await.id();
    client.charge("key-2").await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/keys/key-1").await;
    let table = page
        .split("aria-label=\"Committed under this key\"")
        .nth(1)
        .unwrap();
    let rows: Vec<_> = table
        .split("</table>")
        .next()
        .unwrap()
        .split("<tr>")
        .skip(2)
        .collect();
    assert_eq!(rows.len(), 4, "{table}");
    for (row, parts) in rows.iter().zip([
        ["<td>Key</td>", "key-1", "its reply: 201"],
        ["<td>Object</td>", &link("charges", &charge), "<td>"],
        [
            "<td>Event</td>",
            &link("charges", &charge),
            "charge.succeeded",
        ],
        [
            "<td>Delivery</td>",
            &link("webhook_endpoints", &endpoint.id),
            "pending",
        ],
    ]) {
        for part in parts {
            assert!(row.contains(part), "{part} in {row}");
        }
    }
    // The event and the endpoint have pages, with the delivery and its button.
    let event = rows[2]
        .split("/console/events/")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let one = visit.page(&format!("/console/events/{event}")).await;
    for part in [
        "Event charge.succeeded",
        "Data: Object",
        "20.00 USD",
        &link("keys", "key-1"),
        "Retry now",
    ] {
        assert!(one.contains(part), "{part} in {one}");
    }
    let list = visit.page("/console/events").await;
    assert!(
        list.contains(&link("events", event)) && list.contains(&link("charges", &charge)),
        "{list}"
    );
    let one = visit
        .page(&format!("/console/webhook_endpoints/{}", endpoint.id))
        .await;
    assert!(
        one.contains("https://receiver.invalid/hook") && one.contains("charge.succeeded"),
        "{one}"
    );
    assert_eq!(one.matches("Retry now: whd_").count(), 2, "{one}");
    assert!(
        !one.contains(&endpoint.secret) && !one.contains("whsec_"),
        "{one}"
    );
}

#[tokio::test]
async fn a_workflow_is_listed_in_its_order_with_what_came_of_each_request() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let charge = charge_in(client, "order/7", "key-1").await.id();
    let declined = json!({"amount": 500, "currency": "usd", "source": "tok_chargeDeclined"});
    post(client, "order/7", "/charges", "key-2", &declined).await;
    let visit = Visit::begin(&server).await;
    let page = visit.page("/console/workflows?name=order/7").await;
    let rows: Vec<_> = page.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), 2, "{page}");
    assert!(
        rows[0].contains(&link("keys", "key-1")) && rows[0].contains(&link("charges", &charge))
    );
    assert!(
        rows[1].contains(">declined<") && rows[1].contains("402"),
        "{page}"
    );
    let later = visit
        .page("/console/workflows?name=order/7&after=key-1")
        .await;
    assert!(
        !later.contains("key-1</a>") && later.contains("key-2</a>"),
        "{later}"
    );
    let none = visit.page("/console/workflows?name=order-8").await;
    assert!(
        none.contains("Nothing is recorded under this name."),
        "{none}"
    );
    for wrong in [
        "name=a%20b",
        "name=order-8&after=key-1",
        "name=order/7&after=%00",
    ] {
        let answer = visit.get(&format!("/console/workflows?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn an_object_is_a_page_with_money_and_links_and_a_checkout_a_line_of_steps() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    stock(client, "mug%2F1", 0).await;
    let mut items = checkout();
    items["items"][0]["sku"] = "mug/1".into();
    assert_eq!(client.post("/checkouts", "key-1", &items).await.status, 400);
    let made = client.get("/checkouts").await.json()["data"][0].clone();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let visit = Visit::begin(&server).await;
    let page = visit
        .page(&format!("/console/checkouts/{}", text("id")))
        .await;
    for part in [
        "Checkout of 24.00 USD",
        &link("charges", &text("charge")),
        &link("orders", &text("order")),
        "<strong>allocate inventory</strong>: <span class=\"state warn\">refused<",
        "<strong>create refund</strong> undoes what was done, <span class=\"state good\">done<",
        "<strong>cancel order</strong> undoes what was done, ",
        // The lines, with what each costs.
        "<td class=\"number\">12.00 USD</td>",
        "<details><summary>JSON</summary>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // Each step that made something says when.
    let steps = page
        .split("<ol class=\"steps\">")
        .nth(1)
        .unwrap()
        .split("</ol>")
        .next()
        .unwrap();
    assert_eq!(steps.matches("<time ").count(), 4, "{steps}");
    let charge = visit
        .page(&format!("/console/charges/{}", text("charge")))
        .await;
    assert!(
        charge.contains("<dt>Amount refunded</dt><dd>24.00 USD</dd>"),
        "{charge}"
    );
    let list = visit.page("/console/charges").await;
    assert!(
        list.contains("<td class=\"number\">24.00 USD</td>"),
        "{list}"
    );
    let level = "<a class=\"mono\" href=\"/console/inventory/mug%2F1\">mug/1</a>";
    assert!(visit.page("/console/inventory").await.contains(level));
    let level = visit.page("/console/inventory/mug%2F1").await;
    assert!(level.contains("<dt>Quantity</dt><dd>0</dd>"), "{level}");
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
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    let declined = json!({"amount": 2000, "currency": "usd", "source": "tok_chargeDeclined"});
    let negative = json!({"amount": -1, "currency": "usd"});
    stock(client, "mug", 0).await;
    for (path, key, body, status, says) in [
        (
            "/charges",
            "declined",
            declined,
            402,
            "Executed once, and declined: nothing was charged.",
        ),
        (
            "/charges",
            "negative",
            negative,
            400,
            "Refused: nothing was executed, and nothing charged.",
        ),
        (
            "/checkouts",
            "out-of-stock",
            checkout(),
            400,
            "Executed once, and refused at the end: what was charged was given back.",
        ),
    ] {
        assert_eq!(client.post(path, key, &body).await.status, status, "{key}");
        let visit = Visit::begin(&server).await;
        let page = visit.page(&format!("/console/keys/{key}")).await;
        let summary = format!("{says} The answer is stored.</p>");
        assert!(page.contains(&summary), "{summary} in {page}");
        assert!(!page.contains("Executed once."), "{key}");
    }
}

#[tokio::test]
async fn a_secret_in_a_stored_reply_is_masked() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let body = endpoint("https://example.com/webhooks");
    let created = server
        .client
        .post("/webhook_endpoints", "key-1", &body)
        .await;
    let secret = created.json()["secret"].as_str().unwrap().to_owned();
    let page = Visit::begin(&server)
        .await
        .page("/console/keys/key-1")
        .await;
    assert!(
        page.contains("&quot;secret&quot;: &quot;••••••••&quot;"),
        "{page}"
    );
    assert!(!page.contains(&secret) && !page.contains("whsec_") && !page.contains(API_KEY));
}

#[tokio::test]
async fn the_token_of_a_holder_s_page_is_masked_wherever_an_intent_is_shown() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let body = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "payment_method_types": ["card"], "return_url": "https://shop.test/back",
    });
    let setup = server.client.post("/setup_intents", "key-1", &body).await;
    let url = page_of(&setup);
    let (address, token) = url.rsplit_once('/').unwrap();
    let events = server.client.get("/events").await.json();
    let visit = Visit::begin(&server).await;
    let mut masked = 0;
    for path in events["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| format!("/console/events/{}", event["id"].as_str().unwrap()))
        .chain([
            "/console/keys/key-1".to_owned(),
            format!("/console/setup_intents/{}", setup.id()),
        ])
    {
        let page = visit.page(&path).await;
        assert!(!page.contains(token), "{path}: {page}");
        masked += usize::from(page.contains(&format!("{address}/••••••••")));
    }
    assert!(masked >= 3, "{masked}");
}

#[tokio::test]
async fn a_key_in_flight_says_so_and_is_listed_with_its_time() {
    let settings: Vec<_> = PATIENT.iter().copied().chain([CONSOLE]).collect();
    let server = TestServer::start_with(&settings).await;
    let visit = Visit::begin(&server).await;
    assert!(
        visit
            .page("/console/in-flight")
            .await
            .contains("There is none.")
    );
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "key-1").await;
    let first = tokio::spawn({
        let client = server.client.clone();
        async move { client.charge("key-1").await }
    });
    pause.is_reached().await;
    let live = "/console/live/keys/key-1";
    let page = visit.page("/console/keys/key-1").await;
    for part in [
        "In flight: there is no outcome yet.",
        "None has been answered yet.",
        "<td>nothing yet</td>",
        "No event yet.",
        &format!("data-live=\"{live}\""),
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!visit.page(live).await.contains("data-ended"));
    let list = visit.page("/console/in-flight").await;
    assert!(
        list.contains(">key-1</a>") && list.contains("This process works on it."),
        "{list}"
    );
    assert!(list.contains(" s</td>"), "{list}");
    pause.release().await;
    assert_eq!(first.await.unwrap().status, 201);
    requests_of(&server.database, 1).await;
    let ended = visit.page(live).await;
    assert!(
        ended.contains("Executed once.") && ended.contains("data-ended"),
        "{ended}"
    );
    let page = visit.page("/console/keys/key-1").await;
    assert!(
        page.contains(&ended) && !page.contains("data-live"),
        "{page}"
    );
    assert!(
        visit
            .page("/console/in-flight")
            .await
            .contains("There is none.")
    );
}

#[tokio::test]
async fn a_key_in_doubt_says_why() {
    let server = TestServer::start_with(&[CONSOLE]).await;
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
    sqlx::raw_sql(sql)
        .execute(&server.database.pool)
        .await
        .unwrap();
    let visit = Visit::begin(&server).await;
    let list = visit.page("/console/in-flight").await;
    let in_doubt = "<span class=\"state bad\">in doubt</span>";
    for part in [
        "doubt-1",
        in_doubt,
        "2 min ",
        "An attempt may have been executed",
        "Taken over 2 times",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let page = visit.page("/console/keys/doubt-1").await;
    assert!(
        page.contains("In doubt: an attempt may have been executed"),
        "{page}"
    );
    assert!(page.contains(in_doubt), "{page}");
    let looked_up = server.client.get("/idempotency-keys/doubt-1").await;
    assert_eq!(looked_up.json()["status"], "in_doubt");
}

#[tokio::test]
async fn what_a_client_named_keeps_its_name_and_nothing_is_read_into_it() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let metadata = json!({
        "order_id": "7", "paid_at": "1795000000", "status": "requires_capture", "object": "note",
    });
    let body = json!({"amount": 2000, "currency": "usd", "metadata": metadata});
    let charge = server.client.post_new("/charges", &body).await.id();
    let visit = Visit::begin(&server).await;
    let page = visit.page(&format!("/console/charges/{charge}")).await;
    for (name, value) in metadata.as_object().unwrap() {
        let shown = format!("<dt>{name}</dt><dd>{}</dd>", value.as_str().unwrap());
        assert!(page.contains(&shown), "{shown} in {page}");
    }
    // Members of the API's have names that people read.
    assert!(page.contains("<dt>Amount captured</dt>"), "{page}");
}

#[tokio::test]
async fn every_object_has_a_page_with_its_state_and_its_events() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let client = &server.client;
    stock(client, "mug", 10).await;
    let charge = client.charge("charge-1").await.id();
    let refund = client
        .post(
            "/refunds",
            "refund-1",
            &json!({"charge": charge, "amount": 500}),
        )
        .await;
    let items = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 700}]});
    let order = client.post("/orders", "order-1", &items).await.id();
    let checkout = client.post("/checkouts", "checkout-1", &checkout()).await;
    assert_eq!(checkout.status, 201, "{}", checkout.json());
    let visit = Visit::begin(&server).await;
    let openapi = client.get("/openapi.json").await.json();
    for (list, id, key, state, event) in [
        (
            "charges",
            &charge,
            "charge-1",
            "refunded",
            "charge.succeeded",
        ),
        (
            "refunds",
            &refund.id(),
            "refund-1",
            "succeeded",
            "refund.created",
        ),
        ("orders", &order, "order-1", "open", "order.created"),
        (
            "checkouts",
            &checkout.id(),
            "checkout-1",
            "completed",
            "checkout.",
        ),
    ] {
        let path = format!("/console/{list}");
        let page = visit.page(&path).await;
        assert!(page.contains(&link(list, id)), "{page}");
        assert!(page.contains(&format!(">{state}<")), "{state} in {page}");
        let one = visit.page(&format!("{path}/{id}")).await;
        assert!(
            one.contains(&format!("&quot;id&quot;: &quot;{id}&quot;")),
            "{one}"
        );
        assert!(one.contains(event), "{event} in {one}");
        assert!(one.contains(&link("keys", key)), "{one}");
        // Where Swagger UI has the operation that retrieves it.
        let operation = &openapi["paths"][format!("/{list}/{{id}}")]["get"];
        let (tag, name) = (&operation["tags"][0], &operation["operationId"]);
        let place = format!(
            "/swagger-ui/#/{}/{}",
            tag.as_str().unwrap(),
            name.as_str().unwrap()
        );
        assert!(
            one.contains(&format!("<a href=\"{place}\">")),
            "{place} in {one}"
        );
        let other = if id.ends_with('0') { '1' } else { '0' };
        for missing in [
            format!("{path}/{}{other}", &id[..id.len() - 1]),
            format!("{path}/x"),
        ] {
            assert_eq!(visit.get(&missing).await.status, 404, "{missing}");
        }
        assert_eq!(visit.get(&format!("{path}?after=x")).await.status, 400);
    }
    let of_charge = visit.page(&format!("/console/charges/{charge}")).await;
    assert!(of_charge.contains("refund.created") && of_charge.contains("charge.refunded"));
}

#[tokio::test]
async fn what_another_account_has_is_not_there() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let alice = client_of_account(&server, "alice").await;
    let charge = alice.charge("alice-1").await.id();
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 700}]});
    let order = alice.post("/orders", "alice-2", &order).await.id();
    let refund = alice
        .post("/refunds", "alice-3", &json!({"charge": charge}))
        .await
        .id();
    requests_of(&server.database, 3).await;
    let visit = Visit::begin(&server).await;
    for path in [
        "/console/keys/alice-1".to_owned(),
        format!("/console/charges/{charge}"),
        format!("/console/orders/{order}"),
        format!("/console/refunds/{refund}"),
    ] {
        assert_eq!(visit.get(&path).await.status, 404, "{path}");
    }
    for path in [
        "charges",
        "orders",
        "refunds",
        "checkouts",
        "in-flight",
        "deliveries",
        "events",
        "inventory",
    ] {
        let page = visit.page(&format!("/console/{path}")).await;
        assert!(page.contains("There is none"), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_long_list_has_a_second_page() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    for _ in 0..26 {
        server.client.post_new("/charges", &charge()).await;
    }
    let visit = Visit::begin(&server).await;
    let first = visit.page("/console/charges").await;
    assert_eq!(first.matches("<tr>").count(), 26);
    let next = first
        .split("href=\"/console/charges?after=")
        .nth(1)
        .unwrap();
    let next = next.split('"').next().unwrap();
    let second = visit.page(&format!("/console/charges?after={next}")).await;
    assert_eq!(second.matches("<tr>").count(), 2);
}
