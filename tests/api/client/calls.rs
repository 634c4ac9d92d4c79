//! The client's half of the promise, against the real server and a network that fails.

use charge_once_client::{
    Cancellation, Capture, CardUpdate, ChargeUpdate, Confirmation, CustomerUpdate, IntentCapture,
    MetadataUpdate, NewAddress, NewBillingDetails, NewCheckout, NewCustomer, NewInvoiceSettings,
    NewOrder, NewPaymentIntent, NewPaymentMethod, NewRefund, NewSetupIntent, NewShipping,
    NewWebhookEndpoint, Payment, PaymentIntentUpdate, PaymentMethodUpdate, SetupCancellation,
    SetupConfirmation, SetupIntentUpdate, WebhookEndpoint, WebhookEndpointUpdate,
};

use super::*;
use crate::support::client_examples::{buy_a_mug, go_on};

#[tokio::test]
async fn a_checkout_of_which_only_the_name_is_known_is_gone_on_with() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    assert_eq!(go_on(&client, "checkout-1").await.unwrap(), None);
    let open = client
        .create_order(&an_order())
        .and_then(|order| order.with_key("checkout-1/open"))
        .and_then(|order| order.with_workflow("checkout-1"));
    let opened = sent(open).await;
    for _ in 0..2 {
        let paid = go_on(&client, "checkout-1").await.unwrap().unwrap();
        assert_eq!((&paid.id, paid.status.as_str()), (&opened.id, "paid"));
    }
    let steps = client.workflow("checkout-1").await.unwrap();
    let told = steps.iter();
    let told = told.map(|step| (step.key.as_str(), step.response_status));
    let (open, pay) = ("checkout-1/open", "checkout-1/pay");
    let expected = [(open, Some(201)), (pay, Some(200))];
    assert_eq!(told.collect::<Vec<_>>(), expected);
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
    let first =
        r#"{"object":"list","data":[{"key":"a b/c","status":"completed"}],"has_more":true}"#;
    let last = r#"{"object":"list","data":[{"key":"d","status":"in_flight"}],"has_more":false}"#;
    let acts = [Act::Answer("200 OK", first), Act::Answer("200 OK", last)];
    let (_server, proxy) = HttpProxy::with_server(acts).await;
    let client = builder(proxy.url(), &TestClock::default()).build().unwrap();
    let steps = client.workflow("a/b").await.unwrap();
    let keys: Vec<_> = steps.iter().map(|step| step.key.as_str()).collect();
    assert_eq!(keys, ["a b/c", "d"]);
    let seen = proxy.seen();
    let asked = seen.iter().filter_map(|seen| seen.head.lines().next());
    let first = "GET /workflows?name=a%2Fb HTTP/1.1";
    let second = "GET /workflows?name=a%2Fb&starting_after=a+b%2Fc HTTP/1.1";
    assert_eq!(asked.collect::<Vec<_>>(), [first, second]);
}

#[tokio::test]
async fn a_sku_of_any_characters_is_named_by_its_path() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    let short = [
        "mug", "a b", " ", "a/b", "/", "...", "%", "100%", "%2F", "%2e%2E", "%2e", "a+b", "a?b",
        "#1", "a&b=c", "é", "e\u{301}", "茶碗", "\n", "\t", "a\\b", "\\", ":", "~", "-", "_", "\"",
    ];
    let skus: Vec<_> = short.into_iter().chain(["../charges"]).collect();
    for (sku, quantity) in skus.iter().zip(1..) {
        let set = sent(client.set_inventory(sku, quantity)).await;
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
    let refusal = (refusal.status, refusal.param.as_deref());
    assert_eq!(refusal, (404, Some("sku")));
}

