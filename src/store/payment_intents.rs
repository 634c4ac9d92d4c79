//! The table `payment_intents`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    json_text,
    money::money,
    people::StoredShipping,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::{named, named_if_any},
    writes::{deletes_rows, inserts_rows, json, updates_rows},
};
use crate::domain::{
    ids::{AccountId, ChargeId, CustomerId, PaymentIntentId, PaymentMethodId},
    metadata::Metadata,
    payment_intent::{
        AllowRedirects, CancellationReason, CaptureMethod, ConfirmationMethod, FutureUsage,
        HolderPage, IntentStatus, IntentTerms, PaymentIntent, ThreeDSecure,
    },
};

/// An intent as the table holds it, and as `before_operation` does: an object with a member for
/// each column. A column that an older release did not keep there is the row's own, so that every
/// replica reads what any other wrote.
#[derive(Debug, Serialize, Deserialize)]
struct PaymentIntentRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    amount_capturable: i64,
    amount_received: i64,
    automatic_payment_methods: Option<String>,
    /// An intent that is kept keeps none itself.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    before_operation: Option<Json<Box<PaymentIntentRow>>>,
    cancellation_reason: Option<String>,
    canceled_at: Option<DateTime<Utc>>,
    capture_method: String,
    charge_id: Option<Uuid>,
    client_secret: String,
    confirmation_method: String,
    created_at: DateTime<Utc>,
    currency: String,
    customer_id: Option<Uuid>,
    description: Option<String>,
    holder_page_url: Option<String>,
    is_authenticated: bool,
    #[serde(with = "json_text")]
    last_payment_error: Option<String>,
    latest_charge_id: Option<Uuid>,
    metadata: Json<Metadata>,
    payment_method_id: Option<Uuid>,
    receipt_email: Option<String>,
    request_three_d_secure: String,
    return_url: Option<String>,
    setup_future_usage: Option<String>,
    shipping: Option<Json<StoredShipping>>,
    statement_descriptor_suffix: Option<String>,
    status: String,
    status_before: Option<String>,
    version: i64,
}

impl TryFrom<PaymentIntentRow> for PaymentIntent {
    type Error = sqlx::Error;

