//! Orders: totals, limits, and the client's own id as a natural key.

use futures_util::future::join_all;

use crate::support::{harness::WAITS_FOR_CONNECTIONS, prelude::*, resources::assert_is_created};

/// The parameters of an ordinary order: 2 × 12.00 and 1 × 9.00.
fn order() -> Value {
    json!({
        "currency": "eur",
        "items": [
            {"sku": "mug", "description": "A mug", "quantity": 2, "unit_amount": 1200},
            {"quantity": 1, "unit_amount": 900},
        ],
    })
}

/// Sends an ordinary order with some parameters set, under a key of its own.
async fn order_with(client: &Client, changes: &[(&str, Value)]) -> Answer {
    let mut body = order();
    for (name, value) in changes {
        body[*name] = value.clone();
    }
    client.post_new("/orders", &body).await
}

#[tokio::test]
async fn an_order_has_exactly_the_documented_members_and_its_total() {
    let server = TestServer::start().await;
    let created = order_with(&server.client, &[]).await;
    assert_is_created(&server.client, &created, "/orders", "or_").await;
    let object = created.json();
    assert!(object["created"].is_i64());
    let expected = json!({
        "id": created.id(), "object": "order", "amount": 3300, "charge": null, "client_order_id": null,
        "created": object["created"], "currency": "eur", "customer": null,
        "items": [
            {"amount": 2400, "description": "A mug", "quantity": 2, "sku": "mug", "unit_amount": 1200},
            {"amount": 900, "description": null, "quantity": 1, "sku": null, "unit_amount": 900},
        ],
        "livemode": false, "metadata": {}, "status": "open",
    });
    assert_eq!(object, expected);
}

#[tokio::test]
async fn the_total_is_computed_and_must_be_1_to_99999999() {
    let server = TestServer::start().await;
    let item =
        |quantity: i64, unit_amount: i64| json!({"quantity": quantity, "unit_amount": unit_amount});
    let accepted = [
        (json!([item(1, 1)]), 1),
        (json!([item(10_000, 0), item(1, 1)]), 1),
        (json!([item(1, 99_999_999)]), 99_999_999),
        (json!([item(9_999, 10_000), item(1, 9_999)]), 99_999_999),
        (Value::from(vec![item(1, 999_999); 100]), 99_999_900),
    ];
    for (items, total) in accepted {
        let answer = order_with(&server.client, &[("items", items)]).await;
        assert_eq!(answer.status, 201);
        assert_eq!(answer.json()["amount"], total);
    }
    let too_many = Value::from(vec![item(10_000, 99_999_999); 100]);
    let refused = [
        (json!([item(1, 0)]), "parameter_invalid"),
        (json!([item(1, 99_999_999), item(1, 1)]), "amount_too_large"),
        (json!([item(10_000, 10_000)]), "amount_too_large"),
        (too_many, "amount_too_large"),
    ];
    for (items, code) in refused {
        let answer = order_with(&server.client, &[("items", items)]).await;
        answer.assert_refusal(400, code, "items");
    }
}

#[tokio::test]
async fn limits_hold_at_both_edges_and_name_the_parameter() {
    let server = TestServer::start().await;
    let item = |name: &str, value: Value| {
        let mut item = json!({"quantity": 1, "unit_amount": 1});
        item[name] = value;
        json!([item])
    };
    let long = |chars: usize| json!("é".repeat(chars));
    let accepted = [
        ("items", item("quantity", 10_000.into())),
        ("items", item("sku", long(255))),
        ("items", item("description", long(255))),
        ("items", item("sku", Value::Null)),
        ("customer", long(255)),
        ("client_order_id", long(255)),
        ("metadata", json!({"k": long(500)})),
    ];
    for (name, value) in &accepted {
        let answer = order_with(&server.client, &[(name, value.clone())]).await;
        assert_eq!(answer.status, 201, "{name}: {:?}", answer.json());
    }
    let too_many = Value::from(vec![json!({"quantity": 1, "unit_amount": 1}); 101]);
    let refused = rows::<(String, Value, String, String)>(json!([
        ["currency", null, "parameter_missing", "currency"],
        ["currency", "xau", "parameter_invalid", "currency"],
        ["items", null, "parameter_missing", "items"],
        ["items", [], "parameter_invalid", "items"],
        ["items", too_many, "parameter_invalid", "items"],
        ["items", {"0": {}}, "parameter_invalid", "items"],
        ["items", [1], "parameter_invalid", "items[0]"],
        ["items", [{"unit_amount": 1}], "parameter_missing", "items[0][quantity]"],
        ["items", [{"quantity": 1}], "parameter_missing", "items[0][unit_amount]"],
        ["items", item("quantity", 0.into()), "parameter_invalid", "items[0][quantity]"],
        ["items", item("quantity", 10_001.into()), "parameter_invalid", "items[0][quantity]"],
        ["items", item("quantity", "1".into()), "parameter_invalid", "items[0][quantity]"],
        ["items", item("unit_amount", (-1).into()), "parameter_invalid", "items[0][unit_amount]"],
        ["items", item("unit_amount", 100_000_000.into()), "amount_too_large",
         "items[0][unit_amount]"],
        ["items", item("sku", long(256)), "parameter_invalid", "items[0][sku]"],
        ["items", item("description", long(256)), "parameter_invalid", "items[0][description]"],
        ["items", item("amount", 1.into()), "parameter_unknown", "items[0][amount]"],
        ["customer", long(256), "parameter_invalid", "customer"],
        ["client_order_id", long(256), "parameter_invalid", "client_order_id"],
        ["client_order_id", 7, "parameter_invalid", "client_order_id"],
        ["metadata", {"k": 1}, "parameter_invalid", "metadata[k]"],
        ["amount", 3300, "parameter_unknown", "amount"],
    ]));
    for (name, value, code, param) in &refused {
        let answer = order_with(&server.client, &[(name, value.clone())]).await;
        assert_eq!(answer.refusal(), refusal(code, param), "{name} {value}");
    }
    let form = b"currency=eur&items[][quantity]=1&items[][unit_amount]=1&items[][quantity]=x";
    let answer = server.client.post_raw("/orders", "form", FORM, form);
    let answer = answer.await;
    assert_eq!(answer.json()["error"]["param"], "items[1][quantity]");
    let orders = server.database.count_of("orders").await;
    assert_eq!(orders, accepted.len() as i64);
}

