//! The table `checkouts`, read and written together with its steps.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    items::{self, StoredItem},
    money::money,
    reads::{page_rows, reads_all, reads_by_id},
    unknown::named,
    writes::{inserts_rows, json, updates_rows},
};
use crate::domain::{
    charge::Card,
    checkout::{AskedBy, Checkout, CheckoutStatus, Step, StepName, StepRefusal, StepState},
    dialect::Dialect,
    ids::{AccountId, CheckoutId, OrderId},
    metadata::Metadata,
    test_cards,
};

/// A row of `checkout_steps`.
#[derive(Serialize, Deserialize)]
struct StoredStep {
    account_id: Uuid,
    checkout_id: Uuid,
    position: i16,
    name: String,
    state: String,
    resource: Option<String>,
    attempts: i32,
}

impl TryFrom<StoredStep> for Step {
    type Error = sqlx::Error;

    fn try_from(row: StoredStep) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: named("name", &row.name, StepName::parse)?,
            state: named("state", &row.state, StepState::parse)?,
            resource: row.resource,
            attempts: row.attempts,
        })
    }
}

impl StoredStep {
    fn of(account: AccountId, checkout: CheckoutId, step: Step) -> Self {
        Self {
            account_id: account.0,
            checkout_id: checkout.0,
            position: step.name.position(),
            name: step.name.as_str().to_owned(),
            state: step.state.as_str().to_owned(),
            resource: step.resource,
            attempts: step.attempts,
        }
    }
}

#[derive(Serialize)]
struct CheckoutRow {
    account_id: Uuid,
    id: Uuid,
    amount: i64,
    currency: String,
    items: Json<Vec<StoredItem>>,
    customer: Option<String>,
    metadata: Json<Metadata>,
    card_token: String,
    card_exp_month: i16,
    card_exp_year: i16,
    status: String,
    order_id: Option<Uuid>,
    failure_code: Option<String>,
    failure_message: Option<String>,
    failure_param: Option<String>,
    decline_code: Option<String>,
    refused_refunds: i32,
    refund_refused_at: Option<DateTime<Utc>>,
    dialect: String,
    api_version: Option<String>,
    request_id: String,
    idempotency_key: String,
    version: i64,
    created_at: DateTime<Utc>,
    /// Written by [`put_steps`].
    #[serde(skip_serializing)]
    steps: Json<Vec<StoredStep>>,
}

impl TryFrom<CheckoutRow> for Checkout {
    type Error = sqlx::Error;

    fn try_from(row: CheckoutRow) -> Result<Self, sqlx::Error> {
        let steps: Result<Vec<_>, _> = row.steps.0.into_iter().map(TryInto::try_into).collect();
        let refusal = row.failure_code.zip(row.failure_message);
        Ok(Self {
            id: CheckoutId(row.id),
            amount: money(row.amount, &row.currency)?,
            items: items::read(row.items.0),
            card: Card {
                card: named("card_token", &row.card_token, test_cards::by_stored_token)?,
                exp_month: row.card_exp_month,
                exp_year: row.card_exp_year,
            },
            customer: row.customer,
            metadata: row.metadata.0,
            order: row.order_id.map(OrderId),
            refusal: refusal.map(|(code, message)| StepRefusal {
                code,
                message,
                param: row.failure_param,
                decline_code: row.decline_code,
            }),
            status: named("status", &row.status, CheckoutStatus::parse)?,
            steps: steps?,
            refused_refunds: row.refused_refunds,
            refund_refused_at: row.refund_refused_at,
            asked_by: AskedBy {
                dialect: named("dialect", &row.dialect, Dialect::parse)?,
                api_version: row.api_version,
                request_id: row.request_id,
                idempotency_key: row.idempotency_key,
            },
            version: row.version,
            created_at: row.created_at,
        })
    }
}

