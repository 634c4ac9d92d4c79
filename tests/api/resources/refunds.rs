//! Refunds: never more than was captured, and what was only promised is released whole.

use crate::support::{
    prelude::*,
    resources::{money, uncaptured},
};

async fn refund(client: &Client, charge: &str, more: Value) -> Answer {
    let mut body = more;
    body["charge"] = charge.into();
    client.post_new("/refunds", &body).await
}

async fn retrieve(client: &Client, charge: &str) -> Value {
    client.get(&format!("/charges/{charge}")).await.json()
}

#[tokio::test]
async fn a_refund_has_exactly_the_documented_members() {
    let server = TestServer::start().await;
    let client = &server.client;
    let charge = client.charge("key-1").await.id();
    let more = json!({"amount": 500, "reason": "duplicate", "metadata": {"ticket": "7"}});
    let created = refund(client, &charge, more).await;
    assert_eq!(created.status, 201);
    let id = created.id();
    assert!(id.starts_with("re_") && id.len() == 29, "{id}");
    let path = format!("/refunds/{id}");
    assert_eq!(created.header("location"), Some(path.as_str()));
    let mut object = created.json();
    assert!(object["created"].take().as_i64().is_some());
    object["id"].take();
    let expected = json!({
        "id": null, "object": "refund", "amount": 500, "balance_transaction": null,
        "charge": charge, "created": null, "currency": "usd", "metadata": {"ticket": "7"},
        "payment_intent": null, "reason": "duplicate", "status": "succeeded",
    });
    assert_eq!(object, expected);
    for path in [path.clone(), format!("/v1{path}")] {
        assert_eq!(client.get(&path).await.json(), created.json());
    }
}

#[tokio::test]
async fn parts_add_up_to_what_was_captured_and_no_further() {
    let server = TestServer::start().await;
    let client = &server.client;
    let charge = client.charge("key-1").await.id();
    refund(client, &charge, json!({"amount": 500})).await;
    assert_eq!(
        money(&retrieve(client, &charge).await),
        json!([true, 2000, 500, false])
    );
    let too_much = refund(client, &charge, json!({"amount": 1501})).await;
    assert_eq!(
        too_much.refusal(),
        (400, "refund_amount_too_large".into(), Some("amount".into()))
    );
    // Without an amount: what remains.
    let rest = refund(client, &charge, json!({})).await;
    assert_eq!(rest.json()["amount"], 1500);
    assert_eq!(
        money(&retrieve(client, &charge).await),
        json!([true, 2000, 2000, true])
    );
    for more in [json!({}), json!({"amount": 1})] {
        let refused = refund(client, &charge, more).await;
        assert_eq!(
            refused.refusal(),
            (400, "charge_already_refunded".into(), Some("charge".into()))
        );
    }
    assert_eq!(
        server.database.count("SELECT count(*) FROM refunds").await,
        2
    );
}

#[tokio::test]
async fn a_partial_capture_is_refunded_up_to_what_was_taken() {
    let server = TestServer::start().await;
    let client = &server.client;
    let charge = uncaptured(client).await;
    client
        .post_new(
            &format!("/charges/{charge}/capture"),
            &json!({"amount": 700}),
        )
        .await;
    let too_much = refund(client, &charge, json!({"amount": 701})).await;
    assert_eq!(too_much.code(), "refund_amount_too_large");
    assert_eq!(
        refund(client, &charge, json!({})).await.json()["amount"],
        700
    );
    assert_eq!(
        money(&retrieve(client, &charge).await),
        json!([true, 700, 700, true])
    );
}

#[tokio::test]
async fn what_was_only_promised_is_released_whole_or_not_at_all() {
    let server = TestServer::start().await;
    let client = &server.client;
    let charge = uncaptured(client).await;
    let part = refund(client, &charge, json!({"amount": 1999})).await;
    assert_eq!(
        part.refusal(),
        (400, "charge_not_captured".into(), Some("charge".into()))
    );
    let too_much = refund(client, &charge, json!({"amount": 2001})).await;
    assert_eq!(too_much.code(), "refund_amount_too_large");
    let released = refund(client, &charge, json!({"amount": 2000})).await;
    assert_eq!(released.status, 201);
    assert_eq!(
        money(&retrieve(client, &charge).await),
        json!([false, 0, 2000, true])
    );
    let again = refund(client, &charge, json!({})).await;
    assert_eq!(again.code(), "charge_already_refunded");
    let by_default = uncaptured(client).await;
    assert_eq!(
        refund(client, &by_default, json!({})).await.json()["amount"],
        2000
    );
}

#[tokio::test]
async fn a_retried_refund_refunds_once_and_answers_with_the_same_bytes() {
    let server = TestServer::start().await;
    let charge = server.client.charge("key-1").await.id();
    let body = json!({"charge": charge, "amount": 1000});
    let first = server.client.post("/refunds", "refund-1", &body).await;
    for _ in 0..2 {
        server
            .client
            .post("/refunds", "refund-1", &body)
            .await
            .assert_replays(&first);
    }
    assert_eq!(
        retrieve(&server.client, &charge).await["amount_refunded"],
        1000
    );
}

