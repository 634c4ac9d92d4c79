//! The table `orders`.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    items::{self, StoredItem},
    money::money,
    operations::OpenWork,
    reads::{page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, ChargeId, OrderId},
    metadata::Metadata,
    order::{NewOrder, Order, OrderStatus},
};

struct OrderRow {
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
                  id, amount, charge_id, client_order_id, created_at, currency, customer,
                  items AS "items: Json<Vec<StoredItem>>", metadata AS "metadata: Json<Metadata>",
                  status
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// An order that is to be opened.
#[derive(Debug)]
pub struct NewOrderRow<'a> {
    /// Whose it is.
    pub account: AccountId,
    /// Its id.
    pub id: OrderId,
    /// What was asked for.
    pub new: &'a NewOrder,
    /// What tells its content from another's.
    pub content_hash: &'a [u8],
}

/// Writes an open order without a `client_order_id`, as [`insert_all`] does, and returns it.
pub async fn insert(
    tx: &mut PgConnection,
    account: AccountId,
    id: OrderId,
    new: &NewOrder,
    content_hash: &[u8],
) -> Result<Order, sqlx::Error> {
    let row = NewOrderRow {
        account,
        id,
        new,
        content_hash,
    };
    let created_at = all_written(&insert_all(tx, &[row]).await?, 1)?;
    Ok(Order::opened(id, new, created_at))
}

/// Writes open orders, and returns when: the transaction's time, for each that was written. The
/// others have a `client_order_id` that is taken. Locks nothing that exists. Waits while another
/// transaction is writing an order with the same `client_order_id`.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[NewOrderRow<'_>],
) -> Result<Vec<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        "
        INSERT INTO orders
               (account_id, id, amount, currency, customer, client_order_id, content_hash, items,
                metadata, status)
        SELECT account_id, id, amount, currency, customer, client_order_id, content_hash, items,
               metadata, 'open'
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::text[], $6::text[],
                      $7::bytea[], $8::jsonb[], $9::jsonb[])
               AS new (account_id, id, amount, currency, customer, client_order_id, content_hash,
                       items, metadata)
        ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING
        RETURNING created_at
        ",
        &column(rows, |row| row.account.0),
        &column(rows, |row| row.id.0),
        &column(rows, |row| row.new.amount.minor_units),
        &column(rows, |row| row.new.amount.currency.to_string()),
        &column(rows, |row| row.new.customer.as_deref()) as _,
        &column(rows, |row| row.new.client_order_id.as_deref()) as _,
        &column(rows, |row| row.content_hash) as _,
        &column(rows, |row| Json(items::stored(&row.new.items))) as _,
        &column(rows, |row| Json(&row.new.metadata)) as _,
    )
    .fetch_all(tx)
    .await
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

reads_by_id! {
    order_rows, "orders", OrderId => Order;
    lock;
}

/// What is unfinished about this order: a payment, or the checkout that made it. Takes no lock.
/// Call it under the order's lock, in a statement of its own: the one that waited for the lock has
/// an old snapshot.
pub async fn open_work(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
) -> Result<OpenWork, sqlx::Error> {
    sqlx::query_as!(
        OpenWork,
        r#"
        SELECT EXISTS (SELECT FROM operations
                        WHERE account_id = $1 AND order_id = $2 AND completed_at IS NULL)
                   AS "operation!",
               EXISTS (SELECT FROM checkouts
                        WHERE account_id = $1 AND order_id = $2 AND status = 'in_progress')
                   AS "checkout!"
        "#,
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await
}

/// Makes an order paid by `charge`. Locks the order.
///
/// `a_canceled_order_stays_canceled` refuses what a caller let through.
pub async fn pay(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
    charge: ChargeId,
) -> Result<Order, sqlx::Error> {
    order_rows!(
        "
        UPDATE orders
           SET status = 'paid', charge_id = $3
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        id.0,
        charge.0,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Closes an order. Locks it.
///
/// `only_a_paid_order_has_a_charge` refuses what a caller let through.
pub async fn cancel(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
) -> Result<Order, sqlx::Error> {
    order_rows!(
        "
        UPDATE orders
           SET status = 'canceled', canceled_at = now()
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Makes the order that `charge` paid refunded; `None` if it paid none. Locks the order.
pub async fn refund(
    tx: &mut PgConnection,
    account_id: AccountId,
    charge: ChargeId,
) -> Result<Option<Order>, sqlx::Error> {
    order_rows!(
        "
        UPDATE orders
           SET status = 'refunded'
         WHERE account_id = $1 AND charge_id = $2
        RETURNING",
        "",
        account_id.0,
        charge.0,
    )
    .fetch_optional(tx)
    .await?
    .map(Order::try_from)
    .transpose()
}

/// Writes what a client may change of an order, as it is in `order`. The caller holds its lock, so
/// that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: OrderId,
    order: &Order,
) -> Result<Order, sqlx::Error> {
    order_rows!(
        "
        UPDATE orders
           SET metadata = $3
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        id.0,
        Json(&order.metadata) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
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
