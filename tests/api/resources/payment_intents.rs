//! Payment intents: one payment, through as many cards as it takes.

use crate::support::{
    intents::{
        STATUSES, act, create, events, paid_with, path, retrieve, standing, terms, terms_with,
    },
    prelude::*,
    replies::with,
    resources::{assert_is_created, attached, customer, detach, method},
};

/// How a request ended: the object's status, or the error's code.
fn ended(answer: &Answer) -> String {
    match answer.status.is_success() {
        true => answer.text_of("status"),
        false => answer.code(),
    }
}

#[tokio::test]
async fn a_new_intent_has_exactly_the_documented_members() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = json!({"amount": 2000, "currency": "usd", "metadata": {"order_id": "6735"}});
    let created = client.post("/payment_intents", "key-1", &body).await;
    assert_is_created(&client, &created, "/payment_intents", "pi_").await;
    let (id, object) = (created.id(), created.json());
    assert!(object["created"].is_i64());
    let (secret, prefix) = (created.text_of("client_secret"), format!("{id}_secret_"));
    let secret = secret.strip_prefix(&prefix);
    assert!(secret.is_some_and(
        |secret| secret.len() >= 25 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric())
    ));
    let expected = json!({
        "id": id, "object": "payment_intent", "amount": 2000, "amount_capturable": 0,
        "amount_details": {"tip": {}}, "amount_received": 0, "application": null,
        "application_fee_amount": null,
        "automatic_payment_methods": {"allow_redirects": "always", "enabled": true},
        "canceled_at": null, "cancellation_reason": null, "capture_method": "automatic_async",
        "client_secret": object["client_secret"], "confirmation_method": "automatic",
        "created": object["created"],
        "currency": "usd", "customer": null, "customer_account": null, "description": null,
        "excluded_payment_method_types": null, "last_payment_error": null, "latest_charge": null,
        "livemode": false, "metadata": {"order_id": "6735"}, "next_action": null,
        "on_behalf_of": null, "payment_method": null,
        "payment_method_configuration_details": null,
        "payment_method_options": {"card": {
            "installments": null, "mandate_options": null, "network": null,
            "request_three_d_secure": "automatic",
        }},
        "payment_method_types": ["card"], "processing": null, "receipt_email": null,
        "review": null, "setup_future_usage": null, "shipping": null, "source": null,
        "statement_descriptor": null, "statement_descriptor_suffix": null,
        "status": "requires_payment_method", "transfer_data": null, "transfer_group": null,
    });
    assert_eq!(object, expected);
    let replayed = client.post("/payment_intents", "key-1", &body).await;
    replayed.assert_replays(&created);
    assert_eq!(events(&client).await, ["payment_intent.created"]);
}

#[tokio::test]
async fn a_form_says_what_json_says() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let form = format!(
        "amount=2000&currency=usd&metadata[session_id]=payses_1&capture_method=manual\
         &expand[0]=payment_method&customer={customer}&off_session=true&confirm=true\
         &payment_method=pm_card_visa&return_url=http%3A%2F%2F127.0.0.1%2Fr\
         &shipping[name]=Ann&shipping[address][city]=Bonn&statement_descriptor_suffix=MUGS"
    );
    let created = client.post_raw("/v1/payment_intents", "key-1", FORM, form.as_bytes());
    let created = created.await;
    assert_eq!(created.status, 201, "{}", created.json());
    let intent = created.json();
    intent.assert_shows(json!({
        "status": "requires_capture", "payment_method/card/last4": "4242",
        "shipping/address/city": "Bonn",
    }));
    let of_charge = format!(
        "/charges?payment_intent={}&expand[]=data.payment_intent&expand[]=data.customer",
        created.id()
    );
    let charges = client.get(&of_charge).await.json();
    charges["data"][0].assert_shows(json!({
        "id": intent["latest_charge"], "payment_intent/id": created.id(), "customer/id": customer,
        "metadata/session_id": "payses_1", "source": null, "statement_descriptor_suffix": "MUGS",
        "payment_method_details/card/fingerprint": intent["payment_method"]["card"]["fingerprint"],
    }));
    let listed = format!("/payment_intents?customer={customer}");
    let listed = client.get(&listed).await.json();
    assert_eq!(listed["data"][0]["id"], created.id());
}

