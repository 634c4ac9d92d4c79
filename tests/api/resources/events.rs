//! Events: every change has one, in the same transaction, and nothing else has.

use crate::support::{prelude::*, resources::uncaptured};

/// All events, oldest first.
async fn events(client: &Client) -> Vec<Value> {
    let list = client.get("/events?limit=100").await.json();
    let mut events = list["data"].as_array().unwrap().clone();
    events.reverse();
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    let types = events.iter().map(|event| event["type"].as_str().unwrap());
    types.collect()
}

#[tokio::test]
async fn every_change_writes_its_events_in_order() {
    let server = TestServer::start().await;
    let client = &server.client;
    let post = |path: String, body: Value| async move { client.post_new(&path, &body).await };
    let promised = uncaptured(client).await;
    post(format!("/charges/{promised}/capture"), json!({})).await;
    post(format!("/charges/{promised}"), json!({"description": "d"})).await;
    let refund = post("/refunds".into(), json!({"charge": promised, "amount": 1})).await;
    let refund = format!("/refunds/{}", refund.id());
    post(refund, json!({"metadata": {"a": "1"}})).await;
    let released = uncaptured(client).await;
    post("/refunds".into(), json!({"charge": released})).await;
    let order = open_order(client).await;
    post(format!("/orders/{order}"), json!({"metadata": {"a": "1"}})).await;
    let pay = format!("/orders/{order}/pay");
    post(pay.clone(), json!({"source": "tok_chargeDeclined"})).await;
    let paid = post(pay, json!({})).await.json();
    post("/refunds".into(), json!({"charge": paid["charge"]})).await;
    let canceled = open_order(client).await;
    post(format!("/orders/{canceled}/cancel"), json!({})).await;
    let expected = "charge.succeeded charge.captured charge.updated refund.created charge.refunded \
                    refund.updated charge.succeeded refund.created charge.refunded order.created \
                    order.updated charge.failed charge.succeeded order.paid refund.created \
                    charge.refunded order.refunded order.created order.canceled";
    assert_eq!(types(&events(client).await).join(" "), expected);
}

#[tokio::test]
async fn an_event_shows_the_object_as_it_was_and_the_request_that_changed_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let created = client.charge("key-1").await;
    let path = format!("/charges/{}", created.id());
    let params = json!({"description": "later"});
    client.post_new(&path, &params).await;
    let first = events(&client).await[0].clone();
    let expected = json!({
        "id": first["id"], "object": "event", "api_version": "2026-10-28.endive", "created": first["created"],
        "data": {"object": created.json(), "object_version": 2}, "livemode": false, "pending_webhooks": 0,
        "request": {"id": created.header("request-id"), "idempotency_key": "key-1"},
        "type": "charge.succeeded",
    });
    assert_eq!(first, expected);
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("evt_") && id.len() == 30, "{id}");
    for prefix in ["", "/v1"] {
        let event = client.get(&format!("{prefix}/events/{id}")).await;
        assert_eq!(event.json(), first);
        // The object is kept to the byte, its members in the order of every other reply.
        let text = String::from_utf8(event.body).unwrap();
        let object = String::from_utf8(created.body.clone()).unwrap();
        assert!(text.contains(&object), "{text}");
    }
}

#[tokio::test]
async fn replays_refusals_failures_and_second_creates_write_none() {
    let (_server, client) = TestServer::with_client(&[]).await;
    client.charge("key-1").await;
    client.charge("key-1").await;
    client.post("/charges", "key-1", &json!({})).await;
    client.post_new("/charges", &json!({})).await;
    let outage = json!({"amount": 1, "currency": "usd", "source": "tok_outage"});
    assert_eq!(client.post_new("/charges", &outage).await.status, 503);
    let order = json!({
        "currency": "eur", "client_order_id": "7", "items": [{"quantity": 1, "unit_amount": 1}],
    });
    for status in [201, 200] {
        assert_eq!(client.post_new("/orders", &order).await.status, status);
    }
    let written = events(&client).await;
    assert_eq!(types(&written), ["charge.succeeded", "order.created"]);
}

#[tokio::test]
async fn an_event_commits_with_its_change_or_not_at_all() {
    let server = TestServer::start().await;
    // Deferred to COMMIT: everything was written, and all of it goes.
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON events
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    server.database.execute(sql).await;
    assert_eq!(server.client.charge("key-1").await.status, 503);
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(server.database.records().await, 0);
    let sql = "DROP TRIGGER refuse ON events";
    server.database.execute(sql).await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
    assert_eq!(events(&server.client).await.len(), 1);
}

