//! The table `orders`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    items::{self, StoredItem},
    money::money,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::unknown,
    writes::{inserts_rows, json, updates_rows},
};
use crate::domain::{
    ids::{AccountId, ChargeId, OrderId},
    metadata::Metadata,
    operation::OpenWork,
    order::{Order, OrderStatus},
};

#[derive(Serialize)]
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
    #[serde(serialize_with = "bytes")]
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

impl OrderRow {
    fn of(account: AccountId, order: &Order) -> Self {
        Self {
            account_id: account.0,
            id: order.id.0,
            amount: order.amount.minor_units,
            charge_id: order.charge.map(|charge| charge.0),
            client_order_id: order.client_order_id.clone(),
            created_at: order.created_at,
            currency: order.amount.currency.to_string(),
            customer: order.customer.clone(),
            items: Json(items::stored(&order.items)),
            metadata: Json(order.metadata.clone()),
            status: order.status.as_str().to_owned(),
            content_hash: order.content_hash.clone(),
            version: order.version,
        }
    }
}

/// As PostgreSQL reads a `bytea`.
fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("\\x{}", hex::encode(bytes)))
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

inserts_rows! {
    /// Fails if a `client_order_id` is taken. Locks nothing that exists. Waits while another
    /// transaction is writing an order with the same `client_order_id`.
    OrderRow of Order in "orders":
    "account_id, id, amount, currency, customer, client_order_id, content_hash, items, metadata,
     status, version",
    "ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING",
}

updates_rows! {
    ///
    /// `a_canceled_order_stays_canceled` and `only_a_paid_order_has_a_charge` refuse what a caller
    /// let through.
    OrderRow of Order in "orders":
    "status, charge_id, metadata, version",
    "canceled_at" = "CASE WHEN new.status = 'canceled' THEN now() ELSE old.canceled_at END",
}

/// The orders with these accounts and `client_order_id`s. Takes no lock: a name never changes. The
/// constraint decides about one that is not taken yet.
pub async fn named(
    tx: &mut PgConnection,
    names: &[(AccountId, String)],
) -> Result<Vec<(AccountId, Order)>, sqlx::Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
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
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
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
