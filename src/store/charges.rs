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
    reads::{page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    charge::{
        Authorization, Charge, ChargeFailure, ChargeStatus, IntentCharge, KeptCard, NewCharge,
    },
    ids::{AccountId, ChargeId, OrderId, PaymentIntentId, PaymentMethodId},
    metadata::Metadata,
};

struct ChargeRow {
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
    metadata: Json<Metadata>,
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
            metadata: row.metadata.0,
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
                  id, amount, amount_captured, amount_refunded, currency, captured, released,
                  status, card_brand, card_last4, card_exp_month, card_exp_year, customer,
                  description, statement_descriptor, receipt_email, failure_code, decline_code,
                  failure_message, order_id, payment_intent_id, payment_method_id,
                  billing_details AS "billing_details: Json<StoredBillingDetails>", card_fingerprint,
                  card_has_cvc, is_authenticated, statement_descriptor_suffix,
                  metadata AS "metadata: Json<Metadata>", created_at
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// A charge that is to be written.
#[derive(Debug)]
pub struct NewChargeRow<'a> {
    /// Whose it is.
    pub account: AccountId,
    /// Its id.
    pub id: ChargeId,
    /// What was asked for.
    pub new: &'a NewCharge,
    /// The order that it is to pay.
    pub order: Option<OrderId>,
    /// The processor's answer; the charge is pending if there is none yet.
    pub said: Option<Authorization>,
}

/// Writes a charge, as [`insert_all`] does, and returns it.
pub async fn insert(
    tx: &mut PgConnection,
    account: AccountId,
    id: ChargeId,
    new: &NewCharge,
    order: Option<OrderId>,
    said: Option<Authorization>,
) -> Result<Charge, sqlx::Error> {
    let row = NewChargeRow {
        account,
        id,
        new,
        order,
        said,
    };
    let created_at = insert_all(tx, &[row]).await?;
    Ok(Charge::made(id, new, order, said, created_at))
}

/// Writes the charge of an intent's confirmation, and returns it. Locks nothing that exists but its
/// intent, against deletion.
///
/// The index `an_intent_has_one_succeeded_charge` refuses a second one that is succeeded or
/// pending.
pub async fn insert_of_intent(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    new: &NewCharge,
    of: &IntentCharge,
    said: Option<Authorization>,
) -> Result<Charge, sqlx::Error> {
    let status = ChargeStatus::of(said);
    let decline = said.and_then(Authorization::decline);
    charge_rows!(
        "
        INSERT INTO charges
               (account_id, id, amount, amount_captured, currency, captured, status, card_brand,
                card_last4, card_exp_month, card_exp_year, customer, description, receipt_email,
                failure_code, decline_code, failure_message, payment_intent_id, payment_method_id,
                billing_details, card_fingerprint, card_has_cvc, is_authenticated,
                statement_descriptor_suffix, metadata)
        VALUES ($1, $2, $3, CASE WHEN $5 THEN $3::bigint ELSE 0 END, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
        RETURNING",
        "",
        account_id.0,
        id.0,
        new.amount.minor_units,
        new.amount.currency.to_string(),
        new.capture && status == ChargeStatus::Succeeded,
        status.as_str(),
        new.card.card.brand,
        new.card.card.last4,
        new.card.exp_month,
        new.card.exp_year,
        new.customer,
        new.description,
        new.receipt_email,
        decline.map(|decline| decline.code.as_str()),
        decline.and_then(|decline| decline.decline_code),
        decline.map(|decline| decline.message),
        of.intent.0,
        of.method.0,
        Json(StoredBillingDetails::from(of.billing.clone())) as _,
        of.fingerprint,
        of.has_cvc,
        of.is_authenticated,
        of.statement_descriptor_suffix,
        Json(&new.metadata) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Writes charges, all of them or none, and returns when: the transaction's time. Locks nothing
/// that exists but their orders, against deletion.
///
/// The index `an_order_has_one_succeeded_charge` refuses the second one of an order.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[NewChargeRow<'_>],
) -> Result<DateTime<Utc>, sqlx::Error> {
    let captured = |row: &NewChargeRow<'_>| {
        row.new.capture && ChargeStatus::of(row.said) == ChargeStatus::Succeeded
    };
    let decline = |row: &NewChargeRow<'_>| row.said.and_then(Authorization::decline);
    let written = sqlx::query_scalar!(
        "
        INSERT INTO charges
               (account_id, id, amount, amount_captured, currency, captured, status, card_brand,
                card_last4, card_exp_month, card_exp_year, customer, description,
                statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
                order_id, metadata)
        SELECT account_id, id, amount, CASE WHEN captured THEN amount ELSE 0 END, currency, captured,
               status, card_brand, card_last4, card_exp_month, card_exp_year, customer, description,
               statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
               order_id, metadata
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::bool[], $6::text[],
                      $7::text[], $8::text[], $9::int2[], $10::int2[], $11::text[], $12::text[],
                      $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::uuid[],
                      $19::jsonb[])
               AS charge (account_id, id, amount, currency, captured, status, card_brand, card_last4,
                          card_exp_month, card_exp_year, customer, description,
                          statement_descriptor, receipt_email, failure_code, decline_code,
                          failure_message, order_id, metadata)
        RETURNING created_at
        ",
        &column(rows, |row| row.account.0),
        &column(rows, |row| row.id.0),
        &column(rows, |row| row.new.amount.minor_units),
        &column(rows, |row| row.new.amount.currency.to_string()),
        &column(rows, captured),
        &column(rows, |row| ChargeStatus::of(row.said).as_str()) as _,
        &column(rows, |row| row.new.card.card.brand) as _,
        &column(rows, |row| row.new.card.card.last4) as _,
        &column(rows, |row| row.new.card.exp_month),
        &column(rows, |row| row.new.card.exp_year),
        &column(rows, |row| row.new.customer.as_deref()) as _,
        &column(rows, |row| row.new.description.as_deref()) as _,
        &column(rows, |row| row.new.statement_descriptor.as_deref()) as _,
        &column(rows, |row| row.new.receipt_email.as_deref()) as _,
        &column(rows, |row| decline(row).map(|decline| decline.code.as_str())) as _,
        &column(rows, |row| decline(row).and_then(|decline| decline.decline_code)) as _,
        &column(rows, |row| decline(row).map(|decline| decline.message)) as _,
        &column(rows, |row| row.order.map(|order| order.0)) as _,
        &column(rows, |row| Json(&row.new.metadata)) as _,
    )
    .fetch_all(tx)
    .await?;
    all_written(&written, rows.len())
}

