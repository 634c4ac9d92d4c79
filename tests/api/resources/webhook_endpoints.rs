//! `/webhook_endpoints`: who is told, and who may know about it.

use futures_util::future::join_all;
use reqwest::StatusCode;

use crate::support::{
    harness::LOCK_WAITS,
    prelude::*,
    racers::until_definite,
    webhooks::{delete, endpoint},
};

/// How many endpoints an account may have.
const ENDPOINTS_MAX: usize = 16;

fn an_endpoint() -> Value {
    endpoint("https://example.com/webhooks")
}

async fn create(client: &Client, key: &str) -> Answer {
    client.post("/webhook_endpoints", key, &an_endpoint()).await
}

#[tokio::test]
async fn an_endpoint_is_created_retrieved_and_listed_as_stripe_shows_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = json!({
        "url": "https://example.com/webhooks", "enabled_events": ["charge.succeeded", "*"],
        "description": "Bookkeeping", "metadata": {"team": "finance"},
    });
    let created = client.post("/v1/webhook_endpoints", "key-1", &body).await;
    assert_eq!(created.status, 201);
    let id = created.id();
    let path = format!("/webhook_endpoints/{id}");
    let location = format!("/v1{path}");
    assert_eq!(created.header("location"), Some(&*location));
    let mut shown = created.json();
    let secret = created.text_of("secret");
    assert!(secret.starts_with("whsec_") && secret.len() == 38);
    shown.as_object_mut().unwrap().remove("secret");
    let created_at = shown["created"].as_i64().unwrap();
    let expected = json!({
        "id": id, "object": "webhook_endpoint", "api_version": null, "created": created_at,
        "description": "Bookkeeping", "enabled_events": ["charge.succeeded", "*"],
        "livemode": false, "metadata": {"team": "finance"}, "never_sent": [],
        "standard_webhooks": false, "status": "enabled",
        "url": "https://example.com/webhooks",
    });
    assert_eq!(shown, expected);
    assert_eq!(client.get(&path).await.json(), expected);
    let list = client.get("/v1/webhook_endpoints").await.json();
    assert_eq!(list["url"], "/v1/webhook_endpoints");
    list.assert_shows(json!({"data": [expected], "has_more": false}));
}

#[tokio::test]
async fn a_form_with_repeated_events_creates_an_endpoint_too() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = b"url=https%3A%2F%2Fexample.com%2Fhook&enabled_events[]=charge.failed\
                 &enabled_events[]=order.paid&connect=False";
    let created = client.post_raw("/webhook_endpoints", "key-1", FORM, body);
    let created = created.await;
    assert_eq!(created.status, 201);
    created.assert_shows(json!({"enabled_events": ["charge.failed", "order.paid"]}));
}

#[tokio::test]
async fn the_secret_is_shown_by_the_create_and_its_replays_and_nowhere_else() {
    let (server, client) = TestServer::with_client(&[]).await;
    let created = create(&client, "key-1").await;
    let secret = created.text_of("secret");
    create(&client, "key-1").await.assert_replays(&created);
    let other = create(&client, "key-2").await.json();
    assert_ne!(other["secret"], secret.as_str());
    let id = created.id();
    for path in [
        "/webhook_endpoints".to_owned(),
        format!("/webhook_endpoints/{id}"),
        format!("/webhook_endpoints/{id}/deliveries"),
        "/events".to_owned(),
        "/idempotency-keys/key-1".to_owned(),
    ] {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        let text = String::from_utf8(answer.body).unwrap();
        assert!(!text.contains("whsec_"), "{path}");
    }
    assert_eq!(delete(&client, &id).await.status, 200);
    let kept = "SELECT count(*) FROM webhook_endpoints WHERE secret IS NOT NULL";
    let kept = server.database.count(kept).await;
    assert_eq!(kept, 1, "erased with the endpoint");
}

#[tokio::test]
async fn wrong_parameters_are_stored_refusals_that_name_the_field() {
    let server = TestServer::start().await;
    let url = "https://example.com/";
    let cases = json!([
        [{"enabled_events": ["*"]}, "parameter_missing", "url"],
        [{"url": url}, "parameter_missing", "enabled_events"],
        [{"url": "example.com", "enabled_events": ["*"]}, "parameter_invalid", "url"],
        [{"url": "https://example.com/\t", "enabled_events": ["*"]}, "parameter_invalid", "url"],
        [{"url": "http://[::ffff:127.0.0.1]/", "enabled_events": ["*"]}, "parameter_invalid",
         "url"],
        [{"url": format!("{url}{}", "a".repeat(2048)), "enabled_events": ["*"]},
         "parameter_invalid", "url"],
        [{"url": url, "enabled_events": ["charge.succeeded", "charge.stolen"]},
         "parameter_invalid", "enabled_events[1]"],
        [{"url": url, "enabled_events": ["*"], "secret": "mine"}, "parameter_unknown", "secret"],
        [{"url": url, "enabled_events": ["*"], "connect": true}, "parameter_invalid", "connect"],
    ]);
    assert_stores_refusals(&server.client, "/webhook_endpoints", cases).await;
    assert_eq!(server.database.count_of("webhook_endpoints").await, 0);
}