#[tokio::test]
async fn wrong_parameters_are_refused_and_refund_nothing() {
    let server = TestServer::start().await;
    let client = &server.client;
    let charge = client.charge("key-1").await.id();
    let declined = json!({"amount": 1, "currency": "usd", "source": "tok_chargeDeclined"});
    let failed = client.post_new("/charges", &declined).await.json()["error"]["charge"].clone();
    let stranger = client_of_account(&server, "other").await;
    let foreign = stranger.charge("key-1").await.id();
    let cases = [
        (json!({}), 400, "parameter_missing", "charge"),
        (json!({"charge": ""}), 400, "parameter_invalid", "charge"),
        (json!({"charge": 7}), 400, "parameter_invalid", "charge"),
        (
            json!({"charge": "ch_nobody"}),
            404,
            "resource_missing",
            "charge",
        ),
        (
            json!({"charge": foreign}),
            404,
            "resource_missing",
            "charge",
        ),
        (
            json!({"charge": failed}),
            400,
            "parameter_invalid",
            "charge",
        ),
        (
            json!({"charge": charge, "amount": 0}),
            400,
            "parameter_invalid",
            "amount",
        ),
        (
            json!({"charge": charge, "amount": -1}),
            400,
            "parameter_invalid",
            "amount",
        ),
        (
            json!({"charge": charge, "amount": "1"}),
            400,
            "parameter_invalid",
            "amount",
        ),
        (
            json!({"charge": charge, "amount": 100_000_000}),
            400,
            "amount_too_large",
            "amount",
        ),
        (
            json!({"charge": charge, "reason": "regret"}),
            400,
            "parameter_invalid",
            "reason",
        ),
        (
            json!({"charge": charge, "metadata": {"a": 1}}),
            400,
            "parameter_invalid",
            "metadata[a]",
        ),
        (
            json!({"charge": charge, "currency": "usd"}),
            400,
            "parameter_unknown",
            "currency",
        ),
    ];
    for (body, status, code, param) in cases {
        let refused = client.post_new("/refunds", &body).await;
        assert_eq!(
            refused.refusal(),
            (status, code.to_owned(), Some(param.to_owned())),
            "{body}"
        );
    }
    assert_eq!(
        server.database.count("SELECT count(*) FROM refunds").await,
        0
    );
    assert_eq!(retrieve(client, &charge).await["amount_refunded"], 0);
}

#[tokio::test]
async fn refunds_are_listed_by_charge_and_only_to_their_account() {
    let server = TestServer::start().await;
    let client = &server.client;
    let (first, second) = (
        client.charge("key-1").await.id(),
        client.charge("key-2").await.id(),
    );
    let mut of_first = Vec::new();
    for amount in [100, 200, 300] {
        let refunded = refund(client, &first, json!({"amount": amount})).await;
        of_first.insert(0, refunded.id());
    }
    let of_second = refund(client, &second, json!({})).await.id();
    let ids = |list: &Value| -> Vec<String> {
        let objects = list["data"].as_array().unwrap().iter();
        objects
            .map(|object| object["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = client.get("/refunds").await.json();
    assert_eq!(ids(&all), [vec![of_second], of_first.clone()].concat());
    assert_eq!(
        (&all["url"], &all["has_more"]),
        (&json!("/refunds"), &json!(false))
    );
    for path in [
        format!("/v1/refunds?charge={first}"),
        format!("/v1/charges/{first}/refunds"),
    ] {
        let list = client.get(&path).await.json();
        assert_eq!(ids(&list), of_first, "{path}");
        assert_eq!(list["url"], path.split('?').next().unwrap());
    }
    let page = client
        .get(&format!(
            "/charges/{first}/refunds?limit=1&starting_after={}",
            of_first[0]
        ))
        .await
        .json();
    assert_eq!(ids(&page), of_first[1..2]);
    assert_eq!(page["has_more"], true);

    let stranger = client_of_account(&server, "other").await;
    assert_eq!(stranger.get("/refunds").await.json()["data"], json!([]));
    for path in [
        format!("/refunds/{}", of_first[0]),
        format!("/charges/{first}/refunds"),
        "/refunds/re_nobody".to_owned(),
    ] {
        assert_eq!(
            stranger.get(&path).await.refusal(),
            (404, "resource_missing".into(), Some("id".into())),
            "{path}"
        );
    }
    for (query, param) in [
        ("ending_before=re_nobody", "ending_before"),
        ("charge=nobody", "charge"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=abc", "limit"),
    ] {
        assert_eq!(
            stranger.get(&format!("/refunds?{query}")).await.refusal(),
            (400, "parameter_invalid".into(), Some(param.into())),
            "{query}"
        );
    }
}
