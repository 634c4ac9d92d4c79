//! The table `inventory`.

use charge_once_strict_params::pages::{Cursor, NamePage};

use super::rows::{self, *};
use crate::domain::inventory::Inventory;

table! {
    Inventory by String in "inventory" as "to_json(inventory)";
    /// Fails if a sku has a level.
    insert_all(
        "account_id, sku, quantity, updated_at, version",
        "ON CONFLICT ON CONSTRAINT inventory_is_known_by_account_and_sku DO NOTHING",
    );
}

/// One level of the account; `None` if it was never set. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    sku: &str,
) -> Result<Option<Inventory>, sqlx::Error> {
    sqlx::query_as!(
        Inventory,
        "SELECT sku, quantity, updated_at, version FROM inventory WHERE account_id = $1 AND sku = $2",
        account_id.0,
        sku,
    )
    .fetch_optional(connection)
    .await
}

/// One page of the account's levels, in the order of their skus. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &NamePage,
) -> Result<Listed<Inventory>, sqlx::Error> {
    // Each order is a statement with the one bound that it needs, so that it begins in the primary
    // key where the page does, and stops where the page ends. No sku is empty.
    let (sku, is_turned) = match &page.cursor {
        Cursor::Start => ("", false),
        Cursor::StartingAfter(sku) => (sku.as_str(), false),
        Cursor::EndingBefore(sku) => (sku.as_str(), true),
    };
    let rows = match is_turned {
        false => {
            sqlx::query_as!(
                Inventory,
                "SELECT sku, quantity, updated_at, version FROM inventory
              WHERE account_id = $1 AND sku > $2 ORDER BY sku LIMIT $3",
                account_id.0,
                sku,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        }
        true => {
            sqlx::query_as!(
                Inventory,
                "SELECT sku, quantity, updated_at, version FROM inventory
              WHERE account_id = $1 AND sku < $2 ORDER BY sku DESC LIMIT $3",
                account_id.0,
                sku,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        }
    };
    Ok(page.cut(rows))
}

/// Reads and locks levels, in the order of their accounts and skus, so that two transactions that
/// want some of the same never wait for each other. A sku without a level is no error. No other
/// transaction changes them until this one ends.
pub async fn lock_all(
    tx: &mut PgConnection,
    skus: &[(AccountId, String)],
) -> Result<Vec<(AccountId, Inventory)>, sqlx::Error> {
    if skus.is_empty() {
        return Ok(Vec::new());
    }
    let locked: Vec<Found<Inventory>> = sqlx::query_as!(
        Found,
        r#"
        SELECT account_id, to_json(inventory) AS "row!: _"
          FROM inventory
          JOIN UNNEST($1::uuid[], $2::text[]) AS wanted (account_id, sku) USING (account_id, sku)
         ORDER BY account_id, sku
           FOR NO KEY UPDATE OF inventory
        "#,
        &column(skus, |one| one.0.0),
        &column(skus, |one| &*one.1) as _,
    )
    .fetch_all(tx)
    .await?;
    Ok(locked.into_iter().map(Found::owned).collect())
}

/// Writes what changes of levels, each if its row still has the version that was read. Fails if one
/// has another: its lock was forgotten. Locks them. `inventory_is_never_negative` refuses what a
/// caller let through.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Inventory, i64)],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let written = sqlx::query!(
        "
        UPDATE inventory
           SET quantity = changed.quantity, updated_at = changed.updated_at,
               version = changed.version
          FROM UNNEST($1::uuid[], $2::text[], $3::int8[], $4::int8[], $5::timestamptz[],
                      $6::int8[])
               AS changed (account_id, sku, based_on, quantity, updated_at, version)
         WHERE inventory.account_id = changed.account_id AND inventory.sku = changed.sku
           AND inventory.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| &*row.1.sku) as _,
        &column(rows, |row| row.2),
        &column(rows, |row| row.1.quantity),
        &column(rows, |row| row.1.updated_at),
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}