#[tokio::test]
async fn a_newer_service_is_read_and_what_can_not_be_read_was_done_all_the_same() {
    let newer = r#"{"object":"list","data":[],"has_more":false,"since":2031}"#;
    let odd = r#"{"object":"charge","id":7}"#;
    let acts = [
        Act::Answer("200 OK", newer),
        Act::Answer("201 Created", odd),
    ];
    let (_server, proxy) = HttpProxy::with_server(acts).await;
    let folder = TempDir::new().unwrap();
    let client = keeping(proxy.url(), &TestClock::default(), store(&folder));
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
    let (_server, proxy) = HttpProxy::with_server([]).await;
    let url = format!("{}/v1/", proxy.url());
    let client = Client::builder(url, API_KEY).build().unwrap();
    let metadata = |value: &str| [("channel".to_owned(), value.to_owned())].into();
    let change = |value: &str| MetadataUpdate {
        metadata: metadata(value),
    };

    let new_charge = NewCharge {
        capture: Some(false),
        customer: Some("cus 1".to_owned()),
        description: Some("A mug".to_owned()),
        statement_descriptor: Some("MUGS".to_owned()),
        receipt_email: Some("zoe@example.com".to_owned()),
        metadata: metadata("web"),
        ..NewCharge::new(2000, "EUR")
    };
    let charge = sent(client.create_charge(&new_charge)).await;
    assert!(charge.paid && !charge.captured);
    let update = ChargeUpdate {
        description: Some(String::new()),
        ..ChargeUpdate::default()
    };
    let charge = sent(client.update_charge(&charge.id, &update)).await;
    assert_eq!(charge.description, None);
    let capture = Capture { amount: Some(1500) };
    let charge = sent(client.capture_charge(&charge.id, &capture)).await;
    assert_eq!(charge.amount_captured, 1500);
    assert_eq!(charge.metadata, metadata("web"));
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
    let refund = sent(client.create_refund(&new_refund)).await;
    let refund = sent(client.update_refund(&refund.id, &change(""))).await;
    assert!(refund.metadata.is_empty());
    assert_eq!(client.retrieve_refund(&refund.id).await.unwrap(), refund);
    let query = filtered(|query| query.charge = Some(charge.id.clone()));
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
    let order = sent(client.create_order(&new_order)).await;
    sent(client.update_order(&order.id, &change("web"))).await;
    let pay = client.pay_order(&order.id, &Payment::default()).unwrap();
    let paid = pay.send().await.unwrap();
    assert_eq!((paid.status.as_str(), paid.amount), ("paid", 2400));
    assert_eq!(client.retrieve_order(&order.id).await.unwrap(), paid);
    let query = filtered(|query| query.client_order_id = Some("web-6735".to_owned()));
    assert_eq!(client.list_orders(&query).await.unwrap().data, [paid]);
    let other = NewOrder {
        client_order_id: None,
        ..new_order
    };
    let other = sent(client.create_order(&other)).await;
    let canceled = sent(client.cancel_order(&other.id)).await;
    assert_eq!(canceled.status, "canceled");

    call_checkouts(&client).await;
    call_payment_intents(&client).await;
    call_setup_intents(&client).await;

    let query = filtered(|query| query.event_type = Some("order.canceled".to_owned()));
    let events = client.list_events(&query).await.unwrap().data;
    assert_eq!(events[0].data.object["id"], other.id);
    let retrieved = client.retrieve_event(&events[0].id).await;
    assert_eq!(retrieved.unwrap(), events[0]);
    let deliveries = client.list_webhook_deliveries(&endpoint.id, &all).await;
    let deliveries = deliveries.unwrap().data;
    assert_eq!((deliveries.len(), &deliveries[0].event), (1, &events[0].id));
    let deleted = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    let again = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    assert_eq!((deleted, again), (true, false));

    let status = client.look_up_key(pay.key()).await.unwrap();
    assert_eq!(status.status, "completed");
    assert_eq!(status.response_status, Some(200));
    let given_up = sent(client.abandon_key("a/b?")).await;
    assert_eq!((&*given_up.key, &*given_up.status), ("a/b?", "abandoned"));
    assert_eq!(client.workflow("checkout-1").await.unwrap(), []);
    assert_all_are_called(&proxy.seen());

    for no_id in ["", "..", "ch_1/capture", "ch_1?x=y", "ch_%31"] {
        let refused = client.retrieve_charge(no_id).await;
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_id}");
    }
}

