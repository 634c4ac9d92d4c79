//! Charges: the object, the parameters and their limits, the test cards.

use crate::support::{prelude::*, resources::charge_with};

fn names(object: &Value) -> Vec<String> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().cloned().collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_charge_has_exactly_the_documented_members_and_defaults() {
    let server = TestServer::start().await;
    let body = json!({"amount": 2000, "currency": "USD"});
    let created = server.client.post("/charges", "key-1", &body).await;
    assert_eq!(created.status, 201);
    let mut object = created.json();
    let created_at = object["created"].take().as_i64().unwrap();
    let now = server
        .database
        .count("SELECT extract(epoch FROM now())::bigint")
        .await;
    assert!((now - 60..=now).contains(&created_at), "{created_at}");
    let id = object["id"].take();
    assert!(
        id.as_str().unwrap().starts_with("ch_") && id.as_str().unwrap().len() == 29,
        "{id}"
    );
    let card_id = object["source"]["id"].take();
    assert!(card_id.as_str().unwrap().starts_with("card_"), "{card_id}");
    let card = json!({
        "brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2099, "funding": "credit",
    });
    let expected = json!({
        "id": null, "object": "charge", "amount": 2000, "amount_captured": 2000,
        "amount_refunded": 0, "application_fee_amount": null, "balance_transaction": null, "billing_details": {},
        "captured": true, "created": null, "currency": "usd", "customer": null,
        "description": null, "disputed": false, "failure_code": null, "failure_message": null,
        "invoice": null, "livemode": false, "metadata": {}, "order": null,
        "outcome": {
            "network_status": "approved_by_network", "reason": null, "risk_level": "normal",
            "seller_message": "Payment complete.", "type": "authorized",
        },
        "paid": true, "payment_intent": null, "payment_method": null,
        "payment_method_details": {"card": card, "type": "card"}, "receipt_email": null, "receipt_url": null, "statement_descriptor_suffix": null,
        "refunded": false,
        "source": {
            "id": null, "object": "card", "brand": "visa", "last4": "4242", "exp_month": 12,
            "exp_year": 2099, "funding": "credit",
        },
        "statement_descriptor": null, "status": "succeeded",
    });
    assert_eq!(object, expected);
}

#[tokio::test]
async fn what_was_sent_is_what_is_read_back_by_id_and_in_the_list() {
    let server = TestServer::start().await;
    let changes = [
        ("customer", json!("cus_1")),
        ("description", json!("Two mugs ☕")),
        ("statement_descriptor", json!("MUGS")),
        ("receipt_email", json!("a@b.example")),
        (
            "metadata",
            json!({"order_id": "6735", "empty": "", "none": null}),
        ),
    ];
    let created = charge_with(&server.client, &changes).await;
    assert_eq!(created.status, 201);
    let object = created.json();
    for (name, value) in &changes[..4] {
        assert_eq!(object[name], *value, "{name}");
    }
    assert_eq!(object["metadata"], json!({"order_id": "6735"}));
    for path in [
        format!("/charges/{}", created.id()),
        format!("/v1/charges/{}", created.id()),
    ] {
        let read = server.client.get(&path).await;
        assert_eq!((read.status.as_u16(), read.json()), (200, object.clone()));
    }
    assert_eq!(
        server.client.get("/charges").await.json()["data"],
        json!([object])
    );
}

#[tokio::test]
async fn null_and_empty_optional_parameters_are_absent() {
    let server = TestServer::start().await;
    for absent in [Value::Null, json!("")] {
        let optional = [
            "customer",
            "description",
            "statement_descriptor",
            "receipt_email",
            "metadata",
        ];
        let changes = optional.map(|name| (name, absent.clone()));
        let object = charge_with(&server.client, &changes).await.json();
        assert_eq!(object["captured"], true, "{absent}");
        assert_eq!(object["customer"], Value::Null, "{absent}");
        assert_eq!(object["metadata"], json!({}), "{absent}");
        for required in ["amount", "currency"] {
            let answer = charge_with(&server.client, &[(required, absent.clone())]).await;
            assert_eq!(answer.code(), "parameter_missing", "{required} {absent}");
            assert_eq!(answer.json()["error"]["param"], required);
        }
    }
}

#[tokio::test]
async fn a_charge_that_is_not_captured_promises_the_money_and_takes_none() {
    let server = TestServer::start().await;
    let object = charge_with(&server.client, &[("capture", false.into())])
        .await
        .json();
    assert_eq!(object["captured"], false);
    assert_eq!(object["amount_captured"], 0);
    assert_eq!(
        (&object["paid"], &object["status"]),
        (&json!(true), &json!("succeeded"))
    );
    let form = b"amount=2000&currency=usd&capture=false";
    let media_type = "application/x-www-form-urlencoded";
    let form = server
        .client
        .post_raw("/v1/charges", "key-1", media_type, form)
        .await
        .json();
    assert_eq!(form["captured"], false);
}

