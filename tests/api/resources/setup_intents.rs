//! Setup intents: a card is made ready, once, and a request that is refused sees how it stands.

use crate::support::{
    intents::events,
    prelude::*,
    resources::{assert_is_created, attach, customer, detach},
};

const RETURN_URL: &str = "https://shop.example/return";

/// A card whose holder must authenticate.
const HOLDERS_CARD: &str = "pm_card_threeDSecure2Required";

async fn create(client: &Client, body: Value) -> Answer {
    client.post_new("/setup_intents", &body).await
}

/// Tries a card at once.
async fn try_card(client: &Client, method: &str, more: Value) -> Answer {
    let mut body = more;
    body["payment_method"] = method.into();
    body["confirm"] = true.into();
    body["return_url"] = RETURN_URL.into();
    create(client, body).await
}

async fn verb(client: &Client, id: &str, verb: &str, body: Value) -> Answer {
    let path = format!("/setup_intents/{id}/{verb}");
    client.post_new(&path, &body).await
}

async fn confirm(client: &Client, id: &str, method: &str) -> Answer {
    let body = json!({"payment_method": method, "return_url": RETURN_URL});
    verb(client, id, "confirm", body).await
}

async fn retrieve(client: &Client, id: &str) -> Value {
    client.get(&format!("/setup_intents/{id}")).await.json()
}

#[tokio::test]
async fn a_setup_intent_has_exactly_the_documented_members() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let body = json!({"description": "A card", "metadata": {"cart": "7"}});
    let created = create(&client, body).await;
    let path = assert_is_created(&client, &created, "/setup_intents", "seti_").await;
    let (id, object) = (created.id(), created.json());
    assert!(object["created"].is_i64());
    let secret = object["client_secret"].as_str().unwrap();
    assert!(secret.starts_with(&format!("{id}_secret_")) && secret.len() >= id.len() + 33);
    let expected = json!({
        "id": id, "object": "setup_intent", "application": null, "attach_to_self": false,
        "automatic_payment_methods": {"allow_redirects": "always", "enabled": true},
        "cancellation_reason": null, "client_secret": secret, "created": object["created"],
        "customer": null,
        "customer_account": null, "description": "A card", "excluded_payment_method_types": null,
        "flow_directions": null, "last_setup_error": null, "latest_attempt": null,
        "livemode": false, "mandate": null, "metadata": {"cart": "7"}, "next_action": null,
        "on_behalf_of": null, "payment_method": null,
        "payment_method_configuration_details": null,
        "payment_method_options": {"card": {"mandate_options": null, "network": null,
                                            "request_three_d_secure": "automatic"}},
        "payment_method_types": ["card"], "single_use_mandate": null,
        "status": "requires_payment_method", "usage": "off_session",
    });
    assert_eq!(object, expected);
    for path in [path.clone(), format!("/v1{path}")] {
        let with = |secret: &str| format!("{path}?client_secret={secret}");
        assert_eq!(client.get(&with(secret)).await.json(), created.json());
        let refused = client.get(&with("another")).await;
        refused.assert_refusal(400, "parameter_invalid", "client_secret");
    }
}

