//! The table `checkout_steps`: the recovery points of checkouts.
//!
//! The caller of each function holds the lock of the checkout: [`super::checkouts::lock`] first.

use sqlx::PgConnection;

use crate::domain::{
    checkout::{StepName, StepState},
    ids::{AccountId, CheckoutId},
};

/// Adds steps that are to be run.
pub(super) async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    steps: &[StepName],
) -> Result<(), sqlx::Error> {
    let positions: Vec<i16> = steps.iter().map(|step| step.position()).collect();
    let names: Vec<String> = steps.iter().map(|step| step.as_str().to_owned()).collect();
    sqlx::query!(
        "
        INSERT INTO checkout_steps (account_id, checkout_id, position, name)
        SELECT $1, $2, position, name FROM unnest($3::smallint[], $4::text[]) AS step (position, name)
        ",
        account_id.0,
        id.0,
        &positions,
        &names,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Counts an attempt of the next step, if there is one.
pub async fn count_attempt(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE checkout_steps
           SET attempts = attempts + 1
         WHERE account_id = $1 AND checkout_id = $2
           AND position = (SELECT min(position) FROM checkout_steps
                            WHERE account_id = $1 AND checkout_id = $2 AND state = 'pending')
        ",
        account_id.0,
        id.0,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes down that a step is done and what it made, and counts an attempt of the next step. Fails
/// if the step isn't pending.
pub async fn finish(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    step: StepName,
    resource: &str,
) -> Result<(), sqlx::Error> {
    conclude(
        &mut *tx,
        account_id,
        id,
        step,
        StepState::Done,
        Some(resource),
    )
    .await?;
    count_attempt(tx, account_id, id).await
}

/// Writes down how a step ended. Fails if the step isn't pending.
pub(super) async fn conclude(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
    step: StepName,
    state: StepState,
    resource: Option<&str>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE checkout_steps
           SET state = $4, resource = $5
         WHERE account_id = $1 AND checkout_id = $2 AND position = $3 AND state = 'pending'
        RETURNING position
        ",
        account_id.0,
        id.0,
        step.position(),
        state.as_str(),
        resource,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// Gives up the steps that are still to be run. The caller holds the checkout's lock.
pub(super) async fn skip_pending(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CheckoutId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE checkout_steps
           SET state = 'skipped'
         WHERE account_id = $1 AND checkout_id = $2 AND state = 'pending'
        ",
        account_id.0,
        id.0,
    )
    .execute(tx)
    .await?;
    Ok(())
}
