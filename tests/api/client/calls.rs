//! The client's half of the promise, against the real server and a network that fails.

use charge_once::http::openapi;
use charge_once_client::{
    Cancellation, Capture, CardUpdate, ChargeUpdate, Client, Confirmation, CustomerUpdate, Error,
    IntentCapture, ListQuery, MetadataUpdate, NewAddress, NewBillingDetails, NewCharge,
    NewCheckout, NewCustomer, NewInvoiceSettings, NewOrder, NewPaymentIntent, NewPaymentMethod,
    NewRefund, NewSetupIntent, NewShipping, NewWebhookEndpoint, Payment, PaymentIntentUpdate,
    PaymentMethodUpdate, SetupCancellation, SetupConfirmation, SetupIntentUpdate, WebhookEndpoint,
    WebhookEndpointUpdate,
};

use crate::support::{
    client_examples::{buy_a_mug, go_on},
    client_library::{TestClock, a_cart, an_endpoint, an_order, builder, files, payment, store},
    harness::one_charge_and_its_record,
    http_proxy::{Act, HttpProxy, Seen},
    prelude::*,
};

#[tokio::test]
async fn a_checkout_of_which_only_the_name_is_known_is_gone_on_with() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    assert_eq!(go_on(&client, "checkout-1").await.unwrap(), None);
    let opened = client
        .create_order(&an_order())
        .and_then(|order| order.with_key("checkout-1/open"))
        .and_then(|order| order.with_workflow("checkout-1"))
        .unwrap();
    let opened = opened.send().await.unwrap();
    for _ in 0..2 {
        let paid = go_on(&client, "checkout-1").await.unwrap().unwrap();
        assert_eq!((&paid.id, paid.status.as_str()), (&opened.id, "paid"));
    }
    let steps = client.workflow("checkout-1").await.unwrap();
    let told: Vec<_> = steps
        .iter()
        .map(|step| (step.key.as_str(), step.response_status))
        .collect();
    let pay = ("checkout-1/pay", Some(200));
    assert_eq!(told, [("checkout-1/open", Some(201)), pay]);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn the_example_of_the_document_charges() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let folder = TempDir::new().unwrap();
    buy_a_mug(&url, API_KEY, folder.path()).await.unwrap();
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_workflow_is_read_to_its_end() {
    let server = TestServer::start().await;
    let first =
        r#"{"object":"list","data":[{"key":"a b/c","status":"completed"}],"has_more":true}"#;
    let last = r#"{"object":"list","data":[{"key":"d","status":"in_flight"}],"has_more":false}"#;
    let acts = [Act::Answer("200 OK", first), Act::Answer("200 OK", last)];
    let proxy = HttpProxy::in_front_of(server.client.address, acts).await;
    let client = builder(proxy.url(), &TestClock::default()).build().unwrap();
    let steps = client.workflow("a/b").await.unwrap();
    let keys: Vec<_> = steps.iter().map(|step| step.key.as_str()).collect();
    assert_eq!(keys, ["a b/c", "d"]);
    let seen = proxy.seen();
    let asked: Vec<_> = seen
        .iter()
        .map(|seen| seen.head.lines().next().unwrap())
        .collect();
    assert_eq!(
        asked,
        [
            "GET /workflows?name=a%2Fb HTTP/1.1",
            "GET /workflows?name=a%2Fb&starting_after=a+b%2Fc HTTP/1.1",
        ]
    );
}

#[tokio::test]
async fn a_sku_of_any_characters_is_named_by_its_path() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    let skus = [
        "mug",
        "a b",
        " ",
        "a/b",
        "/",
        "../charges",
        "...",
        "%",
        "100%",
        "%2F",
        "%2e%2E",
        "%2e",
        "a+b",
        "a?b",
        "#1",
        "a&b=c",
        "é",
        "e\u{301}",
        "茶碗",
        "\n",
        "\t",
        "a\\b",
        "\\",
        ":",
        "~",
        "-",
        "_",
        "\"",
    ];
    for (sku, quantity) in skus.iter().zip(1..) {
        let set = client.set_inventory(sku, quantity).unwrap();
        let set = set.send().await.unwrap();
        assert_eq!((set.sku.as_str(), set.quantity), (*sku, quantity));
    }
    // No two of them were taken for one.
    for (sku, quantity) in skus.iter().zip(1..) {
        let level = client.retrieve_inventory(sku).await.unwrap();
        assert_eq!((level.sku.as_str(), level.quantity), (*sku, quantity));
    }
    for no_segment in ["", ".", ".."] {
        let refused = client.set_inventory(no_segment, 1);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_segment}");
        let refused = client.retrieve_inventory(no_segment).await;
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_segment}");
    }
    let Err(Error::Invalid(refusal)) = client.retrieve_inventory("cup").await else {
        panic!("there is no such level");
    };
    assert_eq!(
        (refusal.status, refusal.param.as_deref()),
        (404, Some("sku"))
    );
}

