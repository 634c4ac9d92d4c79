//! Paying and canceling orders: open → paid → refunded, or open → canceled.

use crate::support::prelude::*;

async fn pay(client: &Client, order: &str, source: &str) -> Answer {
    let path = format!("/orders/{order}/pay");
    client.post_new(&path, &json!({"source": source})).await
}

async fn cancel(client: &Client, order: &str) -> Answer {
    let path = format!("/orders/{order}/cancel");
    client.post_new(&path, &json!({})).await
}

async fn status(client: &Client, order: &str) -> Value {
    client.get(&format!("/orders/{order}")).await.json()["status"].take()
}

#[tokio::test]
async fn paying_makes_the_one_charge_and_links_both() {
    let (server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    let path = format!("/orders/{order}/pay");
    let paid = client.post(&path, "pay-1", &json!({})).await;
    assert_eq!((paid.status.as_u16(), paid.id()), (200, order.clone()));
    assert_eq!(paid.json()["status"], "paid");
    let charge = format!("/charges/{}", paid.text_of("charge"));
    let charge = client.get(&charge).await.json();
    charge.assert_shows(json!({
        "amount": 2400, "currency": "eur", "status": "succeeded", "captured": true, "order": order,
        "customer": "cus-7",
    }));
    let listed = client.get(&format!("/charges?order={order}")).await.json();
    assert_eq!(listed["data"], json!([charge]));
    let replayed = client.post(&path, "pay-1", &json!({})).await;
    replayed.assert_replays(&paid);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn an_order_is_paid_once_whatever_the_keys() {
    let (server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    pay(&client, &order, "tok_visa").await;
    for source in ["tok_visa", "tok_chargeDeclined", "tok_outage"] {
        let again = pay(&client, &order, source).await;
        let expected = refusal("order_already_paid", "id");
        assert_eq!(again.refusal(), expected, "{source}");
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_decline_leaves_the_order_open_for_another_card() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    let declined = pay(&client, &order, "tok_chargeDeclinedInsufficientFunds").await;
    assert_eq!(declined.status, 402);
    let error = &declined.json()["error"];
    error.assert_shows(json!({"code": "card_declined", "decline_code": "insufficient_funds"}));
    let path = format!("/charges/{}", error["charge"].as_str().unwrap());
    let failed = client.get(&path).await.json();
    failed.assert_shows(json!({"status": "failed", "order": order}));
    let open = client.get(&format!("/orders/{order}")).await.json();
    open.assert_shows(json!({"status": "open", "charge": null}));
    assert_eq!(pay(&client, &order, "tok_outage").await.status, 503);
    assert_eq!(status(&client, &order).await, "open");
    let paid = pay(&client, &order, "tok_visa").await;
    assert_eq!(paid.json()["status"], "paid");
}

#[tokio::test]
async fn a_canceled_order_stays_canceled() {
    let (server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    let path = format!("/orders/{order}/cancel");
    let canceled = client.post(&path, "cancel-1", &json!({})).await;
    assert_eq!(canceled.status, 200);
    assert_eq!(canceled.json()["status"], "canceled");
    let replayed = client.post(&path, "cancel-1", &json!({})).await;
    replayed.assert_replays(&canceled);
    for refused in [
        cancel(&client, &order).await,
        pay(&client, &order, "tok_visa").await,
    ] {
        refused.assert_refusal(400, "order_canceled", "id");
    }
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_paid_order_can_not_be_canceled_and_becomes_refunded_with_all_of_its_charge() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    let charge = pay(&client, &order, "tok_visa").await.json()["charge"].clone();
    assert_eq!(cancel(&client, &order).await.code(), "order_already_paid");
    let part = json!({"charge": charge, "amount": 2399});
    client.post_new("/refunds", &part).await;
    assert_eq!(status(&client, &order).await, "paid");
    let rest = json!({"charge": charge});
    client.post_new("/refunds", &rest).await;
    let refunded = client.get(&format!("/orders/{order}")).await.json();
    refunded.assert_shows(json!({"status": "refunded", "charge": charge}));
    for refused in [
        cancel(&client, &order).await,
        pay(&client, &order, "tok_visa").await,
    ] {
        assert_eq!(refused.code(), "order_already_paid");
    }
}

#[tokio::test]
async fn an_unknown_order_and_another_accounts_are_the_same_404() {
    let server = TestServer::start().await;
    let foreign = open_order(&client_of_account(&server, "other").await).await;
    for order in [foreign.as_str(), "or_nobody"] {
        for answer in [
            pay(&server.client, order, "tok_visa").await,
            cancel(&server.client, order).await,
        ] {
            answer.assert_refusal(404, "resource_missing", "id");
        }
    }
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_client_can_not_link_a_charge_to_an_order_by_itself() {
    let server = TestServer::start().await;
    let order = open_order(&server.client).await;
    let body = json!({"amount": 2400, "currency": "eur", "order": order});
    let refused = server.client.post_new("/charges", &body).await;
    refused.assert_refusal(400, "parameter_unknown", "order");
}
