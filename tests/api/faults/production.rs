//! A server as it is in production: nothing of the faults can be reached.

use crate::support::{accounts::client_of_test_account, prelude::*, resources::charge_with};

/// None of what a client could do with faults does anything for it.
async fn assert_without_faults(client: &Client, what: &str) {
    // The header is an unknown one, whatever it says.
    for (index, fault) in ["reply_lost", "503; requests=2", "nonsense"]
        .iter()
        .enumerate()
    {
        let key = format!("{what}-{index}");
        let body = charge();
        let answer = client.post_with_fault(fault, "/charges", &key, &body).await;
        let answer = answer.expect("a reply");
        assert_eq!(answer.status, 201, "{fault}");
        assert_eq!(answer.header("fault"), None);
    }
    // The token is an unknown one, with the reply that any other one gets.
    let mut refusals = Vec::new();
    for token in ["tok_lostReply", "tok_unknown"] {
        let answer = charge_with(client, &[("source", token.into())]).await;
        let mut error = answer.json()["error"].clone();
        error["status"] = answer.status.as_u16().into();
        refusals.push(error);
    }
    assert_eq!(refusals[0], refusals[1]);
    assert_eq!(refusals[0]["code"], "parameter_invalid");
    assert_eq!(refusals[0]["param"], "source");
    let order = open_order(client).await;
    let body = json!({"source": "tok_lostReply"});
    let pay = format!("/orders/{order}/pay");
    assert_eq!(client.post_new(&pay, &body).await.status, 400);
}

#[tokio::test]
async fn by_default_the_header_is_ignored_the_token_unknown_and_the_routes_absent() {
    let server = TestServer::start().await;
    assert_without_faults(&server.client, "dev").await;
    for path in [
        "/test/accounts",
        "/v1/test/accounts",
        "/test/expire_keys",
        "/v1/test/expire_keys",
    ] {
        for method in [Method::GET, Method::POST] {
            let request = server.client.request(method, path);
            let answer = Answer::of(request.header("idempotency-key", path)).await;
            assert_eq!(error(&answer), (404, "route_not_found".into()));
            let message = answer.json()["error"]["message"].to_string();
            assert!(!message.contains("/test"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_test_account_can_do_nothing_special_on_a_server_without_faults() {
    let database = TestDatabase::create().await;
    let with = TestServer::start_on(database.clone(), &[FAULTS]).await;
    let without = TestServer::start_on(database, &[]).await;
    let test = client_of_test_account(&with.client).await;
    let elsewhere = test.at(&without.client);
    assert_without_faults(&elsewhere, "test").await;
    // What the other server made is replayed, with the reply that was lost.
    let body = charge_by("tok_lostReply");
    let request = test
        .request(Method::POST, "/charges")
        .header("idempotency-key", "moved");
    assert!(test.reply_or_none(request.json(&body)).await.is_none());
    let replay = elsewhere.post("/charges", "moved", &body).await;
    assert_eq!((replay.status.as_u16(), replay.is_replay()), (201, true));
}

#[tokio::test]
async fn with_faults_an_ordinary_account_can_do_nothing_special_and_is_told_so() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let shop = client_of_account(&server, "shop").await;
    for fault in ["reply_lost", "nonsense"] {
        let (path, body) = ("/charges", charge());
        let answer = shop.post_with_fault(fault, path, "key-1", &body).await;
        assert_eq!(
            answer.expect("a reply").refusal(),
            refusal("parameter_invalid", "Fault")
        );
    }
    let answer = charge_with(&shop, &[("source", "tok_lostReply".into())]).await;
    assert_eq!(answer.refusal(), refusal("parameter_invalid", "source"));
    for path in ["/test/accounts", "/test/expire_keys"] {
        let answer = shop.post_new(path, &json!({})).await;
        assert_eq!(
            answer.refusal(),
            refusal("parameter_invalid", "Authorization")
        );
    }
    // No key was claimed by any refusal but that of the token, which is a command's.
    assert_eq!(server.database.records().await, 1);
    assert_eq!(shop.charge("key-1").await.status, 201);
}