/// What each verb makes of an intent in each status, or the code of its refusal. A verb that is not
/// named is refused for the status.
#[tokio::test]
async fn each_verb_finds_its_statuses_and_refuses_the_others_with_the_whole_intent() {
    const STATE: &str = "payment_intent_unexpected_state";
    let (_server, client) = TestServer::with_client(&[]).await;
    let table = json!({
        "requires_payment_method": {
            "amount": "requires_payment_method", "description": "requires_payment_method",
            "confirm": "succeeded", "cancel": "canceled",
        },
        "requires_confirmation": {
            "amount": "requires_confirmation", "description": "requires_confirmation",
            "confirm": "succeeded", "cancel": "canceled",
        },
        "requires_action": {
            "amount": "requires_confirmation", "description": "requires_action",
            "confirm": "succeeded", "cancel": "canceled",
        },
        "requires_capture": {
            "description": "requires_capture", "capture": "succeeded", "cancel": "canceled",
            "refund": "charge_not_captured",
        },
        "succeeded": {"description": "succeeded", "refund": "succeeded"},
        "canceled": {"description": "canceled"},
    });
    for status in STATUSES {
        for verb in [
            "amount",
            "description",
            "confirm",
            "capture",
            "cancel",
            "refund",
        ] {
            let expected = table[status][verb].as_str().unwrap_or(STATE);
            let id = standing(&client, status).await;
            let (path, body) = match verb {
                "amount" => (path(&id, ""), json!({"amount": 2100})),
                "description" => (path(&id, ""), json!({"description": "new"})),
                "confirm" => (path(&id, verb), json!({"payment_method": "pm_card_visa"})),
                "refund" => ("/refunds".to_owned(), json!({"payment_intent": id})),
                _ => (path(&id, verb), json!({})),
            };
            let answer = client.post_new(&path, &body).await;
            let told = answer.json();
            assert_eq!(ended(&answer), expected, "{verb} of {status}: {told}");
            let now = retrieve(&client, &id).await;
            if expected == STATE {
                assert_eq!(told["error"]["payment_intent"], now);
                assert_eq!(now["status"], status, "{verb}");
            }
        }
    }
}

#[tokio::test]
async fn a_decline_is_kept_and_another_card_pays_under_another_key() {
    let (server, client) = TestServer::with_client(&[]).await;
    let id = create(&client, json!({})).await.id();
    let confirm = path(&id, "confirm");
    let declining = json!({"payment_method": "pm_card_chargeDeclinedInsufficientFunds"});
    let declined = client.post(&confirm, "key-1", &declining).await;
    assert_eq!(declined.status, 402);
    let error = &declined.json()["error"];
    assert_eq!(error["decline_code"], "insufficient_funds");
    assert_eq!(error["payment_method"]["card"]["last4"], "9995");
    let intent = retrieve(&client, &id).await;
    assert_eq!(error["payment_intent"], intent);
    assert_eq!(intent["status"], "requires_payment_method");
    intent.assert_shows(json!({"payment_method": null, "latest_charge": error["charge"]}));
    let last = &intent["last_payment_error"];
    for member in "type code decline_code charge doc_url payment_method".split(' ') {
        assert_eq!(last[member], error[member], "{member}");
    }
    assert_eq!(
        (last.get("payment_intent"), last.get("advice")),
        (None, None)
    );
    assert_eq!(error["message"], last["message"]);
    assert_eq!(
        error["advice"],
        "Another attempt needs a new idempotency key."
    );

    // The same key never charges again, though its request would succeed by now.
    let visa = json!({"payment_method": "pm_card_visa"});
    let paid = act(&client, &id, "confirm", visa).await;
    assert_eq!(ended(&paid), "succeeded");
    paid.assert_shows(json!({"amount_received": 2000, "last_payment_error": null}));
    let replayed = client.post(&confirm, "key-1", &declining).await;
    replayed.assert_replays(&declined);
    assert_eq!(server.database.charges().await, 2);
    let expected = "payment_intent.created charge.failed payment_intent.payment_failed \
                    charge.succeeded payment_intent.succeeded";
    assert_eq!(events(&client).await.join(" "), expected);
}

