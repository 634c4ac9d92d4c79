//! The table `operations`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::{
    old_rows::{Age, OldRows},
    rows::{self, *},
};
use crate::domain::operation::{Answer, Operation};

/// Writes operations down before anything is sent. One with an empty `processor` belongs to none
/// until it is read. Locks nothing that exists but the objects they name, against their deletion.
///
/// `a_charge_has_one_unfinished_operation` and `an_order_has_one_unfinished_operation` refuse a
/// second one that a caller let through.
pub async fn insert_all(
    tx: &mut PgConnection,
    operations: &[Operation],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        INSERT INTO operations
               (account_id, id, verb, charge_id, refund_id, order_id, checkout_id, amount, currency,
                card_token, capture, expand, expand_paths, dialect, request_id, idempotency_key,
                payment_intent_id, api_version, processor)
        SELECT account_id, id, verb, charge_id, refund_id, order_id, checkout_id, amount, currency,
               card_token, capture, expand, expand_paths, dialect, request_id, idempotency_key,
               payment_intent_id, api_version, nullif(processor, '')
          FROM json_populate_recordset(NULL::operations, $1::text::json)
        ",
        rows::json(&operations)?,
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), operations.len())
}

/// One operation of the account, which from now on belongs to `processor` if it belonged to none.
/// Locks it.
pub async fn find(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: Uuid,
    processor: &str,
) -> Result<Option<Operation>, sqlx::Error> {
    let found = sqlx::query!(
        r#"
        UPDATE operations
           SET processor = coalesce(processor, $3)
         WHERE account_id = $1 AND id = $2
        RETURNING to_json(operations) AS "row!: Json<Operation>",
                  extract(epoch FROM now() - created_at)::bigint AS "age_seconds!"
        "#,
        account_id.0,
        id,
        processor,
    )
    .fetch_optional(tx)
    .await?;
    Ok(found.map(|found| Operation {
        age: Duration::from_secs(found.age_seconds.max(0).unsigned_abs()),
        ..found.row.0
    }))
}

/// An operation without an answer, as an operator sees it.
#[derive(Debug, Deserialize)]
pub struct Unfinished {
    /// The key that the processor got.
    pub id: Uuid,
    /// The account that it belongs to.
    #[serde(rename = "account_id")]
    pub account: AccountId,
    /// The key of its request.
    pub idempotency_key: String,
    /// Which request it is for.
    pub verb: String,
    /// The charge that it is about.
    #[serde(rename = "charge_id")]
    pub charge: ChargeId,
    /// When it was written down.
    pub created_at: DateTime<Utc>,
    /// Whether an attempt may have been executed.
    pub in_doubt: bool,
    /// How often it was continued.
    pub takeovers: i32,
}

/// What a person may have to look after.
#[derive(Debug)]
pub struct Waiting {
    /// Operations that wait for an answer.
    pub unfinished: Vec<Unfinished>,
    /// Refunds that were refused and that checkouts wait for.
    pub refused: Vec<RefusedRefund>,
}

/// All that waits, of all accounts, at most 1000 of each kind. Takes no lock.
pub async fn list_waiting(connection: &mut PgConnection) -> Result<Waiting, sqlx::Error> {
    Ok(Waiting {
        unfinished: list_unfinished(connection).await?,
        refused: list_refused_refunds(connection, None).await?,
    })
}

