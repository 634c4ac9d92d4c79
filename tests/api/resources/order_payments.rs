//! Paying and canceling orders: open → paid → refunded, or open → canceled.

use crate::support::prelude::*;

async fn pay(client: &Client, order: &str, source: &str) -> Answer {
    let body = json!({"source": source});
    client
        .post_new(&format!("/orders/{order}/pay"), &body)
        .await
}

async fn cancel(client: &Client, order: &str) -> Answer {
    client
        .post_new(&format!("/orders/{order}/cancel"), &json!({}))
        .await
}

async fn status(client: &Client, order: &str) -> Value {
    client.get(&format!("/orders/{order}")).await.json()["status"].take()
}

#[tokio::test]
async fn paying_makes_the_one_charge_and_links_both() {
    let server = TestServer::start().await;
    let client = &server.client;
    let order = open_order(client).await;
    let path = format!("/orders/{order}/pay");
    let paid = client.post(&path, "pay-1", &json!({})).await;
    assert_eq!((paid.status.as_u16(), paid.id()), (200, order.clone()));
    assert_eq!(paid.json()["status"], "paid");
    let charge_id = paid.json()["charge"].as_str().unwrap().to_owned();
    let charge = client.get(&format!("/charges/{charge_id}")).await.json();
    let expected = json!([2400, "eur", "succeeded", true, order, "cus-7"]);
    let members = [
        "amount", "currency", "status", "captured", "order", "customer",
    ];
    assert_eq!(json!(members.map(|name| &charge[name])), expected);
    let listed = client.get(&format!("/charges?order={order}")).await.json();
    assert_eq!(listed["data"], json!([charge]));
    client
        .post(&path, "pay-1", &json!({}))
        .await
        .assert_replays(&paid);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn an_order_is_paid_once_whatever_the_keys() {
    let server = TestServer::start().await;
    let client = &server.client;
    let order = open_order(client).await;
    pay(client, &order, "tok_visa").await;
    for source in ["tok_visa", "tok_chargeDeclined", "tok_outage"] {
        let again = pay(client, &order, source).await;
        assert_eq!(
            again.refusal(),
            (400, "order_already_paid".into(), Some("id".into())),
            "{source}"
        );
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn a_decline_leaves_the_order_open_for_another_card() {
    let server = TestServer::start().await;
    let client = &server.client;
    let order = open_order(client).await;
    let declined = pay(client, &order, "tok_chargeDeclinedInsufficientFunds").await;
    assert_eq!(declined.status, 402);
    let error = &declined.json()["error"];
    assert_eq!(
        (&error["code"], &error["decline_code"]),
        (&json!("card_declined"), &json!("insufficient_funds"))
    );
    let failed = client
        .get(&format!("/charges/{}", error["charge"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(
        (&failed["status"], &failed["order"]),
        (&json!("failed"), &json!(order))
    );
    let open = client.get(&format!("/orders/{order}")).await.json();
    assert_eq!(
        (&open["status"], &open["charge"]),
        (&json!("open"), &json!(null))
    );
    assert_eq!(pay(client, &order, "tok_outage").await.status, 503);
    assert_eq!(status(client, &order).await, "open");
    assert_eq!(
        pay(client, &order, "tok_visa").await.json()["status"],
        "paid"
    );
}

#[tokio::test]
async fn a_canceled_order_stays_canceled() {
    let server = TestServer::start().await;
    let client = &server.client;
    let order = open_order(client).await;
    let path = format!("/orders/{order}/cancel");
    let canceled = client.post(&path, "cancel-1", &json!({})).await;
    assert_eq!(
        (canceled.status.as_u16(), &canceled.json()["status"]),
        (200, &json!("canceled"))
    );
    client
        .post(&path, "cancel-1", &json!({}))
        .await
        .assert_replays(&canceled);
    for refused in [
        cancel(client, &order).await,
        pay(client, &order, "tok_visa").await,
    ] {
        assert_eq!(
            refused.refusal(),
            (400, "order_canceled".into(), Some("id".into()))
        );
    }
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_paid_order_can_not_be_canceled_and_becomes_refunded_with_all_of_its_charge() {
    let server = TestServer::start().await;
    let client = &server.client;
    let order = open_order(client).await;
    let charge = pay(client, &order, "tok_visa").await.json()["charge"].clone();
    assert_eq!(cancel(client, &order).await.code(), "order_already_paid");
    let part = json!({"charge": charge, "amount": 2399});
    client.post_new("/refunds", &part).await;
    assert_eq!(status(client, &order).await, "paid");
    let rest = json!({"charge": charge});
    client.post_new("/refunds", &rest).await;
    let refunded = client.get(&format!("/orders/{order}")).await.json();
    assert_eq!(
        (&refunded["status"], &refunded["charge"]),
        (&json!("refunded"), &charge)
    );
    for refused in [
        cancel(client, &order).await,
        pay(client, &order, "tok_visa").await,
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
            assert_eq!(
                answer.refusal(),
                (404, "resource_missing".into(), Some("id".into()))
            );
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
    assert_eq!(
        refused.refusal(),
        (400, "parameter_unknown".into(), Some("order".into()))
    );
}
