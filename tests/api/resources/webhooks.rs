//! Webhooks: what is sent, to which endpoints, and what happens when an attempt fails.

use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::support::{
    addresses::RefusedAddress,
    prelude::*,
    shorthand::{start_with_log, text_of},
    webhooks::{
        DELIVERIES, being_told, delete, endpoint, everything_is_delivered, hold_back, sent_at,
        told, verifies,
    },
};

#[tokio::test]
async fn an_event_arrives_as_the_api_shows_it_with_a_signature_that_verifies() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let client = &server.client;
    let charge = client.charge("key-1").await;

    let received = receiver.next().await;
    assert_eq!(received.line, "POST /hook?tenant=7 HTTP/1.1");
    assert_eq!(received.headers["content-type"], "application/json");
    assert!(received.headers["user-agent"].starts_with("charge-once/"));
    let path = format!("/events/{}", received.event_id());
    let shown = client.get(&path).await;
    assert_eq!(shown.json()["pending_webhooks"], 1);
    assert_eq!(received.body, shown.body, "to the byte");
    assert_eq!(received.event()["type"], "charge.succeeded");
    assert_eq!(received.event()["data"]["object"], charge.json());

    let (secret, signature, body) = (&endpoint.secret, received.signature(), &received.body);
    assert!(verifies(secret, signature, body));
    assert!(!verifies("whsec_another", signature, body));
    let mut tampered = body.clone();
    tampered[10] ^= 1;
    assert!(!verifies(secret, signature, &tampered));
    let moved = signature.replacen("t=", "t=1", 1);
    assert!(!verifies(secret, &moved, body));

    let (event, at) = (received.event_id(), sent_at(&received));
    let under_way = endpoint.deliveries(client).await.remove(0);
    under_way.assert_shows(json!({"status": "pending", "next_attempt": null}));
    received.answer(204).await;
    let delivery = endpoint.newest_succeeds(client).await;
    assert_eq!(client.get(&path).await.json()["pending_webhooks"], 0);
    assert!(delivery["id"].as_str().unwrap().starts_with("whd_"));
    let attempt = &delivery["attempts"][0];
    let expected = json!({
        "id": delivery["id"], "object": "webhook_delivery", "created": delivery["created"],
        "attempts": [{
            "at": at, "response_status": 204, "error": null, "duration_ms": attempt["duration_ms"],
        }],
        "delivered": delivery["delivered"], "endpoint": endpoint.id, "event": event,
        "event_type": "charge.succeeded", "next_attempt": null, "status": "succeeded",
    });
    assert_eq!(delivery, expected);
    assert!(delivery["delivered"].is_i64() && attempt["duration_ms"].is_i64());
}

#[tokio::test]
async fn an_endpoint_gets_the_types_it_enabled_and_a_star_gets_all() {
    let (server, client) = TestServer::with_client(QUICK).await;
    let (mut some, mut all) = (Receiver::start().await, Receiver::start().await);
    let failed = json!({"url": some.url(), "enabled_events": ["refund.created", "charge.failed"]});
    Endpoint::with(&client, &failed).await;
    Endpoint::at(&client, &all.url()).await;
    let paid = client.charge("key-1").await.id();
    let declined = charge_by("tok_chargeDeclined");
    client.post("/charges", "key-2", &declined).await;
    let body = json!({"charge": paid});
    client.post("/refunds", "key-3", &body).await;
    let every = "charge.failed charge.refunded charge.succeeded refund.created";
    let failed = "charge.failed refund.created";
    // Both listen to the end: what is sent beyond this gets no answer, and stays pending.
    for (receiver, expected) in [(&mut some, failed), (&mut all, every)] {
        let mut types = BTreeSet::new();
        for _ in expected.split(' ') {
            let received = receiver.next().await;
            types.insert(received.event()["type"].as_str().unwrap().to_owned());
            received.answer(200).await;
        }
        assert!(types.iter().eq(expected.split(' ')), "{types:?}");
    }
    everything_is_delivered(&server.database).await;
    assert_eq!(server.database.count(DELIVERIES).await, 6);
}