#[tokio::test]
async fn a_card_is_set_up_at_once_for_its_customer() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let form = format!(
        "customer={customer}&payment_method=pm_card_visa&confirm=true&usage=off_session\
         &return_url=https%3A%2F%2Fshop.example%2Freturn&expand[]=payment_method&use_stripe_sdk=false"
    );
    let send = || client.post_raw("/v1/setup_intents", "seti1", FORM, form.as_bytes());
    let set_up = send().await;
    assert_eq!(set_up.status, 201, "{}", set_up.json());
    send().await.assert_replays(&set_up);
    set_up.assert_shows(json!({
        "status": "succeeded", "payment_method/customer": customer, "next_action": null,
    }));
    let expected = "customer.created setup_intent.created payment_method.attached \
                    setup_intent.succeeded";
    assert_eq!(events(&client).await.join(" "), expected);
    let kept = "SELECT count(*) FROM payment_methods WHERE is_set_up AND customer_id IS NOT NULL";
    assert_eq!(server.database.count(kept).await, 1);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn without_a_customer_the_method_is_set_up_and_may_still_be_attached() {
    let (server, client) = TestServer::with_client(&[]).await;
    let set_up = try_card(&client, "pm_card_visa", json!({"usage": "on_session"})).await;
    let method = set_up.text_of("payment_method");
    let ready = "SELECT count(*) FROM payment_methods WHERE is_set_up";
    assert_eq!(server.database.count(ready).await, 0);
    let again = try_card(&client, &method, json!({})).await;
    assert_eq!(again.json()["status"], "succeeded");
    assert_eq!(server.database.count(ready).await, 1);
    let attached = attach(&client, &method, &customer(&client).await).await;
    assert_eq!(attached.status, 200, "{}", attached.json());
}

#[tokio::test]
async fn a_decline_stays_with_the_reason_and_another_card_succeeds_under_another_key() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let body = json!({
        "payment_method": "pm_card_chargeDeclined", "confirm": true, "return_url": RETURN_URL,
        "customer": customer,
    });
    let declined = client.post("/setup_intents", "key-1", &body).await;
    declined.assert_refusal(402, "card_declined", None);
    let again = client.post("/setup_intents", "key-1", &body).await;
    again.assert_replays(&declined);
    let error = declined.json()["error"].take();
    assert_eq!(error["decline_code"], "generic_decline");
    assert!(error["charge"].is_null(), "{error}");
    let setup = &error["setup_intent"];
    let id = setup["id"].as_str().unwrap();
    assert_eq!(&retrieve(&client, id).await, setup);
    setup.assert_shows(json!({"status": "requires_payment_method", "payment_method": null}));
    let mut told = error.clone();
    told.as_object_mut().unwrap().remove("setup_intent");
    let advice = told.as_object_mut().unwrap().remove("advice");
    assert_eq!(
        advice.unwrap(),
        "Another attempt needs a new idempotency key."
    );
    assert_eq!(setup["last_setup_error"], told);
    assert_eq!(told["payment_method"]["card"]["last4"], "0002");
    let confirmed = confirm(&client, id, "pm_card_visa").await;
    confirmed.assert_shows(json!({"status": "succeeded", "last_setup_error": null}));
    let expected = "customer.created setup_intent.created setup_intent.setup_failed \
                    payment_method.attached setup_intent.succeeded";
    assert_eq!(events(&client).await.join(" "), expected);
    // What has succeeded tells so to a retry under another key.
    let late = confirm(&client, id, "pm_card_visa").await;
    late.assert_refusal(400, "setup_intent_unexpected_state", None);
    let told = late.json()["error"]["setup_intent"].take();
    assert_eq!(told, retrieve(&client, id).await);
}

#[tokio::test]
async fn a_holder_who_authenticates_gets_the_card_set_up() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let body = json!({
        "payment_method": HOLDERS_CARD, "confirm": true, "return_url": RETURN_URL,
        "customer": customer,
    });
    let waiting = client.post("/setup_intents", "key-1", &body).await;
    assert_eq!(waiting.status, 201, "{}", waiting.json());
    assert_eq!(waiting.json()["status"], "requires_action");
    let id = waiting.id();
    assert_eq!(press(&page_of(&waiting), "complete").await.status, 303);
    let ready = retrieve(&client, &id).await;
    ready.assert_shows(json!({"status": "succeeded", "next_action": null}));
    // A replay shows what was answered, and a read what is.
    let replay = client.post("/setup_intents", "key-1", &body).await;
    replay.assert_replays(&waiting);
    let expected = "customer.created setup_intent.created setup_intent.requires_action \
                    payment_method.attached setup_intent.succeeded";
    assert_eq!(events(&client).await.join(" "), expected);
    let path = format!("/customers/{customer}/payment_methods");
    let listed = client.get(&path).await;
    assert_eq!(listed.json()["data"][0]["id"], ready["payment_method"]);
}

