//! Levels of inventory that many requests set and take from at once.

use charge_once::{
    cli::api_key::DEV_ACCOUNT,
    database::PgConnection,
    domain::{
        ids::AccountId,
        inventory::{Inventory, OutOfStock, allocate},
        order::Item,
    },
    store,
};
use chrono::Utc;
use sqlx::postgres::PgPoolOptions;

use crate::support::{
    harness::{LOCK_WAITS, violated},
    prelude::*,
    racers::definite,
};

const LEVELS: &str = "SELECT count(*) FROM inventory";

/// Sets a level, and retries with one key until the reply is definite.
async fn put_until_definite(client: &Client, path: &str, body: &Value) -> Answer {
    let key = Uuid::now_v7().to_string();
    definite(|| client.put(path, &key, body)).await
}

#[tokio::test]
async fn fifty_levels_set_at_once_leave_one_row_with_one_of_them() {
    let server = TestServer::start().await;
    let answers = all_at_once(50, |racer| {
        let client = server.client.clone();
        let body = json!({"quantity": racer});
        async move { put_until_definite(&client, "/inventory/mug", &body).await }
    })
    .await;
    let mut set = BTreeSet::new();
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answers:?}");
        set.insert(answer.json()["quantity"].as_i64().unwrap());
    }
    // Each answer is its own request's.
    assert!(set.into_iter().eq(0..50), "{answers:?}");
    assert_eq!(server.database.count(LEVELS).await, 1);
    let left = server.client.get("/inventory/mug").await.json();
    let is_an_answer = |answer: &Answer| answer.json() == left;
    assert!(answers.iter().any(is_an_answer), "{left}");
}

#[tokio::test]
async fn who_sets_a_level_waits_for_who_takes_from_it_and_then_has_the_last_word() {
    let server = TestServer::start().await;
    let (client, database) = (&server.client, &server.database);
    stock(client, "mug", 5).await;
    let account = dev_account(database).await;
    let mut taking = database.pool.begin().await.unwrap();
    let found = lock(&mut taking, account, &["mug".to_owned()])
        .await
        .unwrap();
    take(&mut taking, account, &found, &[("mug".to_owned(), 3)])
        .await
        .unwrap();
    let setting = tokio::spawn({
        let client = client.clone();
        async move { put_until_definite(&client, "/inventory/mug", &json!({"quantity": 40})).await }
    });
    database.comes_to(LOCK_WAITS, 1).await;
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 5);
    taking.commit().await.unwrap();
    assert_eq!(setting.await.unwrap().status, 200);
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 40);
}

/// Levels by their skus.
type Levels = BTreeMap<String, Inventory>;

async fn lock(
    tx: &mut PgConnection,
    account: AccountId,
    skus: &[String],
) -> Result<Levels, sqlx::Error> {
    let mut skus: Vec<_> = skus.iter().map(|sku| (account, sku.clone())).collect();
    skus.sort();
    let locked = store::inventory::lock_all(tx, &skus).await?.into_iter();
    Ok(locked
        .map(|(_, level)| (level.sku.clone(), level))
        .collect())
}

/// Writes what is left of levels, as a verb does.
async fn take(
    tx: &mut PgConnection,
    account: AccountId,
    levels: &Levels,
    allocation: &[(String, i64)],
) -> Result<(), sqlx::Error> {
    let now = sqlx::query_scalar("SELECT now()")
        .fetch_one(&mut *tx)
        .await?;
    let left = allocation.iter().map(|(sku, quantity)| {
        let level = levels[sku].clone();
        let (left, version) = (level.quantity - quantity, level.version);
        let mut level = level.with(left, now);
        level.version += 1;
        (level, version)
    });
    let left: Vec<_> = left.collect();
    let changed: Vec<_> = left
        .iter()
        .map(|(level, from)| (account, level, *from))
        .collect();
    store::inventory::update_all(tx, &changed).await
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

/// A shop with some levels, and enough connections for all racers at once.
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
            let level = Inventory {
                sku: (*sku).to_owned(),
                quantity: *quantity,
                updated_at: Utc::now(),
                version: 1,
            };
            store::inventory::insert_all(&mut connection, &[(account, &level)])
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

fn whole(ended: &[Allocated]) -> usize {
    let whole = |end: &&Allocated| matches!(end, Allocated::Whole);
    ended.iter().filter(whole).count()
}

async fn allocate_one(pool: &PgPool, account: AccountId, look: Look, items: &[Item]) -> Allocated {
    let broken = |error: sqlx::Error| {
        let rule = violated(&error).map(str::to_owned);
        Allocated::Broken(rule.unwrap_or_else(|| error.to_string()))
    };
    let mut tx = pool.begin().await.unwrap();
    let skus: Vec<_> = items.iter().filter_map(|item| item.sku.clone()).collect();
    let levels = match look {
        Look::Locking => lock(&mut tx, account, &skus).await,
        Look::Glancing => glance(&mut tx, account, &skus).await,
    };
    let levels = match levels {
        Ok(levels) => levels,
        Err(error) => return broken(error),
    };
    let left = |sku: &str| levels.get(sku).map_or(0, |level| level.quantity);
    let allocation = match allocate(left, items) {
        Ok(allocation) => allocation,
        Err(refusal) => return Allocated::Refused(refusal),
    };
    if let Err(error) = take(&mut tx, account, &levels, &allocation).await {
        return broken(error);
    }
    tx.commit().await.map_or_else(broken, |()| Allocated::Whole)
}

async fn glance(
    tx: &mut PgConnection,
    account: AccountId,
    skus: &[String],
) -> Result<Levels, sqlx::Error> {
    let mut levels = Levels::new();
    for sku in skus {
        if let Some(found) = store::inventory::find(&mut *tx, account, sku).await? {
            levels.insert(found.sku.clone(), found);
        }
    }
    Ok(levels)
}

#[tokio::test]
async fn of_a_hundred_allocations_at_once_as_many_succeed_as_there_is_stock() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let orders = vec![items(&[("mug", 1)]); 100];
    let ended = shop.allocate_all(Look::Locking, orders).await;
    let whole = whole(&ended);
    let refused = |end: &&Allocated| matches!(end, Allocated::Refused(OutOfStock { item: 0 }));
    let refused = ended.iter().filter(refused).count();
    assert_eq!((whole, refused), (7, 93), "{ended:?}");
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
    let whole = whole(&ended);
    let broken = |end: &Allocated| matches!(end, Allocated::Broken(_));
    assert!(!ended.iter().any(broken), "{ended:?}");
    assert_eq!(whole, 30);
    let left = [("cup", 0), ("mug", 0), ("pan", 910)];
    let left = left.map(|(sku, quantity)| (sku.to_owned(), quantity));
    assert_eq!(shop.levels().await, BTreeMap::from(left));
}

