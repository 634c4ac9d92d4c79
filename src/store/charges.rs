//! The table `charges`.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::page::{Cursor, Listed, Page};
use crate::domain::{
    charge::{
        Authorisation, CardDetails, CardSource, Charge, ChargeOutcome, Empty, NewCharge,
        PaymentMethodDetails, Standing,
    },
    ids::{AccountId, CardId, ChargeId, OrderId},
    list::Expandable,
    params::Metadata,
    test_cards::Decline,
};

struct Row {
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
    metadata: Json<Metadata>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Charge {
    fn from(row: Row) -> Self {
        let standing = match row.status.as_str() {
            "failed" => Standing::Declined,
            "pending" => Standing::Pending,
            _ => Standing::Approved,
        };
        let all_given_back = row.captured && row.amount_refunded == row.amount_captured;
        let card = CardDetails {
            brand: row.card_brand,
            exp_month: row.card_exp_month,
            exp_year: row.card_exp_year,
            funding: "credit",
            last4: row.card_last4,
        };
        Self {
            id: ChargeId(row.id).to_string(),
            object: "charge",
            amount: row.amount,
            amount_captured: row.amount_captured,
            amount_refunded: row.amount_refunded,
            balance_transaction: (),
            billing_details: Empty {},
            captured: row.captured,
            created: row.created_at.timestamp(),
            currency: row.currency,
            customer: row.customer,
            description: row.description,
            disputed: false,
            outcome: ChargeOutcome::new(standing, row.decline_code.or(row.failure_code.clone())),
            failure_code: row.failure_code,
            failure_message: row.failure_message,
            invoice: (),
            livemode: false,
            metadata: row.metadata.0,
            order: row.order_id.map(|id| OrderId(id).to_string()),
            paid: standing == Standing::Approved,
            payment_intent: (),
            payment_method: (),
            payment_method_details: PaymentMethodDetails {
                card: card.clone(),
                method_type: "card",
            },
            receipt_email: row.receipt_email,
            refunded: all_given_back || row.released,
            refunds: None,
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

/// `query_as!` with the columns of [`Row`] between the two parts of a statement.
macro_rules! charge_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            $before
                + r#"
                  id, amount, amount_captured, amount_refunded, currency, captured, released,
                  status, card_brand, card_last4, card_exp_month, card_exp_year, customer,
                  description, statement_descriptor, receipt_email, failure_code, decline_code,
                  failure_message, order_id, metadata AS "metadata: Json<Metadata>", created_at
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes a charge with what the processor said of it, pending if it hasn't been asked; `order` is
/// the one that it was to pay. Locks nothing that exists but the account and the order, against their deletion.
///
/// The index `an_order_has_one_succeeded_charge` refuses the second one of an order.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    new: &NewCharge,
    order: Option<OrderId>,
    authorisation: Option<Authorisation>,
) -> Result<Charge, sqlx::Error> {
    let (status, decline) = match authorisation {
        None => ("pending", None),
        Some(authorisation) => status_and_decline(authorisation),
    };
    let captured = status == "succeeded" && new.capture;
    charge_rows!(
        "
        INSERT INTO charges
               (account_id, id, amount, amount_captured, currency, captured, status,
                card_brand, card_last4, card_exp_month, card_exp_year, customer, description,
                statement_descriptor, receipt_email, failure_code, decline_code, failure_message,
                order_id, metadata)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                $19, $20)
        RETURNING",
        "",
        account_id.0,
        id.0,
        new.amount,
        if captured { new.amount } else { 0 },
        new.currency.to_string(),
        captured,
        status,
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
        order.map(|order| order.0),
        Json(&new.metadata) as _,
    )
    .fetch_one(tx)
    .await
    .map(Charge::from)
}

fn status_and_decline(authorisation: Authorisation) -> (&'static str, Option<Decline>) {
    match authorisation {
        Authorisation::Approved => ("succeeded", None),
        Authorisation::Declined(decline) => ("failed", Some(decline)),
    }
}

/// Writes what `processor` said of a pending charge; `capture` is whether it was asked to take the
/// money at once. Fails if the charge is not pending. Locks the charge.
pub async fn settle(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    authorisation: Authorisation,
    capture: bool,
    processor: &str,
) -> Result<Charge, sqlx::Error> {
    let (status, decline) = status_and_decline(authorisation);
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
        status,
        capture && decline.is_none(),
        decline.map(|decline| decline.code.as_str()),
        decline.and_then(|decline| decline.decline_code),
        decline.map(|decline| decline.message),
        processor,
    )
    .fetch_one(tx)
    .await
    .map(Charge::from)
}

/// Forgets a pending charge that the processor was never asked for; fails if it isn't pending. Locks
/// it.
pub async fn delete_pending(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM charges
         WHERE account_id = $1 AND id = $2 AND status = 'pending'
        RETURNING id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// One charge of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<Option<Charge>, sqlx::Error> {
    charge_rows!(
        "SELECT",
        "FROM charges WHERE account_id = $1 AND id = $2",
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Charge::from))
}

