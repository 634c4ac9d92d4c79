//! The table `operations`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    old_rows::{Age, OldRows},
    unknown::unknown,
};
use crate::domain::{
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
    money::{Currency, Money},
    operation::{Answer, CardAuthorization, Effect, Operation, RefundRequest},
};

/// What is unfinished about an object: no other request may decide about it meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct OpenWork {
    /// A processor across a network has not answered about it.
    pub operation: bool,
    /// The checkout that made it has not ended.
    pub checkout: bool,
}

/// Writes an operation down before anything is sent. It belongs to the processor that took the
/// charge's money, if that was taken; its own `age` and `processor` are not kept. Locks nothing
/// that exists but the objects it names, against their deletion.
///
/// `a_charge_has_one_unfinished_operation` and `an_order_has_one_unfinished_operation` refuse a
/// second one that a caller let through.
pub async fn insert(tx: &mut PgConnection, operation: &Operation) -> Result<(), sqlx::Error> {
    let columns = Columns::from(&operation.effect);
    sqlx::query!(
        "
        INSERT INTO operations
               (account_id, id, verb, charge_id, refund_id, order_id, checkout_id, amount, currency,
                card_token, capture, expand, dialect, request_id, idempotency_key, processor)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                (SELECT processor FROM charges WHERE account_id = $1 AND id = $4))
        ",
        operation.account.0,
        operation.id,
        columns.verb,
        columns.charge_id,
        columns.refund_id,
        columns.order_id,
        columns.checkout_id,
        columns.amount,
        columns.currency,
        columns.card_token,
        columns.capture,
        columns.expand,
        operation.dialect.as_str(),
        operation.request_id,
        operation.idempotency_key,
    )
    .execute(tx)
    .await?;
    Ok(())
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
        RETURNING verb, charge_id, refund_id, order_id, checkout_id, amount, currency, card_token,
                  capture, expand, dialect, request_id, idempotency_key, processor AS "processor!",
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
    let columns = Columns {
        verb: &found.verb,
        charge_id: found.charge_id,
        refund_id: found.refund_id,
        order_id: found.order_id,
        checkout_id: found.checkout_id,
        amount: found.amount,
        currency: found.currency,
        card_token: found.card_token,
        capture: found.capture,
        expand: found.expand,
    };
    Ok(Some(Operation {
        id,
        account: account_id,
        effect: columns.into_effect().ok_or_else(|| unknown("verb"))?,
        dialect: Dialect::parse(&found.dialect).ok_or_else(|| unknown("dialect"))?,
        request_id: found.request_id,
        idempotency_key: found.idempotency_key,
        processor: found.processor,
        age: Duration::from_secs(found.age_seconds.max(0).unsigned_abs()),
    }))
}

/// An effect as the table has it.
struct Columns<'a> {
    verb: &'a str,
    charge_id: Uuid,
    refund_id: Option<Uuid>,
    order_id: Option<Uuid>,
    checkout_id: Option<Uuid>,
    amount: i64,
    currency: Option<String>,
    card_token: Option<String>,
    capture: Option<bool>,
    expand: bool,
}

const CREATE_CHARGE: &str = "create_charge";
const CAPTURE_CHARGE: &str = "capture_charge";
const CREATE_REFUND: &str = "create_refund";
const PAY_ORDER: &str = "pay_order";

impl Columns<'static> {
    fn authorization(verb: &'static str, authorization: &CardAuthorization) -> Self {
        Self {
            verb,
            charge_id: authorization.charge.0,
            refund_id: None,
            order_id: None,
            checkout_id: None,
            amount: authorization.amount.minor_units,
            currency: Some(authorization.amount.currency.to_string()),
            card_token: Some(authorization.card_token.clone()),
            capture: Some(authorization.capture),
            expand: false,
        }
    }

    fn without_card(verb: &'static str, charge: ChargeId, amount: i64) -> Self {
        Self {
            verb,
            charge_id: charge.0,
            refund_id: None,
            order_id: None,
            checkout_id: None,
            amount,
            currency: None,
            card_token: None,
            capture: None,
            expand: false,
        }
    }
}