#[tokio::test]
async fn an_intent_that_is_declined_when_it_is_created_exists() {
    let (server, client) = TestServer::with_client(&[]).await;
    let body = terms_with(json!({"confirm": true, "payment_method": "pm_card_chargeDeclined"}));
    let declined = client.post("/v1/payment_intents", "key-1", &body).await;
    assert_eq!(declined.status, 402);
    let intent = declined.json()["error"]["payment_intent"].clone();
    let id = intent["id"].as_str().unwrap();
    assert_eq!(retrieve(&client, id).await, intent);
    for _ in 0..3 {
        let again = client.post("/v1/payment_intents", "key-1", &body).await;
        again.assert_replays(&declined);
    }
    let known = client.get("/idempotency-keys/key-1").await.json();
    assert_eq!(known["resource"], id, "{known}");
    assert_eq!(server.database.count_of("payment_intents").await, 1);
    assert_eq!(server.database.charges().await, 1);
    let expected = "payment_intent.created charge.failed payment_intent.payment_failed";
    assert_eq!(events(&client).await.join(" "), expected);
}

#[tokio::test]
async fn a_capture_takes_a_part_once_and_the_next_key_reads_that_it_succeeded() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = standing(&client, "requires_capture").await;
    let promised = retrieve(&client, &id).await;
    assert_eq!(promised["amount_capturable"], 2000);
    let charge = promised["latest_charge"].as_str().unwrap();
    let path = format!("/charges/{charge}/capture");
    let of_charge = client.post_new(&path, &json!({})).await;
    of_charge.assert_refusal(400, "parameter_invalid", "id");
    let refund = json!({"charge": charge});
    let refused = client.post_new("/refunds", &refund).await;
    assert_eq!(refused.code(), "charge_not_captured");
    let too_much = act(&client, &id, "capture", json!({"amount_to_capture": 2001})).await;
    too_much.assert_refusal(400, "capture_amount_too_large", "amount_to_capture");
    let part = json!({
        "amount_to_capture": 1500, "metadata": {"shipped": "yes"},
        "statement_descriptor_suffix": "SPRING",
    });
    let captured = act(&client, &id, "capture", part).await;
    assert_eq!(captured.status, 200, "{}", captured.json());
    let intent = captured.json();
    intent.assert_shows(json!({
        "status": "succeeded", "amount_received": 1500, "amount_capturable": 0,
    }));
    assert_eq!(intent["metadata"]["shipped"], "yes");
    let taken = client.get(&format!("/charges/{charge}")).await.json();
    taken.assert_shows(json!({"amount_captured": 1500, "statement_descriptor_suffix": "SPRING"}));
    let told = client.get("/events?type=charge.captured").await.json();
    let before =
        json!({"amount_captured": 0, "captured": false, "statement_descriptor_suffix": null});
    assert_eq!(told["data"][0]["data"]["previous_attributes"], before);
    // As a client does that lost the reply, and made another key.
    let again = act(&client, &id, "capture", json!({})).await;
    assert_eq!(again.code(), "payment_intent_unexpected_state");
    assert_eq!(again.json()["error"]["payment_intent"], intent);
    let not_final = json!({"final_capture": false});
    let refused = act(&client, &id, "capture", not_final).await;
    refused.assert_refusal(400, "parameter_invalid", "final_capture");
    let expected = "payment_intent.created charge.succeeded \
                    payment_intent.amount_capturable_updated charge.captured \
                    payment_intent.succeeded";
    assert_eq!(events(&client).await.join(" "), expected);
}

