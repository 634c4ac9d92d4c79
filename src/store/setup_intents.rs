//! The table `setup_intents`.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    reads::{page_rows, reads_by_id},
    unknown::{named, named_if_any},
};
use crate::domain::{
    ids::{AccountId, CustomerId, PaymentMethodId, SetupIntentId},
    metadata::Metadata,
    payment_intent::{AllowRedirects, FutureUsage, HolderPage},
    setup_intent::{SetupCancellationReason, SetupIntent, SetupStatus, SetupTerms},
};

struct SetupIntentRow {
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
                  id, automatic_payment_methods, cancellation_reason, client_secret, created_at,
                  customer_id, description, holder_page_url,
                  last_setup_error::text AS last_setup_error,
                  metadata AS "metadata: Json<Metadata>", payment_method_id, return_url, status,
                  usage
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes a new setup intent. Locks nothing that exists but its customer and its method, against
/// their deletion.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    setup: &SetupIntent,
) -> Result<SetupIntent, sqlx::Error> {
    let terms = &setup.terms;
    setup_rows!(
        "
        INSERT INTO setup_intents
               (account_id, id, automatic_payment_methods, client_secret, customer_id, description,
                metadata, payment_method_id, status, usage)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        RETURNING",
        "",
        account_id.0,
        setup.id.0,
        terms.automatic_payment_methods.map(AllowRedirects::as_str),
        setup.client_secret,
        terms.customer.map(|customer| customer.0),
        terms.description,
        Json(&terms.metadata) as _,
        terms.payment_method.map(|method| method.0),
        setup.status.as_str(),
        terms.usage.as_str(),
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

reads_by_id! {
    setup_rows, "setup_intents", SetupIntentId => SetupIntent;
    /// The locks of its method and its customer come after it.
    lock;
}

/// Writes what changes of a setup intent, as it is in `setup`. The caller holds its lock, so that
/// no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    setup: &SetupIntent,
) -> Result<SetupIntent, sqlx::Error> {
    let terms = &setup.terms;
    let page = setup.holder_page.as_ref();
    setup_rows!(
        "
        UPDATE setup_intents
           SET cancellation_reason = $3, customer_id = $4, description = $5,
               holder_page_url = $6, last_setup_error = $7::text::json, metadata = $8,
               payment_method_id = $9, return_url = $10, status = $11
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        setup.id.0,
        setup
            .cancellation_reason
            .map(SetupCancellationReason::as_str),
        terms.customer.map(|customer| customer.0),
        terms.description,
        page.map(|page| &*page.url),
        setup.last_setup_error,
        Json(&terms.metadata) as _,
        terms.payment_method.map(|method| method.0),
        page.and_then(|page| page.return_url.as_deref()),
        setup.status.as_str(),
    )
    .fetch_one(tx)
    .await?
    .try_into()
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
