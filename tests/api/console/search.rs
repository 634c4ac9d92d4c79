//! The search: from a name to what it names, in this account only.

use super::*;
use crate::support::resources::attached;

/// Where a search leads.
async fn leads_to(visit: &Visit, name: &str) -> String {
    let answer = search(visit, name).await;
    assert_eq!(answer.status, 303, "{name}: {answer:?}");
    answer.header("location").unwrap().to_owned()
}

/// The page of a search that leads nowhere.
async fn says(visit: &Visit, name: &str) -> String {
    let answer = search(visit, name).await;
    assert_eq!(answer.status, 200, "{name}: {answer:?}");
    text(&answer.body)
}

async fn search(visit: &Visit, name: &str) -> Answer {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = query.append_pair("q", name).finish();
    visit.get(&format!("/console/search?{query}")).await
}

const NOTHING: &str = "This account has nothing that is called";

/// Names of one account, and where they lead.
async fn fill(server: &TestServer) -> Vec<(String, String)> {
    let client = &server.client;
    let endpoint = Endpoint::at(client, "https://receiver.invalid/hook")
        .await
        .id;
    let charged = client.charge("key/1").await;
    let charge = charged.id();
    let request = charged.header("request-id").unwrap().to_owned();
    let refund = client
        .post_new("/refunds", &json!({"charge": charge}))
        .await;
    let items = json!([{"quantity": 1, "unit_amount": 700}]);
    let order = json!({"currency": "usd", "items": items, "client_order_id": "shop order-7"});
    let order = client.post_new("/orders", &order).await.id();
    let customer = json!({"email": "ann+1@shop.test"});
    let customer = client.post_new("/customers", &customer).await.id();
    let method = attached(client, "pm_card_visa", &customer).await;
    let intent = json!({"amount": 700, "currency": "usd"});
    let intent = client.post_new("/payment_intents", &intent).await.id();
    let setup = client.post_new("/setup_intents", &json!({})).await.id();
    stock(client, "mug", 2).await;
    let checkout = client.post_new("/checkouts", &checkout()).await.id();
    let events = client.get("/events?limit=1").await.json();
    let event = events["data"][0]["id"].as_str().unwrap().to_owned();
    let deliveries = format!("/webhook_endpoints/{endpoint}/deliveries");
    let deliveries = client.get(&deliveries).await.json();
    let delivery = &deliveries["data"][0];
    let delivery = delivery["id"].as_str().unwrap().to_owned();
    let of = |list: &str, id: &str| (id.to_owned(), format!("/console/{list}/{id}"));
    vec![
        ("key/1".to_owned(), "/console/keys/key%2F1".to_owned()),
        (request, "/console/keys/key%2F1".to_owned()),
        (
            "shop order-7".to_owned(),
            format!("/console/orders/{order}"),
        ),
        (
            "ann+1@shop.test".to_owned(),
            format!("/console/customers/{customer}"),
        ),
        of("deliveries", &delivery),
        of("charges", &charge),
        of("refunds", &refund.id()),
        of("orders", &order),
        of("customers", &customer),
        of("payment_methods", &method),
        of("payment_intents", &intent),
        of("setup_intents", &setup),
        of("checkouts", &checkout),
        of("events", &event),
        of("webhook_endpoints", &endpoint),
    ]
}