/// Operations that wait for an answer, the oldest first.
async fn list_unfinished(connection: &mut PgConnection) -> Result<Vec<Unfinished>, sqlx::Error> {
    let rows: Vec<Json<Unfinished>> = sqlx::query_scalar!(
        r#"
        SELECT to_jsonb(operations)
               || jsonb_build_object('in_doubt', coalesce(lease.in_doubt, true),
                                     'takeovers', coalesce(lease.takeovers, 0)) AS "row!: Json<_>"
          FROM operations
          -- With a limit, each is looked up: a join of the tables may read all leases.
          LEFT JOIN LATERAL (
               SELECT in_doubt, takeovers
                 FROM idempotency_leases
                WHERE account_id = operations.account_id AND operation = operations.id
                LIMIT 1) AS lease ON true
         WHERE completed_at IS NULL
         ORDER BY operations.created_at
         LIMIT 1000
        "#,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// A refund that the processor refused to make, as an operator sees it.
#[derive(Debug, Deserialize)]
pub struct RefusedRefund {
    /// The operation: the key that the processor got.
    #[serde(rename = "id")]
    pub operation: Uuid,
    /// The account that it belongs to.
    #[serde(rename = "account_id")]
    pub account: AccountId,
    /// The key of the request that asked for the refund.
    pub idempotency_key: String,
    /// The charge that is to be given back.
    #[serde(rename = "charge_id")]
    pub charge: ChargeId,
    /// When the operation was written down.
    pub created_at: DateTime<Utc>,
    /// The canceled checkout that waits for the refund.
    #[serde(rename = "checkout_id")]
    pub checkout: CheckoutId,
}

/// The refused refunds that checkouts of all accounts wait for, at most 1000, each the last one of
/// its checkout: all of them, or that of the checkout whose refund `operation` was refused, now or
/// before. Takes no lock.
pub async fn list_refused_refunds(
    connection: &mut PgConnection,
    operation: Option<Uuid>,
) -> Result<Vec<RefusedRefund>, sqlx::Error> {
    let rows: Vec<Json<RefusedRefund>> = sqlx::query_scalar!(
        r#"
        SELECT to_json(refused) AS "row!: Json<_>"
          FROM checkouts
         CROSS JOIN LATERAL (
               SELECT *
                 FROM operations
                WHERE account_id = checkouts.account_id AND checkout_id = checkouts.id
                  AND verb = 'create_refund'
                ORDER BY id DESC
                LIMIT 1) AS refused
         WHERE checkouts.status = 'in_progress' AND checkouts.refused_refunds > 0
           AND refused.outcome = 'declined'
           AND ($1::uuid IS NULL
                OR EXISTS (SELECT FROM operations AS named
                            WHERE named.account_id = checkouts.account_id AND named.id = $1
                              AND named.checkout_id = checkouts.id
                              AND named.verb = 'create_refund' AND named.outcome = 'declined'))
           AND EXISTS (SELECT FROM checkout_steps AS step
                        WHERE step.account_id = checkouts.account_id
                          AND step.checkout_id = checkouts.id
                          AND step.name = 'create_refund' AND step.state = 'pending')
         LIMIT 1000
        "#,
        operation,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Writes the processor's answers down; fails if there is one already. Locks the operations.
pub async fn complete_all(
    tx: &mut PgConnection,
    answered: &[(AccountId, Uuid, Answer)],
) -> Result<(), sqlx::Error> {
    let outcome = |answer: Answer| match answer {
        Answer::Done => "done",
        Answer::Declined(_) => "declined",
    };
    let completed = sqlx::query!(
        "
        UPDATE operations
           SET completed_at = now(), outcome = answered.outcome
          FROM UNNEST($1::uuid[], $2::uuid[], $3::text[]) AS answered (account_id, id, outcome)
         WHERE operations.account_id = answered.account_id AND operations.id = answered.id
           AND operations.completed_at IS NULL
        ",
        &column(answered, |one| one.0.0),
        &column(answered, |one| one.1),
        &column(answered, |one| outcome(one.2)) as _,
    )
    .execute(tx)
    .await?;
    all_written(completed.rows_affected(), answered.len())
}

/// Forgets an operation that was never executed; fails if there is none that waits for its answer.
/// Locks it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: Uuid,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM operations
         WHERE account_id = $1 AND id = $2 AND completed_at IS NULL
        RETURNING id
        ",
        account_id.0,
        id,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// The oldest operations of an account behind `after`. One is ready to go if it has its answer, and
/// no checkout goes on that it is a step of. Locks what it returns, and passes over what another
/// replica has.
pub async fn find_old(
    tx: &mut PgConnection,
    account_id: AccountId,
    after: Uuid,
    age: &Age,
) -> Result<OldRows, sqlx::Error> {
    let found = sqlx::query!(
        r#"
        SELECT id,
               completed_at IS NOT NULL
               AND (SELECT count(*)
                      FROM checkouts AS checkout
                     WHERE checkout.account_id = operations.account_id
                       AND checkout.id = operations.checkout_id
                       AND checkout.status = 'in_progress') = 0 AS "is_ready!"
          FROM operations
         WHERE account_id = $1 AND id > $2 AND id < $3 AND created_at < now() - $4::interval
         ORDER BY id
         LIMIT 500
           FOR UPDATE OF operations SKIP LOCKED
        "#,
        account_id.0,
        after,
        age.below,
        age.kept,
    )
    .fetch_all(tx)
    .await?;
    let found = found.into_iter().map(|row| (row.id, row.is_ready));
    Ok(OldRows::of(found.collect()))
}

/// Deletes operations that have their answer. Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    account_id: AccountId,
    ids: &[Uuid],
) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query!(
        "
        DELETE FROM operations
         WHERE account_id = $1 AND id = ANY ($2) AND completed_at IS NOT NULL
        ",
        account_id.0,
        ids,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected())
}
