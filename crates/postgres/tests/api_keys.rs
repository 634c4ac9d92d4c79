//! Keys from their creation to their end. Each test has a database of its own, which
//! `#[sqlx::test]` creates on the server that `DATABASE_URL` names.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use charge_once_postgres::api_keys::{
    ApiKeys, KeyShape, Refusal, close_account, create_key, ensure_account, find_account,
    insert_key, insert_test_account, list_keys, migrate, revoke_key, take_up_dev_key,
};
use sqlx::{PgConnection, PgPool, pool::PoolConnection};
use tokio::time::{Duration, Instant};
use uuid::Uuid;

const SHAPE: KeyShape = KeyShape::with_prefix("sk_test_");

async fn migrated(pool: &PgPool) -> PoolConnection<sqlx::Postgres> {
    let mut connection = pool.acquire().await.unwrap();
    migrate(&mut connection).await.unwrap();
    connection
}

async fn is_valid(connection: &mut PgConnection, key: &str) -> bool {
    find_account(connection, key).await.unwrap().is_some()
}

#[sqlx::test(migrations = false)]
async fn a_key_speaks_for_its_account_until_it_is_revoked(pool: PgPool) {
    let mut connection = migrated(&pool).await;
    let key = create_key(&mut connection, "shop", SHAPE).await.unwrap();
    let account = ensure_account(&mut connection, "shop").await.unwrap();
    let keys = ApiKeys::of(pool.clone(), SHAPE, true);
    let until = Instant::now() + Duration::from_secs(60);
    let found = keys.account_of(&key, None, until).await;
    assert_eq!(found.unwrap().id, account);
    assert!(!insert_key(&mut connection, account, &key).await.unwrap());

    assert!(revoke_key(&mut connection, &key).await.unwrap());
    assert!(!revoke_key(&mut connection, &key).await.unwrap());
    let fresh = ApiKeys::of(pool.clone(), SHAPE, true);
    let refused = fresh.account_of(&key, None, until).await;
    assert!(matches!(refused, Err(Refusal::Invalid)), "{refused:?}");

    let listed = list_keys(&mut connection).await.unwrap();
    assert_eq!(listed.len(), 1);
    let listed = listed.first().unwrap();
    assert!(key.ends_with(&listed.last4) && listed.last4.len() == 4);
    let line = listed.to_string();
    assert!(
        line.contains("  shop  made 20") && line.contains("  revoked 20"),
        "{line}"
    );
    let json = serde_json::to_value(listed).unwrap();
    assert_eq!(json.get("account").unwrap(), "shop");
}

#[sqlx::test(migrations = false)]
async fn the_next_value_of_a_variable_revokes_the_one_before_and_never_what_a_person_made(
    pool: PgPool,
) {
    let mut connection = migrated(&pool).await;
    let own = create_key(&mut connection, "dev", SHAPE).await.unwrap();
    let [one, other] = ["sk_test_first_value", "sk_test_other_value"];
    let mut take_up = async |key| {
        let taken_up = take_up_dev_key(&mut connection, "dev", key, one).await;
        taken_up.unwrap()
    };
    assert_eq!(take_up(one).await, Some(0));
    assert_eq!(take_up(other).await, Some(1));
    assert_eq!(take_up(one).await, Some(1));
    assert!(is_valid(&mut connection, &own).await);
    assert!(is_valid(&mut connection, one).await);
    assert!(!is_valid(&mut connection, other).await);
    // What a person revokes stays revoked.
    assert!(revoke_key(&mut connection, other).await.unwrap());
    let refused = take_up_dev_key(&mut connection, "dev", other, one).await;
    assert_eq!(refused.unwrap(), None);
    assert!(is_valid(&mut connection, one).await);
}

#[sqlx::test(migrations = false)]
async fn the_keys_of_a_test_account_end_with_it(pool: PgPool) {
    let mut connection = migrated(&pool).await;
    let id = Uuid::now_v7();
    let inserted = insert_test_account(&mut connection, id, "test").await;
    inserted.unwrap();
    let key = SHAPE.new_key();
    assert!(insert_key(&mut connection, id, &key).await.unwrap());
    let found = find_account(&mut connection, &key).await.unwrap();
    assert!(found.unwrap().is_test);
    let ends = sqlx::query("UPDATE accounts SET test_until = now()");
    ends.execute(&pool).await.unwrap();
    assert!(!is_valid(&mut connection, &key).await);
    close_account(&mut connection, id).await.unwrap();
    assert!(list_keys(&mut connection).await.unwrap().is_empty());
    assert!(!revoke_key(&mut connection, &key).await.unwrap(), "it was");
}
