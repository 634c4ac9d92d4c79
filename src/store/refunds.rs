//! The table `refunds`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    money::money,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::unknown,
    writes::{deletes_rows, inserts_rows, json, updates_rows},
};
use crate::domain::{
    ids::{AccountId, ChargeId, PaymentIntentId, RefundId},
    metadata::Metadata,
    refund::{Refund, RefundReason, RefundStatus},
};

#[derive(Serialize)]
struct RefundRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    charge_id: Uuid,
    created_at: DateTime<Utc>,
    currency: String,
    metadata: Json<Metadata>,
    payment_intent_id: Option<Uuid>,
    reason: Option<String>,
    status: String,
    version: i64,
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
            version: row.version,
            created_at: row.created_at,
        })
    }
}

impl RefundRow {
    fn of(account: AccountId, refund: &Refund) -> Self {
        Self {
            account_id: account.0,
            id: refund.id.0,
            amount: refund.amount.minor_units,
            charge_id: refund.charge.0,
            created_at: refund.created_at,
            currency: refund.amount.currency.to_string(),
            metadata: Json(refund.metadata.clone()),
            payment_intent_id: refund.intent.map(|intent| intent.0),
            reason: refund.reason.map(|reason| reason.as_str().to_owned()),
            status: refund.status.as_str().to_owned(),
            version: refund.version,
        }
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
                  account_id, id, amount, charge_id, created_at, currency,
                  metadata AS "metadata: Json<Metadata>",
                  (SELECT charges.payment_intent_id
                     FROM charges
                    WHERE charges.account_id = refunds.account_id
                      AND charges.id = refunds.charge_id) AS payment_intent_id,
                  reason, status, version
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

inserts_rows! {
    /// Each counts on its charge, whose row the caller updates.
    RefundRow of Refund in "refunds":
    "account_id, id, charge_id, amount, currency, reason, status, metadata, version",
}

updates_rows! {
    RefundRow of Refund in "refunds": "status, metadata, version",
}

deletes_rows!(RefundId in "refunds": "pending");

reads_by_id! {
    refund_rows, "refunds", RefundId => Refund;
    find;
}

locks_by_id!(refund_rows, "refunds", RefundId => Refund);

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
