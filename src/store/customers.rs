//! The table `customers`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    people::{StoredAddress, StoredShipping},
    reads::{page_rows, reads_by_id},
};
use crate::domain::{
    customer::{Customer, CustomerDetails},
    ids::{AccountId, CustomerId, PaymentMethodId},
    metadata::Metadata,
};

struct CustomerRow {
    id: Uuid,
    address: Option<Json<StoredAddress>>,
    created_at: DateTime<Utc>,
    default_payment_method_id: Option<Uuid>,
    deleted: bool,
    description: Option<String>,
    email: Option<String>,
    metadata: Json<Metadata>,
    name: Option<String>,
    phone: Option<String>,
    preferred_locales: Vec<String>,
    shipping: Option<Json<StoredShipping>>,
}

impl TryFrom<CustomerRow> for Customer {
    type Error = sqlx::Error;

    fn try_from(row: CustomerRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: CustomerId(row.id),
            details: CustomerDetails {
                address: row.address.map(|address| address.0.into()),
                description: row.description,
                email: row.email,
                metadata: row.metadata.0,
                name: row.name,
                phone: row.phone,
                preferred_locales: row.preferred_locales,
                shipping: row.shipping.map(|shipping| shipping.0.into()),
            },
            default_payment_method: row.default_payment_method_id.map(PaymentMethodId),
            created_at: row.created_at,
            deleted: row.deleted,
        })
    }
}

/// `query_as!` with the columns of [`CustomerRow`] between the two parts of a statement.
macro_rules! customer_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            CustomerRow,
            $before
                + r#"
                  id, address AS "address: Json<StoredAddress>", created_at, default_payment_method_id,
                  deleted_at IS NOT NULL AS "deleted!", description, email,
                  metadata AS "metadata: Json<Metadata>", name, phone, preferred_locales,
                  shipping AS "shipping: Json<StoredShipping>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes a customer and returns it. Locks nothing that exists.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CustomerId,
    details: &CustomerDetails,
) -> Result<Customer, sqlx::Error> {
    let details = details.clone();
    customer_rows!(
        "
        INSERT INTO customers
               (account_id, id, address, description, email, metadata, name, phone,
                preferred_locales, shipping)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        RETURNING",
        "",
        account_id.0,
        id.0,
        details
            .address
            .map(|address| Json(StoredAddress::from(address))) as _,
        details.description,
        details.email,
        Json(details.metadata) as _,
        details.name,
        details.phone,
        &details.preferred_locales,
        details
            .shipping
            .map(|shipping| Json(StoredShipping::from(shipping))) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

reads_by_id! {
    customer_rows, "customers", CustomerId => Customer;
    /// A deleted customer is found, too. No other lock is taken after this one.
    lock;
    find_all;
}

/// Writes what a client may change of a customer, as it is in `customer`. The caller holds its
/// lock, so that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    customer: Customer,
) -> Result<Customer, sqlx::Error> {
    let details = customer.details;
    customer_rows!(
        "
        UPDATE customers
           SET address = $3, default_payment_method_id = $4, description = $5, email = $6,
               metadata = $7, name = $8, phone = $9, preferred_locales = $10, shipping = $11
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        customer.id.0,
        details
            .address
            .map(|address| Json(StoredAddress::from(address))) as _,
        customer.default_payment_method.map(|method| method.0),
        details.description,
        details.email,
        Json(details.metadata) as _,
        details.name,
        details.phone,
        &details.preferred_locales,
        details
            .shipping
            .map(|shipping| Json(StoredShipping::from(shipping))) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Deletes a customer but for its id; `None` if there is none, or it was deleted before. Locks it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CustomerId,
) -> Result<Option<Customer>, sqlx::Error> {
    customer_rows!(
        "
        UPDATE customers
           SET deleted_at = now(), default_payment_method_id = NULL
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
        RETURNING",
        "",
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await?
    .map(Customer::try_from)
    .transpose()
}

/// Takes a method away as its customer's default, and returns the customer; `None` if it wasn't
/// that. Locks the customer.
pub async fn forget_default(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CustomerId,
    method: PaymentMethodId,
) -> Result<Option<Customer>, sqlx::Error> {
    customer_rows!(
        "
        UPDATE customers
           SET default_payment_method_id = NULL
         WHERE account_id = $1 AND id = $2 AND default_payment_method_id = $3
        RETURNING",
        "",
        account_id.0,
        id.0,
        method.0,
    )
    .fetch_optional(tx)
    .await?
    .map(Customer::try_from)
    .transpose()
}

/// One page of the account's customers that exist, those with exactly this e-mail address if one is
/// given. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    email: Option<String>,
) -> Result<Listed<Customer>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(customer_rows, "customers", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match email.as_deref() {
        None => rows!("AND deleted_at IS NULL"),
        Some(email) => rows!("AND deleted_at IS NULL AND email = $7", email),
    };
    let customers: Result<_, _> = rows.into_iter().map(Customer::try_from).collect();
    Ok(page.cut(customers?))
}