/// The same, and nobody else changes it until the transaction ends.
pub async fn lock(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<Option<Charge>, sqlx::Error> {
    charge_rows!(
        "SELECT",
        "FROM charges WHERE account_id = $1 AND id = $2 FOR NO KEY UPDATE",
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(Charge::from))
}

/// What a charge is tied to, besides what a client sees of it.
#[derive(Debug)]
pub struct Ties {
    /// The processor's answer about it is out, or the checkout that made it has not ended.
    pub is_unsettled: bool,
    /// Its money was moved by a processor across a network, and not by the simulation.
    pub is_across_a_network: bool,
}

/// What ties this charge. Ask it under the charge's lock, in a statement of its own: the one that
/// waited for the lock has an old snapshot.
pub async fn ties(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
) -> Result<Ties, sqlx::Error> {
    sqlx::query_as!(
        Ties,
        r#"
        SELECT processor IS NOT NULL AS "is_across_a_network!",
               EXISTS (SELECT FROM operations
                        WHERE account_id = $1 AND charge_id = $2 AND settled_at IS NULL)
               OR EXISTS (SELECT FROM checkouts
                           WHERE account_id = $1 AND order_id = charges.order_id
                             AND checkouts.status = 'in_progress') AS "is_unsettled!"
          FROM charges
         WHERE account_id = $1 AND id = $2
        "#,
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await
}

/// Takes `amount` of what was promised. Locks the charge.
///
/// `a_released_charge_is_never_captured` and `a_capture_never_exceeds_the_charge` refuse what a
/// caller let through; `None` if it was captured before.
pub async fn capture(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: ChargeId,
    amount: i64,
) -> Result<Option<Charge>, sqlx::Error> {
    charge_rows!(
        "
        UPDATE charges
           SET captured = true, amount_captured = $3
         WHERE account_id = $1 AND id = $2 AND NOT captured
        RETURNING",
        "",
        account_id.0,
        id.0,
        amount,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(Charge::from))
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
    .await
    .map(Charge::from)
}

/// Puts whole charges in the place of their ids. Takes no lock.
pub async fn expand<'a>(
    connection: &mut PgConnection,
    account_id: AccountId,
    references: impl Iterator<Item = &'a mut Expandable<Charge>>,
) -> Result<(), sqlx::Error> {
    let mut wanted = Vec::new();
    for reference in references {
        if let Expandable::Id(text) = &*reference
            && let Some(id) = ChargeId::parse(text)
        {
            wanted.push((id, reference));
        }
    }
    let ids: Vec<Uuid> = wanted.iter().map(|(id, _)| id.0).collect();
    let rows = charge_rows!(
        "SELECT",
        "FROM charges WHERE account_id = $1 AND id = ANY($2)",
        account_id.0,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    let charges: HashMap<Uuid, Charge> = rows.into_iter().map(|row| (row.id, row.into())).collect();
    for (id, reference) in wanted {
        if let Some(charge) = charges.get(&id.0) {
            *reference = Expandable::Object(Box::new(charge.clone()));
        }
    }
    Ok(())
}

/// What a list of charges is narrowed down to.
#[derive(Debug, Default)]
pub struct Filter {
    /// The client's own reference.
    pub customer: Option<String>,
    /// The order that was paid.
    pub order: Option<OrderId>,
}

/// One page of the account's charges; `None` if its cursor names none of them. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: &Filter,
) -> Result<Option<Listed<Charge>>, sqlx::Error> {
    if let Some(cursor) = page.cursor.id()
        && find(&mut *connection, account_id, ChargeId(cursor))
            .await?
            .is_none()
    {
        return Ok(None);
    }
    // Two statements that differ in their order: each walks the primary key and stops.
    macro_rules! rows {
        ($order:tt) => {
            charge_rows!(
                "SELECT",
                "
                  FROM charges
                 WHERE account_id = $1
                   AND ($2::uuid IS NULL OR id < $2)
                   AND ($3::uuid IS NULL OR id > $3)
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                   AND ($6::text IS NULL OR customer = $6)
                   AND ($7::uuid IS NULL OR order_id = $7)
                 ORDER BY id "
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
        Cursor::Newest | Cursor::StartingAfter(_) => rows!("DESC"),
        Cursor::EndingBefore(_) => rows!("ASC"),
    };
    Ok(Some(page.cut(rows.into_iter().map(Charge::from).collect())))
}