#[tokio::test]
async fn a_holder_who_fails_to_authenticate_leaves_the_setup_intent_to_another_card() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let waiting = try_card(&client, HOLDERS_CARD, json!({})).await;
    let method = waiting.json()["payment_method"].clone();
    press(&page_of(&waiting), "fail").await;
    let failed = retrieve(&client, &waiting.id()).await;
    failed.assert_shows(json!({"status": "requires_payment_method", "payment_method": null}));
    let error = &failed["last_setup_error"];
    error.assert_shows(json!({
        "code": "setup_intent_authentication_failure", "type": "invalid_request_error",
        "payment_method/id": method,
    }));
    assert!(error.get("param").is_none(), "{error}");
    let confirmed = confirm(&client, &waiting.id(), "pm_card_visa").await;
    assert_eq!(confirmed.json()["status"], "succeeded");
}

#[tokio::test]
async fn a_confirmation_says_where_the_holder_returns_to_unless_none_may_be_sent_away() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let without = |more: Value| {
        let mut body = more;
        body["payment_method"] = "pm_card_visa".into();
        body["confirm"] = true.into();
        body
    };
    let refused = create(&client, without(json!({}))).await;
    refused.assert_refusal(400, "parameter_missing", "return_url");
    for more in [
        json!({"payment_method_types": ["card"]}),
        json!({"automatic_payment_methods": {"enabled": true, "allow_redirects": "never"}}),
    ] {
        let set_up = create(&client, without(more)).await;
        assert_eq!(set_up.json()["status"], "succeeded", "{}", set_up.json());
    }
    let by_type = json!({"payment_method_types": ["card"]});
    let by_type = create(&client, by_type).await.json();
    assert_eq!(by_type["automatic_payment_methods"], json!(null));
    let begun = create(&client, json!({"payment_method": "pm_card_visa"})).await;
    let refused = verb(&client, &begun.id(), "confirm", json!({})).await;
    assert_eq!(refused.refusal().2.as_deref(), Some("return_url"));
    assert_eq!(retrieve(&client, &begun.id()).await, begun.json());
}

#[tokio::test]
async fn an_update_voids_an_authentication_and_a_change_of_words_does_not() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let waiting = try_card(&client, HOLDERS_CARD, json!({})).await;
    let (path, page) = (
        format!("/setup_intents/{}", waiting.id()),
        page_of(&waiting),
    );
    let words = json!({"description": "new", "metadata": {"a": "b"}});
    let worded = client.post_new(&path, &words).await;
    assert_eq!(page_of(&worded), page);
    let body = json!({"payment_method": "pm_card_visa"});
    let changed = client.post_new(&path, &body).await;
    changed.assert_shows(json!({"status": "requires_confirmation", "next_action": null}));
    assert_eq!(press(&page, "complete").await.status, 410);
    assert_eq!(retrieve(&client, &waiting.id()).await, changed.json());
    let unset = json!({"payment_method": "", "description": "", "metadata": ""});
    let unset = client.post_new(&path, &unset).await.json();
    unset.assert_shows(json!({
        "status": "requires_payment_method", "description": null, "metadata": {},
    }));
    let refused = verb(&client, &waiting.id(), "confirm", json!({})).await;
    refused.assert_refusal(400, "setup_intent_unexpected_state", None);
    // An update is no event.
    let expected = ["setup_intent.created", "setup_intent.requires_action"];
    assert_eq!(events(&client).await, expected);
}

