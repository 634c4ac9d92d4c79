//! The table `charges`.

use super::rows::{self, *};
use crate::domain::{charge::Charge, operation::OpenWork};

table! {
    Charge by ChargeId in "charges" as "to_json(charges)";
    find();
    find_all();
    lock_all();
    /// Locks nothing that exists but what they name, against deletion.
    ///
    /// The indexes `an_order_has_one_succeeded_charge` and `an_intent_has_one_succeeded_charge`
    /// refuse the second one of an order or an intent.
    insert_all(
        "account_id, id, amount, amount_captured, currency, captured, status, card_brand,
         card_last4, card_exp_month, card_exp_year, customer, description, statement_descriptor,
         receipt_email, failure_code, decline_code, failure_message, order_id, payment_intent_id,
         payment_method_id, billing_details, card_fingerprint, card_has_cvc, is_authenticated,
         statement_descriptor_suffix, metadata, version",
    );
    update_all(
        "amount_captured, amount_refunded, captured, released, status, failure_code, decline_code,
         failure_message, description, receipt_email, statement_descriptor_suffix, processor,
         metadata, version",
    );
    delete_all("pending");
}

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
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_json(charges) AS "row!: Json<Charge>"
             FROM charges
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match (filter.customer.as_deref(), filter.order, filter.intent) {
            (None, None, None) => "";
            (Some(customer), None, None) => "AND customer = $7", customer;
            (customer, Some(order), None) =>
                "AND order_id = $7 AND ($8::text IS NULL OR customer = $8)",
                order.0, customer;
            (customer, order, Some(intent)) =>
                "AND payment_intent_id = $7 AND ($8::text IS NULL OR customer = $8)
                 AND ($9::uuid IS NULL OR order_id = $9)",
                intent.0, customer, order.map(|order| order.0);
        }
    };
    Ok(listed(page, rows))
}