impl From<&Effect> for Columns<'static> {
    fn from(effect: &Effect) -> Self {
        match effect {
            Effect::CreateCharge {
                authorization,
                expand_refunds,
            } => Self {
                expand: *expand_refunds,
                ..Self::authorization(CREATE_CHARGE, authorization)
            },
            Effect::CaptureCharge {
                charge,
                amount,
                expand_refunds,
            } => Self {
                expand: *expand_refunds,
                ..Self::without_card(CAPTURE_CHARGE, *charge, *amount)
            },
            Effect::CreateRefund {
                request,
                expand_charge,
            } => Self {
                refund_id: Some(request.refund.0),
                expand: *expand_charge,
                ..Self::without_card(CREATE_REFUND, request.charge, request.amount)
            },
            Effect::PayOrder {
                order,
                authorization,
                expand_charge,
            } => Self {
                order_id: Some(order.0),
                expand: *expand_charge,
                ..Self::authorization(PAY_ORDER, authorization)
            },
            Effect::ChargeCheckout {
                checkout,
                order,
                authorization,
            } => Self {
                order_id: Some(order.0),
                checkout_id: Some(checkout.0),
                ..Self::authorization(CREATE_CHARGE, authorization)
            },
            Effect::RefundCheckout { checkout, request } => Self {
                refund_id: Some(request.refund.0),
                checkout_id: Some(checkout.0),
                ..Self::without_card(CREATE_REFUND, request.charge, request.amount)
            },
        }
    }
}

impl Columns<'_> {
    /// `None` for a row that the constraints don't allow.
    fn into_effect(self) -> Option<Effect> {
        let charge = ChargeId(self.charge_id);
        let (order, checkout) = (self.order_id.map(OrderId), self.checkout_id.map(CheckoutId));
        Some(match (self.verb, checkout) {
            (CREATE_CHARGE, None) => Effect::CreateCharge {
                expand_refunds: self.expand,
                authorization: self.into_authorization()?,
            },
            (CREATE_CHARGE, Some(checkout)) => Effect::ChargeCheckout {
                checkout,
                order: order?,
                authorization: self.into_authorization()?,
            },
            (CAPTURE_CHARGE, None) => Effect::CaptureCharge {
                charge,
                amount: self.amount,
                expand_refunds: self.expand,
            },
            (CREATE_REFUND, None) => Effect::CreateRefund {
                request: self.refund_request()?,
                expand_charge: self.expand,
            },
            (CREATE_REFUND, Some(checkout)) => Effect::RefundCheckout {
                checkout,
                request: self.refund_request()?,
            },
            (PAY_ORDER, None) => Effect::PayOrder {
                order: order?,
                expand_charge: self.expand,
                authorization: self.into_authorization()?,
            },
            _ => return None,
        })
    }

    fn into_authorization(self) -> Option<CardAuthorization> {
        Some(CardAuthorization {
            charge: ChargeId(self.charge_id),
            amount: Money {
                minor_units: self.amount,
                currency: Currency::of_stored(&self.currency?)?,
            },
            card_token: self.card_token?,
            capture: self.capture?,
        })
    }

    fn refund_request(&self) -> Option<RefundRequest> {
        Some(RefundRequest {
            charge: ChargeId(self.charge_id),
            refund: RefundId(self.refund_id?),
            amount: self.amount,
        })
    }
}

/// An operation without an answer, as an operator sees it.
#[derive(Debug)]
pub struct Unfinished {
    /// The key that the processor got.
    pub id: Uuid,
    /// The account that it belongs to.
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
        SELECT operations.id, operations.account_id, verb, charge_id, operations.created_at,
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
        SELECT refused.id, refused.charge_id, refused.created_at, checkouts.account_id,
               checkouts.id AS checkout_id
          FROM checkouts
         CROSS JOIN LATERAL (
               SELECT id, charge_id, created_at, outcome
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
        charge: ChargeId(row.charge_id),
        created_at: row.created_at,
        checkout: CheckoutId(row.checkout_id),
    });
    Ok(refused.collect())
}

/// Writes the processor's answer down; fails if there is one already. Locks the operation.
pub async fn complete(
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
           SET completed_at = now(), outcome = $3
         WHERE account_id = $1 AND id = $2 AND completed_at IS NULL
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