#[tokio::test]
async fn what_has_ended_takes_no_verb_and_says_how_it_stands() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let canceled = try_card(&client, HOLDERS_CARD, json!({})).await;
    let reason = json!({"cancellation_reason": "abandoned"});
    let closed = verb(&client, &canceled.id(), "cancel", reason).await;
    closed.assert_shows(json!({"status": "canceled", "cancellation_reason": "abandoned"}));
    assert_eq!(press(&page_of(&canceled), "complete").await.status, 410);
    let succeeded = try_card(&client, "pm_card_visa", json!({})).await;
    for ended in [canceled.id(), succeeded.id()] {
        let method = json!({"payment_method": "pm_card_visa"});
        let path = format!("/setup_intents/{ended}");
        for refused in [
            confirm(&client, &ended, "pm_card_visa").await,
            verb(&client, &ended, "cancel", json!({})).await,
            client.post_new(&path, &method).await,
        ] {
            let expected = (400, "setup_intent_unexpected_state".to_owned(), None);
            assert_eq!(refused.refusal(), expected);
            let told = refused.json()["error"]["setup_intent"].take();
            assert_eq!(told, retrieve(&client, &ended).await);
        }
        let words = client.post_new(&path, &json!({"description": "x"})).await;
        assert_eq!(words.json()["description"], "x");
    }
    let last = events(&client).await.pop().unwrap();
    assert_eq!(last, "setup_intent.succeeded");
}

#[tokio::test]
async fn a_method_is_set_up_for_its_own_customer_only() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let (anna, bob) = (customer(&client).await, customer(&client).await);
    let of_anna = try_card(&client, "pm_card_visa", json!({"customer": anna})).await;
    let method = of_anna.text_of("payment_method");
    for more in [json!({}), json!({"customer": bob})] {
        let refused = try_card(&client, &method, more).await;
        refused.assert_refusal(400, "parameter_invalid", "payment_method");
    }
    let begun = create(&client, json!({"customer": anna, "payment_method": method})).await;
    let path = format!("/setup_intents/{}", begun.id());
    let refused = client.post_new(&path, &json!({"customer": bob})).await;
    assert_eq!(refused.refusal().2.as_deref(), Some("payment_method"));
    detach(&client, &method).await;
    let refused = confirm(&client, &begun.id(), &method).await;
    assert_eq!(refused.code(), "payment_method_unexpected_state");
    let begun = retrieve(&client, &begun.id()).await;
    assert_eq!(begun["status"], "requires_confirmation");
}

#[tokio::test]
async fn a_customer_who_is_deleted_while_the_holder_is_away_gets_no_card() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let waiting = try_card(&client, HOLDERS_CARD, json!({"customer": customer})).await;
    let path = format!("/customers/{customer}");
    let deleted = Answer::of(client.request(reqwest::Method::DELETE, &path)).await;
    assert_eq!(deleted.status, 200);
    let landed = press(&page_of(&waiting), "complete").await;
    let location = landed.header("location").unwrap();
    assert!(location.ends_with("redirect_status=failed"), "{location}");
    let failed = retrieve(&client, &waiting.id()).await;
    failed.assert_shows(json!({
        "status": "requires_payment_method",
        "last_setup_error/code": "payment_method_unexpected_state",
    }));
}

#[tokio::test]
async fn a_method_that_another_customer_gets_while_the_holder_is_away_is_not_set_up() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let waiting = json!({"customer": customer(&client).await, "confirm": true,
        "payment_method_types": ["card"], "payment_method": "pm_card_authenticationRequiredOnSetup"});
    let waiting = create(&client, waiting).await;
    let method = waiting.text_of("payment_method");
    let other = customer(&client).await;
    assert_eq!(attach(&client, &method, &other).await.status, 200);
    assert_eq!(press(&page_of(&waiting), "complete").await.status, 200);
    let setup = retrieve(&client, &waiting.id()).await;
    assert_eq!(setup["status"], "requires_payment_method");
    let off = json!({
        "amount": 2000, "currency": "usd", "payment_method_types": ["card"], "confirm": true,
        "off_session": true, "customer": other, "payment_method": method,
    });
    let off = client.post_new("/payment_intents", &off).await;
    assert_eq!(off.code(), "authentication_required");
}

