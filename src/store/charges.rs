//! The table `charges`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    money::money,
    operations::OpenWork,
    people::StoredBillingDetails,
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    charge::{Charge, ChargeFailure, ChargeStatus, IntentCharge, KeptCard},
    ids::{AccountId, ChargeId, OrderId, PaymentIntentId, PaymentMethodId},
    metadata::Metadata,
};

struct ChargeRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    amount_captured: i64,
    amount_refunded: i64,
    currency: String,
    captured: bool,
    released: bool,
    status: String,
    card_brand: String,
    card_last4: String,
    card_exp_month: i16,
    card_exp_year: i16,
    customer: Option<String>,
    description: Option<String>,
    statement_descriptor: Option<String>,
    receipt_email: Option<String>,
    failure_code: Option<String>,
    decline_code: Option<String>,
    failure_message: Option<String>,
    order_id: Option<Uuid>,
    payment_intent_id: Option<Uuid>,
    payment_method_id: Option<Uuid>,
    billing_details: Option<Json<StoredBillingDetails>>,
    card_fingerprint: Option<String>,
    card_has_cvc: Option<bool>,
    is_authenticated: Option<bool>,
    statement_descriptor_suffix: Option<String>,
    processor: Option<String>,
    metadata: Json<Metadata>,
    version: i64,
    created_at: DateTime<Utc>,
}

impl TryFrom<ChargeRow> for Charge {
    type Error = sqlx::Error;