#[tokio::test]
async fn a_cancellation_releases_what_was_promised() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = standing(&client, "requires_capture").await;
    let reason = json!({"cancellation_reason": "abandoned"});
    let canceled = act(&client, &id, "cancel", reason).await;
    assert_eq!(canceled.status, 200, "{}", canceled.json());
    let intent = canceled.json();
    assert!(intent["canceled_at"].is_i64());
    intent.assert_shows(json!({
        "status": "canceled", "amount_capturable": 0, "cancellation_reason": "abandoned",
    }));
    let charge = format!("/charges/{}", intent["latest_charge"].as_str().unwrap());
    let charge = client.get(&charge).await.json();
    charge.assert_shows(json!({"refunded": true, "amount_refunded": 2000, "captured": false}));
    let again = act(&client, &id, "cancel", json!({})).await;
    assert_eq!(again.json()["error"]["payment_intent"], intent);
    let refund = json!({"payment_intent": id});
    let refund = client.post_new("/refunds", &refund).await;
    assert_eq!(refund.code(), "charge_already_refunded");
    let expected = "refund.created charge.refunded payment_intent.canceled";
    assert_eq!(events(&client).await[3..].join(" "), expected);
}

#[tokio::test]
async fn refunds_name_an_intent_and_its_charge() {
    let server = TestServer::start().await;
    let client = &server.client;
    let id = standing(client, "succeeded").await;
    let other = standing(client, "succeeded").await;
    let charge = retrieve(client, &id).await["latest_charge"].clone();
    let refund = |body: Value| async move { client.post_new("/refunds", &body).await };
    let part = refund(json!({"payment_intent": id, "amount": 500})).await;
    assert_eq!(part.status, 201, "{}", part.json());
    part.assert_shows(json!({"charge": charge, "payment_intent": id}));
    let neither = refund(json!({"amount": 1})).await;
    neither.assert_refusal(400, "parameter_missing", "charge");
    let anothers = refund(json!({"payment_intent": other, "charge": charge})).await;
    anothers.assert_refusal(400, "parameter_invalid", "charge");
    let rest = refund(json!({"payment_intent": id, "charge": charge})).await;
    assert_eq!(rest.json()["amount"], 1500);
    // Whatever the amount.
    let nothing_left = refund(json!({"payment_intent": id, "amount": 1})).await;
    nothing_left.assert_refusal(400, "charge_already_refunded", "payment_intent");
    let intent = retrieve(client, &id).await;
    intent.assert_shows(json!({"status": "succeeded", "amount_received": 2000}));
    let listed = format!("/refunds?payment_intent={id}&expand[]=data.payment_intent");
    let listed = client.get(&listed).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(listed["data"][0]["payment_intent"], intent);
}

#[tokio::test]
async fn a_holder_authenticates_once_and_the_card_is_charged_or_fails() {
    let server = TestServer::start().await;
    let client = &server.client;
    let of = |id: String| async move { retrieve(client, &id).await };
    let automatic = json!({"confirmation_method": "automatic"});
    let table = json!([
        ["authenticationRequired", automatic, "complete", "succeeded", null],
        ["authenticationRequired", {"confirmation_method": "manual"}, "complete",
         "requires_confirmation", null],
        ["authenticationRequired", automatic, "fail", "requires_payment_method",
         "payment_intent_authentication_failure"],
        ["threeDSecureRequiredChargeDeclined", automatic, "complete", "requires_payment_method",
         "card_declined"],
    ]);
    let cases = rows::<(String, Value, String, String, Value)>(table);
    for (card, more, outcome, status, code) in cases {
        let waiting = paid_with(client, &format!("pm_card_{card}"), more).await;
        assert_eq!(waiting.status, 201, "{}", waiting.json());
        let page = page_of(&waiting);
        assert_eq!(press(&page, &outcome).await.status, 200);
        let intent = of(waiting.id()).await;
        assert_eq!(intent["status"], status, "{card} {outcome}");
        intent.assert_shows(json!({"next_action": null, "last_payment_error/code": code}));
        // The first answer decided.
        let other = match &*outcome {
            "fail" => "complete",
            _ => "fail",
        };
        assert_eq!(press(&page, other).await.status, 200);
        assert_eq!(of(waiting.id()).await, intent);
        if status == "requires_confirmation" {
            // What is said again changes nothing, so the holder is not asked again.
            let again = json!({"capture_method": intent["capture_method"]});
            let paid = act(client, &waiting.id(), "confirm", again).await;
            assert_eq!(ended(&paid), "succeeded", "{}", paid.json());
            let charge = format!("/charges/{}", paid.text_of("latest_charge"));
            let charge = client.get(&charge).await.json();
            let secure = &charge["payment_method_details"]["card"]["three_d_secure"];
            assert_eq!(secure["result"], "authenticated");
        }
    }
    // What is not waited for any more: what a holder would authenticate for has changed.
    let automatic = json!({"amount": 5, "currency": "usd"});
    let automatic = client.post_new("/payment_intents", &automatic).await;
    assert!(automatic.json()["automatic_payment_methods"].is_object());
    let types = json!({"payment_method_types": ["card"]});
    act(client, &automatic.id(), "", types).await;
    let changed = of(automatic.id()).await;
    assert_eq!(changed["automatic_payment_methods"], Value::Null);
    let waiting = standing(client, "requires_action").await;
    let page = page_of(&client.get(&path(&waiting, "")).await);
    act(client, &waiting, "", json!({"amount": 2100})).await;
    assert_eq!(press(&page, "complete").await.status, 410);
    assert_eq!(of(waiting).await["status"], "requires_confirmation");
}

