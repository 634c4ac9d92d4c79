//! `expand`: references shown as whole objects.

use crate::support::prelude::*;

#[tokio::test]
async fn a_refund_shows_its_whole_charge_in_every_reply() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    let body = json!({"charge": charge, "amount": 500, "expand": ["charge"]});
    let created = client.post_new("/refunds", &body).await.json();
    let now = client.get(&format!("/charges/{charge}")).await.json();
    assert_eq!(created["charge"], now);
    assert_eq!(now["amount_refunded"], 500);
    let path = format!("/refunds/{}", created["id"].as_str().unwrap());
    let form = client.post_raw(&path, "update", FORM, b"expand[0]=charge");
    assert_eq!(form.await.json()["charge"], now);
    for path in [
        format!("{path}?expand[]=charge"),
        format!("/v1{path}?expand%5B%5D=charge"),
        "/refunds?expand[]=data.charge".to_owned(),
        format!("/charges/{charge}/refunds?expand[0]=data.charge"),
    ] {
        let shown = client.get(&path).await.json();
        let refund = shown.get("data").map_or(&shown, |data| &data[0]);
        assert_eq!(refund["charge"], now, "{path}");
    }
    assert_eq!(client.get(&path).await.json()["charge"], json!(charge));
}

#[tokio::test]
async fn a_charge_lists_its_newest_refunds_where_it_is_asked_to() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    let other = client.charge("key-2").await.id();
    let mut newest_first = Vec::new();
    for amount in 1..=11 {
        let body = json!({"charge": charge, "amount": amount});
        newest_first.insert(0, client.post_new("/refunds", &body).await.json());
    }
    let path = format!("/v1/charges/{charge}");
    let expected = json!({
        "object": "list", "data": newest_first[..10], "has_more": true,
        "url": format!("{path}/refunds"),
    });
    let none = |charge: &str| {
        let url = format!("/v1/charges/{charge}/refunds");
        json!({"object": "list", "data": [], "has_more": false, "url": url})
    };
    let expand = json!({"expand": ["refunds"]});
    for shown in [
        client.get(&format!("{path}?expand[]=refunds")).await.json(),
        client.post_new(&path, &expand).await.json(),
    ] {
        assert_eq!(shown["refunds"], expected);
    }
    let list = client.get("/v1/charges?expand[]=data.refunds").await.json();
    assert_eq!(list["data"][0]["refunds"], none(&other));
    assert_eq!(list["data"][1]["refunds"], expected);
    let body = json!({"amount": 1, "currency": "usd", "capture": false, "expand": ["refunds"]});
    let created = client.post_new("/v1/charges", &body).await;
    assert_eq!(created.json()["refunds"], none(&created.id()));
    let capture = format!("/v1/charges/{}/capture", created.id());
    let captured = client.post_new(&capture, &expand).await;
    assert_eq!(captured.json()["refunds"], none(&created.id()));
    assert_eq!(client.get(&path).await.json().get("refunds"), None);
    // What an event tells is the object without what one request wanted to see of it.
    let event = client.get("/events?type=charge.updated").await.json();
    assert_eq!(event["data"][0]["data"]["object"].get("refunds"), None);
}

#[tokio::test]
async fn an_order_shows_the_whole_charge_that_paid_it() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let order = open_order(&client).await;
    let path = format!("/orders/{order}");
    let expanded = format!("{path}?expand[]=charge");
    assert_eq!(client.get(&expanded).await.json()["charge"], Value::Null);
    let pay = json!({"expand": ["charge"]});
    let paid = client.post_new(&format!("{path}/pay"), &pay).await.json();
    let charge = paid["charge"]["id"].as_str().unwrap();
    let whole = client.get(&format!("/charges/{charge}")).await.json();
    for shown in [
        paid.clone(),
        client.get(&expanded).await.json(),
        client.post_new(&path, &pay).await.json(),
        client.get("/orders?expand[]=data.charge").await.json()["data"][0].take(),
    ] {
        assert_eq!(shown["charge"], whole);
    }
}

