//! The table `orders`.

use super::rows::{self, *};
use crate::domain::{operation::OpenWork, order::Order};

table! {
    Order by OrderId in "orders" as "to_json(orders)";
    find();
    lock_all();
    /// Fails if a `client_order_id` is taken. Locks nothing that exists. Waits while another
    /// transaction is writing an order with the same `client_order_id`.
    insert_all(
        "account_id, id, amount, currency, customer, client_order_id, content_hash, items,
         metadata, status, version",
        "ON CONFLICT ON CONSTRAINT a_client_order_id_names_one_order DO NOTHING",
    );
    ///
    /// `a_canceled_order_stays_canceled` and `only_a_paid_order_has_a_charge` refuse what a caller
    /// let through.
    update_all(
        "status, charge_id, metadata, version",
        "canceled_at" = "CASE WHEN new.status = 'canceled' THEN now() ELSE old.canceled_at END",
    );
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
    let found: Vec<Found<Order>> = sqlx::query_as!(
        Found,
        r#"
        SELECT account_id, to_json(orders) AS "row!: _"
          FROM orders
          JOIN UNNEST($1::uuid[], $2::text[]) AS wanted (account_id, client_order_id)
         USING (account_id, client_order_id)
        "#,
        &column(names, |row| row.0.0),
        &column(names, |row| row.1.as_str()) as _,
    )
    .fetch_all(tx)
    .await?;
    Ok(found.into_iter().map(Found::owned).collect())
}

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
    let client_order_id = filter.client_order_id.as_deref();
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_json(orders) AS "row!: Json<Order>"
             FROM orders
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match (filter.customer.as_deref(), client_order_id) {
            (None, None) => "";
            (Some(customer), None) => "AND customer = $7", customer;
            (customer, Some(client_order_id)) =>
                "AND client_order_id = $7 AND ($8::text IS NULL OR customer = $8)",
                client_order_id, customer;
        }
    };
    Ok(listed(page, rows))
}