#[tokio::test]
async fn a_newer_service_is_read_and_what_can_not_be_read_was_done_all_the_same() {
    let server = TestServer::start().await;
    let newer = r#"{"object":"list","data":[],"has_more":false,"since":2031}"#;
    let odd = r#"{"object":"charge","id":7}"#;
    let acts = [
        Act::Answer("200 OK", newer),
        Act::Answer("201 Created", odd),
    ];
    let proxy = HttpProxy::in_front_of(server.client.address, acts).await;
    let folder = TempDir::new().unwrap();
    let client = builder(proxy.url(), &TestClock::default())
        .key_store(store(&folder))
        .build()
        .unwrap();
    let page = client.list_charges(&ListQuery::default()).await.unwrap();
    assert_eq!(page.data, []);
    let error = payment(&client).send().await.unwrap_err();
    assert!(error.is_outcome(), "{error}");
    let Error::Unreadable { reply, .. } = error else {
        panic!("it should say so: {error}");
    };
    assert_eq!((reply.status, reply.body), (201, odd.as_bytes().to_vec()));
    assert!(files(&folder).is_empty());
}

#[tokio::test]
async fn every_call_of_the_api_has_a_typed_function() {
    let server = TestServer::start().await;
    let proxy = HttpProxy::in_front_of(server.client.address, []).await;
    let url = format!("{}/v1/", proxy.url());
    let client = Client::builder(url, API_KEY).build().unwrap();
    let metadata = |value: &str| [("channel".to_owned(), value.to_owned())].into();

    let new_charge = NewCharge {
        capture: Some(false),
        customer: Some("cus 1".to_owned()),
        description: Some("A mug".to_owned()),
        statement_descriptor: Some("MUGS".to_owned()),
        receipt_email: Some("zoe@example.com".to_owned()),
        metadata: metadata("web"),
        ..NewCharge::new(2000, "EUR")
    };
    let charge = client
        .create_charge(&new_charge)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert!(charge.paid && !charge.captured);
    let update = ChargeUpdate {
        description: Some(String::new()),
        ..ChargeUpdate::default()
    };
    let charge = client
        .update_charge(&charge.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(charge.description, None);
    let capture = Capture { amount: Some(1500) };
    let charge = client
        .capture_charge(&charge.id, &capture)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(
        (charge.amount_captured, &charge.metadata),
        (1500, &metadata("web"))
    );
    assert_eq!(client.retrieve_charge(&charge.id).await.unwrap(), charge);
    let query = ListQuery {
        customer: Some("cus 1".to_owned()),
        limit: Some(1),
        created_from: Some(charge.created),
        created_before: Some(charge.created + 1),
        ..ListQuery::default()
    };
    let page = client.list_charges(&query).await.unwrap();
    assert_eq!((page.data, page.has_more), (vec![charge.clone()], false));

    let new_refund = NewRefund {
        charge: charge.id.clone(),
        amount: Some(500),
        reason: Some("duplicate".to_owned()),
        metadata: metadata("phone"),
        ..NewRefund::default()
    };
    let refund = client
        .create_refund(&new_refund)
        .unwrap()
        .send()
        .await
        .unwrap();
    let update = MetadataUpdate {
        metadata: metadata(""),
    };
    let refund = client
        .update_refund(&refund.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert!(refund.metadata.is_empty());
    assert_eq!(client.retrieve_refund(&refund.id).await.unwrap(), refund);
    let query = ListQuery {
        charge: Some(charge.id.clone()),
        ..ListQuery::default()
    };
    let page = client.list_refunds(&query).await.unwrap();
    assert_eq!(page.data, std::slice::from_ref(&refund));
    let all = ListQuery::default();
    let page = client.list_refunds_of_charge(&charge.id, &all).await;
    assert_eq!(page.unwrap().data, [refund]);

    call_customers(&client).await;
    let endpoint = call_webhook_endpoints(&client).await;

    let new_order = NewOrder {
        client_order_id: Some("web-6735".to_owned()),
        ..an_order()
    };
    let order = client
        .create_order(&new_order)
        .unwrap()
        .send()
        .await
        .unwrap();
    let update = MetadataUpdate {
        metadata: metadata("web"),
    };
    client
        .update_order(&order.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    let pay = client.pay_order(&order.id, &Payment::default()).unwrap();
    let paid = pay.send().await.unwrap();
    assert_eq!((paid.status.as_str(), paid.amount), ("paid", 2400));
    assert_eq!(client.retrieve_order(&order.id).await.unwrap(), paid);
    let query = ListQuery {
        client_order_id: Some("web-6735".to_owned()),
        ..ListQuery::default()
    };
    assert_eq!(client.list_orders(&query).await.unwrap().data, [paid]);
    let other = NewOrder {
        client_order_id: None,
        ..new_order
    };
    let other = client.create_order(&other).unwrap().send().await.unwrap();
    let canceled = client
        .cancel_order(&other.id)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(canceled.status, "canceled");

    call_checkouts(&client).await;
    call_payment_intents(&client).await;
    call_setup_intents(&client).await;

    let query = ListQuery {
        event_type: Some("order.canceled".to_owned()),
        ..ListQuery::default()
    };
    let events = client.list_events(&query).await.unwrap().data;
    assert_eq!(events[0].data.object["id"], other.id);
    assert_eq!(
        client.retrieve_event(&events[0].id).await.unwrap(),
        events[0]
    );
    let deliveries = client.list_webhook_deliveries(&endpoint.id, &all).await;
    let deliveries = deliveries.unwrap().data;
    assert_eq!((deliveries.len(), &deliveries[0].event), (1, &events[0].id));
    let deleted = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    let again = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    assert_eq!((deleted, again), (true, false));

    let status = client.look_up_key(pay.key()).await.unwrap();
    assert_eq!(
        (status.status.as_str(), status.response_status),
        ("completed", Some(200))
    );
    assert_eq!(client.workflow("checkout-1").await.unwrap(), []);
    assert_all_are_called(&proxy.seen());

    for no_id in ["", "..", "ch_1/capture", "ch_1?x=y", "ch_%31"] {
        let refused = client.retrieve_charge(no_id).await;
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_id}");
    }
}

async fn call_customers(client: &Client) {
    let address = NewAddress {
        city: Some("Bonn".to_owned()),
        country: Some("DE".to_owned()),
        ..NewAddress::default()
    };
    let new_customer = NewCustomer {
        address: Some(address.clone()),
        email: Some("jenny@example.com".to_owned()),
        payment_method: Some("pm_card_visa".to_owned()),
        preferred_locales: Some(vec!["de-DE".to_owned()]),
        shipping: Some(NewShipping {
            address: address.clone(),
            name: "Jenny Rosen".to_owned(),
            phone: None,
        }),
        ..NewCustomer::default()
    };
    let customer = client.create_customer(&new_customer).unwrap();
    let customer = customer.send().await.unwrap();
    assert_eq!(customer.email, new_customer.email);
    let query = ListQuery {
        email: new_customer.email,
        ..ListQuery::default()
    };
    let page = client.list_customers(&query).await.unwrap();
    assert_eq!(page.data, std::slice::from_ref(&customer));
    let all = ListQuery::default();
    let kept = client.list_payment_methods_of_customer(&customer.id, &all);
    let [kept] = &kept.await.unwrap().data[..] else {
        panic!("one was attached");
    };

    let new_method = NewPaymentMethod {
        billing_details: Some(NewBillingDetails {
            address: Some(address),
            ..NewBillingDetails::default()
        }),
        ..NewPaymentMethod::new("tok_visa")
    };
    let method = client.create_payment_method(&new_method).unwrap();
    let method = method.send().await.unwrap();
    assert_eq!(method.card.fingerprint, kept.card.fingerprint);
    let retrieved = client.retrieve_payment_method(&method.id).await;
    assert_eq!(retrieved.unwrap(), method);
    let attach = client.attach_payment_method(&method.id, &customer.id);
    let attached = attach.unwrap().send().await.unwrap();
    assert_eq!(attached.customer.as_ref(), Some(&customer.id));
    let update = PaymentMethodUpdate {
        allow_redisplay: Some("always".to_owned()),
        card: Some(CardUpdate {
            exp_month: 11,
            exp_year: 2098,
        }),
        ..PaymentMethodUpdate::default()
    };
    let update = client.update_payment_method(&method.id, &update).unwrap();
    let updated = update.send().await.unwrap();
    assert_eq!((updated.card.exp_month, updated.card.exp_year), (11, 2098));
    let retrieved = client.retrieve_payment_method_of_customer(&customer.id, &method.id);
    assert_eq!(retrieved.await.unwrap(), updated);

    let update = CustomerUpdate {
        email: Some(String::new()),
        invoice_settings: Some(NewInvoiceSettings {
            default_payment_method: method.id.clone(),
        }),
        ..CustomerUpdate::default()
    };
    let update = client.update_customer(&customer.id, &update).unwrap();
    let updated = update.send().await.unwrap();
    assert_eq!(updated.email, None);
    let default = updated.invoice_settings.as_ref().unwrap();
    assert_eq!(default.default_payment_method.as_ref(), Some(&method.id));
    let detach = client.detach_payment_method(&method.id).unwrap();
    assert_eq!(detach.send().await.unwrap().customer, None);
    let query = ListQuery {
        customer: Some(customer.id.clone()),
        ..ListQuery::default()
    };
    let left = client.list_payment_methods(&query).await.unwrap();
    assert_eq!(&left.data, std::slice::from_ref(kept));
    let deleted = client.delete_customer(&customer.id).await.unwrap();
    let again = client.delete_customer(&customer.id).await.unwrap();
    assert_eq!((deleted, again), (true, false));
    let gone = client.retrieve_customer(&customer.id).await.unwrap();
    assert!(gone.deleted && gone.created.is_none());
}

/// An endpoint for canceled orders.
async fn call_webhook_endpoints(client: &Client) -> WebhookEndpoint {
    let new_endpoint = NewWebhookEndpoint {
        description: Some("The warehouse".to_owned()),
        api_version: Some("2024-04-10".to_owned()),
        standard_webhooks: Some(false),
        metadata: [("channel".to_owned(), "web".to_owned())].into(),
        ..an_endpoint()
    };
    let endpoint = client.create_webhook_endpoint(&new_endpoint).unwrap();
    let mut endpoint = endpoint.send().await.unwrap();
    let secret = endpoint.secret.take().expect("only here");
    assert!(secret.reveal().starts_with("whsec_"));
    assert_eq!(format!("{secret:?}"), "whsec_…");
    let retrieved = client.retrieve_webhook_endpoint(&endpoint.id).await;
    assert_eq!(retrieved.unwrap(), endpoint);
    let page = client.list_webhook_endpoints(&ListQuery::default()).await;
    assert_eq!(page.unwrap().data, [endpoint.clone()]);
    let disabled = WebhookEndpointUpdate {
        url: Some("https://example.invalid/moved".to_owned()),
        enabled_events: Some(vec!["*".to_owned()]),
        description: Some(String::new()),
        metadata: [("channel".to_owned(), String::new())].into(),
        disabled: Some(true),
        standard_webhooks: Some(true),
    };
    let enabled = WebhookEndpointUpdate {
        enabled_events: Some(endpoint.enabled_events.clone()),
        disabled: Some(false),
        ..WebhookEndpointUpdate::default()
    };
    let mut updated = endpoint;
    for (update, status) in [(disabled, "disabled"), (enabled, "enabled")] {
        let request = client.update_webhook_endpoint(&updated.id, &update);
        updated = request.unwrap().send().await.unwrap();
        assert_eq!(updated.status, status);
        assert_eq!(
            Some(&updated.enabled_events),
            update.enabled_events.as_ref()
        );
    }
    assert_eq!(updated.url, "https://example.invalid/moved");
    assert_eq!(updated.api_version.as_deref(), Some("2024-04-10"));
    assert!(updated.standard_webhooks && updated.never_sent.is_empty());
    assert_eq!((&updated.description, updated.metadata.len()), (&None, 0));
    updated
}

async fn call_payment_intents(client: &Client) {
    let new_intent = NewPaymentIntent {
        capture_method: Some("manual".to_owned()),
        ..NewPaymentIntent::new(2000, "usd")
    };
    let intent = client.create_payment_intent(&new_intent).unwrap();
    let intent = intent.send().await.unwrap();
    assert_eq!(intent.status, "requires_payment_method");
    let update = PaymentIntentUpdate {
        amount: Some(2150),
        ..PaymentIntentUpdate::default()
    };
    let update = client.update_payment_intent(&intent.id, &update).unwrap();
    assert_eq!(update.send().await.unwrap().amount, 2150);
    let confirmation = |card: &str| Confirmation {
        payment_method: Some(card.to_owned()),
        return_url: Some("https://example.com/return".to_owned()),
        ..Confirmation::default()
    };
    let declining = confirmation("pm_card_chargeDeclined");
    let declined = client.confirm_payment_intent(&intent.id, &declining);
    assert!(matches!(
        declined.unwrap().send().await,
        Err(Error::Declined(_))
    ));
    let visa = confirmation("pm_card_visa");
    let confirmed = client.confirm_payment_intent(&intent.id, &visa).unwrap();
    assert_eq!(confirmed.send().await.unwrap().amount_capturable, 2150);
    let part = IntentCapture {
        amount_to_capture: Some(2000),
    };
    let captured = client.capture_payment_intent(&intent.id, &part).unwrap();
    let captured = captured.send().await.unwrap();
    assert_eq!(captured.amount_received, 2000);
    let retrieved = client.retrieve_payment_intent(&intent.id).await;
    assert_eq!(retrieved.unwrap(), captured);
    let refund = NewRefund {
        payment_intent: Some(intent.id.clone()),
        ..NewRefund::default()
    };
    let refund = client.create_refund(&refund).unwrap().send().await.unwrap();
    assert_eq!(refund.payment_intent.as_ref(), Some(&intent.id));
    let query = ListQuery {
        payment_intent: refund.payment_intent.clone(),
        ..ListQuery::default()
    };
    assert_eq!(client.list_refunds(&query).await.unwrap().data, [refund]);
    assert_eq!(client.list_charges(&query).await.unwrap().data.len(), 2);

    let other = NewPaymentIntent::new(500, "eur");
    let other = client.create_payment_intent(&other).unwrap().send().await;
    let reason = Cancellation {
        cancellation_reason: Some("duplicate".to_owned()),
    };
    let cancel = client.cancel_payment_intent(&other.unwrap().id, &reason);
    let canceled = cancel.unwrap().send().await.unwrap();
    assert_eq!(canceled.cancellation_reason, reason.cancellation_reason);
    let all = ListQuery::default();
    let listed = client.list_payment_intents(&all).await.unwrap().data;
    assert_eq!(listed, [canceled, captured]);
}

async fn call_setup_intents(client: &Client) {
    let new_setup = NewSetupIntent {
        description: Some("A card".to_owned()),
        ..NewSetupIntent::default()
    };
    let create = client.create_setup_intent(&new_setup).unwrap();
    let setup = create.send().await.unwrap();
    assert_eq!(
        (setup.status.as_str(), setup.usage.as_str()),
        ("requires_payment_method", "off_session")
    );
    let update = SetupIntentUpdate {
        payment_method: Some("pm_card_threeDSecure2Required".to_owned()),
        ..SetupIntentUpdate::default()
    };
    let update = client.update_setup_intent(&setup.id, &update).unwrap();
    assert_eq!(update.send().await.unwrap().status, "requires_confirmation");
    let return_url = Some("https://example.com/return".to_owned());
    let confirmation = SetupConfirmation {
        return_url: return_url.clone(),
        ..SetupConfirmation::default()
    };
    let confirm = client.confirm_setup_intent(&setup.id, &confirmation);
    let waiting = confirm.unwrap().send().await.unwrap();
    let page = waiting.next_action.clone().unwrap().redirect_to_url;
    assert_eq!(page.return_url, return_url);
    assert!(page.url.contains(&setup.id), "{}", page.url);
    let retrieved = client.retrieve_setup_intent(&setup.id).await;
    assert_eq!(retrieved.unwrap(), waiting);
    let query = ListQuery {
        payment_method: waiting.payment_method.clone(),
        ..ListQuery::default()
    };
    let listed = client.list_setup_intents(&query).await.unwrap();
    assert_eq!(listed.data, [waiting]);
    let cancellation = SetupCancellation {
        cancellation_reason: Some("abandoned".to_owned()),
    };
    let cancel = client.cancel_setup_intent(&setup.id, &cancellation);
    let canceled = cancel.unwrap().send().await.unwrap();
    assert_eq!(
        (canceled.status.as_str(), canceled.cancellation_reason),
        ("canceled", cancellation.cancellation_reason)
    );
}

async fn call_checkouts(client: &Client) {
    let set = client.set_inventory("mug", 5).unwrap().send().await;
    assert_eq!(set.unwrap().quantity, 5);
    let new_checkout = NewCheckout {
        customer: Some("cus 1".to_owned()),
        metadata: [("channel".to_owned(), "web".to_owned())].into(),
        ..a_cart("tok_visa")
    };
    let checkout = client.create_checkout(&new_checkout).unwrap();
    let checkout = checkout.send().await.unwrap();
    assert_eq!(
        (checkout.status.as_str(), checkout.amount),
        ("completed", 2400)
    );
    assert_eq!(checkout.metadata, new_checkout.metadata);
    assert_eq!(checkout.items[0].sku.as_deref(), Some("mug"));
    let [order, charge, allocated] = checkout.steps.as_slice() else {
        panic!("not as planned: {checkout:?}");
    };
    assert_eq!(
        (&order.resource, &charge.resource),
        (&checkout.order, &checkout.charge)
    );
    assert_eq!(
        (
            allocated.name.as_str(),
            allocated.state.as_str(),
            allocated.attempts
        ),
        ("allocate_inventory", "done", 1)
    );
    let retrieved = client.retrieve_checkout(&checkout.id).await;
    assert_eq!(retrieved.unwrap(), checkout);
    for (customer, listed) in [("cus 1", vec![checkout]), ("cus 2", vec![])] {
        let query = ListQuery {
            customer: Some(customer.to_owned()),
            ..ListQuery::default()
        };
        assert_eq!(client.list_checkouts(&query).await.unwrap().data, listed);
    }
    let left = client.retrieve_inventory("mug").await.unwrap();
    assert_eq!(left.quantity, 3);
    let page = client.list_inventory(&ListQuery::default()).await.unwrap();
    assert_eq!((page.data, page.has_more), (vec![left], false));
}

/// Every operation of the document was asked for, but those by path that are there by query too.
fn assert_all_are_called(seen: &[Seen]) {
    let called = |method: &str, template: &str| {
        seen.iter().any(|seen| {
            let line = seen.head.lines().next().unwrap();
            let (asked, path) = line.split_once(" /v1").expect("a call under /v1");
            let path = path.split([' ', '?']).next().unwrap();
            let alike = |(shown, sent): (&str, &str)| shown.starts_with('{') || shown == sent;
            asked == method
                && template.split('/').count() == path.split('/').count()
                && template.split('/').zip(path.split('/')).all(alike)
        })
    };
    let document = serde_json::to_value(openapi::document()).unwrap();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if [
            "/livez",
            "/readyz",
            "/idempotency-keys/{key}",
            "/workflows/{name}",
            // For programs that were written for Stripe.
            "/account",
            "/invoice_payments",
            // For tests of other clients.
            "/test/accounts",
            "/test/expire_keys",
        ]
        .contains(&&**path)
        {
            continue;
        }
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            if item.get(method.to_lowercase()).is_some() {
                assert!(called(method, path), "no function calls {method} {path}");
                operations += 1;
            }
        }
    }
    assert!(operations >= 30, "{operations}");
}

#[test]
fn a_server_is_a_plain_url() {
    for (url, is_usable) in [
        ("http://127.0.0.1:8080", true),
        ("https://pay.example/v1/", true),
        ("ftp://pay.example", false),
        ("pay.example", false),
        ("https://user:secret@pay.example", false),
        ("https://pay.example?key=secret", false),
    ] {
        assert_eq!(
            Client::builder(url, API_KEY).build().is_ok(),
            is_usable,
            "{url}"
        );
    }
}
