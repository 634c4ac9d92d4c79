//! The table `inventory`.

use std::collections::BTreeMap;

use charge_once_pages::{Cursor, Listed, NamePage};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::domain::{ids::AccountId, inventory::Inventory};

struct InventoryRow {
    sku: String,
    quantity: i64,
    updated_at: DateTime<Utc>,
}

impl From<InventoryRow> for Inventory {
    fn from(row: InventoryRow) -> Self {
        Self {
            sku: row.sku,
            quantity: row.quantity,
            updated_at: row.updated_at,
        }
    }
}

/// One level of the account; `None` if it was never set. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    sku: &str,
) -> Result<Option<Inventory>, sqlx::Error> {
    sqlx::query_as!(
        InventoryRow,
        "SELECT sku, quantity, updated_at FROM inventory WHERE account_id = $1 AND sku = $2",
        account_id.0,
        sku,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Inventory::from))
}

/// One page of the account's levels, in the order of their skus. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &NamePage,
) -> Result<Listed<Inventory>, sqlx::Error> {
    // Each statement has the one bound that it needs, so that it begins in the primary key where
    // the page does, and stops where the page ends. No sku is empty.
    let rows = match &page.cursor {
        Cursor::Start => after(connection, account_id, "", page.rows()).await?,
        Cursor::StartingAfter(sku) => after(connection, account_id, sku, page.rows()).await?,
        Cursor::EndingBefore(sku) => {
            sqlx::query_as!(
                InventoryRow,
                "
                SELECT sku, quantity, updated_at
                  FROM inventory
                 WHERE account_id = $1 AND sku < $2
                 ORDER BY sku DESC
                 LIMIT $3
                ",
                account_id.0,
                sku,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        }
    };
    Ok(page.cut(rows.into_iter().map(Inventory::from).collect()))
}

/// Up to `count` levels with skus after `sku`.
async fn after(
    connection: &mut PgConnection,
    account_id: AccountId,
    sku: &str,
    count: i64,
) -> Result<Vec<InventoryRow>, sqlx::Error> {
    sqlx::query_as!(
        InventoryRow,
        "
        SELECT sku, quantity, updated_at
          FROM inventory
         WHERE account_id = $1 AND sku > $2
         ORDER BY sku
         LIMIT $3
        ",
        account_id.0,
        sku,
        count,
    )
    .fetch_all(connection)
    .await
}

/// Sets a level, whatever it was. Locks it.
pub async fn set(
    tx: &mut PgConnection,
    account_id: AccountId,
    sku: &str,
    quantity: i64,
) -> Result<Inventory, sqlx::Error> {
    // Not now(): a transaction that waited for the lock may have begun before the one that held it,
    // and its change would seem to be the older one.
    sqlx::query_as!(
        InventoryRow,
        "
        INSERT INTO inventory (account_id, sku, quantity, updated_at)
        VALUES ($1, $2, $3, clock_timestamp())
        ON CONFLICT ON CONSTRAINT inventory_is_known_by_account_and_sku
        DO UPDATE SET quantity = excluded.quantity, updated_at = clock_timestamp()
        RETURNING sku, quantity, updated_at
        ",
        account_id.0,
        sku,
        quantity,
    )
    .fetch_one(tx)
    .await
    .map(Inventory::from)
}

/// The levels of those of `skus` that have one; no other transaction changes them until this one
/// ends.
///
/// Locks in the order of the skus, whatever the order in `skus`, so that two transactions that want
/// some of the same never wait for each other.
pub async fn lock_levels(
    tx: &mut PgConnection,
    account_id: AccountId,
    skus: &[String],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let locked = sqlx::query!(
        "
        SELECT sku, quantity
          FROM inventory
         WHERE account_id = $1 AND sku = ANY($2)
         ORDER BY sku
           FOR NO KEY UPDATE
        ",
        account_id.0,
        skus,
    )
    .fetch_all(tx)
    .await?;
    let levels = locked.into_iter().map(|row| (row.sku, row.quantity));
    Ok(levels.collect())
}

/// Takes from levels, each sku once. The caller holds their locks, and decided by what
/// [`lock_levels`] found.
///
/// `inventory_is_never_negative` refuses what a caller let through, and a sku without a level is
/// [`sqlx::Error::RowNotFound`]: an allocation is taken whole or not at all.
pub async fn take(
    tx: &mut PgConnection,
    account_id: AccountId,
    allocation: &[(String, i64)],
) -> Result<(), sqlx::Error> {
    let (skus, quantities): (Vec<String>, Vec<i64>) = allocation.iter().cloned().unzip();
    let taken = sqlx::query!(
        "
        UPDATE inventory
           SET quantity = inventory.quantity - allocation.quantity, updated_at = clock_timestamp()
          FROM unnest($2::text[], $3::bigint[]) AS allocation (sku, quantity)
         WHERE inventory.account_id = $1 AND inventory.sku = allocation.sku
        ",
        account_id.0,
        &skus,
        &quantities,
    )
    .execute(tx)
    .await?;
    if taken.rows_affected() == allocation.len() as u64 {
        Ok(())
    } else {
        Err(sqlx::Error::RowNotFound)
    }
}
