//! Requests without a key, where `KEYS` lets them pass: each is a request of its own.

use crate::support::{metrics::Scrape, prelude::*};

const ASSIGNED: (&str, &str) = ("KEYS", "required,/v1=assign");

/// A charge without a key, and the key that the reply says.
async fn charge_without_a_key(client: &Client, path: &str) -> (Answer, String) {
    let request = client.request(Method::POST, path).json(&charge());
    let answer = Answer::of(request).await;
    let key = answer.header("idempotency-key").unwrap_or_default();
    let key = key.to_owned();
    (answer, key)
}

fn is_assigned(key: &str) -> bool {
    let id = key.strip_prefix("assigned-");
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[tokio::test]
async fn a_request_without_a_key_gets_one_and_its_retry_is_another_request() {
    let (server, client) = TestServer::with_client(&[ASSIGNED]).await;
    let (first, first_key) = charge_without_a_key(&client, "/v1/charges").await;
    let (second, second_key) = charge_without_a_key(&client, "/v1/charges").await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert!(is_assigned(&first_key) && is_assigned(&second_key));
    assert_ne!(first_key, second_key);
    assert_ne!(first.id(), second.id());
    assert_eq!(
        (
            server.database.charges().await,
            server.database.records().await
        ),
        (2, 2)
    );

    let known = client.get(&format!("/idempotency-keys/{first_key}")).await;
    assert_eq!(known.json()["resource"], first.json()["id"]);
}

#[tokio::test]
async fn a_refusal_under_an_assigned_key_is_stored_and_names_its_key() {
    let (server, client) = TestServer::with_client(&[ASSIGNED]).await;
    let request = client.request(Method::POST, "/v1/charges").json(&json!({}));
    let refused = Answer::of(request).await;
    assert_eq!(refused.status, 400);
    assert!(is_assigned(refused.header("idempotency-key").unwrap()));
    assert_eq!(server.database.records().await, 1);
}

#[tokio::test]
async fn elsewhere_a_key_stays_required_and_nothing_is_stored() {
    let (server, client) = TestServer::with_client(&[ASSIGNED]).await;
    let (refused, key) = charge_without_a_key(&client, "/charges").await;
    assert_eq!(
        refused.refusal(),
        (400, "idempotency_key_required".to_owned(), None)
    );
    assert_eq!(key, "");
    let sent_twice = client.request(Method::POST, "/v1/charges").json(&charge());
    let sent_twice = sent_twice
        .header("idempotency-key", "a")
        .header("idempotency-key", "b");
    let refused = Answer::of(sent_twice).await;
    assert_eq!(
        refused.refusal(),
        (400, "idempotency_key_invalid".to_owned(), None)
    );
    assert_eq!(server.database.records().await, 0);
}

#[tokio::test]
async fn no_client_can_send_a_key_that_a_server_assigns() {
    for variables in [&[][..], &[ASSIGNED][..]] {
        let (server, client) = TestServer::with_client(variables).await;
        for path in ["/charges", "/v1/charges"] {
            let key = format!("assigned-{}", Uuid::new_v4());
            for key in [&key, &format!("\"{key}\"")] {
                let refused = client.post(path, key, &charge()).await;
                assert_eq!(
                    refused.refusal(),
                    (400, "idempotency_key_invalid".to_owned(), None)
                );
            }
            let other = format!("assigned-{}", path.len());
            assert_eq!(client.post(path, &other, &charge()).await.status, 201);
        }
        assert_eq!(server.database.charges().await, 2);
    }
}

#[tokio::test]
async fn assigned_keys_are_counted() {
    let database = TestDatabase::create().await;
    let (server, scraper) = TestServer::start_with_metrics(database, &[ASSIGNED]).await;
    charge_without_a_key(&server.client, "/v1/charges").await;
    charge_without_a_key(&server.client, "/charges").await;
    server.client.charge("key-1").await;
    let counted = Scrape::of(&scraper).await;
    assert_eq!(
        counted.value("charge_once_idempotency_assigned_keys_total"),
        1.0
    );
}

#[tokio::test]
async fn below_v1_a_key_of_another_request_is_refused_in_the_words_of_stripe() {
    let (_server, client) = TestServer::with_client(&[]).await;
    client.post("/v1/charges", "key-1", &charge()).await;
    let reused = client.post("/v1/charges", "key-1", &another_charge()).await;
    assert_eq!(
        reused.refusal(),
        (400, "idempotency_key_reused".to_owned(), None)
    );
    let message = "Keys for idempotent requests can only be used with the same parameters they were first used \
                   with. Try using another key if you meant to execute a different request.";
    assert_eq!(reused.json()["error"]["message"], message);
}