    fn try_from(row: ChargeRow) -> Result<Self, sqlx::Error> {
        // `a_charge_of_an_intent_has_a_payment_method`
        let by_intent = row.payment_intent_id.zip(row.payment_method_id);
        Ok(Self {
            id: ChargeId(row.id),
            amount: money(row.amount, &row.currency)?,
            amount_captured: row.amount_captured,
            amount_refunded: row.amount_refunded,
            captured: row.captured,
            released: row.released,
            status: ChargeStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            failure: row.failure_code.map(|code| ChargeFailure {
                code,
                decline_code: row.decline_code,
                message: row.failure_message.unwrap_or_default(),
            }),
            card: KeptCard {
                brand: row.card_brand,
                last4: row.card_last4,
                exp_month: row.card_exp_month,
                exp_year: row.card_exp_year,
            },
            customer: row.customer,
            description: row.description,
            statement_descriptor: row.statement_descriptor,
            receipt_email: row.receipt_email,
            order: row.order_id.map(OrderId),
            by_intent: by_intent.map(|(intent, method)| IntentCharge {
                intent: PaymentIntentId(intent),
                method: PaymentMethodId(method),
                billing: row
                    .billing_details
                    .map(|billing| billing.0.into())
                    .unwrap_or_default(),
                fingerprint: row.card_fingerprint.unwrap_or_default(),
                has_cvc: row.card_has_cvc.unwrap_or_default(),
                is_authenticated: row.is_authenticated.unwrap_or_default(),
                statement_descriptor_suffix: row.statement_descriptor_suffix,
            }),
            processor: row.processor,
            metadata: row.metadata.0,
            version: row.version,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`ChargeRow`] between the two parts of a statement.
macro_rules! charge_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            ChargeRow,
            $before
                + r#"
                  account_id, id, amount, amount_captured, amount_refunded, currency, captured,
                  released, status, card_brand, card_last4, card_exp_month, card_exp_year, customer,
                  description, statement_descriptor, receipt_email, failure_code, decline_code,
                  failure_message, order_id, payment_intent_id, payment_method_id,
                  billing_details AS "billing_details: Json<StoredBillingDetails>", card_fingerprint,
                  card_has_cvc, is_authenticated, statement_descriptor_suffix, processor, version,
                  metadata AS "metadata: Json<Metadata>", created_at
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes new charges, all of them or none. Locks nothing that exists but what they name, against
/// deletion.
///
/// The indexes `an_order_has_one_succeeded_charge` and `an_intent_has_one_succeeded_charge` refuse
/// the second one of an order or an intent.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Charge)],
) -> Result<(), sqlx::Error> {
    let of = |row: &(AccountId, &Charge)| row.1.by_intent.clone();
    let billing = |row: &(AccountId, &Charge)| {
        let of = row.1.by_intent.as_ref()?;
        Some(Json(StoredBillingDetails::from(of.billing.clone())))
    };
    let failure = |row: &(AccountId, &Charge)| row.1.failure.clone();
    let intents: Vec<_> = rows.iter().map(of).collect();
    let failures: Vec<_> = rows.iter().map(failure).collect();
    let written = sqlx::query!(
        "
        INSERT INTO charges
               (account_id, id, amount, amount_captured, currency, captured, status, card_brand,
                card_last4, card_exp_month, card_exp_year, customer, description,
                statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
                order_id, payment_intent_id, payment_method_id, billing_details, card_fingerprint,
                card_has_cvc, is_authenticated, statement_descriptor_suffix, metadata, version)
        SELECT account_id, id, amount, amount_captured, currency, captured, status, card_brand,
               card_last4, card_exp_month, card_exp_year, customer, description,
               statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
               order_id, payment_intent_id, payment_method_id, billing_details, card_fingerprint,
               card_has_cvc, is_authenticated, statement_descriptor_suffix, metadata, version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::int8[], $5::text[], $6::bool[],
                      $7::text[], $8::text[], $9::text[], $10::int2[], $11::int2[], $12::text[],
                      $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
                      $19::uuid[], $20::uuid[], $21::uuid[], $22::jsonb[], $23::text[],
                      $24::bool[], $25::bool[], $26::text[], $27::jsonb[], $28::int8[])
               AS new (account_id, id, amount, amount_captured, currency, captured, status,
                       card_brand, card_last4, card_exp_month, card_exp_year, customer,
                       description, statement_descriptor, receipt_email, failure_code,
                       decline_code, failure_message, order_id, payment_intent_id,
                       payment_method_id, billing_details, card_fingerprint, card_has_cvc,
                       is_authenticated, statement_descriptor_suffix, metadata, version)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.1.amount.minor_units),
        &column(rows, |row| row.1.amount_captured),
        &column(rows, |row| row.1.amount.currency.to_string()),
        &column(rows, |row| row.1.captured),
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| row.1.card.brand.as_str()) as _,
        &column(rows, |row| row.1.card.last4.as_str()) as _,
        &column(rows, |row| row.1.card.exp_month),
        &column(rows, |row| row.1.card.exp_year),
        &column(rows, |row| row.1.customer.as_deref()) as _,
        &column(rows, |row| row.1.description.as_deref()) as _,
        &column(rows, |row| row.1.statement_descriptor.as_deref()) as _,
        &column(rows, |row| row.1.receipt_email.as_deref()) as _,
        &column(&failures, |failure| Some(failure.as_ref()?.code.as_str())) as _,
        &column(&failures, |failure| failure
            .as_ref()?
            .decline_code
            .as_deref()) as _,
        &column(&failures, |failure| Some(
            failure.as_ref()?.message.as_str()
        )) as _,
        &column(rows, |row| Some(row.1.order?.0)) as _,
        &column(&intents, |of| Some(of.as_ref()?.intent.0)) as _,
        &column(&intents, |of| Some(of.as_ref()?.method.0)) as _,
        &column(rows, billing) as _,
        &column(&intents, |of| Some(of.as_ref()?.fingerprint.as_str())) as _,
        &column(&intents, |of| Some(of.as_ref()?.has_cvc)) as _,
        &column(&intents, |of| Some(of.as_ref()?.is_authenticated)) as _,
        &column(&intents, |of| of
            .as_ref()?
            .statement_descriptor_suffix
            .as_deref()) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Writes what may change of charges, each if its row still has the version that was read. Fails if
/// one has another: its lock was forgotten. Locks them.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Charge, i64)],
) -> Result<(), sqlx::Error> {
    let failures: Vec<_> = rows.iter().map(|row| row.1.failure.clone()).collect();
    let suffix = |row: &(AccountId, &Charge, i64)| {
        let of = row.1.by_intent.as_ref()?;
        of.statement_descriptor_suffix.clone()
    };
    let written = sqlx::query!(
        "
        UPDATE charges
           SET amount_captured = changed.amount_captured, amount_refunded = changed.amount_refunded,
               captured = changed.captured, released = changed.released, status = changed.status,
               failure_code = changed.failure_code, decline_code = changed.decline_code,
               failure_message = changed.failure_message, description = changed.description,
               receipt_email = changed.receipt_email,
               statement_descriptor_suffix = changed.statement_descriptor_suffix,
               processor = changed.processor, metadata = changed.metadata, version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[], $6::bool[],
                      $7::bool[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
                      $13::text[], $14::text[], $15::text[], $16::jsonb[], $17::int8[])
               AS changed (account_id, id, based_on, amount_captured, amount_refunded, captured,
                           released, status, failure_code, decline_code, failure_message,
                           description, receipt_email, statement_descriptor_suffix, processor,
                           metadata, version)
         WHERE charges.account_id = changed.account_id AND charges.id = changed.id
           AND charges.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, |row| row.1.amount_captured),
        &column(rows, |row| row.1.amount_refunded),
        &column(rows, |row| row.1.captured),
        &column(rows, |row| row.1.released),
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(&failures, |failure| Some(failure.as_ref()?.code.as_str())) as _,
        &column(&failures, |failure| failure
            .as_ref()?
            .decline_code
            .as_deref()) as _,
        &column(&failures, |failure| Some(
            failure.as_ref()?.message.as_str()
        )) as _,
        &column(rows, |row| row.1.description.as_deref()) as _,
        &column(rows, |row| row.1.receipt_email.as_deref()) as _,
        &column(rows, suffix) as _,
        &column(rows, |row| row.1.processor.as_deref()) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Forgets pending charges that the processor was never asked for. Fails if one isn't pending.
/// Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, ChargeId)],
) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query!(
        "
        DELETE FROM charges
         USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
         WHERE charges.account_id = gone.account_id AND charges.id = gone.id
           AND charges.status = 'pending'
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.0),
    )
    .execute(tx)
    .await?;
    all_written(deleted.rows_affected(), rows.len())
}

