//! The table `orders`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    items::{self, StoredItem},
    money::money,
    operations::OpenWork,
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, ChargeId, OrderId},
    metadata::Metadata,
    order::{Order, OrderStatus},
};

struct OrderRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    charge_id: Option<Uuid>,
    client_order_id: Option<String>,
    created_at: DateTime<Utc>,
    currency: String,
    customer: Option<String>,
    items: Json<Vec<StoredItem>>,
    metadata: Json<Metadata>,
    status: String,
    content_hash: Vec<u8>,
    version: i64,
}

impl TryFrom<OrderRow> for Order {
    type Error = sqlx::Error;

    fn try_from(row: OrderRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: OrderId(row.id),
            amount: money(row.amount, &row.currency)?,
            charge: row.charge_id.map(ChargeId),
            client_order_id: row.client_order_id,
            customer: row.customer,
            items: items::read(row.items.0),
            metadata: row.metadata.0,
            status: OrderStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            content_hash: row.content_hash,
            version: row.version,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`OrderRow`] between the two parts of a statement.
macro_rules! order_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            OrderRow,
            $before
                + r#"
                  account_id, id, amount, charge_id, client_order_id, created_at, currency, customer,
                  items AS "items: Json<Vec<StoredItem>>", metadata AS "metadata: Json<Metadata>",
                  status, content_hash, version
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes new orders, all of them or none. Fails if a `client_order_id` is taken. Locks nothing
/// that exists. Waits while another transaction is writing an order with the same
/// `client_order_id`.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Order)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        INSERT INTO orders
               (account_id, id, amount, currency, customer, client_order_id, content_hash, items,
                metadata, status, version)
        SELECT account_id, id, amount, currency, customer, client_order_id, content_hash, items,
               metadata, 'open', version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::text[], $6::text[],
                      $7::bytea[], $8::jsonb[], $9::jsonb[], $10::int8[])
               AS new (account_id, id, amount, currency, customer, client_order_id, content_hash,
                       items, metadata, version)
        ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.1.amount.minor_units),
        &column(rows, |row| row.1.amount.currency.to_string()),
        &column(rows, |row| row.1.customer.as_deref()) as _,
        &column(rows, |row| row.1.client_order_id.as_deref()) as _,
        &column(rows, |row| row.1.content_hash.as_slice()) as _,
        &column(rows, |row| Json(items::stored(&row.1.items))) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Writes what may change of orders, each if its row still has the version that was read. Fails if
/// one has another: its lock was forgotten. Locks them.
///
/// `a_canceled_order_stays_canceled` and `only_a_paid_order_has_a_charge` refuse what a caller let
/// through.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Order, i64)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        UPDATE orders
           SET status = changed.status, charge_id = changed.charge_id, metadata = changed.metadata,
               version = changed.version,
               canceled_at = CASE WHEN changed.status = 'canceled' THEN now() ELSE canceled_at END
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::uuid[], $6::jsonb[],
                      $7::int8[])
               AS changed (account_id, id, based_on, status, charge_id, metadata, version)
         WHERE orders.account_id = changed.account_id AND orders.id = changed.id
           AND orders.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| Some(row.1.charge?.0)) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// The orders with these accounts and `client_order_id`s. Takes no lock: a name never changes. The
/// constraint decides about one that is not taken yet.
pub async fn named(
    tx: &mut PgConnection,
    names: &[(AccountId, String)],
) -> Result<Vec<(AccountId, Order)>, sqlx::Error> {
    let rows = order_rows!(
        "SELECT",
        "
          FROM orders
          JOIN UNNEST($1::uuid[], $2::text[]) AS wanted (account_id, client_order_id)
         USING (account_id, client_order_id)",
        &column(names, |row| row.0.0),
        &column(names, |row| row.1.as_str()) as _,
    )
    .fetch_all(tx)
    .await?;
    let rows = rows.into_iter().map(|row| {
        let account = AccountId(row.account_id);
        Ok((account, Order::try_from(row)?))
    });
    rows.collect()
}

reads_by_id! {
    order_rows, "orders", OrderId => Order;
    find;
}

locks_by_id!(order_rows, "orders", OrderId => Order);

/// What is unfinished about each of these orders: a payment, or the checkout that made it. Takes no
/// lock. Call it under their locks, in a statement of its own: the one that waited for the locks
/// has an old snapshot.
pub async fn open_work(
    tx: &mut PgConnection,
    ids: &[(AccountId, OrderId)],
) -> Result<HashMap<(AccountId, OrderId), OpenWork>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT wanted.account_id AS "account_id!", wanted.id AS "id!",
               -- Counted, so that each is looked up: EXISTS may read the whole tables first.
               (SELECT count(*)
                  FROM operations
                 WHERE operations.account_id = wanted.account_id
                   AND operations.order_id = wanted.id
                   AND completed_at IS NULL) > 0 AS "operation!",
               (SELECT count(*)
                  FROM checkouts
                 WHERE checkouts.account_id = wanted.account_id
                   AND checkouts.order_id = wanted.id
                   AND checkouts.status = 'in_progress') > 0 AS "checkout!"
          FROM UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
        "#,
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    let rows = rows.into_iter().map(|row| {
        let open = OpenWork {
            operation: row.operation,
            checkout: row.checkout,
        };
        ((AccountId(row.account_id), OrderId(row.id)), open)
    });
    Ok(rows.collect())
}

/// What a list of orders is narrowed down to.
#[derive(Debug, Default)]
pub struct OrderFilter {
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
    filter: OrderFilter,
) -> Result<Listed<Order>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(order_rows, "orders", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let client_order_id = filter.client_order_id.as_deref();
    let rows = match (filter.customer.as_deref(), client_order_id) {
        (None, None) => rows!(""),
        (Some(customer), None) => rows!("AND customer = $7", customer),
        (customer, Some(client_order_id)) => rows!(
            "AND client_order_id = $7 AND ($8::text IS NULL OR customer = $8)",
            client_order_id,
            customer
        ),
    };
    let orders: Result<_, _> = rows.into_iter().map(Order::try_from).collect();
    Ok(page.cut(orders?))
}