/// Whether a processor across a network is being asked about this method. Takes no lock: call it
/// under the method's, in a statement of its own.
pub async fn is_pending_with(
    tx: &mut PgConnection,
    account_id: AccountId,
    method: PaymentMethodId,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT EXISTS (SELECT FROM charges
                        WHERE account_id = $1 AND payment_method_id = $2
                          AND status = 'pending') AS "exists!"
        "#,
        account_id.0,
        method.0,
    )
    .fetch_one(tx)
    .await
}

/// Writes the answer of `processor` about a pending charge; `capture` is whether it was asked to
/// take the money at once. Fails if the charge is not pending. Locks the charge.
pub async fn complete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    authorization: Authorization,
    capture: bool,
    processor: &str,
) -> Result<Charge, sqlx::Error> {
    let status = ChargeStatus::of(Some(authorization));
    let decline = authorization.decline();
    charge_rows!(
        "
        UPDATE charges
           SET status = $3, captured = $4, amount_captured = CASE WHEN $4 THEN amount ELSE 0 END,
               failure_code = $5, decline_code = $6, failure_message = $7, processor = $8
         WHERE account_id = $1 AND id = $2 AND status = 'pending'
        RETURNING",
        "",
        account_id.0,
        id.0,
        status.as_str(),
        capture && decline.is_none(),
        decline.map(|decline| decline.code.as_str()),
        decline.and_then(|decline| decline.decline_code),
        decline.map(|decline| decline.message),
        processor,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Forgets a pending charge that the processor was never asked for, and returns the method of an
/// intent's charge; fails if it isn't pending. Locks it.
pub async fn delete_pending(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<Option<PaymentMethodId>, sqlx::Error> {
    let method = sqlx::query_scalar!(
        "
        DELETE FROM charges
         WHERE account_id = $1 AND id = $2 AND status = 'pending'
        RETURNING payment_method_id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(method.map(PaymentMethodId))
}

reads_by_id! {
    charge_rows, "charges", ChargeId => Charge;
    /// An intent's lock comes before, those of its method and its customer after it.
    lock;
    find_all;
}

/// What a charge is tied to, besides what a client sees of it.
#[derive(Debug)]
pub struct ChargeLinks {
    /// What is unfinished about it.
    pub open: OpenWork,
    /// Its money was moved by a processor across a network, and not by the simulation.
    pub is_across_a_network: bool,
}

/// What this charge is linked to. Takes no lock. Call it under the charge's lock, in a statement of
/// its own: the one that waited for the lock has an old snapshot.
pub async fn links(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<ChargeLinks, sqlx::Error> {
    let row = sqlx::query!(
        r#"
        SELECT processor IS NOT NULL AS "is_across_a_network!",
               EXISTS (SELECT FROM operations
                        WHERE account_id = $1 AND charge_id = $2 AND completed_at IS NULL)
                   AS "has_open_operation!",
               EXISTS (SELECT FROM checkouts
                        WHERE account_id = $1 AND order_id = charges.order_id
                          AND checkouts.status = 'in_progress') AS "has_open_checkout!"
          FROM charges
         WHERE account_id = $1 AND id = $2
        "#,
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(ChargeLinks {
        open: OpenWork {
            operation: row.has_open_operation,
            checkout: row.has_open_checkout,
        },
        is_across_a_network: row.is_across_a_network,
    })
}

/// Takes `amount` of what was promised, under another `suffix` if one is given. Locks the charge.
///
/// `a_released_charge_is_never_captured` and `a_capture_never_exceeds_the_charge` refuse what a
/// caller let through; `None` if it was captured before.
pub async fn capture(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    amount: i64,
    suffix: Option<&str>,
) -> Result<Option<Charge>, sqlx::Error> {
    charge_rows!(
        "
        UPDATE charges
           SET captured = true, amount_captured = $3,
               statement_descriptor_suffix = coalesce($4, statement_descriptor_suffix)
         WHERE account_id = $1 AND id = $2 AND NOT captured
        RETURNING",
        "",
        account_id.0,
        id.0,
        amount,
        suffix,
    )
    .fetch_optional(tx)
    .await?
    .map(Charge::try_from)
    .transpose()
}

/// Writes what a client may change of a charge, as it is in `charge`. The caller holds its lock, so
/// that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    charge: &Charge,
) -> Result<Charge, sqlx::Error> {
    charge_rows!(
        "
        UPDATE charges
           SET description = $3, receipt_email = $4, metadata = $5
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        id.0,
        charge.description,
        charge.receipt_email,
        Json(&charge.metadata) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
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