#[tokio::test]
async fn each_name_leads_to_what_it_names_in_its_account_and_nowhere_in_another() {
    let (server, visit) = visited().await;
    let names = fill(&server).await;
    let logged = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key/1'";
    server.database.comes_to(logged, 1).await;
    let key = api_key_of(&server.database, "alice").await;
    let alice = Visit::begin_with(&server.client, &key).await;
    for (name, page) in &names {
        assert_eq!(leads_to(&visit, name).await, *page, "{name}");
        assert_eq!(leads_to(&visit, &format!("  {name}\t")).await, *page);
        assert_eq!(visit.get(page).await.status, 200, "{page}");
        says(&alice, name).await.must_have(&[NOTHING]);
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_the_first_of_the_list_and_a_key_may_be_in_the_log_only() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let read = client.get("/charges").await;
    client
        .post("/charges", "refused-1", &json!({"amount": 0}))
        .await;
    client.get("/orders").await;
    log_holds(&server.database, 3).await;
    let request = read.header("request-id").unwrap();
    let list = leads_to(&visit, request).await;
    assert!(
        list.starts_with("/console/requests?outcome=any&before=req_"),
        "{list}"
    );
    let page = visit.page(&list).await;
    page.must_have(&["GET", "/charges"]);
    page.must_lack(&["/orders", "refused-1"]);
    assert_eq!(
        leads_to(&visit, "refused-1").await,
        "/console/keys/refused-1"
    );
}

#[tokio::test]
async fn a_name_of_several_things_leads_to_a_list_of_them() {
    let (server, visit) = visited().await;
    let client = &server.client;
    let customer = json!({"email": "ann@shop.test"});
    let mut found = Vec::new();
    for _ in 0..2 {
        let id = client.post_new("/customers", &customer).await.id();
        found.push(format!(
            "Customer: <a class=\"mono\" href=\"/console/customers/{id}\">{id}</a>"
        ));
    }
    let page = says(&visit, "ann@shop.test").await;
    page.must_have(&[&found[0], &found[1], "Several things are called"]);
    page.must_lack(&[NOTHING]);
    let items = json!([{"quantity": 1, "unit_amount": 700}]);
    let order = json!({"currency": "usd", "items": items, "client_order_id": "order-7"});
    let order = client.post("/orders", "order-7", &order).await.id();
    let page = says(&visit, "order-7").await;
    page.must_have(&[
        "Key: <a class=\"mono\" href=\"/console/keys/order-7\">order-7</a>",
        &format!("Order: <a class=\"mono\" href=\"/console/orders/{order}\">{order}</a>"),
    ]);
}

#[tokio::test]
async fn a_miss_says_what_was_searched_and_hostile_text_is_text() {
    let (server, visit) = visited().await;
    server.client.charge("key-1").await;
    for miss in [
        "key",
        "KEY-1",
        "ch_1",
        "%",
        "none@shop.test",
        "req_1",
        "whd_1",
        "é",
    ] {
        let page = says(&visit, miss).await;
        let called = format!("{NOTHING} <code>{miss}</code>.");
        page.must_have(&[
            &called,
            "<code>client_order_id</code> of orders",
            "href=\"/console/requests?key=",
        ]);
    }
    let hostile = "<script>alert('1')</script>\"";
    let page = says(&visit, hostile).await;
    page.must_have(&["<code>&lt;script&gt;alert('1')&lt;/script&gt;&quot;</code>"]);
    page.must_lack(&["<script>alert"]);
    // Nothing is asked for.
    for path in [
        "/console/search",
        "/console/search?q=",
        "/console/search?q=+",
    ] {
        visit
            .page(path)
            .await
            .must_lack(&[NOTHING, "role=\"alert\""]);
    }
    says(&visit, &"é".repeat(127)).await.must_have(&[NOTHING]);
    for wrong in ["x".repeat(256), "é".repeat(128), "a\0b".to_owned()] {
        let answer = search(&visit, &wrong).await;
        assert_eq!(answer.status, 400, "{wrong:?}");
        text(&answer.body).must_have(&["role=\"alert\">It has at most 255 bytes"]);
    }
}

#[tokio::test]
async fn the_field_is_on_every_page_of_a_session_and_on_none_without() {
    let (server, visit) = visited().await;
    server.client.charge("key-1").await;
    let field = "action=\"/console/search\"><input name=\"q\" type=\"search\"";
    let paths =
        "requests keys/key-1 charges events deliveries workflows in-flight playground search";
    for path in paths.split(' ').map(|path| format!("/console/{path}")) {
        visit.page(&path).await.must_have(&[field]);
    }
    visit.page("/console").await.must_have(&[field]);
    visit.page("/console/sign-in").await.must_lack(&[field]);
    let signed_out = Visit::signed_out(&server.client);
    let answer = search(&signed_out, "key-1").await;
    let sign_in = "/console/sign-in?next=%2Fconsole%2Fsearch%3Fq%3Dkey-1";
    assert_eq!(answer.header("location"), Some(sign_in));
}
