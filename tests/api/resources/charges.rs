//! Charges: the object, the parameters and their limits, the test cards.

use crate::support::{
    prelude::*,
    resources::{assert_is_created, charge_with},
};

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
    assert_is_created(&server.client, &created, "/charges", "ch_").await;
    let mut object = created.json();
    let created_at = object["created"].take().as_i64().unwrap();
    let now = "SELECT extract(epoch FROM now())::bigint";
    let now = server.database.count(now).await;
    assert!((now - 60..=now).contains(&created_at), "{created_at}");
    let card_id = object["source"]["id"].take();
    assert!(card_id.as_str().unwrap().starts_with("card_"), "{card_id}");
    let card = json!({
        "brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2099, "funding": "credit",
    });
    let expected = json!({
        "id": created.id(), "object": "charge", "amount": 2000, "amount_captured": 2000,
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
    let metadata = json!({"order_id": "6735", "empty": "", "none": null});
    let changes = [
        ("customer", json!("cus_1")),
        ("description", json!("Two mugs ☕")),
        ("statement_descriptor", json!("MUGS")),
        ("receipt_email", json!("a@b.example")),
        ("metadata", metadata),
    ];
    let created = charge_with(&server.client, &changes).await;
    let object = created.json();
    for (name, value) in &changes[..4] {
        assert_eq!(object[name], *value, "{name}");
    }
    assert_eq!(object["metadata"], json!({"order_id": "6735"}));
    assert_is_created(&server.client, &created, "/charges", "ch_").await;
    let listed = server.client.get("/charges").await.json();
    assert_eq!(listed["data"], json!([object]));
}

#[tokio::test]
async fn null_and_empty_optional_parameters_are_absent() {
    let server = TestServer::start().await;
    for absent in [Value::Null, json!("")] {
        let optional = "customer description statement_descriptor receipt_email metadata";
        let changes: Vec<_> = optional
            .split(' ')
            .map(|name| (name, absent.clone()))
            .collect();
        let object = charge_with(&server.client, &changes).await;
        object.assert_shows(json!({"captured": true, "customer": null, "metadata": {}}));
        for required in ["amount", "currency"] {
            let answer = charge_with(&server.client, &[(required, absent.clone())]).await;
            answer.assert_refusal(400, "parameter_missing", required);
        }
    }
}

#[tokio::test]
async fn a_charge_that_is_not_captured_promises_the_money_and_takes_none() {
    let server = TestServer::start().await;
    let promised = charge_with(&server.client, &[("capture", false.into())]).await;
    promised.assert_shows(json!({
        "captured": false, "amount_captured": 0, "paid": true, "status": "succeeded",
    }));
    let form = b"amount=2000&currency=usd&capture=false";
    let form = server.client.post_raw("/v1/charges", "key-1", FORM, form);
    assert_eq!(form.await.json()["captured"], false);
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
    let refused = rows::<(String, Value, String, String)>(json!([
        ["amount", 0, "parameter_invalid", "amount"],
        ["amount", -1, "parameter_invalid", "amount"],
        ["amount", 100_000_000, "amount_too_large", "amount"],
        ["customer", "é".repeat(256), "parameter_invalid", "customer"],
        ["description", "é".repeat(1001), "parameter_invalid", "description"],
        ["statement_descriptor", "é".repeat(23), "parameter_invalid", "statement_descriptor"],
        ["receipt_email", email(245), "parameter_invalid", "receipt_email"],
        ["receipt_email", "nobody", "parameter_invalid", "receipt_email"],
        ["metadata", pairs(51), "parameter_invalid", "metadata"],
        ["metadata", {long_key: "v"}, "parameter_invalid", "metadata"],
        ["metadata", {"k": "é".repeat(501)}, "parameter_invalid", "metadata[k]"],
        ["metadata", {"k": 1}, "parameter_invalid", "metadata[k]"],
        ["metadata", {"k": {"a": "b"}}, "parameter_invalid", "metadata[k]"],
        ["metadata", [], "parameter_invalid", "metadata"],
        ["source", "tok_nobody", "parameter_invalid", "source"],
        ["source", {}, "parameter_missing", "source[number]"],
        ["source", {"number": "4242424242424242"}, "parameter_missing", "source[exp_month]"],
        ["source", {"number": "4242424242424242", "exp_month": 1}, "parameter_missing",
         "source[exp_year]"],
        ["source", {"number": "4242424242424242", "exp_month": 1, "exp_year": 2030, "name": "A"},
         "parameter_unknown", "source[name]"],
        ["source", {"object": "bank_account"}, "parameter_invalid", "source[object]"],
        ["amuont", 1, "parameter_unknown", "amuont"],
        ["order", "or_1", "parameter_unknown", "order"],
    ]));
    for (name, value, code, param) in &refused {
        let answer = charge_with(&server.client, &[(name, value.clone())]).await;
        assert_eq!(answer.refusal(), refusal(code, param), "{name} {value}");
    }
    assert_eq!(server.database.charges().await, accepted.len() as i64);
}

#[tokio::test]
async fn currencies_in_use_are_accepted_in_any_case_and_all_others_refused() {
    let server = TestServer::start().await;
    for currency in ["usd", "EUR", "jPy", "chf", "kwd"] {
        let charge = charge_with(&server.client, &[("currency", currency.into())]).await;
        assert_eq!(charge.json()["currency"], currency.to_lowercase());
    }
    for currency in [
        "xau", "xxx", "xts", "uyi", "dem", "zzz", "us", "usdd", "€", "840",
    ] {
        let answer = charge_with(&server.client, &[("currency", currency.into())]).await;
        let expected = refusal("parameter_invalid", "currency");
        assert_eq!(answer.refusal(), expected, "{currency}");
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
        assert_eq!(error(answer), (404, "resource_missing".into()));
        assert_eq!(answer.body, answers[0].body);
    }
    let members = names(&answers[0].json()["error"]).join(" ");
    assert_eq!(members, "code doc_url message param type");
    let unknown_parameter = server.client.get(&format!("/charges/{id}?page=1")).await;
    assert_eq!(unknown_parameter.code(), "parameter_unknown");
}
