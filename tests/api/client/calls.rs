//! The client's half of the promise, against the real server and a network that fails.

use charge_once::http::openapi;
use charge_once_client::{
    Capture, ChargeUpdate, Client, Error, ListQuery, MetadataUpdate, NewCharge, NewCheckout,
    NewOrder, NewRefund, NewWebhookEndpoint, Payment, WebhookEndpoint, WebhookEndpointUpdate,
};
use tempfile::TempDir;

use crate::support::{
    client_examples::{buy_a_mug, go_on},
    client_library::{TestClock, a_cart, an_endpoint, an_order, builder, files, payment, store},
    harness::{API_KEY, TestServer, one_charge_and_its_record},
    http_proxy::{Act, HttpProxy, Seen},
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