    fn try_from(row: PaymentIntentRow) -> Result<Self, sqlx::Error> {
        let return_url = row.return_url;
        Ok(Self {
            id: PaymentIntentId(row.id),
            terms: IntentTerms {
                amount: money(row.amount, &row.currency)?,
                automatic_payment_methods: named_if_any(
                    "automatic_payment_methods",
                    row.automatic_payment_methods.as_deref(),
                    AllowRedirects::parse,
                )?,
                capture_method: named("capture_method", &row.capture_method, CaptureMethod::parse)?,
                confirmation_method: named(
                    "confirmation_method",
                    &row.confirmation_method,
                    ConfirmationMethod::parse,
                )?,
                customer: row.customer_id.map(CustomerId),
                description: row.description,
                metadata: row.metadata.0,
                payment_method: row.payment_method_id.map(PaymentMethodId),
                receipt_email: row.receipt_email,
                request_three_d_secure: named(
                    "request_three_d_secure",
                    &row.request_three_d_secure,
                    ThreeDSecure::parse,
                )?,
                setup_future_usage: named_if_any(
                    "setup_future_usage",
                    row.setup_future_usage.as_deref(),
                    FutureUsage::parse,
                )?,
                shipping: row.shipping.map(|shipping| shipping.0.into()),
                statement_descriptor_suffix: row.statement_descriptor_suffix,
            },
            client_secret: row.client_secret,
            status: named("status", &row.status, IntentStatus::parse)?,
            status_before: named_if_any(
                "status_before",
                row.status_before.as_deref(),
                IntentStatus::parse,
            )?,
            before: row
                .before_operation
                .map(|before| Self::try_from(*before.0).map(Box::new))
                .transpose()?,
            amount_capturable: row.amount_capturable,
            amount_received: row.amount_received,
            charge: row.charge_id.map(ChargeId),
            latest_charge: row.latest_charge_id.map(ChargeId),
            last_payment_error: row.last_payment_error,
            holder_page: row
                .holder_page_url
                .map(|url| HolderPage { url, return_url }),
            is_authenticated: row.is_authenticated,
            canceled_at: row.canceled_at,
            cancellation_reason: named_if_any(
                "cancellation_reason",
                row.cancellation_reason.as_deref(),
                CancellationReason::parse,
            )?,
            version: row.version,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`PaymentIntentRow`] between the two parts of a statement.
macro_rules! intent_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            PaymentIntentRow,
            $before
                + r#"
                  account_id, id, amount, amount_capturable, amount_received,
                  automatic_payment_methods,
                  CASE WHEN before_operation IS NOT NULL
                       THEN to_json(json_populate_record(payment_intents, before_operation))
                   END AS "before_operation: Json<Box<PaymentIntentRow>>",
                  cancellation_reason, canceled_at, capture_method, charge_id, client_secret,
                  confirmation_method, created_at, currency, customer_id, description,
                  holder_page_url, is_authenticated,
                  last_payment_error::text AS last_payment_error, latest_charge_id,
                  metadata AS "metadata: Json<Metadata>", payment_method_id, receipt_email,
                  request_three_d_secure, return_url, setup_future_usage,
                  shipping AS "shipping: Json<StoredShipping>", statement_descriptor_suffix, status,
                  status_before, version
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

impl PaymentIntentRow {
    fn of(account: AccountId, intent: &PaymentIntent) -> Self {
        let (terms, page) = (&intent.terms, intent.holder_page.as_ref());
        let before = intent.before.as_deref().map(|before| Self {
            before_operation: None,
            ..Self::of(account, before)
        });
        let shipping = terms.shipping.clone();
        Self {
            account_id: account.0,
            id: intent.id.0,
            amount: terms.amount.minor_units,
            amount_capturable: intent.amount_capturable,
            amount_received: intent.amount_received,
            automatic_payment_methods: text(
                terms.automatic_payment_methods.map(AllowRedirects::as_str),
            ),
            before_operation: before.map(|before| Json(Box::new(before))),
            cancellation_reason: text(intent.cancellation_reason.map(CancellationReason::as_str)),
            canceled_at: intent.canceled_at,
            capture_method: terms.capture_method.as_str().to_owned(),
            charge_id: intent.charge.map(|charge| charge.0),
            client_secret: intent.client_secret.clone(),
            confirmation_method: terms.confirmation_method.as_str().to_owned(),
            created_at: intent.created_at,
            currency: terms.amount.currency.to_string(),
            customer_id: terms.customer.map(|customer| customer.0),
            description: terms.description.clone(),
            holder_page_url: page.map(|page| page.url.clone()),
            is_authenticated: intent.is_authenticated,
            last_payment_error: intent.last_payment_error.clone(),
            latest_charge_id: intent.latest_charge.map(|charge| charge.0),
            metadata: Json(terms.metadata.clone()),
            payment_method_id: terms.payment_method.map(|method| method.0),
            receipt_email: terms.receipt_email.clone(),
            request_three_d_secure: terms.request_three_d_secure.as_str().to_owned(),
            return_url: page.and_then(|page| page.return_url.clone()),
            setup_future_usage: text(terms.setup_future_usage.map(FutureUsage::as_str)),
            shipping: shipping.map(|shipping| Json(StoredShipping::from(shipping))),
            statement_descriptor_suffix: terms.statement_descriptor_suffix.clone(),
            status: intent.status.as_str().to_owned(),
            status_before: text(intent.status_before.map(IntentStatus::as_str)),
            version: intent.version,
        }
    }
}

fn text(name: Option<&'static str>) -> Option<String> {
    name.map(str::to_owned)
}

inserts_rows! {
    /// Locks nothing that exists but their customers and methods, against deletion. Their charges
    /// may come later in the transaction.
    PaymentIntentRow of PaymentIntent in "payment_intents":
    "account_id, id, amount, amount_capturable, amount_received, automatic_payment_methods,
     before_operation, capture_method, charge_id, client_secret, confirmation_method, currency,
     customer_id, description, holder_page_url, last_payment_error, latest_charge_id, metadata,
     payment_method_id, receipt_email, request_three_d_secure, return_url, setup_future_usage,
     shipping, statement_descriptor_suffix, status, status_before, version",
}

reads_by_id! {
    intent_rows, "payment_intents", PaymentIntentId => PaymentIntent;
    find;
    find_all;
}

locks_by_id!(intent_rows, "payment_intents", PaymentIntentId => PaymentIntent);

updates_rows! {
    /// A charge, a cancellation, a release and money that was taken are only ever added.
    PaymentIntentRow of PaymentIntent in "payment_intents":
    "amount, amount_capturable, automatic_payment_methods, before_operation, cancellation_reason,
     capture_method, currency, customer_id, description, holder_page_url, is_authenticated,
     last_payment_error, latest_charge_id, metadata, payment_method_id, receipt_email,
     request_three_d_secure, return_url, setup_future_usage, shipping, statement_descriptor_suffix,
     status, status_before, version",
    "amount_received" = "greatest(old.amount_received, new.amount_received)",
    "canceled_at" = "coalesce(old.canceled_at, new.canceled_at)",
    "charge_id" = "coalesce(old.charge_id, new.charge_id)",
    "released" = "old.released
                  OR (new.canceled_at IS NOT NULL AND new.charge_id IS NOT NULL)",
}

deletes_rows!(PaymentIntentId in "payment_intents": "processing");

/// One page of the account's intents, those of one customer if one is given. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    customer: Option<CustomerId>,
) -> Result<Listed<PaymentIntent>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(intent_rows, "payment_intents", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match customer {
        None => rows!(""),
        Some(customer) => rows!("AND customer_id = $7", customer.0),
    };
    let intents: Result<_, _> = rows.into_iter().map(PaymentIntent::try_from).collect();
    Ok(page.cut(intents?))
}
