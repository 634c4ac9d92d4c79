//! Lists: order, pages in both directions, filters, and wrong questions.

use charge_once::domain::ids::EventId;

use crate::support::{
    prelude::*,
    resources::{attached, customer},
};

/// Creates `count` charges; their ids, oldest first.
async fn charges(client: &Client, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let mut body = charge();
        body["customer"] = if number % 2 == 0 { "even" } else { "odd" }.into();
        let key = format!("key-{number}");
        ids.push(client.post("/charges", &key, &body).await.id());
    }
    ids
}

async fn charges_at(client: &Client, query: &str) -> (Vec<String>, bool) {
    page(client, &format!("/charges{query}")).await
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let server = TestServer::start().await;
    for path in ["/charges", "/orders", "/v1/charges", "/v1/orders"] {
        let list = server.client.get(path).await.json();
        let expected = json!({"object": "list", "data": [], "has_more": false, "url": path});
        assert_eq!(list, expected);
    }
}

#[tokio::test]
async fn pages_lead_through_all_objects_in_both_directions() {
    let server = TestServer::start().await;
    let mut newest_first = charges(&server.client, 25).await;
    newest_first.reverse();
    let id = |index: usize| &newest_first[index];
    let after = |index: usize| format!("?limit=10&starting_after={}", id(index));
    // The items just before the cursor, still newest first.
    let before = |index: usize| format!("?limit=10&ending_before={}", id(index));
    for (query, expected, has_more) in [
        (String::new(), 0..10, true),
        ("?limit=24".to_owned(), 0..24, true),
        ("?limit=25".to_owned(), 0..25, false),
        ("?limit=100".to_owned(), 0..25, false),
        ("?limit=1".to_owned(), 0..1, true),
        (after(9), 10..20, true),
        (after(14), 15..25, false),
        (after(19), 20..25, false),
        (after(24), 0..0, false),
        (before(24), 14..24, true),
        (before(14), 4..14, true),
        (before(10), 0..10, false),
        (before(4), 0..4, false),
        (before(0), 0..0, false),
    ] {
        let expected = (newest_first[expected].to_vec(), has_more);
        let found = charges_at(&server.client, &query).await;
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn the_customer_filter_works_together_with_pages() {
    let server = TestServer::start().await;
    let mut all = charges(&server.client, 9).await;
    all.reverse();
    let even: Vec<_> = all.iter().step_by(2).cloned().collect();
    for (more, expected, has_more) in [
        (String::new(), 0..5, false),
        ("&limit=2".to_owned(), 0..2, true),
        (format!("&limit=2&starting_after={}", even[1]), 2..4, true),
        (format!("&limit=9&ending_before={}", even[2]), 0..2, false),
    ] {
        let query = format!("?customer=even{more}");
        let expected = (even[expected].to_vec(), has_more);
        let found = charges_at(&server.client, &query).await;
        assert_eq!(found, expected, "{query}");
    }
    let of_none = charges_at(&server.client, "?customer=nobody").await;
    assert_eq!(of_none, (vec![], false));
}

/// Gives the charges creation times around the second 1000, a fraction inside a second included,
/// and ids of these times.
async fn date_charges(database: &TestDatabase, oldest_first: &[f64]) {
    database.is_left_broken("the ids of charges change, and not their events");
    let dated = sqlx::query(
        "UPDATE charges
            SET created_at = to_timestamp(dated.at),
                id = (lpad(to_hex(floor(dated.at * 1000)::bigint), 12, '0')
                      || right(replace(charges.id::text, '-', ''), 20))::uuid
           FROM (SELECT id, row_number() OVER (ORDER BY id) FROM charges) AS numbered,
                unnest($1::float8[]) WITH ORDINALITY AS dated (at, number)
          WHERE charges.id = numbered.id AND numbered.row_number = dated.number",
    )
    .bind(oldest_first)
    .execute(&database.pool)
    .await
    .unwrap();
    assert_eq!(dated.rows_affected(), oldest_first.len() as u64);
}

#[tokio::test]
async fn created_filters_go_by_the_second_that_is_shown() {
    let server = TestServer::start().await;
    let times = [999.0, 999.999_999, 1_000.0, 1_000.5, 1_000.999_999, 1_001.0];
    charges(&server.client, times.len()).await;
    date_charges(&server.database, &times).await;
    let (mut ids, _) = charges_at(&server.client, "").await;
    ids.reverse();
    let cases = [
        ("created[gt]=1000", 5..6),
        ("created[gte]=1000", 2..6),
        ("created=1000", 2..5),
        ("created=1001", 5..6),
        ("created[lt]=1000", 0..2),
        ("created[lte]=1000", 0..5),
        ("created[gte]=1000&created[lte]=1000", 2..5),
        ("created%5Bgt%5D=999&created%5Blt%5D=1001", 2..5),
        ("created[gt]=999&created[gte]=1001", 5..6),
        ("created[gt]=1000&created[lt]=1001", 0..0),
        ("created[gte]=1001&created[lt]=1000", 0..0),
        ("created[gte]=0&created[lte]=253402300799", 0..6),
    ];
    for (query, expected) in cases {
        let mut expected = ids[expected].to_vec();
        expected.reverse();
        let found = charges_at(&server.client, &format!("?{query}")).await;
        assert_eq!(found, (expected, false), "{query}");
    }
}

#[tokio::test]
async fn an_accounts_list_holds_its_own_objects_only() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    let mine = charges(&server.client, 2).await;
    let theirs = charges(&other, 1).await;
    let newest_first: Vec<_> = mine.into_iter().rev().collect();
    assert_eq!(charges_at(&server.client, "").await.0, newest_first);
    assert_eq!(charges_at(&other, "").await.0, theirs);
}

#[tokio::test]
async fn orders_are_listed_and_filtered_by_their_own_references() {
    let server = TestServer::start().await;
    let mut orders = Vec::new();
    for number in 0..3 {
        let body = json!({
            "currency": "eur", "items": [{"quantity": 1, "unit_amount": 1}],
            "client_order_id": format!("order-{number}"), "customer": format!("cus_{}", number % 2),
        });
        orders.push(server.client.post_new("/orders", &body).await.id());
    }
    for (query, expected) in [
        (String::new(), vec![2, 1, 0]),
        ("?customer=cus_0".to_owned(), vec![2, 0]),
        ("?client_order_id=order-1".to_owned(), vec![1]),
        (format!("?starting_after={}", orders[1]), vec![0]),
        (format!("?ending_before={}", orders[1]), vec![2]),
    ] {
        let path = format!("/v1/orders{query}");
        let list = server.client.get(&path).await.json();
        assert_eq!(list["url"], "/v1/orders");
        let expected = expected.into_iter().map(|index: usize| &orders[index]);
        assert!(expected.eq(&ids(&list)), "{query}: {list}");
    }
}

#[tokio::test]
async fn wrong_questions_are_refused_with_the_parameter() {
    let server = TestServer::start().await;
    let mine = charges(&server.client, 1).await.remove(0);
    let (order, long) = (mine.replace("ch_", "or_"), "c".repeat(256));
    let wrong = format!(
        "limit=0                                      parameter_invalid limit
         limit=101                                    parameter_invalid limit
         limit=abc                                    parameter_invalid limit
         limit=-1                                     parameter_invalid limit
         limit=1&limit=2                              parameter_invalid limit
         starting_after=ch_1                          parameter_invalid starting_after
         ending_before={order}                        parameter_invalid ending_before
         starting_after={mine}&ending_before={mine}   parameter_invalid ending_before
         created=x                                    parameter_invalid created
         created[gt]=1&created=1                      parameter_invalid created
         created[gt]=yesterday                        parameter_invalid created[gt]
         created[gt]=253402300800                     parameter_invalid created[gt]
         created[eq]=1                                parameter_unknown created[eq]
         customer={long}                              parameter_invalid customer
         order=ch_1                                   parameter_invalid order
         client_order_id=1                            parameter_unknown client_order_id
         page=2                                       parameter_unknown page"
    );
    assert_refuses_queries(&server.client, "/charges", &wrong).await;
}

/// The ids on all pages of a list, each page behind the last id of the page before, whatever became
/// of that one: `visit` is called with each.
async fn walk(client: &Client, list: &str, visit: impl AsyncFn(&str)) -> Vec<String> {
    let (mut seen, mut cursor): (Vec<String>, _) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{list}limit=2{cursor}")).await;
        assert_eq!(page.status, 200, "{list}: {}", page.json());
        let page = page.json();
        for one in page["data"].as_array().unwrap() {
            let id = one["id"].as_str().unwrap().to_owned();
            visit(&id).await;
            seen.push(id);
        }
        if page["has_more"] == json!(false) {
            return seen;
        }
        cursor = format!("&starting_after={}", seen[seen.len() - 1]);
    }
}