#[tokio::test]
async fn events_are_listed_by_type_and_only_to_their_account() {
    let (server, client) = TestServer::with_client(&[]).await;
    for number in 0..3 {
        client.charge(&format!("key-{number}")).await;
    }
    let declined = charge_by("tok_chargeDeclined");
    client.post_new("/charges", &declined).await;
    let failed = client.get("/v1/events?type=charge.failed").await.json();
    assert_eq!(failed["data"].as_array().unwrap().len(), 1);
    assert_eq!(failed["url"], "/v1/events");
    let newest = failed["data"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/events?limit=2&starting_after={newest}");
    let older = client.get(&path).await.json();
    assert_eq!(older["data"].as_array().unwrap().len(), 2);
    assert_eq!(older["has_more"], true);
    let stranger = client_of_account(&server, "other").await;
    assert_eq!(stranger.get("/events").await.json()["data"], json!([]));
    for id in [newest.as_str(), "evt_nobody"] {
        let missing = stranger.get(&format!("/events/{id}")).await;
        missing.assert_refusal(404, "resource_missing", "id");
    }
    let (charge, many) = (
        newest.replace("evt_", "ch_"),
        ["types[]=charge.failed"; 21].join("&"),
    );
    let wrong = format!(
        "starting_after={charge}                    parameter_invalid starting_after
         type=charge.eaten                          parameter_invalid type
         type=charge                                parameter_invalid type
         type=*                                     parameter_invalid type
         type=sheep.*                               parameter_invalid type
         types[]=charge.failed&types[]=charge.*     parameter_invalid types[1]
         types=charge.failed                        parameter_invalid types
         {many}                                     parameter_invalid types
         type=charge.failed&types[]=charge.failed   parameter_invalid types
         limit=0                                    parameter_invalid limit"
    );
    assert_refuses_queries(&stranger, "/events", &wrong).await;
}

#[tokio::test]
async fn events_are_listed_by_a_group_of_types_and_by_several() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    let order = open_order(&client).await;
    let pay = format!("/orders/{order}/pay");
    let body = json!({"source": "tok_chargeDeclined"});
    client.post_new(&pay, &body).await;
    let body = json!({"charge": charge});
    client.post_new("/refunds", &body).await;
    let all = "charge.succeeded order.created charge.failed refund.created charge.refunded";
    let all: Vec<_> = all.split(' ').collect();
    assert_eq!(types(&events(&client).await), all);
    let listed = async |query: &str| {
        let list = client.get(&format!("/v1/events?{query}")).await.json();
        let mut listed = list["data"].as_array().unwrap().clone();
        listed.reverse();
        (listed, list["has_more"] == true)
    };
    let charges = ["charge.succeeded", "charge.failed", "charge.refunded"];
    for (query, expected) in [
        ("type=charge.*", charges.as_slice()),
        ("type=order.*", &["order.created"]),
        ("type=checkout.*", &[]),
        ("types[]=order.created&types[]=charge.failed", &all[1..3]),
        ("types[0]=order.created&types[1]=order.created", &all[1..2]),
        // What happens at Stripe only.
        ("type=invoice.paid", &[]),
        ("type=customer.*", &[]),
        ("types[]=invoice.paid", &[]),
        ("types[]=invoice.paid&types[]=refund.created", &all[3..4]),
    ] {
        let (listed, has_more) = listed(query).await;
        assert_eq!(types(&listed), expected, "{query}");
        assert!(!has_more);
    }
    // In pages, newest first, across the types.
    let (newest, has_more) = listed("type=charge.*&limit=2").await;
    assert_eq!((types(&newest), has_more), (charges[1..].to_vec(), true));
    let cursor = newest[0]["id"].as_str().unwrap();
    let (oldest, has_more) =
        listed(&format!("type=charge.*&limit=2&starting_after={cursor}")).await;
    assert_eq!((types(&oldest), has_more), (charges[..1].to_vec(), false));
    let cursor = oldest[0]["id"].as_str().unwrap();
    let newer = listed(&format!("type=charge.*&limit=1&ending_before={cursor}")).await;
    assert_eq!((types(&newer.0), newer.1), (charges[1..2].to_vec(), true));
}