#[tokio::test]
async fn a_holder_returns_to_the_shop_which_is_told_of_the_intent() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let back = json!({"return_url": "https://example.com/done?cart=1"});
    let waiting = paid_with(&client, "pm_card_authenticationRequired", back).await;
    let page = &waiting.json()["next_action"]["redirect_to_url"];
    assert_eq!(page["return_url"], "https://example.com/done?cart=1");
    let landed = press(&page_of(&waiting), "complete").await;
    let (id, secret) = (waiting.id(), waiting.text_of("client_secret"));
    let told = format!(
        "https://example.com/done?cart=1&payment_intent={id}&payment_intent_client_secret={secret}\
         &redirect_status=succeeded"
    );
    assert_eq!(landed.status, 303);
    assert_eq!(landed.header("location"), Some(told.as_str()));
}

#[tokio::test]
async fn a_holder_who_is_not_there_or_not_to_be_asked_makes_a_decline() {
    let (server, client) = TestServer::with_client(&[]).await;
    let card = "pm_card_authenticationRequired";
    let off = paid_with(&client, card, json!({"off_session": true})).await;
    assert_eq!(off.status, 402);
    let error = &off.json()["error"];
    error.assert_shows(json!({
        "code": "authentication_required", "decline_code": "authentication_required",
    }));
    let intent = &error["payment_intent"];
    assert_eq!(intent["status"], "requires_payment_method");
    assert_eq!(intent["latest_charge"], error["charge"]);
    let charge = format!("/charges/{}", error["charge"].as_str().unwrap());
    let charge = client.get(&charge).await.json();
    assert_eq!(charge["failure_code"], "authentication_required");
    let refused = paid_with(&client, card, json!({"error_on_requires_action": true})).await;
    assert_eq!(refused.status, 402);
    let error = &refused.json()["error"];
    error.assert_shows(json!({"code": "authentication_required", "charge": null}));
    assert_eq!(error["payment_intent"]["status"], "requires_payment_method");
    assert_eq!(server.database.charges().await, 1);

    // Of any card, if the client wants it.
    let any = json!({"payment_method_options": {"card": {"request_three_d_secure": "any"}}});
    let asked = paid_with(&client, "pm_card_visa", any).await;
    assert_eq!(ended(&asked), "requires_action");
}

#[tokio::test]
async fn types_of_methods_beside_card_are_left_out() {
    let (_server, client) = TestServer::with_client(&[]).await;
    // As Kill Bill's plugin sends them.
    let types = json!([
        "acss_debit",
        "card",
        "us_bank_account",
        "link",
        "klarna",
        "card_present"
    ]);
    let types = json!({"payment_method_types": types});
    let setup = json!({"payment_method": "pm_card_visa", "confirm": true});
    let setup = client
        .post_new("/v1/setup_intents", &with(setup, &types))
        .await;
    let other = json!({"amount": 2000, "currency": "usd"});
    let updated = client.post_new("/v1/payment_intents", &other).await.id();
    let updated = act(&client, &updated, "", types.clone()).await;
    let paid = paid_with(&client, "pm_card_visa", types).await;
    for (intent, status) in [
        (setup, "succeeded"),
        (updated, "requires_payment_method"),
        (paid, "succeeded"),
    ] {
        intent.assert_shows(json!({
            "status": status, "payment_method_types": ["card"], "automatic_payment_methods": null,
        }));
    }
}

