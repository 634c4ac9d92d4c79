//! The table `refunds`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    money::money,
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, ChargeId, PaymentIntentId, RefundId},
    metadata::Metadata,
    refund::{Refund, RefundReason, RefundStatus},
};

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

/// Writes new refunds, all of them or none. Each counts on its charge, whose row the caller
/// updates.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Refund)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        INSERT INTO refunds
               (account_id, id, charge_id, amount, currency, reason, status, metadata, version)
        SELECT account_id, id, charge_id, amount, currency, reason, status, metadata, version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::int8[], $5::text[], $6::text[],
                      $7::text[], $8::jsonb[], $9::int8[])
               AS new (account_id, id, charge_id, amount, currency, reason, status, metadata,
                       version)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.1.charge.0),
        &column(rows, |row| row.1.amount.minor_units),
        &column(rows, |row| row.1.amount.currency.to_string()),
        &column(rows, |row| row.1.reason.map(RefundReason::as_str)) as _,
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Writes what may change of refunds, each if its row still has the version that was read. Fails if
/// one has another: its lock was forgotten. Locks them.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &Refund, i64)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        UPDATE refunds
           SET status = changed.status, metadata = changed.metadata, version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::jsonb[], $6::int8[])
               AS changed (account_id, id, based_on, status, metadata, version)
         WHERE refunds.account_id = changed.account_id AND refunds.id = changed.id
           AND refunds.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, |row| row.1.status.as_str()) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Forgets pending refunds that the processor was never asked for. Fails if one isn't pending.
/// Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, RefundId)],
) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query!(
        "
        DELETE FROM refunds
         USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
         WHERE refunds.account_id = gone.account_id AND refunds.id = gone.id
           AND refunds.status = 'pending'
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.0),
    )
    .execute(tx)
    .await?;
    all_written(deleted.rows_affected(), rows.len())
}

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
