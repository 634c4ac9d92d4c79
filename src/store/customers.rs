//! The table `customers`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    people::{StoredAddress, StoredShipping},
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    writes::{inserts_rows, json, updates_rows},
};
use crate::domain::{
    customer::{Customer, CustomerDetails},
    ids::{AccountId, CustomerId, PaymentMethodId},
    metadata::Metadata,
};

#[derive(Serialize)]
struct CustomerRow {
    account_id: Uuid,
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
    version: i64,
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
            version: row.version,
            created_at: row.created_at,
            deleted: row.deleted,
        })
    }
}

impl CustomerRow {
    fn of(account: AccountId, customer: &Customer) -> Self {
        let details = customer.details.clone();
        Self {
            account_id: account.0,
            id: customer.id.0,
            address: details.address.map(|address| Json(address.into())),
            created_at: customer.created_at,
            default_payment_method_id: customer.default_payment_method.map(|method| method.0),
            deleted: customer.deleted,
            description: details.description,
            email: details.email,
            metadata: Json(details.metadata),
            name: details.name,
            phone: details.phone,
            preferred_locales: details.preferred_locales,
            shipping: details.shipping.map(|shipping| Json(shipping.into())),
            version: customer.version,
        }
    }
}

/// `query_as!` with the columns of [`CustomerRow`] between the two parts of a statement.
macro_rules! customer_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            CustomerRow,
            $before
                + r#"
                  account_id, id, address AS "address: Json<StoredAddress>", created_at,
                  default_payment_method_id, version, deleted_at IS NOT NULL AS "deleted!", description, email,
                  metadata AS "metadata: Json<Metadata>", name, phone, preferred_locales,
                  shipping AS "shipping: Json<StoredShipping>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

inserts_rows! {
    /// Locks nothing that exists. Their default methods may come later in the transaction.
    CustomerRow of Customer in "customers":
    "account_id, id, address, default_payment_method_id, description, email, metadata, name, phone,
     preferred_locales, shipping, version",
}

reads_by_id! {
    customer_rows, "customers", CustomerId => Customer;
    find;
    find_all;
}

locks_by_id!(customer_rows, "customers", CustomerId => Customer);

reads_all! {
    /// Those of these customers that are there, also if they were deleted. Takes no lock.
    look_all: customer_rows, "customers", CustomerId => Customer;
    ""
}

updates_rows! {
    CustomerRow of Customer in "customers":
    "address, default_payment_method_id, description, email, metadata, name, phone,
     preferred_locales, shipping, version",
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
           SET deleted_at = now(), default_payment_method_id = NULL, version = version + 1
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
