//! The SQL of accounts. It neither begins nor commits.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::api_keys::Stay;

/// Makes sure that there is an account with this name, and returns its id. Locks nothing that
/// exists: what is in flight may hold the account's row.
pub async fn ensure_account(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Uuid, sqlx::Error> {
    let query = sqlx::query!(
        "INSERT INTO accounts (id, name) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        Uuid::now_v7(),
        name,
    );
    query.execute(&mut *connection).await?;
    let found = find_account_by_name(connection, name).await?;
    found.ok_or(sqlx::Error::RowNotFound)
}

/// The account with this name. Takes no lock.
pub async fn find_account_by_name(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<Uuid>, sqlx::Error> {
    let query = sqlx::query_scalar!("SELECT id FROM accounts WHERE name = $1", name);
    query.fetch_optional(connection).await
}

/// The names of these accounts, by their ids. Takes no lock.
pub async fn names_of_accounts(
    connection: &mut PgConnection,
    accounts: &[Uuid],
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let query = sqlx::query!(
        "SELECT id, name FROM accounts WHERE id = ANY ($1)",
        accounts
    );
    let found = query.fetch_all(connection).await?.into_iter();
    Ok(found.map(|row| (row.id, row.name)).collect())
}

/// The next accounts behind `after` that are not closed, in the order of their ids, at most 100.
/// Takes no lock.
pub async fn list_accounts(
    connection: &mut PgConnection,
    after: Uuid,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query_scalar!(
        "SELECT id FROM accounts WHERE id > $1 AND closed_at IS NULL ORDER BY id LIMIT 100",
        after,
    );
    query.fetch_all(connection).await
}

/// Makes what an account may have a limited number of be created in turns, until the transaction
/// ends. Locks the account, but not against rows that refer to it: those only need it to stay.
pub async fn lock_account(tx: &mut PgConnection, id: Uuid) -> Result<(), sqlx::Error> {
    let query = sqlx::query!(
        "SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE",
        id,
    );
    query.fetch_one(tx).await?;
    Ok(())
}

/// Keeps an account in this database until the transaction ends. Fails with 57C01 if it lives in
/// another one, or moves just now. For changes without an idempotency key: a claim is refused by
/// itself. Locks the account, but not against others that hold it, nor against rows that refer to
/// it.
pub async fn hold_account(tx: &mut PgConnection, id: Uuid) -> Result<(), sqlx::Error> {
    let hold = sqlx::query("SELECT hold_account($1)").bind(id);
    hold.execute(tx).await?;
    Ok(())
}

/// How many accounts are open that are no test accounts. Takes no lock.
pub async fn count_accounts(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let query = sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "count!"
          FROM accounts
         WHERE closed_at IS NULL AND test_until IS NULL
        "#,
    );
    query.fetch_one(connection).await
}

/// How many test accounts there are that are not closed, at most `up_to`. Takes no lock.
pub async fn count_test_accounts(
    connection: &mut PgConnection,
    up_to: i64,
) -> Result<i64, sqlx::Error> {
    let query = sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "count!"
          FROM (SELECT 1
                  FROM accounts
                 WHERE test_until IS NOT NULL AND closed_at IS NULL
                 LIMIT $1) AS open
        "#,
        up_to,
    );
    query.fetch_one(connection).await
}

/// Adds a test account, and returns when it ends: 24 hours from now. Locks nothing that exists.
pub async fn insert_test_account(
    connection: &mut PgConnection,
    id: Uuid,
    name: &str,
) -> Result<DateTime<Utc>, sqlx::Error> {
    let query = sqlx::query_scalar!(
        r#"
        INSERT INTO accounts (id, name, test_until)
        VALUES ($1, $2, now() + interval '24 hours')
        RETURNING test_until AS "test_until!"
        "#,
        id,
        name,
    );
    query.fetch_one(connection).await
}

/// Revokes the API keys of an account that has nothing left, and marks it as closed. Locks both.
pub async fn close_account(
    connection: &mut PgConnection,
    account_id: Uuid,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query!(
        r#"
        WITH revoked AS (
            UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND revoked_at IS NULL)
        UPDATE accounts SET closed_at = now() WHERE id = $1
        "#,
        account_id,
    );
    query.execute(connection).await?;
    Ok(())
}

/// Those of these accounts that are on the move from this database, which is one of several. Takes
/// no lock.
pub async fn find_moving(
    connection: &mut PgConnection,
    accounts: &[Uuid],
) -> Result<HashMap<Uuid, Stay>, sqlx::Error> {
    // The table is only where there are several databases.
    let query = sqlx::query_as(
        "SELECT account_id, state = 'leaving' FROM moving
          WHERE account_id = ANY ($1) AND state IN ('draining', 'frozen', 'leaving')",
    );
    let found: Vec<(Uuid, bool)> = query.bind(accounts).fetch_all(connection).await?;
    let stay = |is_leaving| match is_leaving {
        true => Stay::Leaving,
        false => Stay::Moving,
    };
    Ok(found.into_iter().map(|(id, is)| (id, stay(is))).collect())
}
