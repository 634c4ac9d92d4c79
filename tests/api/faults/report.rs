//! The report on a client: each finding with a client that has the bug, and one that hasn't.

use charge_once_client::{NewCharge, NewRefund};
use futures_util::future::join_all;

use crate::support::{accounts::client_of_test_account, prelude::*, webhooks::quick_but};

/// A client of a test account for which these faults are planned.
async fn tested(plans: &[Value]) -> (TestServer, Client) {
    tested_with(plans, &[]).await
}

async fn tested_with(plans: &[Value], more: &[(&str, &str)]) -> (TestServer, Client) {
    let variables = [&[FAULTS, ("KEYS", "/v1=assign")], more].concat();
    let (server, dev) = TestServer::with_client(&variables).await;
    let client = client_of_test_account(&dev).await;
    for plan in plans {
        let made = client.post_new("/test/faults", plan).await;
        assert_eq!(made.status, 201, "{}", made.json());
    }
    (server, client)
}

fn lost(route: &str, first: u32) -> Value {
    json!({"route": route, "fault": "reply_lost", "first": first})
}

fn unavailable(route: &str, first: u32) -> Value {
    json!({"route": route, "fault": "503", "first": first})
}

/// Sends a request, and returns the reply if one came.
async fn send(client: &Client, path: &str, key: &str, body: &Value) -> Option<Answer> {
    let request = client.request(Method::POST, path);
    let request = request.header("idempotency-key", key).json(body);
    client.reply_or_none(request).await
}

/// The types of what is found, but for retries that don't wait: these tests never do.
async fn found(client: &Client) -> Vec<String> {
    let report = client.get("/test/report").await.json();
    let findings = report["findings"].as_array().expect("findings");
    let types = findings
        .iter()
        .map(|finding| finding["type"].as_str().unwrap().to_owned());
    types.filter(|one| one != "retry_without_waiting").collect()
}

#[tokio::test]
async fn a_refund_that_is_repeated_with_another_key_is_found_with_its_evidence() {
    let (_server, client) = tested(&[lost("POST /v1/refunds", 2)]).await;
    let charge = client.charge("charge-1").await.id();
    let partial = json!({"charge": charge, "amount": 100});
    assert!(
        send(&client, "/v1/refunds", "refund-1", &partial)
            .await
            .is_none()
    );
    assert!(
        send(&client, "/v1/refunds", "refund-1", &partial)
            .await
            .is_none()
    );
    let second = send(&client, "/v1/refunds", "refund-2", &partial)
        .await
        .unwrap();
    assert_eq!(second.status, 201);
    let report = client.get("/test/report").await.json();
    assert_eq!(report["faults"], 2);
    let finding = &report["findings"][0];
    assert_eq!(finding["type"], "double_effect");
    assert_eq!(finding["severity"], "critical");
    assert_eq!(finding["objects"][1], second.id());
    let shown = finding["requests"].as_array().unwrap();
    let evidence = shown.iter().map(|request| {
        let texts = ["idempotency_key", "outcome", "fault"].map(|name| request[name].clone());
        (texts, request["status"].clone())
    });
    let lost = || {
        (
            [json!("refund-1"), json!("unanswered"), json!("reply_lost")],
            Value::Null,
        )
    };
    let again = (
        [json!("refund-2"), json!("executed"), Value::Null],
        json!(201),
    );
    assert_eq!(evidence.collect::<Vec<_>>(), [lost(), lost(), again]);
}

#[tokio::test]
async fn a_client_that_gives_up_before_the_server_has_ended_is_found_too() {
    for (retry, expected) in [("key-2", &["double_effect"][..]), ("key-1", &[])] {
        let slow = json!({"route": "/charges", "fault": "delay", "seconds": 1, "first": 1});
        let (_server, client) = tested(&[slow]).await;
        let request = client
            .request(Method::POST, "/charges")
            .header("idempotency-key", "key-1");
        let request = request.json(&charge()).timeout(Duration::from_millis(200));
        assert!(request.send().await.unwrap_err().is_timeout());
        // It is still delayed. With its own key, the client waits for it.
        assert_eq!(client.charge(retry).await.status, 201);
        eventually(retry, async || found(&client).await == expected).await;
    }
}

#[tokio::test]
async fn two_refunds_of_one_charge_are_one_too_many_even_if_they_say_different_things() {
    let (_server, client) = tested(&[lost("/refunds", 1)]).await;
    let charge = client.charge("charge-1").await.id();
    let refund = |note: &str| json!({"charge": charge, "amount": 5, "metadata": {"note": note}});
    assert!(
        send(&client, "/refunds", "refund-1", &refund("a"))
            .await
            .is_none()
    );
    send(&client, "/refunds", "refund-2", &refund("b"))
        .await
        .unwrap();
    assert_eq!(found(&client).await, ["double_effect"]);
}