#[tokio::test]
async fn wrong_parameters_are_refused_and_begin_nothing() {
    let (server, client) = TestServer::with_client(&[]).await;
    let stranger = client_of_account(&server, "other").await;
    let foreign = customer(&stranger).await;
    let confirmed = |mut body: Value| {
        body["confirm"] = true.into();
        body
    };
    let cases = json!([
        [{"customer": "cus_nobody"}, "resource_missing", "customer"],
        [{"customer": foreign}, "resource_missing", "customer"],
        [{"payment_method": "pm_nothing"}, "resource_missing", "payment_method"],
        [{"usage": "always"}, "parameter_invalid", "usage"],
        [{"confirm": "yes"}, "parameter_invalid", "confirm"],
        [{"return_url": RETURN_URL}, "parameter_invalid", "return_url"],
        [confirmed(json!({})), "parameter_missing", "payment_method"],
        [confirmed(json!({"payment_method": "pm_card_visa", "return_url": "javascript:alert(1)"})),
         "parameter_invalid", "return_url"],
        [{"payment_method_types": ["card", "beads"]}, "parameter_invalid",
         "payment_method_types[1]"],
        [{"payment_method_types": ["card"], "automatic_payment_methods": {"enabled": true}},
         "parameter_invalid", "payment_method_types"],
        [{"automatic_payment_methods": {}}, "parameter_missing",
         "automatic_payment_methods[enabled]"],
        [{"use_stripe_sdk": true}, "parameter_invalid", "use_stripe_sdk"],
        [{"mandate": "m"}, "parameter_unknown", "mandate"],
        [{"amount": 1}, "parameter_unknown", "amount"],
        [{"expand": ["attempts"]}, "parameter_invalid", "expand[0]"],
    ]);
    assert_refuses(&client, "/setup_intents", cases).await;
    let begun = create(&client, json!({})).await.id();
    let regret = json!({"cancellation_reason": "regret"});
    let refused = verb(&client, &begun, "cancel", regret).await;
    assert_eq!(refused.refusal().2.as_deref(), Some("cancellation_reason"));
    for path in ["confirm", "cancel"] {
        let foreign = verb(&stranger, &begun, path, json!({})).await;
        foreign.assert_refusal(404, "resource_missing", "intent");
    }
    assert_eq!(server.database.count_of("setup_intents").await, 1);
    assert_eq!(server.database.count_of("payment_methods").await, 0);
}

#[tokio::test]
async fn setup_intents_are_listed_by_customer_and_by_method() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let of_customer = try_card(&client, "pm_card_visa", json!({"customer": customer})).await;
    let other = create(&client, json!({})).await;
    let method = of_customer.text_of("payment_method");
    let both = [other.id(), of_customer.id()];
    for (query, expected) in [
        (String::new(), 0..2),
        (format!("customer={customer}"), 1..2),
        (format!("payment_method={method}"), 1..2),
        (format!("payment_method={method}&customer={customer}"), 1..2),
        (format!("starting_after={}", other.id()), 1..2),
        (format!("ending_before={}", of_customer.id()), 0..1),
        ("created[gt]=4000000000".to_owned(), 0..0),
    ] {
        let path = format!("/v1/setup_intents?{query}");
        let listed = client.get(&path).await.json();
        assert_eq!(listed["url"], "/v1/setup_intents");
        assert_eq!(ids(&listed), both[expected], "{query}");
    }
    let whole = "/setup_intents?expand[]=data.payment_method&expand[]=data.customer";
    let whole = client.get(whole).await.json();
    whole["data"][1].assert_shows(json!({
        "payment_method/customer": customer, "customer/object": "customer",
    }));
    let stranger = client_of_account(&server, "other").await;
    let nothing = stranger.get("/setup_intents").await.json();
    assert_eq!(nothing["data"], json!([]));
}