impl CheckoutRow {
    fn of(account: AccountId, checkout: &Checkout) -> Self {
        let (asked_by, refusal) = (checkout.asked_by.clone(), checkout.refusal.as_ref());
        Self {
            account_id: account.0,
            id: checkout.id.0,
            amount: checkout.amount.minor_units,
            currency: checkout.amount.currency.to_string(),
            items: Json(items::stored(&checkout.items)),
            customer: checkout.customer.clone(),
            metadata: Json(checkout.metadata.clone()),
            card_token: checkout.card.card.token().to_owned(),
            card_exp_month: checkout.card.exp_month,
            card_exp_year: checkout.card.exp_year,
            status: checkout.status.as_str().to_owned(),
            order_id: checkout.order.map(|order| order.0),
            failure_code: refusal.map(|refusal| refusal.code.clone()),
            failure_message: refusal.map(|refusal| refusal.message.clone()),
            failure_param: refusal.and_then(|refusal| refusal.param.clone()),
            decline_code: refusal.and_then(|refusal| refusal.decline_code.clone()),
            refused_refunds: checkout.refused_refunds,
            refund_refused_at: checkout.refund_refused_at,
            dialect: asked_by.dialect.as_str().to_owned(),
            api_version: asked_by.api_version,
            request_id: asked_by.request_id,
            idempotency_key: asked_by.idempotency_key,
            version: checkout.version,
            created_at: checkout.created_at,
            steps: Json(Vec::new()),
        }
    }
}

/// `query_as!` with the columns of [`CheckoutRow`] between the two parts of a statement.
macro_rules! checkout_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            CheckoutRow,
            $before
                + r#"
                  account_id, id, amount, currency, items AS "items: Json<Vec<StoredItem>>",
                  customer, metadata AS "metadata: Json<Metadata>", card_token, card_exp_month,
                  card_exp_year, status, order_id, failure_code, failure_message, failure_param,
                  decline_code, refused_refunds, refund_refused_at, dialect, api_version, request_id,
                  idempotency_key, version, created_at,
                  (SELECT json_agg(checkout_steps ORDER BY position)
                     FROM checkout_steps
                    WHERE account_id = checkouts.account_id
                      AND checkout_id = checkouts.id) AS "steps!: Json<Vec<StoredStep>>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

reads_by_id! {
    checkout_rows, "checkouts", CheckoutId => Checkout;
    find;
}

reads_all! {
    /// Checkouts that this transaction has locked: a statement that waits for the lock sees old
    /// steps.
    find_locked: checkout_rows, "checkouts", CheckoutId => Checkout;
    ""
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

inserts_rows! {
    /// Their steps are written by [`put_steps`].
    CheckoutRow of Checkout in "checkouts":
    "account_id, id, amount, currency, items, customer, metadata, card_token, card_exp_month,
     card_exp_year, dialect, request_id, idempotency_key, api_version, version",
}

updates_rows! {
    /// Their steps are written by [`put_steps`].
    CheckoutRow of Checkout in "checkouts":
    "status, order_id, failure_code, failure_message, failure_param, decline_code, refused_refunds,
     refund_refused_at, version",
}

/// Writes the steps of checkouts that this transaction made or locked. Locks all of them, and
/// writes those that changed.
pub async fn put_steps(
    tx: &mut PgConnection,
    checkouts: impl Iterator<Item = (AccountId, &Checkout)>,
) -> Result<(), sqlx::Error> {
    let steps = |(account, checkout): (AccountId, &Checkout)| {
        let id = checkout.id;
        let steps = checkout.steps.clone().into_iter();
        steps.map(move |step| StoredStep::of(account, id, step))
    };
    let steps: Vec<StoredStep> = checkouts.flat_map(steps).collect();
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
    macro_rules! rows {
        ($filter:tt $(, $value:expr)*) => {
            page_rows!(checkout_rows, "checkouts", (connection, account_id, page), $filter $(, $value)*)
        };
    }
    let rows = match customer.as_deref() {
        None => rows!(""),
        Some(customer) => rows!("AND customer = $7", customer),
    };
    let checkouts: Result<_, _> = rows.into_iter().map(Checkout::try_from).collect();
    Ok(page.cut(checkouts?))
}