#[tokio::test]
async fn replays_and_refusals_and_failures_tell_nobody() {
    let (server, mut receiver, _) = told(QUICK).await;
    let client = &server.client;
    client.charge("key-1").await;
    assert!(client.charge("key-1").await.is_replay());
    let body = json!({"amount": 0});
    let refused = client.post("/charges", "key-2", &body).await;
    assert_eq!(refused.status, 400);
    let outage = charge_by("tok_outage");
    assert_eq!(client.post("/charges", "key-3", &outage).await.status, 503);
    receiver.next().await.answer(200).await;
    everything_is_delivered(&server.database).await;
    assert_eq!(server.database.count(DELIVERIES).await, 1);
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn an_event_and_its_deliveries_are_committed_together_or_not_at_all() {
    let (server, _receiver, _) = told(QUICK).await;
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON webhook_deliveries
             FOR EACH ROW EXECUTE FUNCTION refuse();";
    server.database.execute(sql).await;
    let answer = server.client.charge("key-1").await;
    assert_eq!(answer.status, 500);
    assert_eq!(server.database.charges().await, 0);
    assert_eq!(server.database.count_of("events").await, 0);
}

#[tokio::test]
async fn what_is_not_taken_is_sent_again_the_same_and_signed_anew_until_it_is() {
    // Signatures are dated in seconds: with pauses of a second, each date is another one.
    let pauses = [("WEBHOOK_RETRY_MIN", "1s"), ("WEBHOOK_RETRY_MAX", "2s")];
    let (_server, client) = TestServer::with_client(&quick_but(&pauses)).await;
    let (mut receiver, mut sibling) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&client, &receiver.url()).await;
    Endpoint::at(&client, &sibling.url()).await;
    client.charge("key-1").await;
    // Another endpoint's success changes what is pending, and must not change what is sent.
    let to_sibling = sibling.next().await;
    to_sibling.answer(200).await;
    let first = receiver.next().await;
    let (body, first_t) = (first.body.clone(), sent_at(&first));
    assert!(verifies(&endpoint.secret, first.signature(), &body));
    first.answer(500).await;
    let failed_once = |delivery: &Value| delivery["attempts"][0]["response_status"] == 500;
    let delivery = endpoint
        .newest_delivery(&client, "the failure shows", failed_once)
        .await;
    assert_eq!(delivery["status"], "pending");
    let pause = delivery["next_attempt"].as_i64().unwrap() - first_t;
    assert!((1..=3).contains(&pause), "{pause}");
    let second = receiver.next().await;
    assert_eq!(second.body, body);
    assert!(sent_at(&second) > first_t);
    assert!(verifies(&endpoint.secret, second.signature(), &body));
    second.answer(200).await;
    let delivery = endpoint.newest_succeeds(&client).await;
    let attempts = delivery["attempts"].as_array().unwrap().iter();
    let statuses: Vec<_> = attempts
        .map(|attempt| &attempt["response_status"])
        .collect();
    assert_eq!(json!(statuses), json!([500, 200]));
    assert_eq!(delivery["next_attempt"], Value::Null);
}

