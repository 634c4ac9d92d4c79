//! Workflows: a client links its requests, and reads where to continue.

use reqwest::StatusCode;

use crate::support::{
    prelude::*,
    records::assert_nothing_stored,
    workflows::{charge_in, completed, expected, page, post, sending},
};

#[tokio::test]
async fn a_workflow_lists_its_requests_in_order_whatever_they_did() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let order = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 2000}]});
    let declined = json!({"source": "tok_chargeDeclined"});
    // Their order is not that of their keys.
    let opened = post(&client, "checkout-1", "/orders", "9-open", &order).await;
    let pay = format!("/orders/{}/pay", opened.id());
    let no = post(&client, "checkout-1", &pay, "8-declined", &declined).await;
    client.charge("another workflow's").await;
    charge_in(&client, "checkout-2", "another one's").await;
    let wrong = post(&client, "checkout-1", &pay, "7-wrong", &json!({"x": 1})).await;
    post(&client, "checkout-1", &pay, "6-pay", &json!({})).await;
    // No outcome, so nothing to list.
    let outage = json!({"amount": 1, "currency": "usd", "source": "tok_outage"});
    let failed = post(&client, "checkout-1", "/charges", "5-failed", &outage).await;
    assert_eq!(failed.status, 503);
    let again = format!("/v1{pay}");
    post(&client, "checkout-1", &again, "4-again", &json!({})).await;

    let list = client.get("/workflows/checkout-1").await.json();
    let steps = list["data"].as_array().unwrap();
    for (step, (key, path, status)) in steps.iter().zip([
        ("9-open", "/orders", 201),
        ("8-declined", &*pay, 402),
        ("7-wrong", &*pay, 400),
        ("6-pay", &*pay, 200),
        ("4-again", &*again, 400),
    ]) {
        step.assert_shows(json!({
            "object": "idempotency_key", "status": "completed", "workflow": "checkout-1",
            "method": "POST", "key": key, "path": path, "response_status": status,
        }));
    }
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[0]["resource"], opened.id());
    assert_eq!(steps[1]["resource"], no.json()["error"]["charge"]);
    assert_eq!(steps[2]["resource"], Value::Null);
    assert_eq!(steps[2]["request"], wrong.header("request-id").unwrap());
    // Each is what a look at its key tells.
    for step in steps {
        let key = step["key"].as_str().unwrap();
        let looked = client.get(&format!("/idempotency-keys/{key}")).await;
        assert_eq!(&looked.json(), step, "{key}");
    }
    let alone = client.charge("alone").await;
    assert_eq!(alone.status, 201);
    let looked = client.get("/idempotency-keys/alone").await.json();
    assert_eq!(looked["workflow"], Value::Null);
}

#[tokio::test]
async fn a_retry_under_another_name_or_none_is_the_same_request_and_moves_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let first = charge_in(&client, "checkout-1", "key-1").await;
    client.charge("key-1").await.assert_replays(&first);
    let retry = charge_in(&client, "checkout-2", "key-1").await;
    retry.assert_replays(&first);
    // The quoted spelling is the same name.
    let quoted = charge_in(&client, "\"checkout-1\"", "key-2").await;
    assert_eq!(quoted.status, 201);
    client.charge("key-3").await;
    charge_in(&client, "checkout-1", "key-3").await;
    assert_eq!(completed(&client, "checkout-1").await, ["key-1", "key-2"]);
    assert!(completed(&client, "checkout-2").await.is_empty());
    assert_eq!(server.database.charges().await, 3);
}

#[tokio::test]
async fn a_key_that_is_new_again_goes_where_its_new_request_belongs() {
    let (server, client) = TestServer::with_client(&[FORGETFUL]).await;
    for key in ["key-1", "key-2"] {
        charge_in(&client, "checkout-1", key).await;
    }
    server.database.expire_records().await;
    charge_in(&client, "checkout-2", "key-1").await;
    client.charge("key-2").await;
    assert!(completed(&client, "checkout-1").await.is_empty());
    assert_eq!(completed(&client, "checkout-2").await, ["key-1"]);
    assert_eq!(server.database.records().await, 2, "taken over, not swept");
}

