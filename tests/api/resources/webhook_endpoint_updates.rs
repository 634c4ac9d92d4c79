//! `POST /webhook_endpoints/{id}`: where events are sent, which, and whether any.

use crate::support::{
    prelude::*,
    racers::twenty_names_at_once,
    webhooks::{DELIVERIES, being_told, delete, endpoint, everything_is_delivered, verifies},
};

const URL: &str = "https://example.com/webhooks";

/// The path of a new endpoint with a description and metadata.
async fn created(client: &Client) -> String {
    let body = json!({
        "url": URL, "enabled_events": ["charge.succeeded"], "description": "Bookkeeping",
        "metadata": {"team": "finance"},
    });
    let created = client.post_new("/webhook_endpoints", &body).await;
    assert_eq!(created.status, 201);
    format!("/webhook_endpoints/{}", created.id())
}

#[tokio::test]
async fn any_of_the_parameters_changes_and_the_others_stay() {
    let (server, client) = TestServer::with_client(&[]).await;
    let path = created(&client).await;
    let mut expected = client.get(&path).await.json();
    assert_eq!(expected["status"], "enabled");
    let steps = rows::<(String, String, Value)>(json!([
        ["{}", "url", URL],
        [r#"{"disabled":true}"#, "status", "disabled"],
        [r#"{"disabled":true}"#, "status", "disabled"],
        [r#"{"url":"https://example.com/new"}"#, "url", "https://example.com/new"],
        [r#"{"enabled_events":["*"]}"#, "enabled_events", ["*"]],
        [r#"{"description":"Stock"}"#, "description", "Stock"],
        [r#"{"description":null}"#, "description", null],
        [r#"{"metadata":{"a":"1","team":""}}"#, "metadata", {"a": "1"}],
        ["disabled=false", "status", "enabled"],
        ["enabled_events[]=order.paid&enabled_events[]=refund.created", "enabled_events",
         ["order.paid", "refund.created"]],
        ["metadata[b]=2", "metadata", {"a": "1", "b": "2"}],
        ["metadata=", "metadata", {}],
        ["description=Stock", "description", "Stock"],
        ["description=", "description", null],
        ["", "url", "https://example.com/new"],
    ]));
    for (number, (body, member, value)) in steps.iter().enumerate() {
        let media_type = if body.starts_with('{') { JSON } else { FORM };
        let key = format!("step-{number}");
        let path = format!("{}{path}", ["", "/v1"][number % 2]);
        let updated = client.post_raw(&path, &key, media_type, body.as_bytes());
        let updated = updated.await;
        expected[member] = value.clone();
        assert_eq!(updated.status, 200, "{body}");
        assert_eq!(updated.json(), expected, "{body}");
        assert_eq!(updated.header("location"), None, "{body}");
        assert_eq!(client.get(&path).await.json(), expected, "{body}");
    }
    let all = json!({
        "url": URL, "enabled_events": ["charge.failed"], "description": "All",
        "metadata": {"c": "3"}, "disabled": true,
    });
    let updated = client.post_new(&path, &all).await.json();
    updated.assert_shows(json!({
        "url": URL, "enabled_events": ["charge.failed"], "description": "All",
        "metadata": {"c": "3"}, "status": "disabled",
    }));
    assert!(updated.get("secret").is_none());
    // An endpoint has no events of its own.
    assert_eq!(server.database.count_of("events").await, 0);
}

#[tokio::test]
async fn an_update_is_replayed_and_its_key_belongs_to_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let path = created(&client).await;
    let params = json!({"disabled": true});
    let first = client.post(&path, "key-1", &params).await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (200, false));
    client.post_new(&path, &json!({"disabled": false})).await;
    let params = json!({"disabled": true});
    let late = client.post(&path, "key-1", &params).await;
    late.assert_replays(&first);
    let status = client.get(&path).await.json()["status"].take();
    assert_eq!(status, "enabled", "nothing is undone");
    let other = created(&client).await;
    for (path, body) in [
        (&path, json!({"disabled": false})),
        (&path, json!({})),
        (&other, json!({"disabled": true})),
    ] {
        for (path, status) in [(path.clone(), 422), (format!("/v1{path}"), 400)] {
            let reused = client.post(&path, "key-1", &body).await;
            let expected = (status, "idempotency_key_reused".into());
            assert_eq!(error(&reused), expected, "{path} {body}");
        }
    }
    let keyless = client.request(Method::POST, &path);
    let keyless = Answer::of(keyless.json(&json!({"disabled": true}))).await;
    assert_eq!(error(&keyless), (400, "idempotency_key_required".into()));
    for path in [&path, &other] {
        assert_eq!(client.get(path).await.json()["status"], "enabled");
    }
}

#[tokio::test]
async fn wrong_updates_of_an_endpoint_are_stored_refusals_that_name_the_field() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let path = created(&client).await;
    let before = client.get(&path).await;
    let (invalid, unknown) = ("parameter_invalid", "parameter_unknown");
    let cases = json!([
        [{"url": "example.com"}, invalid, "url"],
        [{"url": "ftp://example.com/"}, invalid, "url"],
        [{"url": "https://user@example.com/"}, invalid, "url"],
        [{"url": "http://127.0.0.1/"}, invalid, "url"],
        [{"url": format!("{URL}/{}", "a".repeat(2048))}, invalid, "url"],
        [{"url": ""}, invalid, "url"],
        [{"url": null}, invalid, "url"],
        [{"url": 1}, invalid, "url"],
        [{"enabled_events": []}, invalid, "enabled_events"],
        [{"enabled_events": null}, invalid, "enabled_events"],
        [{"enabled_events": "*"}, invalid, "enabled_events"],
        [{"enabled_events": vec!["*"; 101]}, invalid, "enabled_events"],
        [{"enabled_events": ["*", "charge.stolen"]}, invalid, "enabled_events[1]"],
        [{"disabled": "true"}, invalid, "disabled"],
        [{"disabled": 1}, invalid, "disabled"],
        [{"disabled": null}, invalid, "disabled"],
        [{"description": "d".repeat(1001)}, invalid, "description"],
        [{"metadata": {"a": 1}}, invalid, "metadata[a]"],
        [{"secret": "whsec_mine"}, unknown, "secret"],
        [{"status": "disabled"}, unknown, "status"],
        [{"disabld": true}, unknown, "disabld"],
        // What is right beside it changes nothing.
        [{"disabled": true, "url": "nowhere"}, invalid, "url"],
    ]);
    assert_stores_refusals(&client, &path, cases).await;
    for body in "disabled=yes disabled=1 disabled= url= enabled_events=".split(' ') {
        let key = format!("form-{body}");
        let refused = client.post_raw(&path, &key, FORM, body.as_bytes()).await;
        let (name, _) = body.split_once('=').unwrap();
        assert_eq!(refused.refusal(), refusal(invalid, name), "{body}");
    }
    assert_eq!(client.get(&path).await.body, before.body);
}

#[tokio::test]
async fn another_accounts_endpoint_and_a_deleted_one_are_not_updated() {
    let server = TestServer::start().await;
    let client = &server.client;
    let (path, gone) = (created(client).await, created(client).await);
    let id = gone.rsplit('/').next().unwrap();
    assert_eq!(delete(client, id).await.status, 200);
    let before = client.get(&path).await;
    let other = client_of_account(&server, "other").await;
    let body = json!({"disabled": true, "url": "https://example.com/stolen"});
    let missing = refusal("resource_missing", "id");
    for (client, path) in [
        (&other, path.as_str()),
        (client, &gone),
        (client, "/webhook_endpoints/we_1"),
        (client, "/webhook_endpoints/search"),
    ] {
        let refused = client.post_new(path, &body).await;
        assert_eq!(refused.refusal(), missing, "{path}");
    }
    assert_eq!(client.get(&path).await.body, before.body);
    let changed = "SELECT count(*) FROM webhook_endpoints WHERE disabled OR url LIKE '%stolen'";
    assert_eq!(server.database.count(changed).await, 0);
}

#[tokio::test]
async fn updates_of_one_endpoint_at_once_lose_none_of_each_other() {
    let server = TestServer::start().await;
    let path = created(&server.client).await;
    let answers = twenty_names_at_once(&server.client, &path).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let metadata = server.client.get(&path).await.json()["metadata"].take();
    assert_eq!(metadata.as_object().unwrap().len(), 21);
}

#[tokio::test]
async fn a_disabled_endpoint_gets_no_new_events_and_enabled_again_those_from_then_on() {
    let (server, client) = TestServer::with_client(QUICK).await;
    let (mut paused, mut other) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&client, &paused.url()).await;
    Endpoint::at(&client, &other.url()).await;
    endpoint.disable(&client, true).await;
    let missed = client.charge("missed").await.id();
    let received = other.next().await;
    let event = received.event();
    assert_eq!(event["data"]["object"]["id"], missed.as_str());
    // The disabled endpoint does not count.
    assert_eq!(event["pending_webhooks"], 1);
    received.answer(200).await;
    assert_eq!(endpoint.deliveries(&client).await, [] as [Value; 0]);
    // It is not lost: the event is there.
    let path = format!("/events/{}", event["id"].as_str().unwrap());
    let kept = client.get(&path).await;
    assert_eq!(kept.status, 200);
    endpoint.disable(&client, false).await;
    let told = client.charge("told").await.id();
    let received = paused.next().await;
    assert_eq!(received.event()["data"]["object"]["id"], told.as_str());
    assert!(
        verifies(&endpoint.secret, received.signature(), &received.body),
        "its secret stayed"
    );
    received.answer(200).await;
    other.next().await.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(paused.connections(), 1);
    assert_eq!(server.database.count(DELIVERIES).await, 3);
}

#[tokio::test]
async fn a_delivery_that_falls_due_while_its_endpoint_is_disabled_fails_and_says_why() {
    let (server, mut receiver, endpoint, received) = being_told(QUICK).await;
    let client = &server.client;
    // Before the second attempt is due.
    endpoint.disable(client, true).await;
    received.answer(500).await;
    let failed = |delivery: &Value| delivery["status"] == "failed";
    let delivery = endpoint
        .newest_delivery(client, "the delivery fails", failed)
        .await;
    let attempts = delivery["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{delivery}");
    assert_eq!(attempts[0]["response_status"], 500);
    assert_eq!(attempts[1]["response_status"], Value::Null);
    assert_eq!(attempts[1]["error"], "not sent: the endpoint is disabled");
    assert_eq!(receiver.connections(), 1, "nothing was sent");

    // It stays failed: an endpoint that is enabled again gets what happens from then on.
    endpoint.disable(client, false).await;
    client.charge("key-2").await;
    receiver.next().await.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(receiver.connections(), 2);
    assert!(failed(&endpoint.deliveries(client).await[1]));
}

#[tokio::test]
async fn a_delivery_that_falls_due_after_its_endpoint_is_enabled_again_is_sent() {
    let (server, mut receiver, endpoint, received) = being_told(QUICK).await;
    let client = &server.client;
    for disabled in [true, false] {
        endpoint.disable(client, disabled).await;
    }
    received.answer(500).await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(client).await;
}

#[tokio::test]
async fn an_attempt_that_is_under_way_when_its_endpoint_is_disabled_counts() {
    let (server, _receiver, endpoint, received) = being_told(QUICK).await;
    let client = &server.client;
    endpoint.disable(client, true).await;
    received.answer(200).await;
    endpoint.newest_succeeds(client).await;
}

#[tokio::test]
async fn pending_deliveries_go_to_the_new_url_and_new_events_are_chosen_by_the_new_types() {
    let (server, client) = TestServer::with_client(QUICK).await;
    let (mut old, mut new) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::with(
        &client,
        &json!({"url": old.url(), "enabled_events": ["charge.succeeded"]}),
    )
    .await;
    let path = format!("/webhook_endpoints/{}", endpoint.id);
    client.charge("key-1").await;
    let received = old.next().await;
    let body = json!({"url": new.url(), "enabled_events": ["charge.failed"]});
    assert_eq!(client.post_new(&path, &body).await.status, 200);
    received.answer(500).await;
    let moved = new.next().await;
    assert_eq!(moved.event()["type"], "charge.succeeded");
    moved.answer(200).await;
    client.charge("key-2").await;
    let declined = charge_by("tok_chargeDeclined");
    client.post_new("/charges", &declined).await;
    let received = new.next().await;
    assert_eq!(received.event()["type"], "charge.failed");
    received.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!((old.connections(), new.connections()), (1, 2));
}

#[tokio::test]
async fn disabled_endpoints_count_against_the_limit_and_are_listed() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for _ in 0..16 {
        let path = created(&client).await;
        client.post_new(&path, &json!({"disabled": true})).await;
    }
    let refused = client.post_new("/webhook_endpoints", &endpoint(URL)).await;
    assert_eq!(error(&refused), (400, "parameter_invalid".into()));
    let list = client.get("/webhook_endpoints?limit=100").await.json();
    let listed = list["data"].as_array().unwrap();
    assert_eq!(listed.len(), 16);
    assert!(
        listed
            .iter()
            .all(|endpoint| endpoint["status"] == "disabled")
    );
}
