//! The table `customers`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    people::{StoredAddress, StoredShipping},
    reads::{locks_by_id, page_rows, reads_by_id},
};
use crate::domain::{
    customer::{Customer, CustomerDetails},
    ids::{AccountId, CustomerId, PaymentMethodId},
    metadata::Metadata,
};

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

fn address(customer: &Customer) -> Option<Json<StoredAddress>> {
    let address = customer.details.address.clone();
    address.map(|address| Json(address.into()))
}

fn shipping(customer: &Customer) -> Option<Json<StoredShipping>> {
    let shipping = customer.details.shipping.clone();
    shipping.map(|shipping| Json(shipping.into()))
}

/// As JSON: an array of arrays would be a table, with lines of one length.
fn locales(customer: &Customer) -> Json<&[String]> {
    Json(&customer.details.preferred_locales)
}

/// Writes new customers, all of them or none. Locks nothing that exists. Their default methods may
/// come later in the transaction.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Customer)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        INSERT INTO customers
               (account_id, id, address, default_payment_method_id, description, email, metadata,
                name, phone, preferred_locales, shipping, version)
        SELECT account_id, id, address, default_payment_method_id, description, email, metadata,
               name, phone, ARRAY(SELECT jsonb_array_elements_text(preferred_locales)), shipping,
               version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::jsonb[], $4::uuid[], $5::text[], $6::text[],
                      $7::jsonb[], $8::text[], $9::text[], $10::jsonb[], $11::jsonb[], $12::int8[])
               AS new (account_id, id, address, default_payment_method_id, description, email,
                       metadata, name, phone, preferred_locales, shipping, version)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| address(row.1)) as _,
        &column(rows, |row| Some(row.1.default_payment_method?.0)) as _,
        &column(rows, |row| row.1.details.description.as_deref()) as _,
        &column(rows, |row| row.1.details.email.as_deref()) as _,
        &column(rows, |row| Json(&row.1.details.metadata)) as _,
        &column(rows, |row| row.1.details.name.as_deref()) as _,
        &column(rows, |row| row.1.details.phone.as_deref()) as _,
        &column(rows, |row| locales(row.1)) as _,
        &column(rows, |row| shipping(row.1)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

reads_by_id! {
    customer_rows, "customers", CustomerId => Customer;
    find;
    find_all;
}

locks_by_id!(customer_rows, "customers", CustomerId => Customer);

/// Those of these customers that are there, also if they were deleted. Takes no lock.
pub async fn look_all(
    tx: &mut PgConnection,
    ids: &[(AccountId, CustomerId)],
) -> Result<Vec<(AccountId, Customer)>, sqlx::Error> {
    let rows = customer_rows!(
        "SELECT",
        "
          FROM customers
          JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id) USING (account_id, id)",
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| Ok((AccountId(row.account_id), Customer::try_from(row)?)))
        .collect()
}

/// Writes what may change of customers, each if its row still has the version that was read. Fails
/// if one has another: its lock was forgotten. Locks them.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Customer, i64)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        UPDATE customers
           SET address = changed.address,
               default_payment_method_id = changed.default_payment_method_id,
               description = changed.description, email = changed.email,
               metadata = changed.metadata, name = changed.name, phone = changed.phone,
               preferred_locales =
                   ARRAY(SELECT jsonb_array_elements_text(changed.preferred_locales)),
               shipping = changed.shipping, version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::jsonb[], $5::uuid[], $6::text[],
                      $7::text[], $8::jsonb[], $9::text[], $10::text[], $11::jsonb[], $12::jsonb[],
                      $13::int8[])
               AS changed (account_id, id, based_on, address, default_payment_method_id,
                           description, email, metadata, name, phone, preferred_locales, shipping,
                           version)
         WHERE customers.account_id = changed.account_id AND customers.id = changed.id
           AND customers.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, |row| address(row.1)) as _,
        &column(rows, |row| Some(row.1.default_payment_method?.0)) as _,
        &column(rows, |row| row.1.details.description.as_deref()) as _,
        &column(rows, |row| row.1.details.email.as_deref()) as _,
        &column(rows, |row| Json(&row.1.details.metadata)) as _,
        &column(rows, |row| row.1.details.name.as_deref()) as _,
        &column(rows, |row| row.1.details.phone.as_deref()) as _,
        &column(rows, |row| locales(row.1)) as _,
        &column(rows, |row| shipping(row.1)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
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
