//! The table `payment_intents`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
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
    /// Its JSON. An intent that is kept keeps none itself.
    #[serde(skip)]
    before_operation: Option<String>,
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
            before: match row.before_operation {
                Some(before) => {
                    let before: PaymentIntentRow = serde_json::from_str(&before)
                        .map_err(|error| sqlx::Error::Decode(error.into()))?;
                    Some(Box::new(Self::try_from(before)?))
                }
                None => None,
            },
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
                       THEN to_json(json_populate_record(payment_intents, before_operation))::text
                   END AS before_operation,
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
    /// The rows of intents.
    fn all<'a>(
        intents: impl Iterator<Item = (AccountId, &'a PaymentIntent)>,
    ) -> Result<Vec<Self>, sqlx::Error> {
        intents
            .map(|(account, intent)| Self::of(account, intent))
            .collect()
    }

    fn of(account: AccountId, intent: &PaymentIntent) -> Result<Self, sqlx::Error> {
        let (terms, page) = (&intent.terms, intent.holder_page.as_ref());
        let before_operation = match &intent.before {
            Some(before) => {
                let before = serde_json::to_string(&Self::of(account, before)?);
                Some(before.map_err(|error| sqlx::Error::Encode(error.into()))?)
            }
            None => None,
        };
        let shipping = terms.shipping.clone();
        Ok(Self {
            account_id: account.0,
            id: intent.id.0,
            amount: terms.amount.minor_units,
            amount_capturable: intent.amount_capturable,
            amount_received: intent.amount_received,
            automatic_payment_methods: text(
                terms.automatic_payment_methods.map(AllowRedirects::as_str),
            ),
            before_operation,
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
        })
    }
}

/// JSON that a column gives as text, and that is part of its row's JSON.
mod json_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(
        json: &Option<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let json = json.clone().map(RawValue::from_string).transpose();
        json.map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        let json: Option<Box<RawValue>> = Deserialize::deserialize(deserializer)?;
        Ok(json.map(|json| json.get().to_owned()))
    }
}

fn text(name: Option<&'static str>) -> Option<String> {
    name.map(str::to_owned)
}

