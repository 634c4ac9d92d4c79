//! What Stripe's programs send that has no effect here: it is checked, and then forgotten.

use crate::support::{
    intents::{act, create, paid_with, retrieve},
    prelude::*,
};

/// As the plugin for WooCommerce sends it.
fn agreed() -> Value {
    let online =
        json!({"ip_address": "203.0.113.7", "user_agent": "WooCommerce/8.8; shop.example"});
    json!({"customer_acceptance": {
        "type": "online", "accepted_at": 1_795_000_000, "online": online,
    }})
}

#[tokio::test]
async fn a_mandate_and_a_session_of_radar_are_taken_and_change_nothing() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let radar = json!({"session": "rse_1234"});
    let both = json!({"mandate_data": agreed(), "radar_options": radar});
    let paid = paid_with(&client, "pm_card_visa", both.clone()).await;
    assert_eq!(paid.text_of("status"), "succeeded");
    let id = create(&client, json!({"payment_method": "pm_card_visa"}))
        .await
        .id();
    let confirmed = act(&client, &id, "confirm", both).await;
    assert_eq!(confirmed.text_of("status"), "succeeded");
    for object in [paid.json(), retrieve(&client, &id).await] {
        assert!(object.get("mandate_data").is_none() && object.get("radar_options").is_none());
    }
    let offline = json!({"customer_acceptance": {"type": "offline"}});
    let setup = json!({
        "confirm": true, "payment_method_types": ["card"], "mandate_data": offline,
        "payment_method_data": {
            "type": "card", "card": {"token": "tok_visa"}, "radar_options": radar,
        },
    });
    let ready = client.post_new("/v1/setup_intents", &setup).await;
    ready.assert_shows(json!({"status": "succeeded", "mandate": null}));
    let setup = json!({"payment_method": "pm_card_visa", "payment_method_types": ["card"]});
    let setup = client.post_new("/v1/setup_intents", &setup).await.id();
    let confirm = format!("/v1/setup_intents/{setup}/confirm");
    let ready = client
        .post_new(&confirm, &json!({"mandate_data": agreed()}))
        .await;
    ready.assert_shows(json!({"status": "succeeded", "mandate": null}));
    let charge = json!({"amount": 1, "currency": "usd", "radar_options": radar});
    assert_eq!(client.post_new("/v1/charges", &charge).await.status, 201);
    let method = json!({"type": "card", "card": {"token": "tok_visa"}, "radar_options": radar});
    assert_eq!(
        client.post_new("/v1/payment_methods", &method).await.status,
        201
    );
}

#[tokio::test]
async fn a_mandate_and_a_session_of_radar_that_stripe_would_refuse_are_refused() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let (missing, invalid, unknown) = (
        "parameter_missing",
        "parameter_invalid",
        "parameter_unknown",
    );
    let mandate = |acceptance: Value| json!({"mandate_data": {"customer_acceptance": acceptance}});
    let refused = json!([
        [{"mandate_data": {}}, missing, "mandate_data[customer_acceptance]"],
        [mandate(json!({})), missing, "mandate_data[customer_acceptance][type]"],
        [mandate(json!({"type": "phone"})), invalid, "mandate_data[customer_acceptance][type]"],
        [mandate(json!({"type": "online", "accepted_at": -1})), invalid,
         "mandate_data[customer_acceptance][accepted_at]"],
        [mandate(json!({"type": "online", "online": {"user_agent": "x"}})), missing,
         "mandate_data[customer_acceptance][online][ip_address]"],
        [mandate(json!({"type": "online", "online": {"ip_address": "203.0.113.7"}})), missing,
         "mandate_data[customer_acceptance][online][user_agent]"],
        [mandate(json!({"type": "online", "by": "mail"})), unknown,
         "mandate_data[customer_acceptance][by]"],
        // Only a confirmation has a mandate.
        [{"mandate_data": agreed()}, invalid, "mandate_data"],
    ]);
    let intent = json!({"amount": 1, "currency": "usd"});
    let cases = differing_from(&intent, refused.clone());
    assert_refuses(&client, "/v1/payment_intents", cases).await;
    assert_refuses(&client, "/v1/setup_intents", refused).await;
    let radar = json!([
        [{"radar_options": {"session": 1}}, invalid, "radar_options[session]"],
        [{"radar_options": {"skip_rules": ["all"]}}, unknown, "radar_options[skip_rules]"],
    ]);
    for path in ["/v1/charges", "/v1/payment_intents"] {
        assert_refuses(&client, path, differing_from(&intent, radar.clone())).await;
    }
}
