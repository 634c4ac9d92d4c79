//! Captures: once, at most what was promised, and the rest is released.

use crate::support::{
    prelude::*,
    resources::{money, uncaptured},
};

fn capture(id: &str) -> String {
    format!("/charges/{id}/capture")
}

#[tokio::test]
async fn a_promise_is_captured_whole_by_default_or_in_part() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for (body, taken) in [
        (json!({}), 2000),
        (json!({"amount": 2000}), 2000),
        (json!({"amount": 1}), 1),
    ] {
        let id = uncaptured(&client).await;
        let promised = client.get(&format!("/charges/{id}")).await.json();
        assert_eq!(money(&promised), json!([false, 0, 0, false]));
        let captured = client.post_new(&capture(&id), &body).await;
        assert_eq!(captured.status, 200, "{}", captured.json());
        assert_eq!(captured.header("location"), None);
        // What was not taken is released, and is no refund.
        assert_eq!(money(&captured.json()), json!([true, taken, 0, false]));
        assert_eq!(captured.json()["amount"], 2000);
        let kept = client.get(&format!("/charges/{id}")).await;
        assert_eq!(kept.json(), captured.json());
    }
}

#[tokio::test]
async fn a_capture_may_have_no_body_at_all() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for media_type in [None, Some("application/x-www-form-urlencoded")] {
        let id = uncaptured(&client).await;
        let mut request = client
            .request(Method::POST, &format!("/v1{}", capture(&id)))
            .header("idempotency-key", format!("capture-{id}"));
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        let captured = Answer::of(request).await;
        assert_eq!(money(&captured.json()), json!([true, 2000, 0, false]));
    }
}

#[tokio::test]
async fn a_charge_is_captured_once_and_a_retry_replays() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = uncaptured(&client).await;
    let part = json!({"amount": 500});
    let first = client.post(&capture(&id), "capture-1", &part).await;
    let replayed = client.post(&capture(&id), "capture-1", &part).await;
    replayed.assert_replays(&first);
    for body in [json!({}), part] {
        let again = client.post_new(&capture(&id), &body).await;
        again.assert_refusal(400, "charge_already_captured", "id");
    }
    let captured = client.charge("key-1").await.id();
    let again = client.post_new(&capture(&captured), &json!({})).await;
    assert_eq!(again.code(), "charge_already_captured");
    let kept = client.get(&format!("/charges/{id}")).await;
    assert_eq!(kept.json(), first.json());
}

#[tokio::test]
async fn what_can_not_be_captured_is_refused_and_stays_as_it_was() {
    let (server, client) = TestServer::with_client(&[]).await;
    let promised = uncaptured(&client).await;
    let released = uncaptured(&client).await;
    let params = json!({"charge": released});
    client.post_new("/refunds", &params).await;
    let declined = json!({"amount": 1, "currency": "usd", "source": "tok_chargeDeclined"});
    let failed = client
        .post_new("/charges", &declined)
        .await
        .text_of("error/charge");
    let foreign = client_of_account(&server, "other").await;
    let foreign = uncaptured(&foreign).await;
    let cases = rows::<(String, Value, String, String)>(json!([
        [promised, {"amount": 2001}, "capture_amount_too_large", "amount"],
        [promised, {"amount": 0}, "parameter_invalid", "amount"],
        [promised, {"amount": "1"}, "parameter_invalid", "amount"],
        [promised, {"amount": 100_000_000}, "amount_too_large", "amount"],
        [promised, {"amuont": 1}, "parameter_unknown", "amuont"],
        [released, {}, "charge_already_refunded", "id"],
        [failed, {}, "parameter_invalid", "id"],
        [foreign, {}, "resource_missing", "id"],
        ["ch_nobody", {}, "resource_missing", "id"],
    ]));
    for (id, body, code, param) in &cases {
        let before = client.get(&format!("/charges/{id}")).await.body;
        let key = format!("capture-{id}-{body}").replace(['"', ',', ' '], "-");
        let refused = client.post(&capture(id), &key, body).await;
        assert_eq!(refused.refusal(), refusal(code, param), "{id} {body}");
        // Deterministic, so it is kept.
        let replayed = client.post(&capture(id), &key, body).await;
        replayed.assert_replays(&refused);
        assert_eq!(client.get(&format!("/charges/{id}")).await.body, before);
    }
}