/// Writes new intents, all of them or none. Locks nothing that exists but their customers and
/// methods, against deletion. Their charges may come later in the transaction.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &PaymentIntent)],
) -> Result<(), sqlx::Error> {
    let rows = PaymentIntentRow::all(rows.iter().copied())?;
    let written = sqlx::query!(
        "
        INSERT INTO payment_intents
               (account_id, id, amount, amount_capturable, amount_received,
                automatic_payment_methods, before_operation, capture_method, charge_id,
                client_secret, confirmation_method, currency, customer_id, description,
                holder_page_url, last_payment_error, latest_charge_id, metadata, payment_method_id,
                receipt_email, request_three_d_secure, return_url, setup_future_usage, shipping,
                statement_descriptor_suffix, status, status_before, version)
        SELECT account_id, id, amount, amount_capturable, amount_received,
               automatic_payment_methods, before_operation::json, capture_method, charge_id,
               client_secret, confirmation_method, currency, customer_id, description,
               holder_page_url, last_payment_error::json, latest_charge_id, metadata,
               payment_method_id, receipt_email, request_three_d_secure, return_url,
               setup_future_usage, shipping, statement_descriptor_suffix, status, status_before,
               version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[], $6::text[],
                      $7::text[], $8::text[], $9::uuid[], $10::text[], $11::text[], $12::text[],
                      $13::uuid[], $14::text[], $15::text[], $16::text[], $17::uuid[], $18::jsonb[],
                      $19::uuid[], $20::text[], $21::text[], $22::text[], $23::text[], $24::jsonb[],
                      $25::text[], $26::text[], $27::text[], $28::int8[])
               AS intent (account_id, id, amount, amount_capturable, amount_received,
                          automatic_payment_methods, before_operation, capture_method, charge_id,
                          client_secret, confirmation_method, currency, customer_id, description,
                          holder_page_url, last_payment_error, latest_charge_id, metadata,
                          payment_method_id, receipt_email, request_three_d_secure, return_url,
                          setup_future_usage, shipping, statement_descriptor_suffix, status,
                          status_before, version)
        ",
        &column(&rows, |row| row.account_id),
        &column(&rows, |row| row.id),
        &column(&rows, |row| row.amount),
        &column(&rows, |row| row.amount_capturable),
        &column(&rows, |row| row.amount_received),
        &column(&rows, |row| row.automatic_payment_methods.as_deref()) as _,
        &column(&rows, |row| row.before_operation.as_deref()) as _,
        &column(&rows, |row| &*row.capture_method) as _,
        &column(&rows, |row| row.charge_id) as _,
        &column(&rows, |row| &*row.client_secret) as _,
        &column(&rows, |row| &*row.confirmation_method) as _,
        &column(&rows, |row| &*row.currency) as _,
        &column(&rows, |row| row.customer_id) as _,
        &column(&rows, |row| row.description.as_deref()) as _,
        &column(&rows, |row| row.holder_page_url.as_deref()) as _,
        &column(&rows, |row| row.last_payment_error.as_deref()) as _,
        &column(&rows, |row| row.latest_charge_id) as _,
        &column(&rows, |row| &row.metadata) as _,
        &column(&rows, |row| row.payment_method_id) as _,
        &column(&rows, |row| row.receipt_email.as_deref()) as _,
        &column(&rows, |row| &*row.request_three_d_secure) as _,
        &column(&rows, |row| row.return_url.as_deref()) as _,
        &column(&rows, |row| row.setup_future_usage.as_deref()) as _,
        &column(&rows, |row| row.shipping.as_ref()) as _,
        &column(&rows, |row| row.statement_descriptor_suffix.as_deref()) as _,
        &column(&rows, |row| &*row.status) as _,
        &column(&rows, |row| row.status_before.as_deref()) as _,
        &column(&rows, |row| row.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

reads_by_id! {
    intent_rows, "payment_intents", PaymentIntentId => PaymentIntent;
    find;
    find_all;
}

locks_by_id!(intent_rows, "payment_intents", PaymentIntentId => PaymentIntent);

/// Writes what changes of intents, each if its row still has the version that was read. Fails if
/// one has another: its lock was forgotten. Locks them. A charge, a cancellation, a release and
/// money that was taken are only ever added.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &PaymentIntent, i64)],
) -> Result<(), sqlx::Error> {
    let based_on = column(rows, |row| row.2);
    let rows = PaymentIntentRow::all(rows.iter().map(|row| (row.0, row.1)))?;
    let written = sqlx::query!(
        "
        UPDATE payment_intents
           SET amount = changed.amount, amount_capturable = changed.amount_capturable,
               amount_received = greatest(payment_intents.amount_received, changed.amount_received),
               automatic_payment_methods = changed.automatic_payment_methods,
               before_operation = changed.before_operation::json,
               canceled_at = coalesce(payment_intents.canceled_at, changed.canceled_at),
               cancellation_reason = changed.cancellation_reason,
               capture_method = changed.capture_method,
               charge_id = coalesce(payment_intents.charge_id, changed.charge_id),
               currency = changed.currency, customer_id = changed.customer_id,
               description = changed.description, holder_page_url = changed.holder_page_url,
               is_authenticated = changed.is_authenticated,
               last_payment_error = changed.last_payment_error::json,
               latest_charge_id = changed.latest_charge_id, metadata = changed.metadata,
               payment_method_id = changed.payment_method_id,
               receipt_email = changed.receipt_email,
               released = released
                          OR (changed.canceled_at IS NOT NULL AND changed.charge_id IS NOT NULL),
               request_three_d_secure = changed.request_three_d_secure,
               return_url = changed.return_url, setup_future_usage = changed.setup_future_usage,
               shipping = changed.shipping,
               statement_descriptor_suffix = changed.statement_descriptor_suffix,
               status = changed.status, status_before = changed.status_before,
               version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[], $6::int8[],
                      $7::text[], $8::text[], $9::timestamptz[], $10::text[], $11::text[],
                      $12::uuid[], $13::text[], $14::uuid[], $15::text[], $16::text[], $17::bool[],
                      $18::text[], $19::uuid[], $20::jsonb[], $21::uuid[], $22::text[], $23::text[],
                      $24::text[], $25::text[], $26::jsonb[], $27::text[], $28::text[], $29::text[],
                      $30::int8[])
               AS changed (account_id, id, based_on, amount, amount_capturable, amount_received,
                           automatic_payment_methods, before_operation, canceled_at,
                           cancellation_reason, capture_method, charge_id, currency, customer_id,
                           description, holder_page_url, is_authenticated, last_payment_error,
                           latest_charge_id, metadata, payment_method_id, receipt_email,
                           request_three_d_secure, return_url, setup_future_usage, shipping,
                           statement_descriptor_suffix, status, status_before, version)
         WHERE payment_intents.account_id = changed.account_id
           AND payment_intents.id = changed.id AND payment_intents.version = changed.based_on
        ",
        &column(&rows, |row| row.account_id),
        &column(&rows, |row| row.id),
        &based_on,
        &column(&rows, |row| row.amount),
        &column(&rows, |row| row.amount_capturable),
        &column(&rows, |row| row.amount_received),
        &column(&rows, |row| row.automatic_payment_methods.as_deref()) as _,
        &column(&rows, |row| row.before_operation.as_deref()) as _,
        &column(&rows, |row| row.canceled_at) as _,
        &column(&rows, |row| row.cancellation_reason.as_deref()) as _,
        &column(&rows, |row| &*row.capture_method) as _,
        &column(&rows, |row| row.charge_id) as _,
        &column(&rows, |row| &*row.currency) as _,
        &column(&rows, |row| row.customer_id) as _,
        &column(&rows, |row| row.description.as_deref()) as _,
        &column(&rows, |row| row.holder_page_url.as_deref()) as _,
        &column(&rows, |row| row.is_authenticated),
        &column(&rows, |row| row.last_payment_error.as_deref()) as _,
        &column(&rows, |row| row.latest_charge_id) as _,
        &column(&rows, |row| &row.metadata) as _,
        &column(&rows, |row| row.payment_method_id) as _,
        &column(&rows, |row| row.receipt_email.as_deref()) as _,
        &column(&rows, |row| &*row.request_three_d_secure) as _,
        &column(&rows, |row| row.return_url.as_deref()) as _,
        &column(&rows, |row| row.setup_future_usage.as_deref()) as _,
        &column(&rows, |row| row.shipping.as_ref()) as _,
        &column(&rows, |row| row.statement_descriptor_suffix.as_deref()) as _,
        &column(&rows, |row| &*row.status) as _,
        &column(&rows, |row| row.status_before.as_deref()) as _,
        &column(&rows, |row| row.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Forgets new intents whose processor was never asked. Fails if one isn't processing. Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, PaymentIntentId)],
) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query!(
        "
        DELETE FROM payment_intents
         USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
         WHERE payment_intents.account_id = gone.account_id AND payment_intents.id = gone.id
           AND payment_intents.status = 'processing'
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.0),
    )
    .execute(tx)
    .await?;
    all_written(deleted.rows_affected(), rows.len())
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
