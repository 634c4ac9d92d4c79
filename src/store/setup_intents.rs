//! The table `setup_intents`.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    json_text,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::{named, named_if_any},
    writes::{inserts_rows, json, updates_rows},
};
use crate::domain::{
    ids::{AccountId, CustomerId, PaymentMethodId, SetupIntentId},
    metadata::Metadata,
    payment_intent::{AllowRedirects, FutureUsage, HolderPage},
    setup_intent::{SetupCancellationReason, SetupIntent, SetupStatus, SetupTerms},
};

#[derive(Serialize)]
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
    #[serde(serialize_with = "json_text::serialize")]
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

impl SetupIntentRow {
    fn of(account: AccountId, setup: &SetupIntent) -> Self {
        let (terms, page) = (&setup.terms, setup.holder_page.as_ref());
        let automatic = terms.automatic_payment_methods;
        let reason = setup.cancellation_reason;
        Self {
            account_id: account.0,
            id: setup.id.0,
            automatic_payment_methods: automatic.map(|allow| allow.as_str().to_owned()),
            cancellation_reason: reason.map(|reason| reason.as_str().to_owned()),
            client_secret: setup.client_secret.clone(),
            created_at: setup.created_at,
            customer_id: terms.customer.map(|customer| customer.0),
            description: terms.description.clone(),
            holder_page_url: page.map(|page| page.url.clone()),
            last_setup_error: setup.last_setup_error.clone(),
            metadata: Json(terms.metadata.clone()),
            payment_method_id: terms.payment_method.map(|method| method.0),
            return_url: page.and_then(|page| page.return_url.clone()),
            status: setup.status.as_str().to_owned(),
            usage: terms.usage.as_str().to_owned(),
            version: setup.version,
        }
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

inserts_rows! {
    /// Locks nothing that exists but their customers and methods, against deletion.
    SetupIntentRow of SetupIntent in "setup_intents":
    "account_id, id, automatic_payment_methods, client_secret, customer_id, description,
     holder_page_url, last_setup_error, metadata, payment_method_id, return_url, status, usage,
     version",
}

reads_by_id! {
    setup_rows, "setup_intents", SetupIntentId => SetupIntent;
    find;
}

locks_by_id!(setup_rows, "setup_intents", SetupIntentId => SetupIntent);

updates_rows! {
    SetupIntentRow of SetupIntent in "setup_intents":
    "cancellation_reason, customer_id, description, holder_page_url, last_setup_error, metadata,
     payment_method_id, return_url, status, version",
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