#[tokio::test]
async fn a_private_address_is_accepted_only_where_it_is_allowed() {
    for (allowed, created, updated) in [("false", 400, 400), ("true", 201, 200)] {
        let server = TestServer::start_with(&[("WEBHOOK_ALLOW_PRIVATE", allowed)]).await;
        let client = &server.client;
        let existing = format!("/webhook_endpoints/{}", create(client, "key-1").await.id());
        let body = endpoint("http://192.168.1.1/hook");
        for (path, status) in [("/webhook_endpoints", created), (&*existing, updated)] {
            let answer = client.post_new(path, &body).await;
            assert_eq!(answer.status.as_u16(), status, "{allowed} {path}");
        }
    }
}

#[tokio::test]
async fn a_deleted_endpoint_is_gone_and_a_second_delete_finds_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let gone = create(&client, "key-1").await.id();
    let stays = create(&client, "key-2").await.id();
    let request = client.request(Method::DELETE, &format!("/v1/webhook_endpoints/{gone}"));
    let deleted = Answer::of(request).await;
    assert_eq!(deleted.status, 200);
    let expected = json!({"id": gone, "object": "webhook_endpoint", "deleted": true});
    assert_eq!(deleted.json(), expected);
    assert!(!deleted.is_replay());
    let missing = (404, "resource_missing".to_owned());
    assert_eq!(error(&delete(&client, &gone).await), missing);
    for path in ["", "/deliveries"] {
        let path = format!("/webhook_endpoints/{gone}{path}");
        assert_eq!(error(&client.get(&path).await), missing, "{path}");
    }
    let list = client.get("/webhook_endpoints").await.json();
    assert_eq!(ids(&list), [stays]);
    // The key still answers with what it did.
    assert_eq!(create(&client, "key-1").await.id(), gone);
    let left = "SELECT count(*) FROM webhook_endpoints WHERE deleted_at IS NULL";
    assert_eq!(server.database.count(left).await, 1);
}

#[tokio::test]
async fn another_account_finds_no_endpoint_and_deletes_none() {
    let server = TestServer::start().await;
    let id = create(&server.client, "key-1").await.id();
    let other = client_of_account(&server, "other").await;
    let missing = (404, "resource_missing".to_owned());
    for path in ["", "/deliveries"] {
        let path = format!("/webhook_endpoints/{id}{path}");
        assert_eq!(error(&other.get(&path).await), missing, "{path}");
    }
    assert_eq!(error(&delete(&other, &id).await), missing);
    let list = other.get("/webhook_endpoints").await.json();
    assert_eq!(list["data"], json!([]));
    let own = server.client.get(&format!("/webhook_endpoints/{id}")).await;
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn pages_of_endpoints_lead_through_all_of_them() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let mut all = Vec::new();
    for number in 0..5 {
        all.insert(0, create(&client, &format!("key-{number}")).await.id());
    }
    for (query, expected, has_more) in [
        ("limit=2".to_owned(), 0..2, true),
        (format!("limit=3&starting_after={}", all[1]), 2..5, false),
        (format!("limit=1&ending_before={}", all[2]), 1..2, true),
    ] {
        let found = page(&client, &format!("/webhook_endpoints?{query}")).await;
        assert_eq!(found, (all[expected].to_vec(), has_more), "{query}");
    }
}

#[tokio::test]
async fn of_twenty_racers_for_sixteen_places_sixteen_get_one() {
    let server = TestServer::start().await;
    let racers = (0..20).map(|_| {
        let client = server.client.clone();
        async move { until_definite(&client, "/webhook_endpoints", &an_endpoint()).await }
    });
    let answers = join_all(racers).await;
    let (created, refused): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.status == StatusCode::CREATED);
    assert_eq!(created.len(), ENDPOINTS_MAX);
    for answer in refused {
        assert_eq!(error(answer), (400, "parameter_invalid".to_owned()));
        let message = answer.text_of("error/message");
        assert!(message.contains("at most 16"), "{message}");
    }
    // A deleted one makes room.
    assert_eq!(delete(&server.client, &created[0].id()).await.status, 200);
    assert_eq!(create(&server.client, "after").await.status, 201);
    assert_eq!(create(&server.client, "too-many").await.status, 400);
}

#[tokio::test]
async fn creations_take_turns_and_neither_wait_for_charges_nor_charges_for_them() {
    let server = TestServer::start_with(PATIENT).await;
    let sql = "SELECT FROM accounts FOR NO KEY UPDATE";
    let turn = server.database.holding(sql).await;
    let waiting = tokio::spawn({
        let client = server.client.clone();
        async move { create(&client, "key-1").await }
    });
    // The creation waits for its turn.
    server.database.comes_to(LOCK_WAITS, 1).await;
    assert_eq!(server.client.charge("key-2").await.status, 201);
    turn.rollback().await.unwrap();
    assert_eq!(waiting.await.unwrap().status, 201);

    // Nor does a creation wait for charges, which hold their account like this.
    let sql = "SELECT FROM accounts FOR KEY SHARE";
    let charging = server.database.holding(sql).await;
    assert_eq!(create(&server.client, "key-3").await.status, 201);
    charging.rollback().await.unwrap();
}