#[tokio::test]
async fn two_buyers_who_ask_for_the_same_are_no_finding() {
    let (_server, client) = tested(&[lost("/charges", 1)]).await;
    assert!(
        send(&client, "/charges", "buyer-1", &charge())
            .await
            .is_none()
    );
    assert_eq!(
        send(&client, "/charges", "buyer-2", &charge())
            .await
            .unwrap()
            .status,
        201
    );
    // The first one asks again with its key, so each has one.
    assert!(client.charge("buyer-1").await.is_replay());
    assert_eq!(found(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn two_requests_at_once_are_no_retries_of_each_other() {
    let (_server, client) = tested(&[lost("/charges", 1)]).await;
    let slow = charge_by("tok_slow");
    let buyers = ["buyer-1", "buyer-2"].map(|key| send(&client, "/charges", key, &slow));
    let answers = join_all(buyers).await;
    assert_eq!(answers.iter().flatten().count(), 1);
    assert_eq!(found(&client).await, ["lost_effect"]);
}

#[tokio::test]
async fn a_lost_effect_is_one_that_nothing_asks_for_again() {
    for is_learned in [None, Some("key"), Some("object"), Some("list")] {
        let (server, client) = tested(&[lost("/charges", 1)]).await;
        assert!(
            send(&client, "/charges", "key-1", &charge())
                .await
                .is_none()
        );
        let id = client_id(&server).await;
        match is_learned {
            Some("key") => drop(client.charge("key-1").await),
            Some("object") => drop(client.get(&format!("/charges/{id}")).await),
            Some(_) => drop(client.get("/charges").await),
            None => {}
        }
        let expected: &[&str] = if is_learned.is_none() {
            &["lost_effect"]
        } else {
            &[]
        };
        assert_eq!(found(&client).await, expected, "{is_learned:?}");
    }
}

/// The id of the only charge.
async fn client_id(server: &TestServer) -> String {
    let sql = "SELECT id FROM charges";
    let id: Uuid = sqlx::query_scalar(sql)
        .fetch_one(&server.database.pool)
        .await
        .unwrap();
    charge_once::domain::ids::ChargeId(id).to_string()
}

#[tokio::test]
async fn a_new_key_after_a_failure_is_found_and_the_old_one_is_right() {
    for (key, expected) in [("key-2", &["new_key_after_failure"][..]), ("key-1", &[])] {
        let (_server, client) = tested(&[unavailable("/charges", 1)]).await;
        assert_eq!(client.charge("key-1").await.status, 503);
        assert_eq!(client.charge(key).await.status, 201);
        assert_eq!(found(&client).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_gives_its_key_up_may_use_another_one() {
    let secret = ("SEAL_SECRETS", "a-secret-of-32-bytes-or-even-more");
    // A path that names a key is logged without it then, and a sealed request, too.
    let sealed: &[(&str, &str)] = &[secret, ("SEAL_REPLIES", "all")];
    for (plan, told, more) in [
        (unavailable("/charges", 1), "abandoned", &[][..]),
        (lost("/charges", 1), "completed", &[]),
        (unavailable("/charges", 1), "abandoned", &sealed[..1]),
        (lost("/charges", 1), "completed", &sealed[..1]),
        (unavailable("/charges", 1), "abandoned", sealed),
        (lost("/charges", 1), "completed", sealed),
    ] {
        let (_server, client) = tested_with(&[plan], more).await;
        let first = send(&client, "/charges", "a/1", &charge()).await;
        assert!(first.is_none_or(|answer| answer.status == 503));
        let path = "/idempotency-keys/a%2F1/abandon";
        let given_up = client.post(path, "own-1", &json!({})).await;
        assert_eq!(given_up.json()["status"], told);
        assert_eq!(found(&client).await, Vec::<String>::new(), "{told}");
        // It knows what came of the first one, so another charge is another charge.
        assert_eq!(client.charge("key-2").await.status, 201);
        assert_eq!(found(&client).await, Vec::<String>::new(), "{told}");
    }
}

#[tokio::test]
async fn requests_without_a_key_are_found_by_their_route() {
    let (_server, client) = tested(&[lost("/v1/charges", 1)]).await;
    let bare = || client.request(Method::POST, "/v1/charges").json(&charge());
    for amount in [7, 8] {
        let body = json!({"amount": amount, "currency": "usd", "source": "tok_visa"});
        let other = client.request(Method::POST, "/v1/charges").json(&body);
        client.reply_or_none(other).await;
    }
    assert!(client.reply_or_none(bare()).await.is_some());
    // The first one was lost, and nothing asked for it again.
    assert_eq!(found(&client).await, ["lost_effect", "no_key"]);
    let report = client.get("/test/report").await.json();
    assert_eq!(report["findings"][1]["count"], 3);
}

#[tokio::test]
async fn a_retry_without_a_key_is_a_second_effect() {
    let (server, client) = tested(&[lost("/v1/charges", 1)]).await;
    let bare = || client.request(Method::POST, "/v1/charges").json(&charge());
    assert!(client.reply_or_none(bare()).await.is_none());
    assert!(client.reply_or_none(bare()).await.is_some());
    assert_eq!(server.database.charges().await, 2);
    assert_eq!(found(&client).await, ["double_effect", "no_key"]);
}

#[tokio::test]
async fn a_final_refusal_is_not_to_be_asked_for_again() {
    for (times, expected) in [(2, &["retry_of_final_answer"][..]), (1, &[])] {
        let (_server, client) = tested(&[]).await;
        let wrong = json!({"amount": 0, "currency": "usd", "source": "tok_visa"});
        for _ in 0..times {
            assert_eq!(client.post("/charges", "key-1", &wrong).await.status, 400);
        }
        assert_eq!(found(&client).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_keeps_its_key_and_waits_has_a_clean_report() {
    let plans = [lost("/charges", 1), unavailable("/refunds", 1)];
    let (server, client) = tested(&plans).await;
    let url = format!("http://{}", server.client.address);
    let library = charge_once_client::Client::builder(url, &client.api_key)
        .build()
        .unwrap();
    let new = NewCharge {
        source: Some("tok_visa".to_owned()),
        ..NewCharge::new(1_000, "usd")
    };
    let made = library.create_charge(&new).unwrap().send().await.unwrap();
    let refund = NewRefund {
        charge: made.id.clone(),
        ..NewRefund::default()
    };
    library
        .create_refund(&refund)
        .unwrap()
        .send()
        .await
        .unwrap();
    let report = client.get("/test/report").await.json();
    assert_eq!(report["findings"], json!([]), "{report}");
    // Each request was sent twice. What plans the faults is not the client's.
    assert_eq!(report["summary"], "Nothing found in 4 requests, 2 faults.");
}

#[tokio::test]
async fn a_retry_at_once_is_found() {
    let (_server, client) = tested(&[unavailable("/charges", 9)]).await;
    for status in [503; 9].into_iter().chain([201]) {
        assert_eq!(client.charge("key-1").await.status, status);
    }
    let report = client.get("/test/report").await.json();
    assert_eq!(report["findings"][0]["type"], "retry_without_waiting");
}

#[tokio::test]
async fn a_webhook_that_is_acted_on_twice_is_found_and_one_that_is_remembered_is_not() {
    for (remembers, expected) in [(false, &["webhook_acted_on_twice"][..]), (true, &[])] {
        let server = TestServer::start_with(&quick_but(&[FAULTS])).await;
        let (client, mut receiver) = (&server.client, Receiver::start().await);
        let sales = json!({"url": receiver.url(), "enabled_events": ["charge.succeeded"]});
        let endpoint = Endpoint::with(client, &sales).await;
        let twice = json!({"event": "charge.succeeded", "fault": "webhook_twice"});
        assert_eq!(client.post_new("/test/faults", &twice).await.status, 201);
        client.charge("key-1").await;
        for _ in 0..2 {
            let webhook = receiver.next().await;
            let new = Uuid::new_v4().to_string();
            let key = if remembers { webhook.event_id() } else { new };
            let charge = &webhook.event()["data"]["object"]["id"];
            let partial = json!({"charge": charge, "amount": 1});
            assert_eq!(client.post("/refunds", &key, &partial).await.status, 201);
            webhook.answer(200).await;
        }
        endpoint.newest_succeeds(client).await;
        assert_eq!(found(client).await, expected, "{remembers}");
        let report = client.get("/test/report").await.json();
        let event = &report["findings"][0]["event"];
        assert_eq!(event.is_string(), !remembers, "{event}");
    }
}

#[tokio::test]
async fn one_lost_reply_explains_one_effect_and_none_that_the_client_had_looked_at() {
    for (looks, expected) in [(false, &["double_effect"][..]), (true, &[])] {
        let (server, client) = tested(&[lost("/charges", 1)]).await;
        assert!(
            send(&client, "/charges", "buyer-1", &charge())
                .await
                .is_none()
        );
        if looks {
            let id = client_id(&server).await;
            assert_eq!(client.get(&format!("/charges/{id}")).await.status, 200);
        }
        for buyer in ["buyer-2", "buyer-3", "buyer-4"] {
            assert_eq!(client.charge(buyer).await.status, 201);
        }
        assert_eq!(found(&client).await, expected, "{looks}");
    }
}

#[tokio::test]
async fn the_same_update_under_another_key_is_no_second_effect() {
    let (_server, client) = tested(&[]).await;
    let customer = client.post_new("/customers", &json!({})).await.id();
    let (path, update) = (
        format!("/customers/{customer}"),
        json!({"description": "Ann"}),
    );
    let plan = lost("/customers/{id}", 1);
    assert_eq!(client.post_new("/test/faults", &plan).await.status, 201);
    assert!(send(&client, &path, "key-1", &update).await.is_none());
    assert_eq!(client.post(&path, "key-2", &update).await.status, 200);
    assert_eq!(found(&client).await, Vec::<String>::new());
}
