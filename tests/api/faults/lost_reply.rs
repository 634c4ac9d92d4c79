//! `tok_lostReply`: the charge succeeds, and only the reply of the request that made it is lost.

use crate::support::{accounts::client_of_test_account, prelude::*};

/// A request with `tok_lostReply`. `None`: its reply was lost.
async fn send(client: &Client, path: &str, key: &str, body: &Value) -> Option<Answer> {
    let request = client
        .request(Method::POST, path)
        .header("idempotency-key", key);
    client.reply_or_none(request.json(body)).await
}

#[tokio::test]
async fn the_reply_of_the_execution_is_lost_wherever_a_card_is_charged_and_replays_answer() {
    for variables in [&[FAULTS][..], &[FAULTS, ALONE]] {
        let server = TestServer::start_with(variables).await;
        for client in [
            server.client.clone(),
            client_of_test_account(&server.client).await,
        ] {
            stock(&client, "mug", 2).await;
            let order = open_order(&client).await;
            let source = json!({"source": "tok_lostReply"});
            let cases = [
                ("/charges".to_owned(), charge_by("tok_lostReply"), 201),
                ("/v1/charges".to_owned(), charge_by("tok_lostReply"), 201),
                (format!("/orders/{order}/pay"), source, 200),
                ("/checkouts".to_owned(), checkout_with("tok_lostReply"), 201),
            ];
            for (path, body, status) in cases {
                assert!(send(&client, &path, &path, &body).await.is_none(), "{path}");
                for _ in 0..2 {
                    let replay = send(&client, &path, &path, &body).await.expect(&path);
                    assert_eq!((replay.status.as_u16(), replay.is_replay()), (status, true));
                }
            }
            let charges = client.get("/charges?limit=100").await.json();
            let charges = charges["data"].as_array().unwrap();
            assert_eq!(charges.len(), 4);
            for charge in charges {
                assert_eq!(charge["status"], "succeeded");
                assert_eq!(charge["source"]["brand"], "visa");
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_is_not_lost() {
    let (_server, client) = TestServer::with_client(&[FAULTS]).await;
    let mut wrong = charge_by("tok_lostReply");
    wrong["amount"] = 0.into();
    let refused = send(&client, "/charges", "key-1", &wrong).await;
    let (_, _, param) = refused.expect("a refusal").refusal();
    assert_eq!(param.as_deref(), Some("amount"));
    // The key's own request is another one.
    let reused = send(&client, "/charges", "key-1", &charge_by("tok_lostReply")).await;
    assert_eq!(reused.expect("a refusal").code(), "idempotency_key_reused");
    // Nothing is in stock.
    let body = checkout_with("tok_lostReply");
    let checkout = send(&client, "/checkouts", "key-2", &body).await;
    assert_eq!(checkout.expect("a refusal").code(), "out_of_stock");
}

#[tokio::test]
async fn of_many_that_race_one_reply_is_lost() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    let body = charge_by("tok_lostReply");
    let racers = (0..20).map(|_| async {
        let request = client
            .request(Method::POST, "/charges")
            .header("idempotency-key", "key-1")
            .header("prefer", "wait=10")
            .json(&body);
        client.reply_or_none(request).await
    });
    let answers = futures_util::future::join_all(racers).await;
    let lost = answers.iter().filter(|answer| answer.is_none()).count();
    assert_eq!(lost, 1, "{answers:?}");
    for answer in answers.iter().flatten() {
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, true));
    }
    assert_eq!(server.database.charges().await, 1);
}

/// A checkout is written down with the token, for a process that continues it.
#[tokio::test]
async fn a_checkout_that_is_continued_knows_the_token() {
    let (_server, client) = TestServer::with_client(&[FAULTS]).await;
    stock(&client, "mug", 2).await;
    let body = checkout_with("tok_lostReply");
    let lost = send(&client, "/checkouts", "key-1", &body).await;
    assert!(lost.is_none());
    eventually("the checkout is listed", || async {
        let listed = client.get("/checkouts").await.json();
        listed["data"][0]["status"] == "completed"
    })
    .await;
}