/// Those of these methods about which a processor across a network is being asked. Takes no lock.
/// Call it under their locks, in a statement of its own.
pub async fn pending_with(
    tx: &mut PgConnection,
    ids: &[(AccountId, PaymentMethodId)],
) -> Result<Vec<(AccountId, PaymentMethodId)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT wanted.account_id AS "account_id!", wanted.id AS "id!"
          FROM UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
         WHERE (SELECT count(*)
                  FROM charges
                 WHERE charges.account_id = wanted.account_id
                   AND charges.payment_method_id = wanted.id
                   AND charges.status = 'pending') > 0
        "#,
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    let ids = rows
        .into_iter()
        .map(|row| (AccountId(row.account_id), PaymentMethodId(row.id)));
    Ok(ids.collect())
}

reads_by_id! {
    charge_rows, "charges", ChargeId => Charge;
    find;
    find_all;
}

locks_by_id!(charge_rows, "charges", ChargeId => Charge);

/// What is unfinished about each of these charges. Takes no lock. Call it under their locks, in a
/// statement of its own: the one that waited for the locks has an old snapshot.
pub async fn open_work(
    tx: &mut PgConnection,
    ids: &[(AccountId, ChargeId)],
) -> Result<HashMap<(AccountId, ChargeId), OpenWork>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT charges.account_id, charges.id,
               -- Counted, so that each is looked up: EXISTS may read the whole tables first.
               (SELECT count(*)
                  FROM operations
                 WHERE operations.account_id = charges.account_id
                   AND operations.charge_id = charges.id
                   AND completed_at IS NULL) > 0 AS "operation!",
               (SELECT count(*)
                  FROM checkouts
                 WHERE checkouts.account_id = charges.account_id
                   AND checkouts.order_id = charges.order_id
                   AND checkouts.status = 'in_progress') > 0 AS "checkout!"
          FROM charges
          JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
            ON charges.account_id = wanted.account_id AND charges.id = wanted.id
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
        ((AccountId(row.account_id), ChargeId(row.id)), open)
    });
    Ok(rows.collect())
}

/// What a list of charges is narrowed down to.
#[derive(Debug, Default)]
pub struct ChargeFilter {
    /// The client's own reference.
    pub customer: Option<String>,
    /// The order that was paid.
    pub order: Option<OrderId>,
    /// The intent that made it.
    pub intent: Option<PaymentIntentId>,
}

/// One page of the account's charges. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: ChargeFilter,
) -> Result<Listed<Charge>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(charge_rows, "charges", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match (filter.customer.as_deref(), filter.order, filter.intent) {
        (None, None, None) => rows!(""),
        (Some(customer), None, None) => rows!("AND customer = $7", customer),
        (customer, Some(order), None) => rows!(
            "AND order_id = $7 AND ($8::text IS NULL OR customer = $8)",
            order.0,
            customer
        ),
        (customer, order, Some(intent)) => rows!(
            "AND payment_intent_id = $7 AND ($8::text IS NULL OR customer = $8)
             AND ($9::uuid IS NULL OR order_id = $9)",
            intent.0,
            customer,
            order.map(|order| order.0)
        ),
    };
    let charges: Result<_, _> = rows.into_iter().map(Charge::try_from).collect();
    Ok(page.cut(charges?))
}
