//! The table `operations`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::unknown::unknown;
use crate::domain::{
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
    operation::{Answer, Instruction, Operation, Verb},
};

/// Writes an operation down before anything is sent. It belongs to the processor that took the charge's
/// money, if that was taken; its own `age` and `processor` are not kept. Locks nothing that exists but the
/// objects it names, against their deletion.
///
/// `a_charge_has_one_unsettled_operation` and `an_order_has_one_unsettled_operation` refuse a second
/// one that a caller let through.
pub async fn insert(tx: &mut PgConnection, operation: &Operation) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        INSERT INTO operations
               (account_id, id, verb, instruction, charge_id, refund_id, order_id, dialect, expand,
                request_id, idempotency_key, checkout_id, processor)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                (SELECT processor FROM charges WHERE account_id = $1 AND id = $5))
        ",
        operation.account.0,
        operation.id,
        operation.verb.as_str(),
        Json(&operation.instruction) as _,
        operation.charge.0,
        operation.refund.map(|refund| refund.0),
        operation.order.map(|order| order.0),
        operation.dialect.as_str(),
        operation.expand,
        operation.request_id,
        operation.idempotency_key,
        operation.checkout.map(|checkout| checkout.0),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// One operation of the account. It is assigned to `processor` if it had no processor. Locks it.
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
        RETURNING verb, instruction AS "instruction: Json<Instruction>", charge_id, refund_id,
                  order_id, checkout_id, dialect, expand, request_id, idempotency_key, processor AS "processor!",
                  extract(epoch FROM now() - created_at)::bigint AS "age_seconds!"
        "#,
        account_id.0,
        id,
        processor,
    )
    .fetch_optional(tx)
    .await?;
    let Some(found) = found else {
        return Ok(None);
    };
    Ok(Some(Operation {
        id,
        account: account_id,
        verb: Verb::parse(&found.verb).ok_or_else(|| unknown("verb"))?,
        instruction: found.instruction.0,
        charge: ChargeId(found.charge_id),
        refund: found.refund_id.map(RefundId),
        order: found.order_id.map(OrderId),
        checkout: found.checkout_id.map(CheckoutId),
        dialect: Dialect::parse(&found.dialect).ok_or_else(|| unknown("dialect"))?,
        expand: found.expand,
        request_id: found.request_id,
        idempotency_key: found.idempotency_key,
        processor: found.processor,
        age: Duration::from_secs(found.age_seconds.max(0).unsigned_abs()),
    }))
}

/// An operation whose answer is out, for an operator.
#[derive(Debug)]
pub struct Unsettled {
    /// The key that the processor got.
    pub id: Uuid,
    /// Whose it is.
    pub account: AccountId,
    /// Which request it is for.
    pub verb: String,
    /// The charge that it is about.
    pub charge: ChargeId,
    /// When it was written down.
    pub created_at: DateTime<Utc>,
    /// Whether an attempt may have been executed.
    pub in_doubt: bool,
    /// How often it was continued.
    pub takeovers: i32,
    /// The canceled checkout that waits for this refund, which the processor refused to make.
    pub refused_to: Option<CheckoutId>,
}

/// The operations of all accounts that wait for an answer, and the refused refunds that checkouts wait
/// for; oldest first, at most 1000. Takes no lock.
pub async fn list_unsettled(connection: &mut PgConnection) -> Result<Vec<Unsettled>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT operations.id, operations.account_id, verb, charge_id, operations.created_at,
               coalesce(lease.in_doubt, true) AS "in_doubt!",
               coalesce(lease.takeovers, 0) AS "takeovers!",
               CASE WHEN settled_at IS NOT NULL THEN checkout_id END AS refused_to
          FROM operations
          LEFT JOIN idempotency_leases AS lease
            ON lease.account_id = operations.account_id AND lease.operation = operations.id
         WHERE settled_at IS NULL
            OR (outcome = 'declined' AND verb = 'create_refund'
                AND EXISTS (SELECT FROM checkout_steps AS step
                             WHERE step.account_id = operations.account_id
                               AND step.checkout_id = operations.checkout_id
                               AND step.name = 'create_refund' AND step.state = 'pending')
                AND NOT EXISTS (SELECT FROM operations AS later
                                 WHERE later.account_id = operations.account_id
                                   AND later.charge_id = operations.charge_id
                                   AND later.verb = 'create_refund'
                                   AND later.id > operations.id))
         ORDER BY operations.created_at
         LIMIT 1000
        "#,
    )
    .fetch_all(connection)
    .await?;
    let unsettled = rows.into_iter().map(|row| Unsettled {
        id: row.id,
        account: AccountId(row.account_id),
        verb: row.verb,
        charge: ChargeId(row.charge_id),
        created_at: row.created_at,
        in_doubt: row.in_doubt,
        takeovers: row.takeovers,
        refused_to: row.refused_to.map(CheckoutId),
    });
    Ok(unsettled.collect())
}

/// Writes the processor's answer down; fails if there is one already. Locks the operation.
pub async fn settle(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: Uuid,
    answer: Answer,
) -> Result<(), sqlx::Error> {
    let outcome = match answer {
        Answer::Done => "done",
        Answer::Declined(_) => "declined",
    };
    sqlx::query!(
        "
        UPDATE operations
           SET settled_at = now(), outcome = $3
         WHERE account_id = $1 AND id = $2 AND settled_at IS NULL
        RETURNING id
        ",
        account_id.0,
        id,
        outcome,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
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
         WHERE account_id = $1 AND id = $2 AND settled_at IS NULL
        RETURNING id
        ",
        account_id.0,
        id,
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}