fn filtered(set: impl FnOnce(&mut ListQuery)) -> ListQuery {
    let mut query = ListQuery::default();
    set(&mut query);
    query
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
    let customer = sent(client.create_customer(&new_customer)).await;
    assert_eq!(customer.email, new_customer.email);
    let query = filtered(|query| query.email = new_customer.email);
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
    let method = sent(client.create_payment_method(&new_method)).await;
    assert_eq!(method.card.fingerprint, kept.card.fingerprint);
    let retrieved = client.retrieve_payment_method(&method.id).await;
    assert_eq!(retrieved.unwrap(), method);
    let attached = sent(client.attach_payment_method(&method.id, &customer.id)).await;
    assert_eq!(attached.customer.as_ref(), Some(&customer.id));
    let update = PaymentMethodUpdate {
        allow_redisplay: Some("always".to_owned()),
        card: Some(CardUpdate {
            exp_month: 11,
            exp_year: 2098,
        }),
        ..PaymentMethodUpdate::default()
    };
    let updated = sent(client.update_payment_method(&method.id, &update)).await;
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
    let updated = sent(client.update_customer(&customer.id, &update)).await;
    assert_eq!(updated.email, None);
    let default = updated.invoice_settings.as_ref().unwrap();
    assert_eq!(default.default_payment_method.as_ref(), Some(&method.id));
    let detached = sent(client.detach_payment_method(&method.id)).await;
    assert_eq!(detached.customer, None);
    let query = filtered(|query| query.customer = Some(customer.id.clone()));
    let left = client.list_payment_methods(&query).await.unwrap();
    assert_eq!(&left.data, std::slice::from_ref(kept));
    let deleted = client.delete_customer(&customer.id).await.unwrap();
    let again = client.delete_customer(&customer.id).await.unwrap();
    assert_eq!((deleted, again), (true, false));
    let gone = client.retrieve_customer(&customer.id).await.unwrap();
    assert!(gone.deleted && gone.created.is_none());
}

async fn call_webhook_endpoints(client: &Client) -> WebhookEndpoint {
    let new_endpoint = NewWebhookEndpoint {
        description: Some("The warehouse".to_owned()),
        api_version: Some("2024-04-10".to_owned()),
        standard_webhooks: Some(false),
        metadata: [("channel".to_owned(), "web".to_owned())].into(),
        ..an_endpoint()
    };
    let mut endpoint = sent(client.create_webhook_endpoint(&new_endpoint)).await;
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
        updated = sent(client.update_webhook_endpoint(&updated.id, &update)).await;
        assert_eq!(updated.status, status);
        assert_eq!(Some(updated.enabled_events.clone()), update.enabled_events);
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
    let intent = sent(client.create_payment_intent(&new_intent)).await;
    assert_eq!(intent.status, "requires_payment_method");
    let update = PaymentIntentUpdate {
        amount: Some(2150),
        ..PaymentIntentUpdate::default()
    };
    let updated = sent(client.update_payment_intent(&intent.id, &update)).await;
    assert_eq!(updated.amount, 2150);
    let confirmation = |card: &str| Confirmation {
        payment_method: Some(card.to_owned()),
        return_url: Some("https://example.com/return".to_owned()),
        ..Confirmation::default()
    };
    let declining = confirmation("pm_card_chargeDeclined");
    let declined = client.confirm_payment_intent(&intent.id, &declining);
    let declined = declined.unwrap().send().await;
    assert!(matches!(declined, Err(Error::Declined(_))));
    let visa = confirmation("pm_card_visa");
    let confirmed = sent(client.confirm_payment_intent(&intent.id, &visa)).await;
    assert_eq!(confirmed.amount_capturable, 2150);
    let part = IntentCapture {
        amount_to_capture: Some(2000),
    };
    let captured = sent(client.capture_payment_intent(&intent.id, &part)).await;
    assert_eq!(captured.amount_received, 2000);
    let retrieved = client.retrieve_payment_intent(&intent.id).await;
    assert_eq!(retrieved.unwrap(), captured);
    let refund = NewRefund {
        payment_intent: Some(intent.id.clone()),
        ..NewRefund::default()
    };
    let refund = sent(client.create_refund(&refund)).await;
    assert_eq!(refund.payment_intent.as_ref(), Some(&intent.id));
    let query = filtered(|query| query.payment_intent = refund.payment_intent.clone());
    assert_eq!(client.list_refunds(&query).await.unwrap().data, [refund]);
    assert_eq!(client.list_charges(&query).await.unwrap().data.len(), 2);

    let other = NewPaymentIntent::new(500, "eur");
    let other = sent(client.create_payment_intent(&other)).await;
    let reason = Cancellation {
        cancellation_reason: Some("duplicate".to_owned()),
    };
    let canceled = sent(client.cancel_payment_intent(&other.id, &reason)).await;
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
    let setup = sent(client.create_setup_intent(&new_setup)).await;
    assert_eq!(setup.status, "requires_payment_method");
    assert_eq!(setup.usage, "off_session");
    let update = SetupIntentUpdate {
        payment_method: Some("pm_card_threeDSecure2Required".to_owned()),
        ..SetupIntentUpdate::default()
    };
    let updated = sent(client.update_setup_intent(&setup.id, &update)).await;
    assert_eq!(updated.status, "requires_confirmation");
    let return_url = Some("https://example.com/return".to_owned());
    let confirmation = SetupConfirmation {
        return_url: return_url.clone(),
        ..SetupConfirmation::default()
    };
    let waiting = sent(client.confirm_setup_intent(&setup.id, &confirmation)).await;
    let page = waiting.next_action.clone().unwrap().redirect_to_url;
    assert_eq!(page.return_url, return_url);
    assert!(page.url.contains(&setup.id), "{}", page.url);
    let retrieved = client.retrieve_setup_intent(&setup.id).await;
    assert_eq!(retrieved.unwrap(), waiting);
    let query = filtered(|query| query.payment_method = waiting.payment_method.clone());
    let listed = client.list_setup_intents(&query).await.unwrap();
    assert_eq!(listed.data, [waiting]);
    let reason = SetupCancellation {
        cancellation_reason: Some("abandoned".to_owned()),
    };
    let canceled = sent(client.cancel_setup_intent(&setup.id, &reason)).await;
    assert_eq!(canceled.status, "canceled");
    assert_eq!(canceled.cancellation_reason, reason.cancellation_reason);
}

