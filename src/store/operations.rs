//! The table `operations`.

use std::time::Duration;

use charge_once_strict_params::Expansion;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    old_rows::{Age, OldRows},
    rows::{self, all_written, column},
};
use crate::domain::{
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId},
    operation::{Answer, Asked, AskedColumns, Operation, Verb},
};

#[derive(Debug, Serialize, Deserialize)]
struct OperationRow {
    account_id: AccountId,
    id: Uuid,
    #[serde(flatten)]
    asked: AskedColumns,
    expand: bool,
    expand_paths: Option<Vec<String>>,
    dialect: Dialect,
    api_version: Option<String>,
    request_id: String,
    idempotency_key: String,
    processor: String,
}

impl OperationRow {
    fn of(operation: &Operation) -> Self {
        let Asked { question, expand } = &operation.asked;
        Self {
            account_id: operation.account,
            id: operation.id,
            asked: question.into(),
            expand: !expand.is_empty(),
            expand_paths: Some(expand.0.clone()),
            dialect: operation.dialect,
            api_version: operation.api_version.clone(),
            request_id: operation.request_id.clone(),
            idempotency_key: operation.idempotency_key.clone(),
            processor: operation.processor.clone(),
        }
    }
}

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
        rows::json(&column(operations, OperationRow::of))?,
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
        RETURNING to_json(operations) AS "row!: Json<OperationRow>",
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
    let row = found.row.0;
    let expand = match row.expand_paths {
        Some(paths) => Expansion(paths),
        None => expanded_before(row.asked.verb, row.expand),
    };
    let unknown = || sqlx::Error::Decode("no verb of this release asks so".into());
    Ok(Some(Operation {
        id,
        account: account_id,
        asked: Asked {
            question: row.asked.question().ok_or_else(unknown)?,
            expand,
        },
        dialect: row.dialect,
        api_version: row.api_version,
        request_id: row.request_id,
        idempotency_key: row.idempotency_key,
        processor: row.processor,
        age: Duration::from_secs(found.age_seconds.max(0).unsigned_abs()),
    }))
}

/// What a row of release 0.2 asks for: it says whether, and each verb had one answer. That release
/// had no intents.
fn expanded_before(verb: Verb, expand: bool) -> Expansion {
    let path = match verb {
        Verb::CreateCharge | Verb::CaptureCharge => Some("refunds"),
        Verb::CreateRefund | Verb::PayOrder => Some("charge"),
        Verb::CreateIntent
        | Verb::ConfirmIntent
        | Verb::AuthenticateIntent
        | Verb::CaptureIntent
        | Verb::CancelIntent => None,
    };
    let path = path.filter(|_| expand);
    Expansion(path.map(str::to_owned).into_iter().collect())
}

/// An operation without an answer, as an operator sees it.
#[derive(Debug)]
pub struct Unfinished {
    /// The key that the processor got.
    pub id: Uuid,
    /// The account that it belongs to.
    pub account: AccountId,
    /// The key of its request.
    pub idempotency_key: String,
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
    let rows = sqlx::query!(
        r#"
        SELECT operations.id, operations.account_id, idempotency_key, verb, charge_id,
               operations.created_at,
               coalesce(lease.in_doubt, true) AS "in_doubt!",
               coalesce(lease.takeovers, 0) AS "takeovers!"
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
    let unfinished = rows.into_iter().map(|row| Unfinished {
        id: row.id,
        account: AccountId(row.account_id),
        idempotency_key: row.idempotency_key,
        verb: row.verb,
        charge: ChargeId(row.charge_id),
        created_at: row.created_at,
        in_doubt: row.in_doubt,
        takeovers: row.takeovers,
    });
    Ok(unfinished.collect())
}

/// A refund that the processor refused to make, as an operator sees it.
#[derive(Debug)]
pub struct RefusedRefund {
    /// The operation: the key that the processor got.
    pub operation: Uuid,
    /// The account that it belongs to.
    pub account: AccountId,
    /// The key of the request that asked for the refund.
    pub idempotency_key: String,
    /// The charge that is to be given back.
    pub charge: ChargeId,
    /// When the operation was written down.
    pub created_at: DateTime<Utc>,
    /// The canceled checkout that waits for the refund.
    pub checkout: CheckoutId,
}

/// The refused refunds that checkouts of all accounts wait for, at most 1000, each the last one of
/// its checkout: all of them, or that of the checkout whose refund `operation` was refused, now or
/// before. Takes no lock.
pub async fn list_refused_refunds(
    connection: &mut PgConnection,
    operation: Option<Uuid>,
) -> Result<Vec<RefusedRefund>, sqlx::Error> {
    let rows = sqlx::query!(
        "
        SELECT refused.id, refused.idempotency_key, refused.charge_id, refused.created_at,
               checkouts.account_id, checkouts.id AS checkout_id
          FROM checkouts
         CROSS JOIN LATERAL (
               SELECT id, idempotency_key, charge_id, created_at, outcome
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
        ",
        operation,
    )
    .fetch_all(connection)
    .await?;
    let refused = rows.into_iter().map(|row| RefusedRefund {
        operation: row.id,
        account: AccountId(row.account_id),
        idempotency_key: row.idempotency_key,
        charge: ChargeId(row.charge_id),
        created_at: row.created_at,
        checkout: CheckoutId(row.checkout_id),
    });
    Ok(refused.collect())
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
