//! The list of levels of inventory: its order, its pages, wrong questions, and what it reads.

use charge_once::{domain::ids::AccountId, store::inventory::list};
use charge_once_strict_params::pages::{Cursor, NamePage};
use sqlx::Connection;
use url::form_urlencoded;

use crate::support::{prelude::*, records::rows_read};

/// Sorts as its bytes do, in the database and here: upper case first, and "a b" before "a/b".
const SKUS: [&str; 9] = [
    "\u{1f36f}",
    "Mug",
    "a b",
    "a/b",
    "mug",
    "a&b=c+d",
    "é",
    "茶碗",
    "\u{fffd}",
];

async fn set_all(client: &Client, skus: &[&str]) {
    for sku in skus {
        let encoded: String = sku.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let key = Uuid::now_v7().to_string();
        let path = format!("/inventory/{encoded}");
        let set = client.put(&path, &key, &json!({"quantity": 7})).await;
        assert_eq!(set.status, 200, "{sku}");
    }
}

async fn page(client: &Client, parameters: &[(&str, &str)]) -> (Vec<String>, bool) {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    let answer = client.get(&format!("/inventory?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.json());
    let list = answer.json();
    let levels = list["data"].as_array().unwrap().iter();
    let skus = levels.map(|level| level["sku"].as_str().unwrap().to_owned());
    (skus.collect(), list["has_more"].as_bool().unwrap())
}

#[tokio::test]
async fn levels_are_listed_in_the_order_of_their_skus_as_they_are_retrieved() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let empty = json!({"object": "list", "data": [], "has_more": false, "url": "/v1/inventory"});
    assert_eq!(client.get("/v1/inventory").await.json(), empty);
    set_all(&client, &SKUS).await;
    let mut sorted = SKUS.map(str::to_owned).to_vec();
    sorted.sort();
    assert_eq!(page(&client, &[]).await, (sorted, false));
    let listed = client.get("/inventory?limit=1").await.json();
    listed.assert_shows(json!({"object": "list", "url": "/inventory"}));
    assert_eq!(listed["data"][0], client.get("/inventory/Mug").await.json());
    // Setting a level again moves it nowhere.
    set_all(&client, &["mug"]).await;
    assert_eq!(page(&client, &[]).await.0[0], "Mug");
    let head = Answer::of(client.request(Method::HEAD, "/inventory")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn pages_lead_through_all_levels_in_both_directions() {
    let (_server, client) = TestServer::with_client(&[]).await;
    set_all(&client, &SKUS).await;
    let mut sorted = SKUS.map(str::to_owned).to_vec();
    sorted.sort();
    for limit in 1..=SKUS.len() {
        let limit_text = limit.to_string();
        let limit_parameter = ("limit", limit_text.as_str());
        let (mut forwards, mut has_more) = page(&client, &[limit_parameter]).await;
        while has_more {
            let last = forwards.last().unwrap().clone();
            let (next, more) = page(&client, &[limit_parameter, ("starting_after", &last)]).await;
            assert!(!next.is_empty(), "more was promised after {last}");
            forwards.extend(next);
            has_more = more;
        }
        assert_eq!(forwards, sorted, "{limit}");
        let mut backwards = vec![sorted.last().unwrap().clone()];
        loop {
            let first = backwards[0].clone();
            let (mut before, more) =
                page(&client, &[limit_parameter, ("ending_before", &first)]).await;
            before.extend(backwards);
            backwards = before;
            if !more {
                break;
            }
        }
        assert_eq!(backwards, sorted, "{limit}");
    }
    let (last, first) = (sorted.last().unwrap(), &sorted[0]);
    for (name, sku) in [("starting_after", last), ("ending_before", first)] {
        let beyond = page(&client, &[(name, sku)]).await;
        assert_eq!(beyond, (vec![], false), "{name}");
    }
}

#[tokio::test]
async fn an_account_lists_its_own_levels_behind_any_sku() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    set_all(&server.client, &["mug", "cup"]).await;
    set_all(&other, &["pan", "mug"]).await;
    assert_eq!(page(&server.client, &[]).await.0, ["cup", "mug"]);
    assert_eq!(page(&other, &[]).await.0, ["mug", "pan"]);
    for (sku, behind) in [
        ("pan", vec![]),
        ("d", vec!["mug"]),
        ("a", vec!["cup", "mug"]),
    ] {
        let found = page(&server.client, &[("starting_after", sku)]).await;
        assert_eq!(found.0, behind, "{sku}");
    }
    let bare = Answer::of(server.client.bare(Method::GET, "/inventory")).await;
    assert_eq!(error(&bare), (401, "api_key_missing".into()));
}

#[tokio::test]
async fn wrong_questions_about_the_inventory_are_refused_by_name() {
    let (_server, client) = TestServer::with_client(&[]).await;
    set_all(&client, &["mug"]).await;
    let long = "e".repeat(256);
    let wrong = format!(
        "limit=0                               parameter_invalid limit
         limit=101                             parameter_invalid limit
         limit=1.0                             parameter_invalid limit
         limit=1&limit=1                       parameter_invalid limit
         starting_after=mug&ending_before=mug  parameter_invalid ending_before
         ending_before={long}                  parameter_invalid ending_before
         starting_after[]=mug                  parameter_invalid starting_after
         created[gt]=1                         parameter_unknown created
         sku=mug                               parameter_unknown sku
         startng_after=mug                     parameter_unknown startng_after"
    );
    assert_refuses_queries(&client, "/inventory", &wrong).await;
    let card = client
        .get("/inventory?starting_after=4242424242424242")
        .await;
    assert_eq!(error(&card), (400, "card_number_forbidden".into()));
}

#[tokio::test]
async fn a_page_reads_its_own_levels_however_many_there_are() {
    let server = TestServer::start().await;
    let _other = client_of_account(&server, "other").await;
    let database = server.stop().await;
    // With statistics, which autovacuum gathers elsewhere.
    let sql = "INSERT INTO inventory (account_id, sku, quantity, updated_at)
         SELECT id, 'sku-' || to_char(number, 'FM00000'), 1, now()
           FROM accounts, generate_series(1, 5000) AS number;
         ANALYZE inventory";
    database.execute(sql).await;
    let account: Uuid = sqlx::query_scalar("SELECT id FROM accounts ORDER BY id LIMIT 1")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    let at = |number: usize| format!("sku-{number:05}");
    let expected = |from: usize| (from..from + 10).map(at).collect::<Vec<_>>();
    for (cursor, first) in [
        (Cursor::Start, 1),
        (Cursor::StartingAfter(at(4000)), 4001),
        (Cursor::EndingBefore(at(1001)), 991),
    ] {
        let page = NamePage { limit: 10, cursor };
        let mut connection = database.pool.acquire().await.unwrap();
        // After some executions PostgreSQL may plan without looking at the parameters.
        for _ in 0..10 {
            let mut tx = connection.begin().await.unwrap();
            let before = rows_read(&mut tx, "inventory").await;
            let listed = list(&mut tx, AccountId(account), &page).await.unwrap();
            // The page, and the row that tells whether there are more.
            let read = rows_read(&mut tx, "inventory").await - before;
            assert!(read <= 11, "{read} rows: {page:?}");
            let skus: Vec<_> = listed.data.into_iter().map(|level| level.sku).collect();
            assert_eq!((skus, listed.has_more), (expected(first), true));
            tx.rollback().await.unwrap();
        }
    }
}
