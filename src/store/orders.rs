//! The table `orders`.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::page::{Cursor, Listed, Page};
use crate::domain::{
    ids::{AccountId, ChargeId, OrderId},
    order::{Item, NewOrder, Order},
    params::Metadata,
};

struct Row {
    id: Uuid,
    amount: i64,
    charge_id: Option<Uuid>,
    client_order_id: Option<String>,
    created_at: DateTime<Utc>,
    currency: String,
    customer: Option<String>,
    items: Json<Vec<Item>>,
    metadata: Json<Metadata>,
    status: String,
}

impl From<Row> for Order {
    fn from(row: Row) -> Self {
        Self {
            id: OrderId(row.id).to_string(),
            object: "order",
            amount: row.amount,
            charge: row.charge_id.map(|id| ChargeId(id).to_string()),
            client_order_id: row.client_order_id,
            created: row.created_at.timestamp(),
            currency: row.currency,
            customer: row.customer,
            items: row.items.0,
            livemode: false,
            metadata: row.metadata.0,
            status: row.status,
        }
    }
}

/// Writes an open order. `None`: the account has an order with this `client_order_id`.
///
/// Waits while another transaction is writing an order with the same `client_order_id`.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
    new: &NewOrder,
    content_hash: &[u8],
) -> Result<Option<Order>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"
        INSERT INTO orders
               (account_id, id, amount, currency, customer, client_order_id, content_hash, items,
                metadata, status)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open')
        ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING
        RETURNING id, amount, NULL::uuid AS charge_id, client_order_id, created_at, currency,
                  customer, items AS "items: Json<Vec<Item>>",
                  metadata AS "metadata: Json<Metadata>", status
        "#,
        account_id.0,
        id.0,
        new.amount,
        new.currency.to_string(),
        new.customer,
        new.client_order_id,
        content_hash,
        Json(&new.items) as _,
        Json(&new.metadata) as _,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(Order::from))
}

/// Whether the account's order with this `client_order_id` was created with this content, and its
/// id. Takes no lock: neither ever changes.
pub async fn find_by_client_order_id(
    connection: &mut PgConnection,
    account_id: AccountId,
    client_order_id: &str,
    content_hash: &[u8],
) -> Result<Option<(OrderId, bool)>, sqlx::Error> {
    let found = sqlx::query!(
        r#"
        SELECT id, content_hash = $3 AS "same_content!"
          FROM orders
         WHERE account_id = $1 AND client_order_id = $2
        "#,
        account_id.0,
        client_order_id,
        content_hash,
    )
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|found| (OrderId(found.id), found.same_content)))
}

/// One order of the account, with the charge that paid it. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
) -> Result<Option<Order>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"
        SELECT id, amount,
               (SELECT charges.id FROM charges
                 WHERE charges.account_id = orders.account_id AND charges.order_id = orders.id
                   AND charges.status = 'succeeded') AS charge_id,
               client_order_id, created_at, currency, customer,
               items AS "items: Json<Vec<Item>>", metadata AS "metadata: Json<Metadata>", status
          FROM orders
         WHERE account_id = $1 AND id = $2
        "#,
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Order::from))
}

/// What a list of orders is narrowed down to.
#[derive(Debug, Default)]
pub struct Filter {
    /// The client's own reference.
    pub customer: Option<String>,
    /// The client's own id of the order.
    pub client_order_id: Option<String>,
}

/// One page of the account's orders. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: &Filter,
) -> Result<Listed<Order>, sqlx::Error> {
    // Two statements that differ in their order: each walks the primary key and stops.
    macro_rules! rows {
        ($order:tt) => {
            sqlx::query_as!(
                Row,
                r#"
                SELECT id, amount,
                       (SELECT charges.id FROM charges
                         WHERE charges.account_id = orders.account_id
                           AND charges.order_id = orders.id
                           AND charges.status = 'succeeded') AS charge_id,
                       client_order_id, created_at, currency, customer,
                       items AS "items: Json<Vec<Item>>",
                       metadata AS "metadata: Json<Metadata>", status
                  FROM orders
                 WHERE account_id = $1
                   AND ($2::uuid IS NULL OR id < $2)
                   AND ($3::uuid IS NULL OR id > $3)
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                   AND ($6::text IS NULL OR customer = $6)
                   AND ($7::text IS NULL OR client_order_id = $7)
                 "#
                    + $order
                    + " LIMIT $8",
                account_id.0,
                page.cursor.older_than(),
                page.cursor.newer_than(),
                page.created_from,
                page.created_before,
                filter.customer,
                filter.client_order_id,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        };
    }
    let rows = match page.cursor {
        Cursor::Newest | Cursor::StartingAfter(_) => rows!("ORDER BY id DESC"),
        Cursor::EndingBefore(_) => rows!("ORDER BY id ASC"),
    };
    Ok(page.cut(rows.into_iter().map(Order::from).collect()))
}
