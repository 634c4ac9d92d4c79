//! Levels of inventory: setting them, and many who take from them at once.

use std::collections::BTreeMap;

use charge_once::{
    cli::api_key::DEV_ACCOUNT,
    database::PgConnection,
    domain::{
        ids::AccountId,
        inventory::{OutOfStock, allocate},
        order::Item,
    },
    store,
};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    http::requests::{FORM, JSON, error, send_raw},
    idempotency::{
        duplicates::all_at_once,
        keys::{assert_nothing_stored, client_of_account},
    },
    support::harness::{Answer, Client, PATIENCE, TestDatabase, TestServer, eventually},
};

fn level(quantity: i64) -> Value {
    json!({"quantity": quantity})
}

/// A path that names `sku`, all of it percent-encoded.
fn path_of(sku: &str) -> String {
    let encoded: String = sku.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/inventory/{encoded}")
}

async fn levels(database: &TestDatabase) -> i64 {
    database.count("SELECT count(*) FROM inventory").await
}

#[tokio::test]
async fn a_level_is_set_and_read_with_exactly_the_documented_members() {
    let server = TestServer::start().await;
    let before = server
        .database
        .count("SELECT floor(extract(epoch FROM now()))::bigint")
        .await;
    for (key, quantity) in [("new", 40), ("changed", 0), ("highest", 1_000_000_000)] {
        let set = server
            .client
            .put("/inventory/mug", key, &level(quantity))
            .await;
        assert_eq!((set.status.as_u16(), set.is_replay()), (200, false));
        assert_eq!(set.header("location"), None);
        let mut object = set.json();
        let updated = object["updated"].take().as_i64().unwrap();
        assert!((before..before + 60).contains(&updated), "{updated}");
        let expected =
            json!({"object": "inventory", "quantity": quantity, "sku": "mug", "updated": null});
        assert_eq!(object, expected);
        for path in ["/inventory/mug", "/v1/inventory/mug"] {
            let answer = server.client.get(path).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (200, set.json()));
        }
    }
    assert_eq!(levels(&server.database).await, 1);
    let key = server.client.get("/idempotency-keys/new").await.json();
    assert_eq!(
        (&key["method"], &key["path"], &key["resource"]),
        (&json!("PUT"), &json!("/inventory/mug"), &json!("mug"))
    );
    // It is no event that a level was set.
    assert_eq!(
        server.database.count("SELECT count(*) FROM events").await,
        0
    );
}

#[tokio::test]
async fn a_late_retry_gets_its_answer_and_undoes_nothing() {
    let server = TestServer::start().await;
    let client = &server.client;
    let five = client.put("/inventory/mug", "key-1", &level(5)).await;
    client.put("/inventory/mug", "key-2", &level(7)).await;
    let late = client.put("/inventory/mug", "key-1", &level(5)).await;
    late.assert_replays(&five);
    assert_eq!(late.json()["quantity"], 5);
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 7);
}

#[tokio::test]
async fn a_key_belongs_to_one_level_of_one_sku_in_one_encoding() {
    let server = TestServer::start().await;
    let client = &server.client;
    client.put("/inventory/mug", "key-1", &level(5)).await;
    for (path, quantity) in [("/inventory/mug", 6), ("/inventory/Mug", 5)] {
        let reused = client.put(path, "key-1", &level(quantity)).await;
        assert_eq!(error(&reused), (422, "idempotency_key_reused".into()));
        let reused = client
            .put(&format!("/v1{path}"), "key-1", &level(quantity))
            .await;
        assert_eq!(error(&reused), (400, "idempotency_key_reused".into()));
    }
    let form = (Method::PUT, "/inventory/mug", "key-1", FORM, b"quantity=5");
    let reused = client
        .send_raw(form.0, form.1, form.2, form.3, form.4)
        .await;
    assert_eq!(error(&reused), (422, "idempotency_key_reused".into()));
    assert_eq!(levels(&server.database).await, 1);
}

#[tokio::test]
async fn without_a_key_nothing_is_set() {
    let server = TestServer::start().await;
    for path in ["/inventory/mug", "/v1/inventory/mug"] {
        let request = server.client.request(Method::PUT, path).json(&level(1));
        let refused = Answer::of(request).await;
        assert_eq!(error(&refused), (400, "idempotency_key_required".into()));
    }
    assert_nothing_stored(&server.database, "no key was sent").await;
    assert_eq!(levels(&server.database).await, 0);
}

