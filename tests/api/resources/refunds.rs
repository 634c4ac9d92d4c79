//! Refunds: never more than was captured, and what was only promised is released whole.

use crate::support::{
    prelude::*,
    resources::{assert_is_created, money, uncaptured},
};

async fn refund(client: &Client, charge: &str, more: Value) -> Answer {
    let mut body = more;
    body["charge"] = charge.into();
    client.post_new("/refunds", &body).await
}

async fn retrieve(client: &Client, charge: &str) -> Value {
    client.get(&format!("/charges/{charge}")).await.json()
}

async fn assert_money(client: &Client, charge: &str, expected: Value) {
    assert_eq!(money(&retrieve(client, charge).await), expected);
}

#[tokio::test]
async fn a_refund_has_exactly_the_documented_members() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    let more = json!({"amount": 500, "reason": "duplicate", "metadata": {"ticket": "7"}});
    let created = refund(&client, &charge, more).await;
    assert_is_created(&client, &created, "/refunds", "re_").await;
    let object = created.json();
    assert!(object["created"].is_i64());
    let expected = json!({
        "id": created.id(), "object": "refund", "amount": 500, "balance_transaction": null,
        "charge": charge, "created": object["created"], "currency": "usd",
        "metadata": {"ticket": "7"},
        "payment_intent": null, "reason": "duplicate", "status": "succeeded",
    });
    assert_eq!(object, expected);
}

#[tokio::test]
async fn parts_add_up_to_what_was_captured_and_no_further() {
    let (server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    refund(&client, &charge, json!({"amount": 500})).await;
    assert_money(&client, &charge, json!([true, 2000, 500, false])).await;
    let too_much = refund(&client, &charge, json!({"amount": 1501})).await;
    too_much.assert_refusal(400, "refund_amount_too_large", "amount");
    // Without an amount: what remains.
    let rest = refund(&client, &charge, json!({})).await;
    assert_eq!(rest.json()["amount"], 1500);
    assert_money(&client, &charge, json!([true, 2000, 2000, true])).await;
    for more in [json!({}), json!({"amount": 1})] {
        let refused = refund(&client, &charge, more).await;
        refused.assert_refusal(400, "charge_already_refunded", "charge");
    }
    assert_eq!(server.database.count_of("refunds").await, 2);
}

#[tokio::test]
async fn a_partial_capture_is_refunded_up_to_what_was_taken() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = uncaptured(&client).await;
    let path = format!("/charges/{charge}/capture");
    client.post_new(&path, &json!({"amount": 700})).await;
    let too_much = refund(&client, &charge, json!({"amount": 701})).await;
    assert_eq!(too_much.code(), "refund_amount_too_large");
    let rest = refund(&client, &charge, json!({})).await;
    assert_eq!(rest.json()["amount"], 700);
    assert_money(&client, &charge, json!([true, 700, 700, true])).await;
}

#[tokio::test]
async fn what_was_only_promised_is_released_whole_or_not_at_all() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = uncaptured(&client).await;
    let part = refund(&client, &charge, json!({"amount": 1999})).await;
    part.assert_refusal(400, "charge_not_captured", "charge");
    let too_much = refund(&client, &charge, json!({"amount": 2001})).await;
    assert_eq!(too_much.code(), "refund_amount_too_large");
    let released = refund(&client, &charge, json!({"amount": 2000})).await;
    assert_eq!(released.status, 201);
    assert_money(&client, &charge, json!([false, 0, 2000, true])).await;
    let again = refund(&client, &charge, json!({})).await;
    assert_eq!(again.code(), "charge_already_refunded");
    let by_default = uncaptured(&client).await;
    let whole = refund(&client, &by_default, json!({})).await;
    assert_eq!(whole.json()["amount"], 2000);
}