#[tokio::test]
async fn an_option_of_cards_that_promises_the_money_wins_over_the_intent_s_own() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let method = json!({"payment_method": "pm_card_visa"});
    let option = json!({"payment_method_options": {"card": {"capture_method": "manual"}}});
    for capture_method in [
        None,
        Some("automatic"),
        Some("automatic_async"),
        Some("manual"),
    ] {
        let mut said = option.clone();
        if let Some(capture_method) = capture_method {
            said["capture_method"] = capture_method.into();
        }
        let created = paid_with(&client, "pm_card_visa", said.clone()).await;
        let id = create(&client, method.clone()).await.id();
        assert_eq!(act(&client, &id, "", said.clone()).await.status, 200);
        let updated = act(&client, &id, "confirm", json!({})).await;
        let id = create(&client, method.clone()).await.id();
        let confirmed = act(&client, &id, "confirm", said).await;
        for intent in [created, updated, confirmed] {
            let promised = json!({"status": "requires_capture", "capture_method": "manual"});
            intent.assert_shows(promised);
            let captured = act(&client, &intent.id(), "capture", json!({})).await;
            assert_eq!(ended(&captured), "succeeded");
        }
    }
    // Without a word about capturing, an update changes only whose holders authenticate.
    let id = create(&client, method).await.id();
    let any = json!({"payment_method_options": {"card": {"request_three_d_secure": "any"}}});
    act(&client, &id, "", any)
        .await
        .assert_shows(json!({"capture_method": "automatic_async"}));
    let asked = act(
        &client,
        &id,
        "confirm",
        json!({"return_url": "https://example.com"}),
    )
    .await;
    assert_eq!(ended(&asked), "requires_action");
    let paid = standing(&client, "succeeded").await;
    let late = act(&client, &paid, "", option).await;
    assert_eq!(late.code(), "payment_intent_unexpected_state");
    for wrong in ["automatic", ""] {
        let wrong = json!({"payment_method_options": {"card": {"capture_method": wrong}}});
        let refused = paid_with(&client, "pm_card_visa", wrong).await;
        let param = "payment_method_options[card][capture_method]";
        refused.assert_refusal(400, "parameter_invalid", param);
    }
}

#[tokio::test]
async fn a_method_pays_once_without_a_customer_and_stays_with_one_who_keeps_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let method = method(&client, "tok_visa").await;
    let once = paid_with(&client, &method, json!({})).await;
    assert_eq!(ended(&once), "succeeded");
    let again = paid_with(&client, &method, json!({})).await;
    again.assert_refusal(400, "payment_method_unexpected_state", "payment_method");
    let customer = customer(&client).await;
    let keeps = json!({"customer": customer, "setup_future_usage": "off_session"});
    let kept = paid_with(&client, "pm_card_visa", keeps).await;
    assert_eq!(ended(&kept), "succeeded", "{}", kept.json());
    let kept = kept.text_of("payment_method");
    let attached = client.get(&format!("/payment_methods/{kept}")).await.json();
    assert_eq!(attached["customer"], customer);
    for _ in 0..2 {
        let paid = paid_with(&client, &kept, json!({"customer": customer})).await;
        assert_eq!(ended(&paid), "succeeded", "{}", paid.json());
    }
    let stranger = paid_with(&client, &kept, json!({})).await;
    stranger.assert_refusal(400, "parameter_invalid", "payment_method");
    assert_eq!(detach(&client, &kept).await.status, 200);
    let detached = paid_with(&client, &kept, json!({"customer": customer})).await;
    assert_eq!(detached.code(), "payment_method_unexpected_state");
}

