//! The table `checkouts`, read and written together with its steps.

use serde::Serialize;

use super::rows::{self, *};
use crate::domain::checkout::{Checkout, Step};

table! {
    Checkout by CheckoutId in "checkouts" as
    "to_jsonb(checkouts) || jsonb_build_object('steps',
            (SELECT jsonb_agg(step ORDER BY position)
               FROM checkout_steps AS step
              WHERE step.account_id = checkouts.account_id AND step.checkout_id = checkouts.id))";
    find();
    /// Checkouts that this transaction has locked: a statement that waits for the lock sees old
    /// steps.
    read as find_locked("");
    /// Their steps are written by [`put_steps`].
    insert_all(
        "account_id, id, amount, currency, items, customer, metadata, card_token, card_exp_month,
         card_exp_year, dialect, request_id, idempotency_key, api_version, version",
    );
    /// Their steps are written by [`put_steps`].
    update_all(
        "status, order_id, failure_code, failure_message, failure_param, decline_code,
         refused_refunds, refund_refused_at, version",
    );
}

/// A row of `checkout_steps`.
#[derive(Serialize)]
struct StepRow<'a> {
    account_id: AccountId,
    checkout_id: CheckoutId,
    position: i16,
    #[serde(flatten)]
    step: &'a Step,
}

/// Reads and locks checkouts, in the order of their accounts and ids. One that is not there is no
/// error. No other transaction runs a step of them until this one ends.
pub async fn lock_all(
    tx: &mut PgConnection,
    ids: &[(AccountId, CheckoutId)],
) -> Result<Vec<(AccountId, Checkout)>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query!(
        "
        SELECT id
          FROM checkouts
          JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id) USING (account_id, id)
         ORDER BY account_id, id
           FOR NO KEY UPDATE OF checkouts
        ",
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(&mut *tx)
    .await?;
    find_locked(tx, ids).await
}

/// Writes the steps of checkouts that this transaction made or locked. Locks all of them, and
/// writes those that changed.
pub async fn put_steps<'a>(
    tx: &mut PgConnection,
    checkouts: impl Iterator<Item = (AccountId, &'a Checkout)>,
) -> Result<(), sqlx::Error> {
    let steps = |(account_id, checkout): (AccountId, &'a Checkout)| {
        let steps = checkout.steps.iter();
        steps.map(move |step| StepRow {
            account_id,
            checkout_id: checkout.id,
            position: step.name.position(),
            step,
        })
    };
    let steps: Vec<StepRow<'_>> = checkouts.flat_map(steps).collect();
    if steps.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "
        INSERT INTO checkout_steps AS known
               (account_id, checkout_id, position, name, state, resource, attempts)
        SELECT account_id, checkout_id, position, name, state, resource, attempts
          FROM json_populate_recordset(NULL::checkout_steps, $1::text::json)
            ON CONFLICT (account_id, checkout_id, position)
               DO UPDATE SET state = excluded.state, resource = excluded.resource,
                             attempts = excluded.attempts
                WHERE (known.state, known.resource, known.attempts)
                      IS DISTINCT FROM (excluded.state, excluded.resource, excluded.attempts)
        ",
        json(&steps)?,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets checkouts of which no step was run. Fails if one was. Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, CheckoutId)],
) -> Result<(), sqlx::Error> {
    let deleted = sqlx::query!(
        "
        DELETE FROM checkouts
         USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
         WHERE checkouts.account_id = gone.account_id AND checkouts.id = gone.id
           AND NOT EXISTS (SELECT FROM checkout_steps
                            WHERE account_id = gone.account_id AND checkout_id = gone.id
                              AND state <> 'pending')
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.0),
    )
    .execute(tx)
    .await?;
    all_written(deleted.rows_affected(), rows.len())
}

/// How many checkouts have a refund that the processor refused, and have not ended: counted up to
/// `limit`. Takes no lock.
pub async fn count_refused_refunds(
    connection: &mut PgConnection,
    limit: i64,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT count(*) AS "refused!"
          FROM (SELECT
                  FROM checkouts
                 WHERE status = 'in_progress' AND refused_refunds > 0
                 ORDER BY account_id, id
                 LIMIT $1) AS refused
        "#,
        limit,
    )
    .fetch_one(connection)
    .await
}

/// One page of the account's checkouts. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    customer: Option<String>,
) -> Result<Listed<Checkout>, sqlx::Error> {
    let customer = customer.as_deref();
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_jsonb(checkouts) || jsonb_build_object('steps',
                      (SELECT jsonb_agg(step ORDER BY position)
                         FROM checkout_steps AS step
                        WHERE step.account_id = checkouts.account_id
                          AND step.checkout_id = checkouts.id)) AS "row!: Json<Checkout>"
             FROM checkouts
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match customer {
            None => "";
            Some(customer) => "AND customer = $7", customer;
        }
    };
    Ok(listed(page, rows))
}
