//! The table `charges`.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::page::{Cursor, Listed, Page};
use crate::domain::{
    charge::{
        Authorisation, CardDetails, CardSource, Charge, ChargeOutcome, Empty, NewCharge,
        PaymentMethodDetails,
    },
    ids::{AccountId, CardId, ChargeId, OrderId},
    params::Metadata,
};

struct Row {
    id: Uuid,
    amount: i64,
    amount_captured: i64,
    currency: String,
    captured: bool,
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
    metadata: Json<Metadata>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Charge {
    fn from(row: Row) -> Self {
        let failed = row.status == "failed";
        let card = CardDetails {
            brand: row.card_brand,
            exp_month: row.card_exp_month,
            exp_year: row.card_exp_year,
            last4: row.card_last4,
        };
        Self {
            id: ChargeId(row.id).to_string(),
            object: "charge",
            amount: row.amount,
            amount_captured: row.amount_captured,
            amount_refunded: 0,
            balance_transaction: (),
            billing_details: Empty {},
            captured: row.captured,
            created: row.created_at.timestamp(),
            currency: row.currency,
            customer: row.customer,
            description: row.description,
            disputed: false,
            outcome: ChargeOutcome::new(failed, row.decline_code.or(row.failure_code.clone())),
            failure_code: row.failure_code,
            failure_message: row.failure_message,
            invoice: (),
            livemode: false,
            metadata: row.metadata.0,
            order: row.order_id.map(|id| OrderId(id).to_string()),
            paid: !failed,
            payment_intent: (),
            payment_method: (),
            payment_method_details: PaymentMethodDetails {
                card: card.clone(),
                method_type: "card",
            },
            receipt_email: row.receipt_email,
            refunded: false,
            source: CardSource {
                id: CardId(row.id).to_string(),
                object: "card",
                card,
            },
            statement_descriptor: row.statement_descriptor,
            status: row.status,
        }
    }
}

/// Writes a charge with what the processor said of it. Locks nothing that exists but the account,
/// against its deletion.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    new: &NewCharge,
    authorisation: Authorisation,
) -> Result<Charge, sqlx::Error> {
    let decline = match authorisation {
        Authorisation::Approved => None,
        Authorisation::Declined(decline) => Some(decline),
    };
    let captured = decline.is_none() && new.capture;
    sqlx::query_as!(
        Row,
        r#"
        INSERT INTO charges
               (account_id, id, amount, amount_captured, currency, captured, status,
                card_brand, card_last4, card_exp_month, card_exp_year, customer, description,
                statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
                metadata)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                $19)
        RETURNING id, amount, amount_captured, currency, captured, status, card_brand, card_last4,
                  card_exp_month, card_exp_year, customer, description, statement_descriptor,
                  receipt_email, failure_code, decline_code, failure_message, order_id,
                  metadata AS "metadata: Json<Metadata>", created_at
        "#,
        account_id.0,
        id.0,
        new.amount,
        if captured { new.amount } else { 0 },
        new.currency.to_string(),
        captured,
        if decline.is_some() {
            "failed"
        } else {
            "succeeded"
        },
        new.card.card.brand,
        new.card.card.last4,
        new.card.exp_month,
        new.card.exp_year,
        new.customer,
        new.description,
        new.statement_descriptor,
        new.receipt_email,
        decline.map(|decline| decline.code.as_str()),
        decline.and_then(|decline| decline.decline_code),
        decline.map(|decline| decline.message),
        Json(&new.metadata) as _,
    )
    .fetch_one(tx)
    .await
    .map(Charge::from)
}

/// One charge of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<Option<Charge>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"
        SELECT id, amount, amount_captured, currency, captured, status, card_brand, card_last4,
               card_exp_month, card_exp_year, customer, description, statement_descriptor,
               receipt_email, failure_code, decline_code, failure_message, order_id,
               metadata AS "metadata: Json<Metadata>", created_at
          FROM charges
         WHERE account_id = $1 AND id = $2
        "#,
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Charge::from))
}

/// What a list of charges is narrowed down to.
#[derive(Debug, Default)]
pub struct Filter {
    /// The client's own reference.
    pub customer: Option<String>,
    /// The order that was paid.
    pub order: Option<OrderId>,
}

/// One page of the account's charges. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: &Filter,
) -> Result<Listed<Charge>, sqlx::Error> {
    // Two statements that differ in their order: each walks the primary key and stops.
    macro_rules! rows {
        ($order:tt) => {
            sqlx::query_as!(
                Row,
                r#"
                SELECT id, amount, amount_captured, currency, captured, status, card_brand,
                       card_last4, card_exp_month, card_exp_year, customer, description,
                       statement_descriptor, receipt_email, failure_code, decline_code,
                       failure_message, order_id, metadata AS "metadata: Json<Metadata>",
                       created_at
                  FROM charges
                 WHERE account_id = $1
                   AND ($2::uuid IS NULL OR id < $2)
                   AND ($3::uuid IS NULL OR id > $3)
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                   AND ($6::text IS NULL OR customer = $6)
                   AND ($7::uuid IS NULL OR order_id = $7)
                 "#
                    + $order
                    + " LIMIT $8",
                account_id.0,
                page.cursor.older_than(),
                page.cursor.newer_than(),
                page.created_from,
                page.created_before,
                filter.customer,
                filter.order.map(|order| order.0),
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        };
    }
    let rows = match page.cursor {
        Cursor::Newest | Cursor::StartingAfter(_) => rows!("ORDER BY id DESC"),
        Cursor::EndingBefore(_) => rows!("ORDER BY id ASC"),
    };
    Ok(page.cut(rows.into_iter().map(Charge::from).collect()))
}