/// Two allocations that lock the same levels in different orders wait for each other forever.
#[tokio::test]
async fn levels_are_locked_in_the_order_of_their_skus_whatever_order_they_lie_in() {
    let shop = Shop::with(&[("pan", 1), ("cup", 1)]).await;
    let (cup, pan) = ("cup".to_owned(), "pan".to_owned());
    let mut one = shop.pool.begin().await.unwrap();
    lock(&mut one, shop.account, std::slice::from_ref(&cup))
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
        lock(&mut two, account, &[pan, cup])
            .await
            .map(|found| found.len())
    });
    shop.database.comes_to(LOCK_WAITS, 1).await;
    let mut three = shop.pool.begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL lock_timeout = '1s'")
        .execute(&mut *three)
        .await
        .unwrap();
    let free = lock(&mut three, account, &["pan".to_owned()]).await;
    assert_eq!(free.expect("who waits for the cup has no pan yet").len(), 1);
    three.rollback().await.unwrap();
    one.rollback().await.unwrap();
    assert_eq!(both.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn without_the_lock_the_version_alone_keeps_a_level_from_being_sold_twice() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let orders = vec![items(&[("mug", 1)]); 100];
    let ended = shop.allocate_all(Look::Glancing, orders).await;
    let whole = whole(&ended);
    for end in &ended {
        match end {
            Allocated::Whole | Allocated::Refused(OutOfStock { item: 0 }) => {}
            Allocated::Broken(cause) => assert!(cause.starts_with("no rows returned"), "{cause}"),
            Allocated::Refused(_) => panic!("{end:?}"),
        }
    }
    let whole = i64::try_from(whole).unwrap();
    assert!(whole > 0);
    assert_eq!(shop.levels().await["mug"], 7 - whole);
}

#[tokio::test]
async fn an_allocation_of_what_has_no_level_takes_nothing() {
    let shop = Shop::with(&[("mug", 7)]).await;
    let mut tx = shop.pool.begin().await.unwrap();
    let mut levels = lock(&mut tx, shop.account, &["mug".to_owned()])
        .await
        .unwrap();
    let cup = Inventory {
        sku: "cup".to_owned(),
        ..levels["mug"].clone()
    };
    levels.insert(cup.sku.clone(), cup);
    let allocation = [("cup".to_owned(), 1), ("mug".to_owned(), 1)];
    let taken = take(&mut tx, shop.account, &levels, &allocation).await;
    assert!(matches!(taken, Err(sqlx::Error::RowNotFound)), "{taken:?}");
    tx.rollback().await.unwrap();
    assert_eq!(shop.levels().await["mug"], 7);
    assert_eq!(shop.database.count(LEVELS).await, 1);
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
    let order = vec![items(&[("mug", 1)])];
    let taken = shop.allocate_all(Look::Locking, order).await;
    assert!(matches!(taken[..], [Allocated::Whole]), "{taken:?}");
    let before = shop.database.count(updated_at).await;
    let levels = lock(&mut early, shop.account, &["mug".to_owned()])
        .await
        .unwrap();
    take(&mut early, shop.account, &levels, &[("mug".to_owned(), -1)])
        .await
        .unwrap();
    early.commit().await.unwrap();
    let after = shop.database.count(updated_at).await;
    assert!(before < after, "{before} {after}");
}
