//! The table `checkouts`, read together with its steps.
//!
//! A step is concluded in the transaction that runs it, under the checkout's lock: [`lock`] first.

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    checkout_steps,
    items::{self, StoredItem},
    money::money,
    reads::page_rows,
    unknown::unknown,
};
use crate::domain::{
    charge::Card,
    checkout::{
        self, Checkout, CheckoutRun, CheckoutStatus, NewCheckout, StepName, StepRefusal, StepState,
    },
    dialect::Dialect,
    ids::{AccountId, CheckoutId, OrderId},
    metadata::Metadata,
    test_cards,
};

/// A row of `checkout_steps`, as it is read together with its checkout.
#[derive(Deserialize)]
struct StoredStep {
    name: String,
    state: String,
    resource: Option<String>,
    attempts: i32,
}

impl TryFrom<StoredStep> for checkout::Step {
    type Error = sqlx::Error;

    fn try_from(row: StoredStep) -> Result<Self, sqlx::Error> {
        Ok(Self {
            name: StepName::parse(&row.name).ok_or_else(|| unknown("name"))?,
            state: StepState::parse(&row.state).ok_or_else(|| unknown("state"))?,
            resource: row.resource,
            attempts: row.attempts,
        })
    }
}

struct CheckoutRow {
    id: Uuid,
    account_id: Uuid,
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
    refund_waits: bool,
    dialect: String,
    api_version: Option<String>,
    request_id: String,
    idempotency_key: String,
    created_at: DateTime<Utc>,
    steps: Json<Vec<StoredStep>>,
}

impl TryFrom<CheckoutRow> for CheckoutRun {
    type Error = sqlx::Error;

    fn try_from(row: CheckoutRow) -> Result<Self, sqlx::Error> {
        let steps: Result<Vec<_>, _> = row.steps.0.into_iter().map(TryInto::try_into).collect();
        let refusal = match (row.failure_code, row.failure_message) {
            (Some(code), Some(message)) => Some(StepRefusal {
                code,
                message,
                param: row.failure_param,
                decline_code: row.decline_code,
            }),
            (None, _) | (_, None) => None,
        };
        Ok(Self {
            account: AccountId(row.account_id),
            card: Card {
                card: test_cards::by_stored_token(&row.card_token)
                    .ok_or_else(|| unknown("card_token"))?,
                exp_month: row.card_exp_month,
                exp_year: row.card_exp_year,
            },
            refused_refunds: row.refused_refunds,
            refund_waits: row.refund_waits,
            dialect: Dialect::parse(&row.dialect).ok_or_else(|| unknown("dialect"))?,
            api_version: row.api_version,
            request_id: row.request_id,
            idempotency_key: row.idempotency_key,
            checkout: Checkout {
                id: CheckoutId(row.id),
                amount: money(row.amount, &row.currency)?,
                items: items::read(row.items.0),
                customer: row.customer,
                metadata: row.metadata.0,
                order: row.order_id.map(OrderId),
                refusal,
                status: CheckoutStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
                steps: steps?,
                created_at: row.created_at,
            },
        })
    }
}

/// `query_as!` with the columns of [`CheckoutRow`] between the two parts of a statement.
macro_rules! checkout_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            CheckoutRow,
            $before
                + r#"
                  id, account_id, amount, currency, items AS "items: Json<Vec<StoredItem>>",
                  customer, metadata AS "metadata: Json<Metadata>", card_token, card_exp_month,
                  card_exp_year, status, order_id, failure_code, failure_message, failure_param,
                  decline_code, refused_refunds,
                  coalesce(refund_refused_at > now() - interval '1 hour', false) AS "refund_waits!",
                  dialect, api_version, request_id, idempotency_key, created_at,
                  (SELECT json_agg(
                              json_build_object('name', name, 'state', state,
                                                'resource', resource, 'attempts', attempts)
                              ORDER BY position)
                     FROM checkout_steps
                    WHERE account_id = checkouts.account_id
                      AND checkout_id = checkouts.id) AS "steps!: Json<Vec<StoredStep>>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// The origin of a checkout, for the process that continues it.
#[derive(Debug)]
pub struct AskedBy<'a> {
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The version of the API that the request named, for its events.
    pub api_version: Option<&'a str>,
    /// The `req_…` that began it.
    pub request_id: &'a str,
    /// The client's key.
    pub idempotency_key: &'a str,
}

