//! The table `refunds`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    money::money,
    reads::{page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, ChargeId, PaymentIntentId, RefundId},
    metadata::Metadata,
    refund::{NewRefund, Refund, RefundReason, RefundStatus},
};

struct RefundRow {
    id: Uuid,
    amount: i64,
    charge_id: Uuid,
    created_at: DateTime<Utc>,
    currency: String,
    metadata: Json<Metadata>,
    payment_intent_id: Option<Uuid>,
    reason: Option<String>,
    status: String,
}

impl TryFrom<RefundRow> for Refund {
    type Error = sqlx::Error;

    fn try_from(row: RefundRow) -> Result<Self, sqlx::Error> {
        let reason = |text: String| RefundReason::parse(&text).ok_or_else(|| unknown("reason"));
        Ok(Self {
            id: RefundId(row.id),
            charge: ChargeId(row.charge_id),
            intent: row.payment_intent_id.map(PaymentIntentId),
            amount: money(row.amount, &row.currency)?,
            reason: row.reason.map(reason).transpose()?,
            status: RefundStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            metadata: row.metadata.0,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`RefundRow`] between the two parts of a statement. A refund's
/// intent is that of its charge: the release before, which may run beside this one, knows no
/// intents.
macro_rules! refund_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            RefundRow,
            $before
                + r#"
                  id, amount, charge_id, created_at, currency,
                  metadata AS "metadata: Json<Metadata>",
                  (SELECT charges.payment_intent_id
                     FROM charges
                    WHERE charges.account_id = refunds.account_id
                      AND charges.id = refunds.charge_id) AS payment_intent_id,
                  reason, status
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes a refund, pending or succeeded, and counts it on its charge, in one statement, so that
/// neither can be without the other. Locks the charge.
///
/// `refunds_never_exceed_what_was_captured` and `an_authorization_is_released_whole` refuse what a
/// caller let through.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: RefundId,
    new: &NewRefund,
    status: RefundStatus,
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
        SELECT $1, $2, charge.id, $4, charge.currency, $5, $7, $6
          FROM charge
        RETURNING",
        "",
        account_id.0,
        id.0,
        new.charge.0,
        new.amount,
        new.reason.map(RefundReason::as_str),
        Json(&new.metadata) as _,
        status.as_str(),
    )
    .fetch_one(tx)
    .await?
    .try_into()
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
    .await?
    .try_into()
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
            RETURNING account_id, id, amount, charge_id, created_at, currency, metadata, reason,
                      status
        ), charge AS (
            UPDATE charges
               SET amount_refunded = amount_refunded - failed.amount, released = false
              FROM failed
             WHERE charges.account_id = $1 AND charges.id = failed.charge_id
        )
        SELECT",
        "FROM failed AS refunds",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Forgets a pending refund that the processor was never asked for, and no longer counts it; fails
/// if it isn't pending. Locks both it and its charge.
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

reads_by_id! {
    refund_rows, "refunds", RefundId => Refund;
    lock;
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
    .await?
    .try_into()
}

/// The newest refunds of each of `charges`, at most `most` of each. Takes no lock.
pub async fn newest_of_each(
    connection: &mut PgConnection,
    account_id: AccountId,
    charges: &[ChargeId],
    most: i64,
) -> Result<HashMap<ChargeId, Listed<Refund>>, sqlx::Error> {
    let ids: Vec<Uuid> = charges.iter().map(|charge| charge.0).collect();
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
        most + 1,
    )
    .fetch_all(connection)
    .await?;
    let mut by_charge = HashMap::<ChargeId, Vec<Refund>>::new();
    for row in rows {
        let refund = Refund::try_from(row)?;
        by_charge.entry(refund.charge).or_default().push(refund);
    }
    let shown = usize::try_from(most).unwrap_or(usize::MAX);
    let listed = charges.iter().map(|charge| {
        let mut data = by_charge.remove(charge).unwrap_or_default();
        let has_more = data.len() > shown;
        data.truncate(shown);
        (*charge, Listed { data, has_more })
    });
    Ok(listed.collect())
}

/// What a list of refunds is narrowed down to.
#[derive(Debug, Default)]
pub struct RefundFilter {
    /// The charge that was given back.
    pub charge: Option<ChargeId>,
    /// The intent that made that charge.
    pub intent: Option<PaymentIntentId>,
}

/// One page of the account's refunds. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: RefundFilter,
) -> Result<Listed<Refund>, sqlx::Error> {
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(refund_rows, "refunds", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match (filter.charge, filter.intent) {
        (None, None) => rows!(""),
        (Some(charge), None) => rows!("AND charge_id = $7", charge.0),
        // One of its charges promised money, and no other has refunds.
        (charge, Some(intent)) => rows!(
            "AND charge_id = (SELECT intent.charge_id
                                FROM payment_intents AS intent
                               WHERE intent.account_id = $1 AND intent.id = $7)
             AND ($8::uuid IS NULL OR charge_id = $8)",
            intent.0,
            charge.map(|charge| charge.0)
        ),
    };
    let refunds: Result<_, _> = rows.into_iter().map(Refund::try_from).collect();
    Ok(page.cut(refunds?))
}