#[tokio::test]
async fn what_can_not_be_expanded_is_refused_by_its_index() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    for path in [
        &*format!("/charges/{charge}?expand[]=order"),
        "/charges?expand[]=refunds",
        "/refunds?expand[]=charge",
        "/orders?expand[]=data.items",
    ] {
        let expected = refusal("parameter_invalid", "expand[0]");
        assert_eq!(client.get(path).await.refusal(), expected, "{path}");
    }
    let refund = json!({"charge": charge, "expand": ["customer"]});
    let refused = client.post_new("/refunds", &refund).await;
    refused.assert_refusal(400, "parameter_invalid", "expand[0]");
    let path = format!("/charges/{charge}");
    let (capture, number) = (format!("{path}/capture"), json!({"expand": [7]}));
    let refused = client.post_new(&capture, &number).await;
    refused.assert_refusal(400, "parameter_invalid", "expand[0]");
    let wrong = "
        expand[]=refunds&expand[]=order  parameter_invalid expand[1]
        expand=refunds                   parameter_invalid expand";
    assert_refuses_queries(&client, &path, wrong).await;
    let events = client.get("/events?expand[]=data.object").await;
    events.assert_refusal(400, "parameter_unknown", "expand");
}

#[tokio::test]
async fn what_is_expanded_is_of_the_same_moment_as_what_it_is_in() {
    let server = TestServer::start().await;
    let client = server.client.clone();
    let charge = client.charge("key-1").await.id();
    let part = json!({"charge": charge, "amount": 100});
    let refunding = tokio::spawn(async move {
        for _ in 0..9 {
            assert_eq!(client.post_new("/refunds", &part).await.status, 201);
        }
    });
    let paths = [
        format!("/charges/{charge}?expand[]=refunds"),
        "/charges?expand[]=data.refunds".to_owned(),
    ];
    while !refunding.is_finished() {
        for path in &paths {
            let mut shown = server.client.get(path).await.json();
            if shown["object"] == "list" {
                shown = shown["data"][0].take();
            }
            let refunds = shown["refunds"]["data"].as_array().unwrap().iter();
            let sum: i64 = refunds
                .map(|refund| refund["amount"].as_i64().unwrap())
                .sum();
            assert_eq!(shown["amount_refunded"], sum, "{path}");
        }
    }
    refunding.await.unwrap();
}

#[tokio::test]
async fn what_stripe_expands_and_is_not_here_can_be_named_and_changes_nothing() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let charge = client.charge("key-1").await.id();
    for (collection, body, members) in &rows::<(String, Value, String)>(json!([
        ["charges", {"amount": 1, "currency": "usd"},
         "application application_fee balance_transaction dispute failure_balance_transaction \
          invoice on_behalf_of payment_intent review source_transfer transfer \
          transfer_data.destination"],
        ["refunds", {"charge": charge, "amount": 1},
         "balance_transaction failure_balance_transaction source_transfer_reversal \
          transfer_reversal"],
        ["customers", {},
         "cash_balance default_source discount.promotion_code invoice_credit_balance \
          invoice_settings.default_payment_method sources sources.data subscriptions \
          subscriptions.data tax tax_ids tax_ids.data test_clock"],
        ["payment_intents", {"amount": 1, "currency": "usd"},
         "application charges charges.data charges.data.balance_transaction charges.data.refunds \
          customer.default_source customer.sources invoice latest_charge.application_fee \
          latest_charge.balance_transaction latest_charge.transfer on_behalf_of review source \
          transfer_data.destination"],
        ["setup_intents", {},
         "application latest_attempt mandate on_behalf_of single_use_mandate"],
    ])) {
        let path = format!("/v1/{collection}");
        let plain = client.post_new(&path, body).await;
        let members: Vec<_> = members.split_whitespace().collect();
        let mut body = body.clone();
        body["expand"] = json!(members);
        let path = format!("{path}/{}", plain.id());
        let update = json!({"expand": members});
        let updated = client.post_new(&path, &update).await;
        assert_eq!(
            (updated.status.as_u16(), updated.json()),
            (200, plain.json()),
            "{collection}"
        );
        for member in members {
            let one = client.get(&format!("{path}?expand[]={member}")).await;
            assert_eq!(one.json(), plain.json(), "{member}");
            let list = format!("/v1/{collection}?limit=1&expand[]=data.{member}");
            let list = client.get(&list).await;
            assert_eq!(list.json()["data"], json!([plain.json()]), "{member}");
        }
        let created = client.post_new(&format!("/v1/{collection}"), &body).await;
        assert_eq!(created.status, 201, "{}", created.json());
    }
}

#[tokio::test]
async fn a_customer_is_shown_whole_where_their_sources_are_asked_for() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let customer = client.post_new("/customers", &json!({})).await;
    let body = json!({
        "amount": 1, "currency": "usd", "customer": customer.id(),
        "expand": ["customer.default_source"],
    });
    let intent = client.post_new("/v1/payment_intents", &body).await;
    assert_eq!(intent.json()["customer"], customer.json());
    let list = "/v1/payment_intents?expand[]=data.customer.sources";
    let list = client.get(list).await;
    assert_eq!(list.json()["data"][0]["customer"], customer.json());
}
