//! The table `refunds`.

use super::rows::{self, *};
use crate::domain::refund::Refund;

// A refund's intent is that of its charge: release 0.2, which may run beside this one, knows no
// intents.
table! {
    Refund by RefundId in "refunds" as
    "to_jsonb(refunds) || jsonb_build_object('payment_intent_id',
            (SELECT payment_intent_id
               FROM charges
              WHERE charges.account_id = refunds.account_id AND charges.id = refunds.charge_id))";
    find();
    lock_all();
    /// Each counts on its charge, whose row the caller updates.
    insert_all("account_id, id, charge_id, amount, currency, reason, status, metadata, version");
    update_all("status, metadata, version");
    delete_all("pending");
}

/// The newest refunds of each of `charges`, at most `most` of each. Takes no lock.
pub async fn newest_of_each(
    connection: &mut PgConnection,
    account_id: AccountId,
    charges: &[ChargeId],
    most: i64,
) -> Result<HashMap<ChargeId, Listed<Refund>>, sqlx::Error> {
    // One row more than is shown tells whether there are more.
    let rows = sqlx::query_scalar!(
        r#"
        SELECT to_jsonb(refunds) || jsonb_build_object('payment_intent_id',
                      (SELECT payment_intent_id
                         FROM charges
                        WHERE charges.account_id = refunds.account_id
                          AND charges.id = refunds.charge_id)) AS "row!: Json<Refund>"
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
         ORDER BY id DESC
        "#,
        account_id.0,
        &column(charges, |charge| charge.0),
        most + 1,
    )
    .fetch_all(connection)
    .await?;
    let mut by_charge = HashMap::<ChargeId, Vec<Refund>>::new();
    for Json(refund) in rows {
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
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_jsonb(refunds) || jsonb_build_object('payment_intent_id',
                      (SELECT payment_intent_id
                         FROM charges
                        WHERE charges.account_id = refunds.account_id
                          AND charges.id = refunds.charge_id)) AS "row!: Json<Refund>"
             FROM refunds
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match (filter.charge, filter.intent) {
            (None, None) => "";
            (Some(charge), None) => "AND charge_id = $7", charge.0;
            // One of its charges promised money, and no other has refunds.
            (charge, Some(intent)) =>
                "AND charge_id = (SELECT intent.charge_id
                                    FROM payment_intents AS intent
                                   WHERE intent.account_id = $1 AND intent.id = $7)
                 AND ($8::uuid IS NULL OR charge_id = $8)",
                intent.0, charge.map(|charge| charge.0);
        }
    };
    Ok(listed(page, rows))
}