#[tokio::test]
async fn a_list_goes_on_behind_an_object_that_is_gone() {
    let (server, client) = TestServer::with_client(&[]).await;
    let customer = customer(&client).await;
    let of_customer = format!("/payment_methods?customer={customer}&");
    for _ in 0..5 {
        let endpoint = json!({"url": "https://example.com/", "enabled_events": ["*"]});
        client.post_new("/webhook_endpoints", &endpoint).await;
        attached(&client, "pm_card_visa", &customer).await;
    }
    let delete = async |path: &str| {
        let deleted = Answer::of(client.request(Method::DELETE, path)).await;
        assert_eq!(deleted.status, 200, "{path}");
    };
    let endpoints = walk(&client, "/webhook_endpoints?", async |id| {
        delete(&format!("/webhook_endpoints/{id}")).await;
    });
    assert_eq!(endpoints.await.len(), 5);
    let methods = walk(&client, &of_customer, async |id| {
        let detach = format!("/payment_methods/{id}/detach");
        assert_eq!(client.post_new(&detach, &json!({})).await.status, 200);
    });
    assert_eq!(methods.await.len(), 5);
    // Retention removes whole rows. The first walk makes no events, and the second none either.
    let events = walk(&client, "/events?", async |_| {}).await;
    server.database.is_left_broken("events are removed early");
    let remaining = walk(&client, "/events?", async |id| {
        for removal in [
            "DELETE FROM webhook_deliveries WHERE event_id = $1",
            "DELETE FROM events WHERE id = $1",
        ] {
            let removed = sqlx::query(removal).bind(EventId::parse(id).unwrap().0);
            removed.execute(&server.database.pool).await.unwrap();
        }
    });
    assert_eq!(remaining.await, events);
    let list = client.get("/events").await.json();
    assert_eq!(list["data"], json!([]));
}

#[tokio::test]
async fn a_cursor_is_a_place_and_says_nothing_about_other_accounts() {
    let server = TestServer::start().await;
    let (client, other) = (&server.client, client_of_account(&server, "other").await);
    let first = client.charge("key-1").await.id();
    let foreign = other.charge("key-1").await.id();
    let last = client.charge("key-2").await.id();
    // Of an object that never was, made of the same moment.
    let nobodys = format!("{}{}", &foreign[..foreign.len() - 4], "0000");
    for id in [foreign, nobodys] {
        let behind = charges_at(client, &format!("?starting_after={id}")).await;
        let before = charges_at(client, &format!("?ending_before={id}")).await;
        assert_eq!(behind, (vec![first.clone()], false));
        assert_eq!(before, (vec![last.clone()], false));
    }
}