#[tokio::test]
async fn after_the_last_attempt_the_delivery_has_failed() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let client = &server.client;
    client.charge("key-1").await;
    for _ in 0..24 {
        receiver.next().await.answer(503).await;
    }
    let failed = |delivery: &Value| delivery["status"] == "failed";
    let delivery = endpoint
        .newest_delivery(client, "it is given up", failed)
        .await;
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 24);
    delivery.assert_shows(json!({"delivered": null, "next_attempt": null}));
    let path = format!("/events/{}", delivery["event"].as_str().unwrap());
    let event = client.get(&path).await;
    assert_eq!(event.json()["pending_webhooks"], 0);
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let (_server, client) = TestServer::with_client(QUICK).await;
    let (mut receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(&client, &receiver.url()).await;
    client.charge("key-1").await;
    let location = format!("Location: {}\r\n", elsewhere.url());
    receiver.next().await.answer_with(307, &location).await;
    receiver.next().await.answer(200).await;
    let delivery = endpoint.newest_succeeds(&client).await;
    let attempt = &delivery["attempts"][0];
    attempt.assert_shows(json!({"response_status": 307, "error": "redirects are not followed"}));
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_receiver_that_never_answers_times_out() {
    let (server, _silent, endpoint, held) =
        being_told(&quick_but(&[("WEBHOOK_TIMEOUT", "200ms")])).await;
    let client = &server.client;
    shows_the_failure(&endpoint, client, "timed out").await;
    drop(held);
}

/// With the usual time limit: on a busy machine a short one could pass before the failure is known.
#[tokio::test]
async fn a_receiver_that_is_gone_is_told_from_one_that_was_never_there() {
    let server = TestServer::start_with(QUICK).await;
    let client = &server.client;
    let refused = RefusedAddress::reserve();
    let no_tls = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let without_tls = format!("https://{}/", no_tls.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = no_tls.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let nowhere = "http://nowhere.invalid/".to_owned();
    let mut cases = Vec::new();
    for (url, error) in [
        (refused.url(), "connection refused"),
        (nowhere, "the host has no public address"),
        (without_tls, "could not connect"),
    ] {
        cases.push((Endpoint::at(client, &url).await, error));
    }
    client.charge("key-1").await;
    for (endpoint, error) in &cases {
        shows_the_failure(endpoint, client, error).await;
    }
}

/// The first attempt of the newest delivery ended without a reply, in `error`.
async fn shows_the_failure(endpoint: &Endpoint, client: &Client, error: &str) {
    let shows = |delivery: &Value| delivery["attempts"][0].is_object();
    let delivery = endpoint.newest_delivery(client, error, shows).await;
    let attempt = &delivery["attempts"][0];
    attempt.assert_shows(json!({"error": error, "response_status": null}));
}

/// Two endpoints at `receiver`, by its address and by a name that has to be resolved, made while
/// private addresses were allowed. They are not any more.
async fn not_allowed_any_more(
    receiver: &Receiver,
) -> (TestDatabase, ServerProcess, NamedTempFile, [Endpoint; 2]) {
    let (server, client) = TestServer::with_client(QUICK).await;
    let by_name = format!("http://localhost:{}/", receiver.address.port());
    let endpoints = [
        Endpoint::at(&client, &receiver.url()).await,
        Endpoint::at(&client, &by_name).await,
    ];
    let database = server.stop().await;
    let strict = [QUICK, &[("WEBHOOK_ALLOW_PRIVATE", "false")]].concat();
    let (server, log) = start_with_log(&database, &strict);
    (database, server, log, endpoints)
}

#[tokio::test]
async fn a_host_with_a_private_address_is_refused_when_it_is_to_be_sent_to() {
    let receiver = Receiver::start().await;
    let (_database, server, log, endpoints) = not_allowed_any_more(&receiver).await;
    let client = &server.client;
    let nowhere = Endpoint::at(client, "http://nowhere.invalid/").await;
    client.charge("key-1").await;
    // The account sees no difference from a name that doesn't exist.
    for endpoint in endpoints.iter().chain([&nowhere]) {
        shows_the_failure(endpoint, client, "the host has no public address").await;
    }
    assert_eq!(receiver.connections(), 0);
    let mut deliveries = Vec::new();
    for endpoint in &endpoints {
        deliveries.push(endpoint.deliveries(client).await.remove(0));
    }
    drop(server);
    // The operator sees which ones were refused.
    let text = text_of(&log);
    let warnings = || {
        text.lines()
            .filter(|line| line.contains("WARN") && line.contains("private"))
    };
    for (endpoint, delivery) in endpoints.iter().zip(&deliveries) {
        let id = delivery["id"].as_str().unwrap();
        let named = warnings().find(|line| line.contains(&endpoint.id) && line.contains(id));
        assert!(
            named.is_some_and(|line| line.contains("WEBHOOK_ALLOW_PRIVATE")),
            "{text}"
        );
    }
    assert!(!warnings().any(|line| line.contains(&nowhere.id)), "{text}");
    let port = format!(":{}", receiver.address.port());
    assert!(
        !text.contains("localhost") && !text.contains(&port),
        "{text}"
    );
}

#[tokio::test]
async fn an_endpoint_with_a_private_address_is_refused_and_told_which_variable_allows_it() {
    let (server, client) = TestServer::with_client(&[("WEBHOOK_ALLOW_PRIVATE", "false")]).await;
    let public = Endpoint::at(&client, "https://example.com/").await;
    let path = format!("/webhook_endpoints/{}", public.id);
    for url in [
        "http://127.0.0.1:9/",
        "http://[::1]/",
        "http://localhost:4242/",
    ] {
        for (path, params) in [
            ("/webhook_endpoints", endpoint(url)),
            (&*path, json!({"url": url})),
        ] {
            let key = Uuid::now_v7().to_string();
            let refused = client.post(path, &key, &params).await;
            refused.assert_refusal(400, "parameter_invalid", "url");
            let message = refused.text_of("error/message");
            assert!(message.contains("WEBHOOK_ALLOW_PRIVATE=true"), "{message}");
            // As every refusal that the request itself is to blame for.
            let replay = client.post(path, &key, &params).await;
            assert!(replay.is_replay() && replay.body == refused.body, "{url}");
        }
    }
    assert_eq!(server.database.count_of("webhook_endpoints").await, 1);
    let unchanged = client.get(&path).await.json();
    assert_eq!(unchanged["url"], "https://example.com/");
}

#[tokio::test]
async fn a_deleted_endpoint_is_sent_nothing_more() {
    let server = TestServer::start_with(QUICK).await;
    let (client, database) = (&server.client, &server.database);
    let (mut receiver, mut other) = (Receiver::start().await, Receiver::start().await);
    let endpoint = Endpoint::at(client, &receiver.url()).await;
    client.charge("key-1").await;
    let received = receiver.next().await;
    let event = format!("/events/{}", received.event_id());
    assert_eq!(client.get(&event).await.json()["pending_webhooks"], 1);
    assert_eq!(delete(client, &endpoint.id).await.status, 200);
    assert_eq!(client.get(&event).await.json()["pending_webhooks"], 0);
    received.answer(500).await;
    let given_up = "SELECT count(*) FROM webhook_deliveries
                     WHERE status = 'failed' AND jsonb_array_length(attempts) = 1";
    // The retry is given up.
    database.comes_to(given_up, 1).await;
    Endpoint::at(client, &other.url()).await;
    client.charge("key-2").await;
    other.next().await.answer(200).await;
    everything_is_delivered(database).await;
    assert_eq!(database.count(DELIVERIES).await, 2);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn one_account_is_never_told_of_another_s_events() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let other = client_of_account(&server, "other").await;
    assert_eq!(other.charge("key-1").await.status, 201);
    let own = server.client.charge("key-1").await;
    let received = receiver.next().await;
    assert_eq!(received.event()["data"]["object"], own.json());
    received.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    assert_eq!(server.database.count(DELIVERIES).await, 1);
}

#[tokio::test]
async fn pages_of_deliveries_lead_through_all_of_them_and_no_other_endpoint_s() {
    let (server, client) = TestServer::with_client(&[]).await;
    hold_back(&server.database).await;
    let endpoint = Endpoint::at(&client, "https://example.invalid/").await;
    Endpoint::at(&client, "https://example.invalid/").await;
    for number in 0..5 {
        client.charge(&format!("key-{number}")).await;
    }
    let all = endpoint.deliveries(&client).await;
    assert_eq!(all.len(), 5);
    let path = format!("/webhook_endpoints/{}/deliveries", endpoint.id);
    let id = |index: usize| all[index]["id"].as_str().unwrap();
    let first = client.get(&format!("/v1{path}?limit=2")).await;
    let url = format!("/v1{path}");
    first.assert_shows(json!({"url": url, "has_more": true, "data": all[..2]}));
    let rest = client
        .get(&format!("{path}?starting_after={}", id(1)))
        .await;
    rest.assert_shows(json!({"has_more": false, "data": all[2..]}));
    let before = format!("{path}?limit=1&ending_before={}", id(2));
    assert_eq!(client.get(&before).await.json()["data"], json!(all[1..2]));
}

#[tokio::test]
async fn neither_secret_nor_host_is_in_the_most_talkative_log() {
    let database = TestDatabase::create().await;
    let talkative = quick_but(&[("RUST_LOG", "trace")]);
    let (server, log) = start_with_log(&database, &talkative);
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&server.client, &receiver.url()).await;
    let nowhere = Endpoint::at(&server.client, "http://nowhere.invalid/").await;
    server.client.charge("key-1").await;
    receiver.next().await.answer(500).await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(&server.client).await;
    shows_the_failure(&nowhere, &server.client, "the host has no public address").await;
    delete(&server.client, &endpoint.id).await;
    drop(server);
    let text = text_of(&log);
    assert!(text.contains("delivered a webhook"), "{}", text.len());
    assert!(!text.contains("whsec_") && !text.contains(&endpoint.secret));
    let port = receiver.address.port();
    let [by_address, by_name] = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
    for host in ["nowhere", &by_address, &by_name] {
        let line = text.lines().find(|line| line.contains(host));
        assert_eq!(line, None, "{host}");
    }
}
