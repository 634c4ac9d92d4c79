//! The table `refunds`.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::page::{Cursor, Listed, Page};
use crate::domain::{
    charge::Charge,
    ids::{AccountId, ChargeId, RefundId},
    list::{Expandable, List},
    params::Metadata,
    refund::{NewRefund, Refund},
};

/// How many refunds an expanded charge shows; the list at its `url` has the rest.
const EXPANDED_REFUNDS_MAX: i64 = 10;

struct Row {
    id: Uuid,
    amount: i64,
    charge_id: Uuid,
    created_at: DateTime<Utc>,
    currency: String,
    metadata: Json<Metadata>,
    reason: Option<String>,
    status: String,
}

impl From<Row> for Refund {
    fn from(row: Row) -> Self {
        Self {
            id: RefundId(row.id).to_string(),
            object: "refund",
            amount: row.amount,
            balance_transaction: (),
            charge: Expandable::Id(ChargeId(row.charge_id).to_string()),
            created: row.created_at.timestamp(),
            currency: row.currency,
            metadata: row.metadata.0,
            payment_intent: (),
            reason: row.reason,
            status: row.status,
        }
    }
}

/// `query_as!` with the columns of [`Row`] between the two parts of a statement.
macro_rules! refund_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            $before
                + r#"
                  id, amount, charge_id, created_at, currency,
                  metadata AS "metadata: Json<Metadata>", reason, status
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// How a refund begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewStatus {
    /// Done.
    Succeeded,
    /// The processor is about to be asked.
    Pending,
}

/// Writes a refund of `amount` and counts it on its charge, in one statement, so that neither can
/// be without the other. Locks the charge.
///
/// `refunds_never_exceed_what_was_captured` and `an_authorisation_is_released_whole` refuse what a
/// caller let through.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
    charge: ChargeId,
    amount: i64,
    new: &NewRefund,
    status: NewStatus,
) -> Result<Refund, sqlx::Error> {
    refund_rows!(
        "
        WITH charge AS (
            UPDATE charges
               SET amount_refunded = amount_refunded + $4, released = NOT captured
             WHERE account_id = $1 AND id = $3
            RETURNING id, currency
        )
        INSERT INTO refunds
               (account_id, id, charge_id, amount, currency, reason, status, metadata)
        SELECT $1, $2, charge.id, $4, charge.currency, $5, $7, $6 FROM charge
        RETURNING",
        "",
        account_id.0,
        id.0,
        charge.0,
        amount,
        new.reason,
        Json(&new.metadata) as _,
        match status {
            NewStatus::Succeeded => "succeeded",
            NewStatus::Pending => "pending",
        },
    )
    .fetch_one(tx)
    .await
    .map(Refund::from)
}