#[tokio::test]
async fn a_method_that_is_detached_while_its_holder_authenticates_is_not_charged() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let method = attached(&client, "pm_card_authenticationRequired", &customer).await;
    let waiting = paid_with(&client, &method, json!({"customer": customer})).await;
    assert_eq!(detach(&client, &method).await.status, 200);
    let page = page_of(&waiting);
    assert_eq!(press(&page, "complete").await.status, 200);
    let intent = retrieve(&client, &waiting.id()).await;
    assert_eq!(intent["status"], "requires_payment_method");
    let error = &intent["last_payment_error"];
    assert_eq!(error["code"], "payment_method_unexpected_state");
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn what_can_not_be_meant_is_refused_and_the_parameter_is_named() {
    let (server, client) = TestServer::with_client(&[]).await;
    let (missing, invalid) = ("parameter_missing", "parameter_invalid");
    let cases = json!([
        [{"off_session": true}, invalid, "off_session"],
        [{"return_url": "https://example.com"}, invalid, "return_url"],
        [{"confirm": true, "payment_method": "pm_card_visa"}, missing, "return_url"],
        [{"payment_method_types": ["card"], "confirm": true}, missing, "payment_method"],
        [{"payment_method_types": ["card"], "automatic_payment_methods": {"enabled": true}},
         invalid, "payment_method_types"],
        [{"payment_method_types": ["card", "link", "beads"]}, invalid, "payment_method_types[2]"],
        [{"payment_method_types": ["ideal", "link"]}, invalid, "payment_method_types[0]"],
        [{"payment_method_types": ["card"], "confirm": true, "payment_method": "pm_card_visa",
          "off_session": true, "setup_future_usage": "off_session"}, invalid,
         "setup_future_usage"],
        [{"payment_method_types": ["card"], "payment_method": "pm_card_visa",
          "payment_method_data": {"type": "card", "card": {"token": "tok_visa"}}}, invalid,
         "payment_method_data"],
        [{"use_stripe_sdk": true}, invalid, "use_stripe_sdk"],
        [{"statement_descriptor": "MUGS"}, invalid, "statement_descriptor"],
        [{"mandate": "m"}, "parameter_unknown", "mandate"],
        [{"customer": "cus_none"}, "resource_missing", "customer"],
        [{"payment_method": "pm_none"}, "resource_missing", "payment_method"],
    ]);
    let plain = json!({"amount": 2000, "currency": "usd"});
    assert_refuses(&client, "/payment_intents", differing_from(&plain, cases)).await;
    let nothing = act(&client, "pi_none", "confirm", json!({})).await;
    nothing.assert_refusal(404, "resource_missing", "intent");
    assert_eq!(server.database.count_of("payment_intents").await, 0);
}

#[tokio::test]
async fn an_update_forgets_the_last_error_and_a_secret_is_compared() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let declined = paid_with(&client, "pm_card_chargeDeclined", json!({})).await;
    let id = declined.json()["error"]["payment_intent"]["id"].clone();
    let id = id.as_str().unwrap();
    let update = json!({
        "amount": 2150, "expand": ["payment_method"], "payment_method": "pm_card_mastercard",
        "metadata": {"try": "2"},
    });
    let updated = act(&client, id, "", update).await;
    assert_eq!(updated.status, 200, "{}", updated.json());
    let intent = updated.json();
    intent.assert_shows(json!({
        "status": "requires_confirmation", "amount": 2150, "last_payment_error": null,
    }));
    assert_eq!(intent["payment_method"]["card"]["brand"], "mastercard");
    let secret = intent["client_secret"].as_str().unwrap();
    let with_secret = |secret| format!("/payment_intents/{id}?client_secret={secret}");
    assert_eq!(client.get(&with_secret(secret)).await.status, 200);
    let refused = client.get(&with_secret("other")).await;
    refused.assert_refusal(400, "parameter_invalid", "client_secret");
    let confirmed = act(&client, id, "confirm", json!({})).await;
    assert_eq!(confirmed.json()["amount_received"], 2150);
}

#[tokio::test]
async fn intents_that_stand_alone_share_batches_with_charges() {
    let server = TestServer::start_with(&[("BATCH", "on")]).await;
    let client = &server.client;
    let answers = all_at_once(40, |number| {
        let client = client.clone();
        async move {
            match number % 2 {
                0 => client.post_new("/payment_intents", &terms()).await,
                _ => client.post_new("/charges", &charge()).await,
            }
        }
    })
    .await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    let transactions = "SELECT count(DISTINCT xmin::text) FROM payment_intents";
    assert!(server.database.count(transactions).await < 20);
}
