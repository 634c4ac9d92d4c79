//! The table `charges`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    money::money,
    people::StoredBillingDetails,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::unknown,
    writes::{deletes_rows, inserts_rows, json, updates_rows},
};
use crate::domain::{
    charge::{Charge, ChargeFailure, ChargeStatus, IntentCharge, KeptCard},
    ids::{AccountId, ChargeId, OrderId, PaymentIntentId, PaymentMethodId},
    metadata::Metadata,
    operation::OpenWork,
};

#[derive(Serialize)]
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

impl ChargeRow {
    fn of(account: AccountId, charge: &Charge) -> Self {
        let (failure, intent) = (charge.failure.as_ref(), charge.by_intent.as_ref());
        Self {
            account_id: account.0,
            id: charge.id.0,
            amount: charge.amount.minor_units,
            amount_captured: charge.amount_captured,
            amount_refunded: charge.amount_refunded,
            currency: charge.amount.currency.to_string(),
            captured: charge.captured,
            released: charge.released,
            status: charge.status.as_str().to_owned(),
            card_brand: charge.card.brand.clone(),
            card_last4: charge.card.last4.clone(),
            card_exp_month: charge.card.exp_month,
            card_exp_year: charge.card.exp_year,
            customer: charge.customer.clone(),
            description: charge.description.clone(),
            statement_descriptor: charge.statement_descriptor.clone(),
            receipt_email: charge.receipt_email.clone(),
            failure_code: failure.map(|failure| failure.code.clone()),
            decline_code: failure.and_then(|failure| failure.decline_code.clone()),
            failure_message: failure.map(|failure| failure.message.clone()),
            order_id: charge.order.map(|order| order.0),
            payment_intent_id: intent.map(|of| of.intent.0),
            payment_method_id: intent.map(|of| of.method.0),
            billing_details: intent.map(|of| Json(of.billing.clone().into())),
            card_fingerprint: intent.map(|of| of.fingerprint.clone()),
            card_has_cvc: intent.map(|of| of.has_cvc),
            is_authenticated: intent.map(|of| of.is_authenticated),
            statement_descriptor_suffix: intent
                .and_then(|of| of.statement_descriptor_suffix.clone()),
            processor: charge.processor.clone(),
            metadata: Json(charge.metadata.clone()),
            version: charge.version,
            created_at: charge.created_at,
        }
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

inserts_rows! {
    /// Locks nothing that exists but what they name, against deletion.
    ///
    /// The indexes `an_order_has_one_succeeded_charge` and `an_intent_has_one_succeeded_charge`
    /// refuse the second one of an order or an intent.
    ChargeRow of Charge in "charges":
    "account_id, id, amount, amount_captured, currency, captured, status, card_brand, card_last4,
     card_exp_month, card_exp_year, customer, description, statement_descriptor, receipt_email,
     failure_code, decline_code, failure_message, order_id, payment_intent_id, payment_method_id,
     billing_details, card_fingerprint, card_has_cvc, is_authenticated,
     statement_descriptor_suffix, metadata, version",
}

updates_rows! {
    ChargeRow of Charge in "charges":
    "amount_captured, amount_refunded, captured, released, status, failure_code, decline_code,
     failure_message, description, receipt_email, statement_descriptor_suffix, processor, metadata,
     version",
}

deletes_rows!(ChargeId in "charges": "pending");

/// Those of these methods about which a processor across a network is being asked. Takes no lock.
/// Call it under their locks, in a statement of its own.
pub async fn pending_with(
    tx: &mut PgConnection,
    ids: &[(AccountId, PaymentMethodId)],
) -> Result<Vec<(AccountId, PaymentMethodId)>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
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
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
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