#[tokio::test]
async fn what_has_expired_is_not_listed_though_nobody_swept_it() {
    let (server, client) = TestServer::with_client(&[]).await;
    charge_in(&client, "checkout-1", "key-1").await;
    // The sweep passes over a row that is locked.
    let lock = "SELECT FROM idempotency_keys FOR KEY SHARE";
    let tx = server.database.holding(lock).await;
    server.database.expire_records().await;
    charge_in(&client, "checkout-1", "key-2").await;
    assert_eq!(completed(&client, "checkout-1").await, ["key-2"]);
    // Its place is still known, to those who were there.
    let after = page(&client, "/workflows/checkout-1?starting_after=key-1").await;
    assert_eq!(after, (expected(&[("key-2", "completed")]), false));
    assert_eq!(server.database.records().await, 2);
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn a_request_in_flight_is_listed_last_until_it_has_its_place() {
    let (server, client) = TestServer::with_client(PATIENT).await;
    let other = client_of_account(&server, "other").await;
    charge_in(&client, "checkout-1", "before").await;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "slow").await;
    let slow = sending(&client, "checkout-1", "slow");
    pause.is_reached().await;
    charge_in(&client, "checkout-1", "after").await;
    let list = client.get("/workflows/checkout-1").await.json();
    let in_flight = &list["data"][2];
    assert_eq!(list["data"].as_array().unwrap().len(), 3);
    in_flight.assert_shows(json!({
        "key": "slow", "status": "in_flight", "workflow": "checkout-1", "method": "POST",
        "path": "/charges", "fingerprint": list["data"][0]["fingerprint"],
        "response_status": null, "resource": null, "created": null, "expires": null,
    }));
    let looked = client.get("/idempotency-keys/slow").await;
    assert_eq!(&looked.json(), in_flight);
    // Neither in another workflow nor in another account's.
    assert!(completed(&client, "checkout-2").await.is_empty());
    assert!(completed(&other, "checkout-1").await.is_empty());
    pause.release().await;
    let created = slow.await.unwrap();
    assert_eq!(in_flight["request"], created.header("request-id").unwrap());
    // By its first use.
    let order = ["before", "slow", "after"];
    assert_eq!(completed(&client, "checkout-1").await, order);
}

#[tokio::test]
async fn a_retry_in_flight_of_what_is_recorded_is_not_another_request() {
    let (server, client) = TestServer::with_client(PATIENT).await;
    let first = charge_in(&client, "checkout-1", "key-1").await;
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, "key-1").await;
    let retry = sending(&client, "checkout-2", "key-1");
    pause.is_reached().await;
    assert_eq!(completed(&client, "checkout-1").await, ["key-1"]);
    assert!(completed(&client, "checkout-2").await.is_empty());
    pause.release().await;
    retry.await.unwrap().assert_replays(&first);
}

#[tokio::test]
async fn an_expired_record_that_is_being_taken_over_is_in_flight() {
    let (server, client) = TestServer::with_client(PATIENT).await;
    charge_in(&client, "checkout-1", "key-1").await;
    server.database.expire_records().await;
    charge_in(&client, "checkout-1", "key-2").await;
    let mut pause = PausePoint::at(Stage::Worked, &server.database, "key-1").await;
    let second = sending(&client, "checkout-1", "key-1");
    pause.is_reached().await;
    let both = expected(&[("key-2", "completed"), ("key-1", "in_flight")]);
    let path = "/workflows/checkout-1";
    assert_eq!(page(&client, path).await, (both, false));
    // It stands last now, not where it was.
    let after = page(&client, &format!("{path}?starting_after=key-1")).await;
    assert_eq!(after, (vec![], false));
    pause.release().await;
    assert_eq!(second.await.unwrap().status, 201);
    assert_eq!(completed(&client, "checkout-1").await, ["key-2", "key-1"]);
}

#[tokio::test]
async fn a_request_whose_outcome_nobody_knows_is_in_doubt_since_its_first_use() {
    let (world, client) = World::with_client().await;
    world.set_fault(json!({"fault": "drop_after"})).await;
    let unknown = charge_in(&client, "checkout-1", "unknown").await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
    charge_in(&client, "checkout-1", "later").await;
    let looked = client.get("/idempotency-keys/unknown").await.json();
    let list = client.get("/workflows/checkout-1").await.json();
    let (step, later) = (&list["data"][0], &list["data"][1]);
    assert_eq!(later["key"], "later");
    step.assert_shows(json!({
        "key": "unknown", "status": "in_doubt", "workflow": "checkout-1",
        "request": unknown.header("request-id").unwrap(), "response_status": null,
        "expires": null,
    }));
    let created = step["created"].as_i64().expect("when it was first used");
    assert!(created <= later["created"].as_i64().unwrap());
    // What it is about: the pending charge.
    let charge = step["resource"].as_str().expect("a charge's id");
    let charge = client.get(&format!("/charges/{charge}")).await.json();
    assert_eq!(charge["status"], "pending");
    assert_eq!(&looked, step);

    // Expired it would be, if it had an outcome.
    world.database.expire_records().await;
    let only = expected(&[("unknown", "in_doubt")]);
    assert_eq!(page(&client, "/workflows/checkout-1").await, (only, false));
    let finished = charge_in(&client, "checkout-2", "unknown").await;
    assert_eq!(finished.status, 201);
    assert_eq!(completed(&client, "checkout-1").await, ["unknown"]);
    assert!(completed(&client, "checkout-2").await.is_empty());
}