#[tokio::test]
async fn the_same_order_under_another_key_is_found_again_by_its_client_order_id() {
    let server = TestServer::start().await;
    let mine = ("client_order_id", json!("order-1"));
    let first = order_with(&server.client, std::slice::from_ref(&mine)).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.json()["client_order_id"], "order-1");
    // The content is what was meant, not how it was written.
    let upper = ("currency", json!("EUR"));
    for changes in [vec![mine.clone()], vec![mine.clone(), upper]] {
        let again = order_with(&server.client, &changes).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
        assert!(!again.is_replay());
    }
    assert_eq!(server.database.count_of("orders").await, 1);
}

#[tokio::test]
async fn the_second_create_answers_with_the_order_as_it_is_now_and_its_replay_as_it_was_then() {
    let server = TestServer::start().await;
    let mut body = order();
    body["client_order_id"] = "order-1".into();
    let order = server.client.post("/orders", "key-1", &body).await.id();
    let open = server.client.post("/orders", "key-2", &body).await;
    let cancel = format!("/orders/{order}/cancel");
    server.client.post(&cancel, "cancel", &json!({})).await;
    let now = server.client.post("/orders", "key-3", &body).await;
    assert_eq!(now.status, 200);
    assert_eq!(now.json()["status"], "canceled");
    let replayed = server.client.post("/orders", "key-2", &body).await;
    replayed.assert_replays(&open);
    assert_eq!(open.json()["status"], "open");
}

#[tokio::test]
async fn another_content_under_the_same_client_order_id_is_refused() {
    let server = TestServer::start().await;
    let mine = ("client_order_id", json!("order-1"));
    order_with(&server.client, std::slice::from_ref(&mine)).await;
    for change in [
        ("currency", json!("usd")),
        ("customer", json!("cus_1")),
        ("metadata", json!({"a": "b"})),
        ("items", json!([{"quantity": 1, "unit_amount": 3300}])),
    ] {
        let answer = order_with(&server.client, &[mine.clone(), change.clone()]).await;
        let expected = refusal("parameter_invalid", "client_order_id");
        assert_eq!(answer.refusal(), expected, "{change:?}");
    }
    assert_eq!(server.database.count_of("orders").await, 1);
}

#[tokio::test]
async fn a_client_order_id_is_unique_in_its_account_only_and_optional() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    let mine = ("client_order_id", json!("order-1"));
    for client in [&server.client, &other] {
        // Without one, two equal orders are two orders.
        for changes in [std::slice::from_ref(&mine), &[], &[]] {
            assert_eq!(order_with(client, changes).await.status, 201);
        }
    }
    assert_eq!(server.database.count_of("orders").await, 6);
}

#[tokio::test]
async fn twenty_racing_creates_of_one_client_order_id_make_one_order() {
    for is_alone in [false, true] {
        let mut settings = WAITS_FOR_CONNECTIONS.to_vec();
        settings.extend(is_alone.then_some(ALONE));
        let server = TestServer::start_with(&settings).await;
        let mine = [("client_order_id", json!("order-1"))];
        let answers = join_all((0..20).map(|_| order_with(&server.client, &mine))).await;
        let ids: BTreeSet<_> = answers.iter().map(Answer::id).collect();
        assert_eq!(ids.len(), 1);
        let created = answers.iter().filter(|answer| answer.status == 201).count();
        let found = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((created, found), (1, 19));
        assert_eq!(server.database.count_of("orders").await, 1);
        assert_eq!(server.database.records().await, 20);
    }
}

#[tokio::test]
async fn an_unknown_order_and_another_accounts_order_are_the_same_404() {
    let server = TestServer::start().await;
    let id = order_with(&server.client, &[]).await.id();
    let other = client_of_account(&server, "other").await;
    let theirs = other.get(&format!("/orders/{id}")).await;
    let unknown = server.client.get("/orders/or_1").await;
    assert_eq!(error(&theirs), (404, "resource_missing".into()));
    assert_eq!(theirs.body, unknown.body);
}
