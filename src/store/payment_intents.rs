//! The table `payment_intents`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    money::money,
    people::StoredShipping,
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::{named, named_if_any},
};
use crate::domain::{
    ids::{AccountId, ChargeId, CustomerId, PaymentIntentId, PaymentMethodId},
    metadata::Metadata,
    payment_intent::{
        AllowRedirects, CancellationReason, CaptureMethod, ConfirmationMethod, FutureUsage,
        HolderPage, IntentStatus, IntentTerms, PaymentIntent, ThreeDSecure,
    },
};

struct PaymentIntentRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    amount_capturable: i64,
    amount_received: i64,
    automatic_payment_methods: Option<String>,
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

/// Writes new intents, all of them or none. Nothing was asked for them yet; [`update`] writes what
/// follows. Locks nothing that exists but their customers and methods, against deletion.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &PaymentIntent)],
) -> Result<(), sqlx::Error> {
    let shipping = |intent: &PaymentIntent| {
        let shipping = intent.terms.shipping.clone();
        shipping.map(|shipping| Json(StoredShipping::from(shipping)))
    };
    let written = sqlx::query!(
        "
        INSERT INTO payment_intents
               (account_id, id, amount, automatic_payment_methods, capture_method, client_secret,
                confirmation_method, currency, customer_id, description, metadata,
                payment_method_id, receipt_email, request_three_d_secure, setup_future_usage,
                shipping, statement_descriptor_suffix, status)
        SELECT account_id, id, amount, automatic_payment_methods, capture_method, client_secret,
               confirmation_method, currency, customer_id, description, metadata,
               payment_method_id, receipt_email, request_three_d_secure, setup_future_usage,
               shipping, statement_descriptor_suffix, status
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::text[], $6::text[],
                      $7::text[], $8::text[], $9::uuid[], $10::text[], $11::jsonb[], $12::uuid[],
                      $13::text[], $14::text[], $15::text[], $16::jsonb[], $17::text[], $18::text[])
               AS intent (account_id, id, amount, automatic_payment_methods, capture_method,
                          client_secret, confirmation_method, currency, customer_id, description,
                          metadata, payment_method_id, receipt_email, request_three_d_secure,
                          setup_future_usage, shipping, statement_descriptor_suffix, status)
        ",
        &column(rows, |(account, _)| account.0),
        &column(rows, |(_, intent)| intent.id.0),
        &column(rows, |(_, intent)| intent.terms.amount.minor_units),
        &column(rows, |(_, intent)| {
            let automatic = intent.terms.automatic_payment_methods;
            automatic.map(AllowRedirects::as_str)
        }) as _,
        &column(rows, |(_, intent)| intent.terms.capture_method.as_str()) as _,
        &column(rows, |(_, intent)| &*intent.client_secret) as _,
        &column(rows, |(_, intent)| intent
            .terms
            .confirmation_method
            .as_str()) as _,
        &column(rows, |(_, intent)| intent.terms.amount.currency.to_string()),
        &column(rows, |(_, intent)| intent
            .terms
            .customer
            .map(|customer| customer.0)) as _,
        &column(rows, |(_, intent)| intent.terms.description.as_deref()) as _,
        &column(rows, |(_, intent)| Json(&intent.terms.metadata)) as _,
        &column(rows, |(_, intent)| intent
            .terms
            .payment_method
            .map(|method| method.0)) as _,
        &column(rows, |(_, intent)| intent.terms.receipt_email.as_deref()) as _,
        &column(rows, |(_, intent)| intent
            .terms
            .request_three_d_secure
            .as_str()) as _,
        &column(rows, |(_, intent)| {
            intent.terms.setup_future_usage.map(FutureUsage::as_str)
        }) as _,
        &column(rows, |(_, intent)| shipping(intent)) as _,
        &column(rows, |(_, intent)| intent
            .terms
            .statement_descriptor_suffix
            .as_deref()) as _,
        &column(rows, |(_, intent)| intent.status.as_str()) as _,
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

reads_by_id! {
    intent_rows, "payment_intents", PaymentIntentId => PaymentIntent;
    /// It is the first lock of each verb: intent, charge, method, customer.
    lock;
    find_all;
}

locks_by_id!(intent_rows, "payment_intents", PaymentIntentId => PaymentIntent);

/// Writes what changes of an intent, as it is in `intent`. The caller holds its lock, so that no
/// change in between is lost. When it was canceled is the transaction's time. Its charge, its
/// cancellation, its release and the money taken are only ever added, so that the CHECKs refuse the
/// second of two changes that race without the lock: `a_canceled_intent_has_no_succeeded_charge`,
/// `a_canceled_intent_stays_canceled`, `captured_and_released_money_is_what_was_authorized`.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    intent: &PaymentIntent,
) -> Result<PaymentIntent, sqlx::Error> {
    let terms = &intent.terms;
    let page = intent.holder_page.as_ref();
    intent_rows!(
        "
        UPDATE payment_intents
           SET amount = $3, amount_capturable = $4,
               amount_received = greatest(amount_received, $5),
               canceled_at = coalesce(canceled_at, CASE WHEN $6::bool THEN now() END),
               cancellation_reason = $7,
               capture_method = $8, charge_id = coalesce(charge_id, $9), currency = $10,
               customer_id = $11, description = $12, holder_page_url = $13,
               is_authenticated = $14, last_payment_error = $15::text::json,
               latest_charge_id = $16, metadata = $17, payment_method_id = $18,
               receipt_email = $19, request_three_d_secure = $20, return_url = $21,
               setup_future_usage = $22, shipping = $23, statement_descriptor_suffix = $24,
               status = $25, status_before = $26,
               released = released OR ($6 AND $9::uuid IS NOT NULL),
               automatic_payment_methods = $27,
               before_operation = CASE WHEN $25 = 'processing'
                                         OR $25 = 'requires_capture' AND status = $25
                                       THEN before_operation END,
               version = version + 1
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        intent.id.0,
        terms.amount.minor_units,
        intent.amount_capturable,
        intent.amount_received,
        intent.canceled_at.is_some(),
        intent.cancellation_reason.map(CancellationReason::as_str),
        terms.capture_method.as_str(),
        intent.charge.map(|charge| charge.0),
        terms.amount.currency.to_string(),
        terms.customer.map(|customer| customer.0),
        terms.description,
        page.map(|page| &*page.url),
        intent.is_authenticated,
        intent.last_payment_error,
        intent.latest_charge.map(|charge| charge.0),
        Json(&terms.metadata) as _,
        terms.payment_method.map(|method| method.0),
        terms.receipt_email,
        terms.request_three_d_secure.as_str(),
        page.and_then(|page| page.return_url.as_deref()),
        terms.setup_future_usage.map(FutureUsage::as_str),
        terms
            .shipping
            .clone()
            .map(|shipping| Json(StoredShipping::from(shipping))) as _,
        terms.statement_descriptor_suffix,
        intent.status.as_str(),
        intent.status_before.map(IntentStatus::as_str),
        terms.automatic_payment_methods.map(AllowRedirects::as_str),
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Keeps all that a confirmation, a capture or a cancellation may change of an intent before the
/// processor is asked, as it is now. The caller holds its lock, and has changed nothing yet.
pub async fn remember(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentIntentId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE payment_intents
           SET before_operation = json_build_object(
               'cancellation_reason', cancellation_reason,
               'capture_method', capture_method,
               'holder_page_url', holder_page_url,
               'is_authenticated', is_authenticated,
               'last_payment_error', last_payment_error,
               'latest_charge_id', latest_charge_id,
               'metadata', metadata,
               'receipt_email', receipt_email,
               'request_three_d_secure', request_three_d_secure,
               'return_url', return_url,
               'setup_future_usage', setup_future_usage,
               'shipping', shipping,
               'statement_descriptor_suffix', statement_descriptor_suffix,
               'status', status)
         WHERE account_id = $1 AND id = $2
        ",
        account_id.0,
        id.0,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Makes an intent what it was when [`remember`] kept it, for an operation that was never executed.
/// Fails if nothing is kept of it. Locks it.
pub async fn restore(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentIntentId,
) -> Result<PaymentIntent, sqlx::Error> {
    intent_rows!(
        "
        UPDATE payment_intents
           SET (cancellation_reason, capture_method, holder_page_url, is_authenticated,
                last_payment_error, latest_charge_id, metadata, receipt_email,
                request_three_d_secure, return_url, setup_future_usage, shipping,
                statement_descriptor_suffix, status)
               = (SELECT kept.cancellation_reason, kept.capture_method, kept.holder_page_url,
                         kept.is_authenticated, kept.last_payment_error, kept.latest_charge_id,
                         kept.metadata, kept.receipt_email, kept.request_three_d_secure,
                         kept.return_url, kept.setup_future_usage, kept.shipping,
                         kept.statement_descriptor_suffix, kept.status
                    FROM json_populate_record(payment_intents, before_operation) AS kept),
               status_before = NULL, before_operation = NULL, version = version + 1
         WHERE account_id = $1 AND id = $2 AND before_operation IS NOT NULL
        RETURNING",
        "",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Forgets a new intent whose processor was never asked; fails if it isn't processing. Locks it.
pub async fn delete_processing(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentIntentId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM payment_intents
         WHERE account_id = $1 AND id = $2 AND status = 'processing'
        RETURNING id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

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
