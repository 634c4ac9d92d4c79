//! Updates: what is written on an object changes, its money never.

use crate::support::{
    prelude::*,
    racers::twenty_names_at_once,
    resources::{attached, customer},
};

/// An order, a charge and a refund of it, a customer and their payment method; their paths.
async fn objects(client: &Client) -> [String; 5] {
    let body = json!({
        "amount": 2000, "currency": "usd", "description": "mugs", "receipt_email": "a@example.com",
    });
    let charge = client.post_new("/charges", &body).await.id();
    let refund = json!({"charge": charge, "amount": 1});
    let refund = client.post_new("/refunds", &refund).await.id();
    let customer = customer(client).await;
    let method = attached(client, "pm_card_visa", &customer).await;
    [
        format!("/orders/{}", open_order(client).await),
        format!("/charges/{charge}"),
        format!("/refunds/{refund}"),
        format!("/customers/{customer}"),
        format!("/payment_methods/{method}"),
    ]
}

async fn metadata(client: &Client, path: &str) -> Value {
    client.get(path).await.json()["metadata"].take()
}

#[tokio::test]
async fn metadata_merges_unsets_and_clears_in_both_encodings() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for path in objects(&client).await {
        let steps = rows::<(String, Value)>(json!([
            [r#"{"metadata":{"a":"1","b":"2"}}"#, {"a": "1", "b": "2"}],
            [r#"{"metadata":{"b":"3","c":"4"}}"#, {"a": "1", "b": "3", "c": "4"}],
            [r#"{"metadata":{"a":"","b":null}}"#, {"c": "4"}],
            [r#"{}"#, {"c": "4"}],
            [r#"{"metadata":{}}"#, {"c": "4"}],
            ["metadata[d]=5", {"c": "4", "d": "5"}],
            ["metadata%5Bc%5D=", {"d": "5"}],
            ["metadata=", {}],
            [r#"{"metadata":{"e":"6"}}"#, {"e": "6"}],
            [r#"{"metadata":null}"#, {}],
        ]));
        for (step, (body, expected)) in steps.iter().enumerate() {
            let media_type = if body.starts_with('{') { JSON } else { FORM };
            let key = format!("{step}-{path}");
            let updated = client.post_raw(&path, &key, media_type, body.as_bytes());
            let updated = updated.await;
            assert_eq!(updated.status, 200, "{path} {body}: {}", updated.json());
            assert_eq!(&updated.json()["metadata"], expected, "{path} {body}");
            assert_eq!(&metadata(&client, &path).await, expected, "{path} {body}");
        }
    }
}

#[tokio::test]
async fn a_charges_description_and_address_are_set_kept_and_unset() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let [_, charge, ..] = objects(&client).await;
    let steps = rows::<(Value, Value)>(json!([
        [{"description": "cups"}, ["cups", "a@example.com"]],
        [{"receipt_email": "b@example.com"}, ["cups", "b@example.com"]],
        [{"description": null, "receipt_email": ""}, [null, null]],
    ]));
    let before = client.get(&charge).await.json();
    for (body, expected) in steps {
        let updated = client.post_new(&charge, &body).await.json();
        let shown = json!([updated["description"], updated["receipt_email"]]);
        assert_eq!(shown, expected);
        for name in ["amount", "amount_refunded", "status", "created", "source"] {
            assert_eq!(updated[name], before[name], "{name}");
        }
        assert_eq!(client.get(&charge).await.json(), updated);
    }
}

#[tokio::test]
async fn updates_at_once_lose_none_of_each_other() {
    let server = TestServer::start().await;
    for path in objects(&server.client).await {
        let answers = twenty_names_at_once(&server.client, &path).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        let metadata = metadata(&server.client, &path).await;
        assert_eq!(metadata.as_object().unwrap().len(), 20, "{path}");
    }
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_no_event() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for path in objects(&client).await {
        let events =
            || async { client.get("/events?limit=1").await.json()["data"][0]["id"].take() };
        let set = json!({"metadata": {"a": "1", "b": ""}});
        let first = client.post_new(&path, &set).await;
        let last = events().await;
        for body in [json!({}), set] {
            let updated = client.post_new(&path, &body).await;
            assert_eq!(updated.body, first.body, "{path}");
        }
        assert_eq!(events().await, last, "{path}");
    }
}

#[tokio::test]
async fn an_update_is_replayed_and_does_not_undo_a_later_one() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for path in objects(&client).await {
        let first = json!({"metadata": {"a": "first"}});
        let answer = client.post(&path, &path, &first).await;
        let body = json!({"metadata": {"a": "second"}});
        client.post_new(&path, &body).await;
        let replayed = client.post(&path, &path, &first).await;
        replayed.assert_replays(&answer);
        assert_eq!(metadata(&client, &path).await, json!({"a": "second"}));
    }
}

#[tokio::test]
async fn wrong_updates_are_refused_and_change_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let stranger = client_of_account(&server, "other").await;
    for path in objects(&client).await {
        let many: serde_json::Map<_, _> = (0..50)
            .map(|number| (format!("k{number}"), json!("v")))
            .collect();
        client.post_new(&path, &json!({"metadata": many})).await;
        let before = client.get(&path).await.json();
        let cases = json!([
            [{"metadata": {"one-more": "v"}}, "parameter_invalid", "metadata"],
            [{"metadata": {"a": 1}}, "parameter_invalid", "metadata[a]"],
            [{"metadata": {"a": "v".repeat(501)}}, "parameter_invalid", "metadata[a]"],
            [{"metadata": "text"}, "parameter_invalid", "metadata"],
            [{"metadata": ["text"]}, "parameter_invalid", "metadata"],
            [{"amount": 1}, "parameter_unknown", "amount"],
            [{"status": "paid"}, "parameter_unknown", "status"],
        ]);
        assert_refuses(&client, &path, cases).await;
        let params = json!({"metadata": {"a": "1"}});
        let foreign = stranger.post_new(&path, &params).await;
        foreign.assert_refusal(404, "resource_missing", "id");
        assert_eq!(client.get(&path).await.json(), before);
    }
    let [_, charge, ..] = objects(&client).await;
    for (body, param) in [
        (json!({"receipt_email": "nobody"}), "receipt_email"),
        (json!({"description": "d".repeat(1001)}), "description"),
    ] {
        let refused = client.post_new(&charge, &body).await;
        refused.assert_refusal(400, "parameter_invalid", param);
    }
}