#[tokio::test]
async fn an_account_sees_its_own_workflow_of_that_name() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    charge_in(&server.client, "checkout-1", "mine").await;
    assert!(completed(&other, "checkout-1").await.is_empty());
    charge_in(&other, "checkout-1", "theirs").await;
    assert_eq!(completed(&other, "checkout-1").await, ["theirs"]);
    assert_eq!(completed(&server.client, "checkout-1").await, ["mine"]);
    let foreign = "/workflows/checkout-1?starting_after=mine";
    assert_eq!(other.get(foreign).await.status, 400);
}

#[tokio::test]
async fn a_name_that_is_none_is_refused_before_anything_is_claimed() {
    let (server, client) = TestServer::with_client(&[]).await;
    let too_long = "n".repeat(256);
    let names = [
        "",
        "\"\"",
        "\"",
        "\"a",
        "a\"",
        "a b",
        "a,b",
        "a\\b",
        "\"a\";p=1",
        "a, b",
        "käse",
        &too_long,
    ];
    let assert_refused = |answer: &Answer, why: &str| {
        let expected = refusal("parameter_invalid", "Idempotency-Workflow");
        assert_eq!(answer.refusal(), expected, "{why}");
        assert_eq!(answer.header("idempotency-expires"), None, "{why}");
    };
    for name in names {
        assert_refused(&charge_in(&client, name, "key-1").await, name);
    }
    for second in ["checkout-1", "checkout-2"] {
        let headers = [
            ("idempotency-key", "key-1"),
            ("idempotency-workflow", "checkout-1"),
            ("idempotency-workflow", second),
        ];
        let twice = client.charge_with_headers(&headers).await;
        assert_refused(&twice, "sent twice");
    }
    assert_nothing_stored(&server.database, "the names were refused").await;
    // The key is free. Digits that touch a letter are no card number.
    let order = charge_in(&client, "order4242424242424242", "key-1").await;
    assert_eq!((order.status.as_u16(), order.is_replay()), (201, false));
    let card = charge_in(&client, "4242-4242-4242-4242", "key-2").await;
    assert_eq!(error(&card), (400, "card_number_forbidden".into()));
    assert_eq!(server.database.records().await, 1);
    // The key comes first.
    let both = charge_in(&client, "a b", "a b").await;
    assert_eq!(both.code(), "idempotency_key_invalid");
    // And the name before the claim: the key is another request's.
    let taken = post(&client, "a b", "/charges", "key-1", &another_charge()).await;
    assert_refused(&taken, "a taken key");
}

#[tokio::test]
async fn requests_without_a_key_ignore_the_header_whatever_is_in_it() {
    let server = TestServer::start().await;
    let cases = [
        (Method::GET, "/charges", 200),
        (Method::HEAD, "/charges", 200),
        (Method::DELETE, "/webhook_endpoints/we_1", 404),
    ];
    for (method, path, status) in cases {
        for name in ["checkout-1", "not, a name", "4242424242424242"] {
            let request = server.client.request(method.clone(), path);
            let answer = Answer::of(request.header("idempotency-workflow", name)).await;
            assert_eq!(answer.status, status, "{method} {name}");
        }
    }
    assert!(completed(&server.client, "checkout-1").await.is_empty());
}

#[tokio::test]
async fn the_log_has_the_pattern_of_the_path_and_never_the_name() {
    let database = TestDatabase::create().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let info = [("RUST_LOG", "info")];
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &info);
    charge_in(&server.client, "checkout-1", "key-1").await;
    for path in ["/workflows/checkout-1", "/workflows?name=checkout-1"] {
        assert_eq!(page(&server.client, path).await.0.len(), 1);
    }
    drop(server);
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(text.contains("/workflows/{name}"), "{text}");
    for name in ["checkout-1", "key-1"] {
        assert!(!text.contains(name), "{text}");
    }
}