#[tokio::test]
async fn a_quantity_is_0_to_1000000000_in_both_encodings() {
    let server = TestServer::start().await;
    let (missing, invalid, unknown) = (
        "parameter_missing",
        "parameter_invalid",
        "parameter_unknown",
    );
    let cases = [
        (JSON, r#"{"quantity":0}"#, None),
        (JSON, r#"{"quantity":1000000000}"#, None),
        (JSON, "", Some((missing, "quantity"))),
        (JSON, "{}", Some((missing, "quantity"))),
        (JSON, r#"{"quantity":null}"#, Some((missing, "quantity"))),
        (JSON, r#"{"quantity":""}"#, Some((missing, "quantity"))),
        (JSON, r#"{"quantity":-1}"#, Some((invalid, "quantity"))),
        (
            JSON,
            r#"{"quantity":1000000001}"#,
            Some((invalid, "quantity")),
        ),
        (JSON, r#"{"quantity":"1"}"#, Some((invalid, "quantity"))),
        (JSON, r#"{"quantity":true}"#, Some((invalid, "quantity"))),
        (JSON, r#"{"quantity":[1]}"#, Some((invalid, "quantity"))),
        (
            JSON,
            r#"{"quantity":1,"sku":"mug"}"#,
            Some((unknown, "sku")),
        ),
        (
            JSON,
            r#"{"quantity":1,"expand":[]}"#,
            Some((unknown, "expand")),
        ),
        (FORM, "quantity=0", None),
        (FORM, "quantity=1000000000", None),
        (FORM, "", Some((missing, "quantity"))),
        (FORM, "quantity=", Some((missing, "quantity"))),
        (FORM, "quantity=-1", Some((invalid, "quantity"))),
        (FORM, "quantity=1000000001", Some((invalid, "quantity"))),
        (
            FORM,
            "quantity=99999999999999999999",
            Some((invalid, "quantity")),
        ),
        (FORM, "quantity=01", Some((invalid, "quantity"))),
        (FORM, "quantity=%2B1", Some((invalid, "quantity"))),
        (FORM, "quantity=1.0", Some((invalid, "quantity"))),
        (FORM, "quantity=1e3", Some((invalid, "quantity"))),
        (FORM, "quantity[]=1", Some((invalid, "quantity"))),
        (FORM, "quantity=1&amount=1", Some((unknown, "amount"))),
    ];
    for (number, (media_type, body, refusal)) in cases.iter().enumerate() {
        let (key, body) = (format!("key-{number}"), body.as_bytes());
        let put = || {
            server
                .client
                .send_raw(Method::PUT, "/inventory/mug", &key, media_type, body)
        };
        let answer = put().await;
        let shown = String::from_utf8_lossy(body);
        match refusal {
            None => assert_eq!(answer.status, 200, "{shown}"),
            Some((code, param)) => assert_eq!(
                answer.refusal(),
                (400, (*code).to_owned(), Some((*param).to_owned())),
                "{shown}"
            ),
        }
        // A refusal is an outcome like any other.
        put().await.assert_replays(&answer);
    }
    for body in ["{\"quantity\":1.5}", "{\"quantity\":1e3}", "{"] {
        let key = Uuid::now_v7().to_string();
        let answer = server
            .client
            .send_raw(Method::PUT, "/inventory/mug", &key, JSON, body.as_bytes())
            .await;
        assert_eq!(error(&answer), (400, "body_invalid".into()), "{body}");
    }
    let path = "/inventory/mug?quantity=3";
    let in_the_query = server.client.put(path, "query", &level(1)).await;
    assert_eq!(error(&in_the_query), (400, "parameter_unknown".into()));
}

#[tokio::test]
async fn a_sku_may_hold_any_character() {
    let server = TestServer::start().await;
    let client = &server.client;
    let longest = "\u{1f36f}".repeat(255);
    let skus = [
        "mug", "Mug", "a b", " ", "a/b", "/", "%", "100%", "%2F", "%41", "a+b", "+", "a?b", "#1",
        "a&b=c", "é", "e\u{301}", "茶碗", "\u{fffd}", "\u{202e}", "\n", "a\\b", "{sku}", ":", ";",
        "~", "'", "\"", "pay", &longest,
    ];
    for (number, sku) in skus.iter().enumerate() {
        let quantity = 100 + i64::try_from(number).unwrap();
        let set = client
            .put(&path_of(sku), &format!("key-{number}"), &level(quantity))
            .await;
        assert_eq!(set.status, 200, "{sku}: {set:?}");
        assert_eq!(set.json()["sku"], **sku);
    }
    // No two of them were taken for one.
    for (number, sku) in skus.iter().enumerate() {
        for prefix in ["", "/v1"] {
            let found = client
                .get(&format!("{prefix}{}", path_of(sku)))
                .await
                .json();
            let quantity = 100 + i64::try_from(number).unwrap();
            assert_eq!(
                (&found["sku"], &found["quantity"]),
                (&json!(sku), &json!(quantity)),
                "{sku}"
            );
        }
    }
    assert_eq!(levels(&server.database).await, skus.len() as i64);
    // Not every character has to be encoded.
    for path in ["/inventory/a+b", "/inventory/a%2bb", "/inventory/a%2Bb"] {
        assert_eq!(client.get(path).await.json()["sku"], "a+b");
    }
}

#[tokio::test]
async fn what_no_item_could_have_is_no_sku() {
    let server = TestServer::start().await;
    let client = &server.client;
    let too_long = path_of(&"é".repeat(256));
    let far_too_long = path_of(&"e".repeat(2000));
    let missing = (404, "resource_missing".to_owned(), Some("sku".to_owned()));
    let no_route = (404, "route_not_found".to_owned(), None);
    for (path, set, read) in [
        (too_long.as_str(), &missing, &missing),
        (&far_too_long, &no_route, &missing),
        ("/inventory/a%00b", &no_route, &missing),
        ("/inventory/%ff", &no_route, &missing),
        ("/inventory/a%c3", &no_route, &missing),
        ("/inventory/", &no_route, &no_route),
        ("/inventory", &no_route, &no_route),
        ("/inventory/a/b", &no_route, &no_route),
    ] {
        let key = Uuid::now_v7().to_string();
        let answer = client.put(path, &key, &level(1)).await;
        assert_eq!(&answer.refusal(), set, "PUT {path}");
        assert_eq!(&client.get(path).await.refusal(), read, "GET {path}");
    }
    let card = "4242424242424242";
    for path in [
        card,
        &format!("%2F{card}"),
        &format!("%25{card}"),
        &format!("x%20{card}"),
    ] {
        let key = Uuid::now_v7().to_string();
        let answer = client
            .put(&format!("/inventory/{path}"), &key, &level(1))
            .await;
        assert_eq!(
            error(&answer),
            (400, "card_number_forbidden".into()),
            "{path}"
        );
    }
    assert_eq!(levels(&server.database).await, 0);
    // What looks like an encoding and is none stands for itself, and is decoded once.
    let head =
        "PUT /inventory/%%300 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: k";
    let authorization = format!("Authorization: Bearer {}", crate::support::harness::API_KEY);
    let request = format!(
        "{head}\r\n{authorization}\r\nContent-Type: {FORM}\r\nContent-Length: 10\r\n\r\nquantity=1"
    );
    let reply = send_raw(client, request.as_bytes()).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert!(reply.contains(r#""sku":"%00""#), "{reply}");
}

/// Every tenth 13-digit article number has the check digit of a card number too; those of Germany
/// begin with 4, as cards do.
#[tokio::test]
async fn a_letter_before_it_keeps_an_article_number_from_being_taken_for_a_card_number() {
    let server = TestServer::start().await;
    for (sku, status) in [
        ("4006381333931", 200),
        ("4006380000094", 400),
        ("ean4006380000094", 200),
    ] {
        let path = format!("/inventory/{sku}");
        let answer = server
            .client
            .put(&path, &Uuid::now_v7().to_string(), &level(1))
            .await;
        assert_eq!(answer.status, status, "{sku}: {answer:?}");
        let items = json!([{"sku": sku, "quantity": 1, "unit_amount": 1}]);
        let order = json!({"currency": "eur", "items": items});
        let ordered = server.client.post_new("/orders", &order).await;
        assert_eq!(ordered.status == 201, status == 200, "{sku}: {ordered:?}");
    }
}

#[tokio::test]
async fn a_sku_that_was_never_set_and_another_accounts_are_the_same_404() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    server
        .client
        .put("/inventory/mug", "key-1", &level(5))
        .await;
    let theirs = other.get("/inventory/mug").await;
    let unknown = server.client.get("/v1/inventory/cup").await;
    let missing = (404, "resource_missing".to_owned(), Some("sku".to_owned()));
    assert_eq!(theirs.refusal(), missing);
    assert_eq!(theirs.body, unknown.body);
    // The same sku is another level in each account.
    other.put("/inventory/mug", "key-1", &level(9)).await;
    for (client, quantity) in [(&server.client, 5), (&other, 9)] {
        assert_eq!(
            client.get("/inventory/mug").await.json()["quantity"],
            quantity
        );
    }
    let unknown_parameter = server.client.get("/inventory/mug?expand[]=x").await;
    assert_eq!(error(&unknown_parameter), (400, "parameter_unknown".into()));
}

#[tokio::test]
async fn other_methods_are_405_and_allow_names_those_that_are_there() {
    let server = TestServer::start().await;
    for path in ["/inventory/mug", "/v1/inventory/mug"] {
        for method in [Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let answer = Answer::of(server.client.request(method.clone(), path)).await;
            assert_eq!(
                error(&answer),
                (405, "method_not_allowed".into()),
                "{method}"
            );
            assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT"));
        }
    }
    server
        .client
        .put("/inventory/mug", "key-1", &level(5))
        .await;
    let head = Answer::of(server.client.request(Method::HEAD, "/inventory/mug")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

/// The same until the answer is a definite one, as in `money_races`.
async fn put_until_definite(client: &Client, path: &str, body: &Value) -> Answer {
    let key = Uuid::now_v7().to_string();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = client.put(path, &key, body).await;
        if ![409, 503].contains(&answer.status.as_u16()) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
    }
}

#[tokio::test]
async fn fifty_levels_set_at_once_leave_one_row_with_one_of_them() {
    let server = TestServer::start().await;
    let answers = all_at_once(50, |racer| {
        let client = server.client.clone();
        let body = level(i64::try_from(racer).unwrap());
        async move { put_until_definite(&client, "/inventory/mug", &body).await }
    })
    .await;
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    let mut set: Vec<_> = answers
        .iter()
        .map(|a| a.json()["quantity"].as_i64().unwrap())
        .collect();
    set.sort_unstable();
    assert_eq!(
        set,
        (0..50).collect::<Vec<_>>(),
        "each answer is its own request's"
    );
    assert_eq!(levels(&server.database).await, 1);
    let left = server.client.get("/inventory/mug").await.json();
    let is_an_answer = |answer: &Answer| answer.json() == left;
    assert!(answers.iter().any(is_an_answer), "{left}");
}

#[tokio::test]
async fn who_sets_a_level_waits_for_who_takes_from_it_and_then_has_the_last_word() {
    let server = TestServer::start().await;
    let (client, database) = (&server.client, &server.database);
    client.put("/inventory/mug", "key-1", &level(5)).await;
    let account = dev_account(database).await;
    let mut taking = database.pool.begin().await.unwrap();
    let found = store::inventory::lock_levels(&mut taking, account, &["mug".to_owned()]).await;
    let allocation = allocate(&found.unwrap(), &items(&[("mug", 3)])).unwrap();
    store::inventory::take(&mut taking, account, &allocation)
        .await
        .unwrap();
    let setting = tokio::spawn({
        let client = client.clone();
        async move { put_until_definite(&client, "/inventory/mug", &level(40)).await }
    });
    one_waits_for_a_lock(database).await;
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 5);
    taking.commit().await.unwrap();
    assert_eq!(setting.await.unwrap().status, 200);
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 40);
}

async fn one_waits_for_a_lock(database: &TestDatabase) {
    eventually("one waits for a lock", || async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        database.count(waiting).await == 1
    })
    .await;
}

async fn dev_account(database: &TestDatabase) -> AccountId {
    let id = sqlx::query_scalar("SELECT id FROM accounts WHERE name = $1")
        .bind(DEV_ACCOUNT)
        .fetch_one(&database.pool)
        .await;
    AccountId(id.unwrap())
}

/// Lines of an order.
fn items(lines: &[(&str, i64)]) -> Vec<Item> {
    let item = |(sku, quantity): &(&str, i64)| Item {
        description: None,
        quantity: *quantity,
        sku: Some((*sku).to_owned()),
        unit_amount: 1,
    };
    lines.iter().map(item).collect()
}

/// A shop with some levels, and connections enough for everybody at once.
struct Shop {
    account: AccountId,
    database: TestDatabase,
    pool: PgPool,
}

impl Shop {
    async fn with(levels: &[(&str, i64)]) -> Self {
        let database = TestDatabase::create().await;
        let account = dev_account(&database).await;
        let options = PgPoolOptions::new().max_connections(25);
        let pool = options.connect(&database.url).await.unwrap();
        let mut connection = pool.acquire().await.unwrap();
        for (sku, quantity) in levels {
            store::inventory::set(&mut connection, account, sku, *quantity)
                .await
                .unwrap();
        }
        Self {
            account,
            database,
            pool,
        }
    }

    /// All of `orders` at once, each in a transaction of its own; how each ended.
    async fn allocate_all(&self, look: Look, orders: Vec<Vec<Item>>) -> Vec<Allocated> {
        let mut racers = JoinSet::new();
        for order in orders {
            let (pool, account) = (self.pool.clone(), self.account);
            racers.spawn(async move { allocate_one(&pool, account, look, &order).await });
        }
        racers.join_all().await
    }

    async fn levels(&self) -> BTreeMap<String, i64> {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT sku, quantity FROM inventory")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        rows.into_iter().collect()
    }
}

/// How the levels are read that an allocation is decided by.
#[derive(Clone, Copy)]
enum Look {
    /// As it should be.
    Locking,
    /// As if the lock had been forgotten.
    Glancing,
}

#[derive(Debug)]
enum Allocated {
    Whole,
    Refused(OutOfStock),
    /// The constraint that refused it, or what else went wrong.
    Broken(String),
}

async fn allocate_one(pool: &PgPool, account: AccountId, look: Look, items: &[Item]) -> Allocated {
    let broken = |error: sqlx::Error| {
        let constraint = error
            .as_database_error()
            .and_then(|error| error.constraint());
        Allocated::Broken(constraint.map_or_else(|| error.to_string(), str::to_owned))
    };
    let mut tx = pool.begin().await.unwrap();
    let skus: Vec<_> = items.iter().filter_map(|item| item.sku.clone()).collect();
    let levels = match look {
        Look::Locking => store::inventory::lock_levels(&mut tx, account, &skus).await,
        Look::Glancing => glance(&mut tx, account, &skus).await,
    };
    let levels = match levels {
        Ok(levels) => levels,
        Err(error) => return broken(error),
    };
    let allocation = match allocate(&levels, items) {
        Ok(allocation) => allocation,
        Err(refusal) => return Allocated::Refused(refusal),
    };
    if let Err(error) = store::inventory::take(&mut tx, account, &allocation).await {
        return broken(error);
    }
    tx.commit().await.map_or_else(broken, |()| Allocated::Whole)
}

async fn glance(
    tx: &mut PgConnection,
    account: AccountId,
    skus: &[String],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let mut levels = BTreeMap::new();
    for sku in skus {
        if let Some(found) = store::inventory::find(&mut *tx, account, sku).await? {
            levels.insert(found.sku, found.quantity);
        }
    }
    Ok(levels)
}

#[tokio::test]
async fn of_a_hundred_allocations_at_once_as_many_succeed_as_there_is_stock() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let ended = shop
        .allocate_all(Look::Locking, vec![items(&[("mug", 1)]); 100])
        .await;
    let whole = ended
        .iter()
        .filter(|end| matches!(end, Allocated::Whole))
        .count();
    let refused = |end: &&Allocated| matches!(end, Allocated::Refused(OutOfStock { item: 0 }));
    assert_eq!(
        (whole, ended.iter().filter(refused).count()),
        (7, 93),
        "{ended:?}"
    );
    assert_eq!(shop.levels().await["mug"], 0);
}

#[tokio::test]
async fn allocations_of_the_same_skus_in_all_orders_are_whole_or_refused() {
    let shop = Shop::with(&[("cup", 30), ("mug", 60), ("pan", 1_000)]).await;
    let orders = [
        [("mug", 2), ("cup", 1), ("pan", 3)],
        [("pan", 3), ("mug", 2), ("cup", 1)],
        [("cup", 1), ("pan", 3), ("mug", 2)],
        [("mug", 2), ("pan", 3), ("cup", 1)],
    ];
    let orders = (0..60)
        .map(|number| items(&orders[number % orders.len()]))
        .collect();
    let ended = shop.allocate_all(Look::Locking, orders).await;
    let whole = ended
        .iter()
        .filter(|end| matches!(end, Allocated::Whole))
        .count();
    let broken = |end: &Allocated| matches!(end, Allocated::Broken(_));
    assert!(!ended.iter().any(broken), "{ended:?}");
    assert_eq!(whole, 30);
    let left = [("cup", 0), ("mug", 0), ("pan", 910)];
    let left = left.map(|(sku, quantity)| (sku.to_owned(), quantity));
    assert_eq!(shop.levels().await, BTreeMap::from(left));
}

/// Two allocations that lock the same levels in different orders wait for each other for ever.
#[tokio::test]
async fn levels_are_locked_in_the_order_of_their_skus_whatever_order_they_lie_in() {
    let shop = Shop::with(&[("pan", 1), ("cup", 1)]).await;
    let (cup, pan) = ("cup".to_owned(), "pan".to_owned());
    let mut one = shop.pool.begin().await.unwrap();
    store::inventory::lock_levels(&mut one, shop.account, std::slice::from_ref(&cup))
        .await
        .unwrap();
    let mut two = shop.pool.begin().await.unwrap();
    let account = shop.account;
    let both = tokio::spawn(async move {
        // Rows as they lie in the table: no index sorts them by accident.
        sqlx::raw_sql("SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
            .execute(&mut *two)
            .await
            .unwrap();
        store::inventory::lock_levels(&mut two, account, &[pan, cup])
            .await
            .map(|found| found.len())
    });
    one_waits_for_a_lock(&shop.database).await;
    let mut three = shop.pool.begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL lock_timeout = '1s'")
        .execute(&mut *three)
        .await
        .unwrap();
    let free = store::inventory::lock_levels(&mut three, account, &["pan".to_owned()]).await;
    assert_eq!(free.expect("who waits for the cup has no pan yet").len(), 1);
    three.rollback().await.unwrap();
    one.rollback().await.unwrap();
    assert_eq!(both.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn without_the_lock_the_constraint_alone_keeps_a_level_from_being_sold_twice() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let ended = shop
        .allocate_all(Look::Glancing, vec![items(&[("mug", 1)]); 100])
        .await;
    let whole = ended
        .iter()
        .filter(|end| matches!(end, Allocated::Whole))
        .count();
    assert_eq!(whole, 7, "{ended:?}");
    for end in &ended {
        match end {
            Allocated::Whole | Allocated::Refused(OutOfStock { item: 0 }) => {}
            Allocated::Broken(cause) => assert_eq!(cause, "inventory_is_never_negative"),
            Allocated::Refused(_) => panic!("{end:?}"),
        }
    }
    assert_eq!(shop.levels().await["mug"], 0);
}

#[tokio::test]
async fn an_allocation_of_what_has_no_level_takes_nothing() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let mut tx = shop.pool.begin().await.unwrap();
    for allocation in [
        vec![("cup".to_owned(), 1), ("mug".to_owned(), 1)],
        vec![("mug".to_owned(), 1), ("mug".to_owned(), 2)],
    ] {
        let taken = store::inventory::take(&mut tx, shop.account, &allocation).await;
        assert!(matches!(taken, Err(sqlx::Error::RowNotFound)), "{taken:?}");
    }
    tx.rollback().await.unwrap();
    let mut tx = shop.pool.begin().await.unwrap();
    store::inventory::take(&mut tx, shop.account, &[])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(shop.levels().await["mug"], 7);
    assert_eq!(levels(&shop.database).await, 1);
}

#[tokio::test]
async fn what_was_changed_last_has_the_latest_time() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let updated_at = "SELECT (extract(epoch FROM updated_at) * 1000000)::bigint FROM inventory";
    // The transaction that began first changes the level last.
    let mut early = shop.pool.begin().await.unwrap();
    store::inventory::find(&mut early, shop.account, "mug")
        .await
        .unwrap();
    let taken = shop
        .allocate_all(Look::Locking, vec![items(&[("mug", 1)])])
        .await;
    assert!(matches!(taken[..], [Allocated::Whole]), "{taken:?}");
    let before = shop.database.count(updated_at).await;
    store::inventory::set(&mut early, shop.account, "mug", 7)
        .await
        .unwrap();
    early.commit().await.unwrap();
    let after = shop.database.count(updated_at).await;
    assert!(before < after, "{before} {after}");
}