#[tokio::test]
async fn a_retried_refund_refunds_once_and_answers_with_the_same_bytes() {
    let server = TestServer::start().await;
    let charge = server.client.charge("key-1").await.id();
    let body = json!({"charge": charge, "amount": 1000});
    let first = server.client.post("/refunds", "refund-1", &body).await;
    for _ in 0..2 {
        let replayed = server.client.post("/refunds", "refund-1", &body).await;
        replayed.assert_replays(&first);
    }
    let refunded = retrieve(&server.client, &charge).await;
    assert_eq!(refunded["amount_refunded"], 1000);
}

#[tokio::test]
async fn wrong_parameters_are_refused_and_refund_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    let declined = json!({"amount": 1, "currency": "usd", "source": "tok_chargeDeclined"});
    let failed = client.post_new("/charges", &declined).await.json()["error"]["charge"].clone();
    let stranger = client_of_account(&server, "other").await;
    let foreign = stranger.charge("key-1").await.id();
    let cases = json!([
        [{}, "parameter_missing", "charge"],
        [{"charge": ""}, "parameter_invalid", "charge"],
        [{"charge": 7}, "parameter_invalid", "charge"],
        [{"charge": "ch_nobody"}, "resource_missing", "charge"],
        [{"charge": foreign}, "resource_missing", "charge"],
        [{"charge": failed}, "parameter_invalid", "charge"],
        [{"charge": charge, "amount": 0}, "parameter_invalid", "amount"],
        [{"charge": charge, "amount": -1}, "parameter_invalid", "amount"],
        [{"charge": charge, "amount": "1"}, "parameter_invalid", "amount"],
        [{"charge": charge, "amount": 100_000_000}, "amount_too_large", "amount"],
        [{"charge": charge, "reason": "regret"}, "parameter_invalid", "reason"],
        [{"charge": charge, "metadata": {"a": 1}}, "parameter_invalid", "metadata[a]"],
        [{"charge": charge, "currency": "usd"}, "parameter_unknown", "currency"],
    ]);
    assert_refuses(&client, "/refunds", cases).await;
    assert_eq!(server.database.count_of("refunds").await, 0);
    assert_eq!(retrieve(&client, &charge).await["amount_refunded"], 0);
}

#[tokio::test]
async fn refunds_are_listed_by_charge_and_only_to_their_account() {
    let (server, client) = TestServer::with_client(&[]).await;
    let first = client.charge("key-1").await.id();
    let second = client.charge("key-2").await.id();
    let mut of_first = Vec::new();
    for amount in [100, 200, 300] {
        let refunded = refund(&client, &first, json!({"amount": amount})).await;
        of_first.insert(0, refunded.id());
    }
    let of_second = refund(&client, &second, json!({})).await.id();
    let all = client.get("/refunds").await.json();
    assert_eq!(ids(&all), [vec![of_second], of_first.clone()].concat());
    all.assert_shows(json!({"url": "/refunds", "has_more": false}));
    for path in [
        format!("/v1/refunds?charge={first}"),
        format!("/v1/charges/{first}/refunds"),
    ] {
        let list = client.get(&path).await.json();
        assert_eq!(ids(&list), of_first, "{path}");
        assert_eq!(list["url"], path.split('?').next().unwrap());
    }
    let url = format!(
        "/charges/{first}/refunds?limit=1&starting_after={}",
        of_first[0]
    );
    let page = client.get(&url).await.json();
    assert_eq!(ids(&page), of_first[1..2]);
    assert_eq!(page["has_more"], true);

    let stranger = client_of_account(&server, "other").await;
    assert_eq!(stranger.get("/refunds").await.json()["data"], json!([]));
    for path in [
        format!("/refunds/{}", of_first[0]),
        format!("/charges/{first}/refunds"),
        "/refunds/re_nobody".to_owned(),
    ] {
        let missing = refusal("resource_missing", "id");
        assert_eq!(stranger.get(&path).await.refusal(), missing, "{path}");
    }
    let wrong = "
        ending_before=re_nobody  parameter_invalid ending_before
        charge=nobody            parameter_invalid charge
        limit=0                  parameter_invalid limit
        limit=101                parameter_invalid limit
        limit=abc                parameter_invalid limit";
    assert_refuses_queries(&stranger, "/refunds", wrong).await;
}
