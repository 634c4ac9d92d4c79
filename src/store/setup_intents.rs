//! The table `setup_intents`.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::{named, named_if_any},
};
use crate::domain::{
    ids::{AccountId, CustomerId, PaymentMethodId, SetupIntentId},
    metadata::Metadata,
    payment_intent::{AllowRedirects, FutureUsage, HolderPage},
    setup_intent::{SetupCancellationReason, SetupIntent, SetupStatus, SetupTerms},
};

struct SetupIntentRow {
    account_id: Uuid,
    id: Uuid,
    automatic_payment_methods: Option<String>,
    cancellation_reason: Option<String>,
    client_secret: String,
    created_at: DateTime<Utc>,
    customer_id: Option<Uuid>,
    description: Option<String>,
    holder_page_url: Option<String>,
    last_setup_error: Option<String>,
    metadata: Json<Metadata>,
    payment_method_id: Option<Uuid>,
    return_url: Option<String>,
    status: String,
    usage: String,
    version: i64,
}

impl TryFrom<SetupIntentRow> for SetupIntent {
    type Error = sqlx::Error;

    fn try_from(row: SetupIntentRow) -> Result<Self, sqlx::Error> {
        let return_url = row.return_url;
        Ok(Self {
            id: SetupIntentId(row.id),
            terms: SetupTerms {
                automatic_payment_methods: named_if_any(
                    "automatic_payment_methods",
                    row.automatic_payment_methods.as_deref(),
                    AllowRedirects::parse,
                )?,
                customer: row.customer_id.map(CustomerId),
                description: row.description,
                metadata: row.metadata.0,
                payment_method: row.payment_method_id.map(PaymentMethodId),
                usage: named("usage", &row.usage, FutureUsage::parse)?,
            },
            client_secret: row.client_secret,
            status: named("status", &row.status, SetupStatus::parse)?,
            last_setup_error: row.last_setup_error,
            holder_page: row
                .holder_page_url
                .map(|url| HolderPage { url, return_url }),
            cancellation_reason: named_if_any(
                "cancellation_reason",
                row.cancellation_reason.as_deref(),
                SetupCancellationReason::parse,
            )?,
            version: row.version,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`SetupIntentRow`] between the two parts of a statement.
macro_rules! setup_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            SetupIntentRow,
            $before
                + r#"
                  account_id, id, automatic_payment_methods, cancellation_reason, client_secret,
                  created_at, customer_id, description, holder_page_url,
                  last_setup_error::text AS last_setup_error,
                  metadata AS "metadata: Json<Metadata>", payment_method_id, return_url, status,
                  usage, version
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

fn return_url(setup: &SetupIntent) -> Option<&str> {
    setup.holder_page.as_ref()?.return_url.as_deref()
}

/// Writes new setup intents, all of them or none. Locks nothing that exists but their customers and
/// methods, against deletion.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &SetupIntent)],
) -> Result<(), sqlx::Error> {
    let automatic = |row: &(AccountId, &SetupIntent)| {
        let automatic = row.1.terms.automatic_payment_methods;
        automatic.map(AllowRedirects::as_str)
    };
    let written = sqlx::query!(
        "
        INSERT INTO setup_intents
               (account_id, id, automatic_payment_methods, client_secret, customer_id, description,
                holder_page_url, last_setup_error, metadata, payment_method_id, return_url, status,
                usage, version)
        SELECT account_id, id, automatic_payment_methods, client_secret, customer_id, description,
               holder_page_url, last_setup_error::json, metadata, payment_method_id, return_url,
               status, usage, version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::text[],
                      $7::text[], $8::text[], $9::jsonb[], $10::uuid[], $11::text[], $12::text[],
                      $13::text[], $14::int8[])
               AS new (account_id, id, automatic_payment_methods, client_secret, customer_id,
                       description, holder_page_url, last_setup_error, metadata,
                       payment_method_id, return_url, status, usage, version)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, automatic) as _,
        &column(rows, |row| &*row.1.client_secret) as _,
        &column(rows, |row| Some(row.1.terms.customer?.0)) as _,
        &column(rows, |row| row.1.terms.description.as_deref()) as _,
        &column(rows, |row| Some(&*row.1.holder_page.as_ref()?.url)) as _,
        &column(rows, |row| row.1.last_setup_error.as_deref()) as _,
        &column(rows, |row| Json(&row.1.terms.metadata)) as _,
        &column(rows, |row| Some(row.1.terms.payment_method?.0)) as _,
        &column(rows, |row| return_url(row.1)) as _,
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| row.1.terms.usage.as_str()) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

reads_by_id! {
    setup_rows, "setup_intents", SetupIntentId => SetupIntent;
    find;
}

locks_by_id!(setup_rows, "setup_intents", SetupIntentId => SetupIntent);

/// Writes what may change of setup intents, each if its row still has the version that was read.
/// Fails if one has another: its lock was forgotten. Locks them.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &SetupIntent, i64)],
) -> Result<(), sqlx::Error> {
    let reason = |row: &(AccountId, &SetupIntent, i64)| {
        let reason = row.1.cancellation_reason;
        reason.map(SetupCancellationReason::as_str)
    };
    let written = sqlx::query!(
        "
        UPDATE setup_intents
           SET cancellation_reason = changed.cancellation_reason, customer_id = changed.customer_id,
               description = changed.description, holder_page_url = changed.holder_page_url,
               last_setup_error = changed.last_setup_error::json, metadata = changed.metadata,
               payment_method_id = changed.payment_method_id, return_url = changed.return_url,
               status = changed.status, version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::uuid[], $6::text[],
                      $7::text[], $8::text[], $9::jsonb[], $10::uuid[], $11::text[], $12::text[],
                      $13::int8[])
               AS changed (account_id, id, based_on, cancellation_reason, customer_id, description,
                           holder_page_url, last_setup_error, metadata, payment_method_id,
                           return_url, status, version)
         WHERE setup_intents.account_id = changed.account_id AND setup_intents.id = changed.id
           AND setup_intents.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, reason) as _,
        &column(rows, |row| Some(row.1.terms.customer?.0)) as _,
        &column(rows, |row| row.1.terms.description.as_deref()) as _,
        &column(rows, |row| Some(&*row.1.holder_page.as_ref()?.url)) as _,
        &column(rows, |row| row.1.last_setup_error.as_deref()) as _,
        &column(rows, |row| Json(&row.1.terms.metadata)) as _,
        &column(rows, |row| Some(row.1.terms.payment_method?.0)) as _,
        &column(rows, |row| return_url(row.1)) as _,
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// What a list of setup intents is narrowed down to; all of it must fit.
#[derive(Debug, Default)]
pub struct SetupFilter {
    /// Those of a customer.
    pub customer: Option<CustomerId>,
    /// Those of a method.
    pub payment_method: Option<PaymentMethodId>,
}

/// One page of the account's setup intents. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: SetupFilter,
) -> Result<Listed<SetupIntent>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(setup_rows, "setup_intents", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match (filter.payment_method, filter.customer) {
        (None, None) => rows!(""),
        (None, Some(customer)) => rows!("AND customer_id = $7", customer.0),
        (Some(method), customer) => rows!(
            "AND payment_method_id = $7 AND ($8::uuid IS NULL OR customer_id = $8)",
            method.0,
            customer.map(|customer| customer.0)
        ),
    };
    let setups: Result<_, _> = rows.into_iter().map(SetupIntent::try_from).collect();
    Ok(page.cut(setups?))
}