/// Makes a pending refund succeeded; fails if it isn't pending. Locks it.
pub async fn succeed(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
) -> Result<Refund, sqlx::Error> {
    refund_rows!(
        "
        UPDATE refunds
           SET status = 'succeeded'
         WHERE account_id = $1 AND id = $2 AND status = 'pending'
        RETURNING",
        "",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await
    .map(Refund::from)
}

/// Makes a pending refund failed and no longer counts it; fails if it isn't pending. Locks it and
/// its charge.
pub async fn fail(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
) -> Result<Refund, sqlx::Error> {
    refund_rows!(
        "
        WITH failed AS (
            UPDATE refunds
               SET status = 'failed'
             WHERE account_id = $1 AND id = $2 AND status = 'pending'
            RETURNING id, amount, charge_id, created_at, currency, metadata, reason, status
        ), charge AS (
            UPDATE charges
               SET amount_refunded = amount_refunded - failed.amount, released = false
              FROM failed
             WHERE charges.account_id = $1 AND charges.id = failed.charge_id
        )
        SELECT",
        "FROM failed",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await
    .map(Refund::from)
}

/// Forgets a pending refund that the processor was never asked for, and no longer counts it; fails if
/// it isn't pending. Locks both it and its charge.
pub async fn delete_pending(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        WITH gone AS (
            DELETE FROM refunds
             WHERE account_id = $1 AND id = $2 AND status = 'pending'
            RETURNING charge_id, amount
        )
        UPDATE charges
           SET amount_refunded = amount_refunded - gone.amount, released = false
          FROM gone
         WHERE charges.account_id = $1 AND charges.id = gone.charge_id
        RETURNING charges.id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// One refund of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
) -> Result<Option<Refund>, sqlx::Error> {
    refund_rows!(
        "SELECT",
        "FROM refunds WHERE account_id = $1 AND id = $2",
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Refund::from))
}

/// The same, and nobody else changes it until the transaction ends.
pub async fn lock(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
) -> Result<Option<Refund>, sqlx::Error> {
    refund_rows!(
        "SELECT",
        "FROM refunds WHERE account_id = $1 AND id = $2 FOR NO KEY UPDATE",
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await
    .map(|row| row.map(Refund::from))
}

/// Writes what a client may change of a refund, as it is in `refund`. The caller holds its lock, so
/// that no change in between is lost.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
    refund: &Refund,
) -> Result<Refund, sqlx::Error> {
    refund_rows!(
        "
        UPDATE refunds
           SET metadata = $3
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        id.0,
        Json(&refund.metadata) as _,
    )
    .fetch_one(tx)
    .await
    .map(Refund::from)
}

/// Gives each charge the list of its newest refunds; `prefix` is what the lists' `url` starts with.
/// Takes no lock.
pub async fn expand_in(
    connection: &mut PgConnection,
    account_id: AccountId,
    prefix: &str,
    charges: &mut [Charge],
) -> Result<(), sqlx::Error> {
    let ids: Vec<Uuid> = charges
        .iter()
        .filter_map(|charge| ChargeId::parse(&charge.id).map(|id| id.0))
        .collect();
    // One row more than is shown tells whether there are more.
    let rows = refund_rows!(
        "SELECT",
        "
          FROM refunds
         WHERE account_id = $1
           AND id IN (
               SELECT newest.id
                 FROM unnest($2::uuid[]) AS asked (charge_id)
                CROSS JOIN LATERAL (
                      SELECT id
                        FROM refunds
                       WHERE account_id = $1 AND charge_id = asked.charge_id
                       ORDER BY id DESC LIMIT $3
                      ) AS newest
               )
         ORDER BY id DESC",
        account_id.0,
        &ids,
        EXPANDED_REFUNDS_MAX + 1,
    )
    .fetch_all(connection)
    .await?;
    let mut by_charge = HashMap::<String, Vec<Refund>>::new();
    for row in rows {
        let charge = ChargeId(row.charge_id).to_string();
        by_charge.entry(charge).or_default().push(row.into());
    }
    let shown = usize::try_from(EXPANDED_REFUNDS_MAX).unwrap_or(usize::MAX);
    for charge in charges {
        let mut refunds = by_charge.remove(&charge.id).unwrap_or_default();
        let has_more = refunds.len() > shown;
        refunds.truncate(shown);
        let url = format!("{prefix}/charges/{}/refunds", charge.id);
        charge.refunds = Some(List::new(refunds, has_more, url));
    }
    Ok(())
}

/// What a list of refunds is narrowed down to.
#[derive(Debug, Default)]
pub struct Filter {
    /// The charge that was given back.
    pub charge: Option<ChargeId>,
}

/// One page of the account's refunds; `None` if its cursor names none of them. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: &Filter,
) -> Result<Option<Listed<Refund>>, sqlx::Error> {
    if let Some(cursor) = page.cursor.id()
        && find(&mut *connection, account_id, RefundId(cursor))
            .await?
            .is_none()
    {
        return Ok(None);
    }
    // Two statements that differ in their order: each walks the primary key and stops.
    macro_rules! rows {
        ($order:tt) => {
            refund_rows!(
                "SELECT",
                "
                  FROM refunds
                 WHERE account_id = $1
                   AND ($2::uuid IS NULL OR id < $2)
                   AND ($3::uuid IS NULL OR id > $3)
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                   AND ($6::uuid IS NULL OR charge_id = $6)
                 ORDER BY id "
                    + $order
                    + " LIMIT $7",
                account_id.0,
                page.cursor.older_than(),
                page.cursor.newer_than(),
                page.created_from,
                page.created_before,
                filter.charge.map(|charge| charge.0),
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
    Ok(Some(page.cut(rows.into_iter().map(Refund::from).collect())))
}