#[tokio::test]
async fn limits_hold_at_both_edges_and_name_the_parameter() {
    let server = TestServer::start().await;
    let pairs = |count: usize| {
        (0..count)
            .map(|n| (format!("k{n}"), json!("v")))
            .collect::<Value>()
    };
    let email = |name: usize| format!("{}@b.example", "a".repeat(name));
    let accepted = [
        ("amount", json!(1)),
        ("amount", json!(99_999_999)),
        ("customer", json!("é".repeat(255))),
        ("description", json!("é".repeat(1000))),
        ("statement_descriptor", json!("é".repeat(22))),
        ("receipt_email", json!(email(244))),
        ("metadata", pairs(50)),
        ("metadata", json!({"k".repeat(40): "é".repeat(500)})),
        ("metadata", json!({})),
    ];
    for (name, value) in &accepted {
        let answer = charge_with(&server.client, &[(name, value.clone())]).await;
        assert_eq!(answer.status, 201, "{name}: {:?}", answer.json());
    }
    let long_key = "k".repeat(41);
    let refused = [
        ("amount", json!(0), "amount", "parameter_invalid"),
        ("amount", json!(-1), "amount", "parameter_invalid"),
        ("amount", json!(100_000_000), "amount", "amount_too_large"),
        (
            "customer",
            json!("é".repeat(256)),
            "customer",
            "parameter_invalid",
        ),
        (
            "description",
            json!("é".repeat(1001)),
            "description",
            "parameter_invalid",
        ),
        (
            "statement_descriptor",
            json!("é".repeat(23)),
            "statement_descriptor",
            "parameter_invalid",
        ),
        (
            "receipt_email",
            json!(email(245)),
            "receipt_email",
            "parameter_invalid",
        ),
        (
            "receipt_email",
            json!("nobody"),
            "receipt_email",
            "parameter_invalid",
        ),
        ("metadata", pairs(51), "metadata", "parameter_invalid"),
        (
            "metadata",
            json!({long_key: "v"}),
            "metadata",
            "parameter_invalid",
        ),
        (
            "metadata",
            json!({"k": "é".repeat(501)}),
            "metadata[k]",
            "parameter_invalid",
        ),
        (
            "metadata",
            json!({"k": 1}),
            "metadata[k]",
            "parameter_invalid",
        ),
        (
            "metadata",
            json!({"k": {"a": "b"}}),
            "metadata[k]",
            "parameter_invalid",
        ),
        ("metadata", json!([]), "metadata", "parameter_invalid"),
        ("source", json!("tok_nobody"), "source", "parameter_invalid"),
        ("source", json!({}), "source[number]", "parameter_missing"),
        (
            "source",
            json!({"number": "4242424242424242"}),
            "source[exp_month]",
            "parameter_missing",
        ),
        (
            "source",
            json!({"number": "4242424242424242", "exp_month": 1}),
            "source[exp_year]",
            "parameter_missing",
        ),
        (
            "source",
            json!({"number": "4242424242424242", "exp_month": 1, "exp_year": 2030, "name": "A"}),
            "source[name]",
            "parameter_unknown",
        ),
        (
            "source",
            json!({"object": "bank_account"}),
            "source[object]",
            "parameter_invalid",
        ),
        ("amuont", json!(1), "amuont", "parameter_unknown"),
        ("order", json!("or_1"), "order", "parameter_unknown"),
    ];
    for (name, value, param, code) in &refused {
        let answer = charge_with(&server.client, &[(name, value.clone())]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, *code),
            "{name} {value}"
        );
        assert_eq!(answer.json()["error"]["param"], *param, "{name} {value}");
    }
    assert_eq!(server.database.charges().await, accepted.len() as i64);
}

#[tokio::test]
async fn currencies_in_use_are_accepted_in_any_case_and_all_others_refused() {
    let server = TestServer::start().await;
    for currency in ["usd", "EUR", "jPy", "chf", "kwd"] {
        let object = charge_with(&server.client, &[("currency", currency.into())])
            .await
            .json();
        assert_eq!(object["currency"], currency.to_lowercase());
    }
    for currency in [
        "xau", "xxx", "xts", "uyi", "dem", "zzz", "us", "usdd", "€", "840",
    ] {
        let answer = charge_with(&server.client, &[("currency", currency.into())]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "parameter_invalid"),
            "{currency}"
        );
        assert_eq!(answer.json()["error"]["param"], "currency");
    }
}

#[tokio::test]
async fn an_unknown_id_and_another_accounts_id_are_the_same_404() {
    let server = TestServer::start().await;
    let id = server.client.charge("key-1").await.id();
    let other = client_of_account(&server, "other").await;
    let theirs = other.get(&format!("/charges/{id}")).await;
    let flipped = format!("{}{}", &id[..28], if id.ends_with('0') { '1' } else { '0' });
    let mut answers = vec![theirs];
    for unknown in [
        flipped,
        "ch_1".into(),
        id.replace("ch_", "or_"),
        id.to_uppercase(),
        "4242".into(),
    ] {
        answers.push(server.client.get(&format!("/charges/{unknown}")).await);
    }
    for answer in &answers {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "resource_missing")
        );
        assert_eq!(answer.body, answers[0].body);
    }
    assert_eq!(
        names(&answers[0].json()["error"]),
        ["code", "doc_url", "message", "param", "type"]
    );
    let unknown_parameter = server.client.get(&format!("/charges/{id}?page=1")).await;
    assert_eq!(unknown_parameter.code(), "parameter_unknown");
}