async fn call_checkouts(client: &Client) {
    let set = sent(client.set_inventory("mug", 5)).await;
    assert_eq!(set.quantity, 5);
    let new_checkout = NewCheckout {
        customer: Some("cus 1".to_owned()),
        metadata: [("channel".to_owned(), "web".to_owned())].into(),
        ..a_cart("tok_visa")
    };
    let checkout = sent(client.create_checkout(&new_checkout)).await;
    assert_eq!(checkout.status, "completed");
    assert_eq!(checkout.amount, 2400);
    assert_eq!(checkout.metadata, new_checkout.metadata);
    assert_eq!(checkout.items[0].sku.as_deref(), Some("mug"));
    let [order, charge, allocated] = checkout.steps.as_slice() else {
        panic!("not as planned: {checkout:?}");
    };
    assert_eq!(order.resource, checkout.order);
    assert_eq!(charge.resource, checkout.charge);
    let allocated = (&*allocated.name, &*allocated.state, allocated.attempts);
    assert_eq!(allocated, ("allocate_inventory", "done", 1));
    let retrieved = client.retrieve_checkout(&checkout.id).await;
    assert_eq!(retrieved.unwrap(), checkout);
    for (customer, listed) in [("cus 1", vec![checkout]), ("cus 2", vec![])] {
        let query = filtered(|query| query.customer = Some(customer.to_owned()));
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
    let document = document();
    let mut count = 0;
    for (path, method, _) in operations(&document) {
        let is_of_the_server = ["/livez", "/readyz", "/.well-known/idempotency"].contains(&&*path);
        let is_by_path = ["/idempotency-keys/{key}", "/workflows/{name}"].contains(&&*path);
        // For programs that were written for Stripe, and for tests of other clients.
        let is_for_stripe =
            ["/account", "/customers/search", "/invoice_payments"].contains(&&*path);
        let is_for_tests = path.starts_with("/test/");
        if is_of_the_server || is_by_path || is_for_stripe || is_for_tests {
            continue;
        }
        let is_called = called(method.as_str(), &path);
        assert!(is_called, "no function calls {method} {path}");
        count += 1;
    }
    assert!(count >= 30, "{count}");
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
        let built = Client::builder(url, API_KEY).build();
        assert_eq!(built.is_ok(), is_usable, "{url}");
    }
}