/// Writes a checkout with its planned steps. Locks nothing that exists.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    new: &NewCheckout,
    asked_by: AskedBy<'_>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        INSERT INTO checkouts
               (account_id, id, amount, currency, items, customer, metadata, card_token,
                card_exp_month, card_exp_year, dialect, request_id, idempotency_key, api_version)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        ",
        account_id.0,
        id.0,
        new.amount.minor_units,
        new.amount.currency.to_string(),
        Json(items::stored(&new.items)) as _,
        new.customer,
        Json(&new.metadata) as _,
        new.card.card.token(),
        new.card.exp_month,
        new.card.exp_year,
        asked_by.dialect.as_str(),
        asked_by.request_id,
        asked_by.idempotency_key,
        asked_by.api_version,
    )
    .execute(&mut *tx)
    .await?;
    checkout_steps::insert(tx, account_id, id, StepName::PLAN).await
}

/// One checkout of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<Option<CheckoutRun>, sqlx::Error> {
    checkout_rows!(
        "SELECT",
        "FROM checkouts WHERE account_id = $1 AND id = $2",
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await?
    .map(CheckoutRun::try_from)
    .transpose()
}

/// Reads and locks it, so that no other transaction runs a step of it until this one ends.
pub async fn lock(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<Option<CheckoutRun>, sqlx::Error> {
    sqlx::query!(
        "SELECT id FROM checkouts WHERE account_id = $1 AND id = $2 FOR NO KEY UPDATE",
        account_id.0,
        id.0,
    )
    .fetch_optional(&mut *tx)
    .await?;
    // In a statement of its own: the one that waited for the lock has an old snapshot of the steps.
    find(tx, account_id, id).await
}

/// Writes down that the checkout's first step created its order. Locks the checkout.
pub async fn set_order(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    order: OrderId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE checkouts
           SET order_id = $3
         WHERE account_id = $1 AND id = $2 AND order_id IS NULL
        RETURNING id
        ",
        account_id.0,
        id.0,
        order.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// Writes down that a step is refused for good and why, that what was to follow is not to be run
/// any more, and what is to be run instead, to undo what was. Fails if the step isn't pending.
/// Locks the checkout and its steps.
pub async fn refuse_step(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    step: StepName,
    resource: Option<&str>,
    why: &StepRefusal,
) -> Result<(), sqlx::Error> {
    let refused = StepState::Refused;
    checkout_steps::conclude(&mut *tx, account_id, id, step, refused, resource).await?;
    sqlx::query!(
        "
        UPDATE checkouts
           SET failure_code = $3, failure_message = $4, failure_param = $5, decline_code = $6
         WHERE account_id = $1 AND id = $2 AND failure_code IS NULL
        RETURNING id
        ",
        account_id.0,
        id.0,
        why.code,
        why.message,
        why.param,
        why.decline_code,
    )
    .fetch_one(&mut *tx)
    .await?;
    checkout_steps::skip_pending(&mut *tx, account_id, id).await?;
    checkout_steps::insert(&mut *tx, account_id, id, step.compensation()).await?;
    checkout_steps::count_attempt(tx, account_id, id).await
}

/// Counts a refund that the processor refused to make: the step stays pending, and another refund
/// is made, but not within the hour. Locks the checkout.
pub async fn count_refused_refund(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE checkouts
           SET refused_refunds = refused_refunds + 1, refund_refused_at = now()
         WHERE account_id = $1 AND id = $2
        RETURNING id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// Writes down how a checkout ended. Fails if it has ended, or has a step to run. Locks it.
pub async fn end(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    status: CheckoutStatus,
) -> Result<CheckoutRun, sqlx::Error> {
    checkout_rows!(
        "
        UPDATE checkouts
           SET status = $3
         WHERE account_id = $1 AND id = $2 AND status = 'in_progress'
           AND NOT EXISTS (SELECT FROM checkout_steps
                            WHERE account_id = $1 AND checkout_id = $2 AND state = 'pending')
        RETURNING",
        "",
        account_id.0,
        id.0,
        status.as_str(),
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Forgets a checkout of which no step was run; fails otherwise. Locks it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM checkouts
         WHERE account_id = $1 AND id = $2
           AND NOT EXISTS (SELECT FROM checkout_steps
                            WHERE account_id = $1 AND checkout_id = $2 AND state <> 'pending')
        RETURNING id
        ",
        account_id.0,
        id.0,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
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
    let runs: Result<Vec<CheckoutRun>, _> = rows.into_iter().map(CheckoutRun::try_from).collect();
    let checkouts = runs?.into_iter().map(|run| run.checkout).collect();
    Ok(page.cut(checkouts))
}
