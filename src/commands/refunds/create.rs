//! `POST /refunds`: give money back, or release what was only promised.
//!
//! Locks    the charge, and then the order that it paid if all of it is given back
//! Writes   one refund, the charge's refunded amount, the order's status; across a network the
//!          refund is pending meanwhile, and counts
//! Emits    refund.created, charge.refunded, order.refunded
//! Refuses  a charge that failed or has nothing left; more than is left; a part of what was only
//!          promised
//! Fails    while another operation on the charge, or the checkout that made it, has no outcome; if
//!          another processor took the money

use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    mode::{Mode, must_be_free},
    replies::{CREATED, checked, declined_by_processor, missing},
};
use crate::{
    domain::{
        event::EventType,
        ids::{AccountId, ChargeId, RefundId},
        operation::{Answer, Ask, Effect, RefundRequest, Verb},
        refund::{NewRefund, Refund},
        test_cards::Decline,
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::{
        charges::{ChargeView, refused},
        orders::OrderView,
        refunds::{CreateRefundParams, RefundView},
    },
};

/// Creates a refund.
pub struct CreateRefund {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

/// A refund that was written, of a charge that this transaction has locked.
struct Written {
    refund: Refund,
    expand_charge: bool,
}

impl CreateRefund {
    async fn write(&self, tx: &mut PgConnection, mode: Mode) -> Result<Written, Rejection> {
        let params: CreateRefundParams = checked(&self.params)?;
        let account = self.origin.account;
        let charge_id = params
            .charge
            .ok_or_else(|| missing("charge", ChargeId::PREFIX))?;
        let charge = store::charges::lock(tx, account, charge_id)
            .await?
            .ok_or_else(|| missing("charge", ChargeId::PREFIX))?;
        must_be_free(tx, account, charge_id, mode).await?;
        let amount = charge
            .refund(params.amount)
            .map_err(|refusal| refused(refusal, "charge"))?;
        let new = NewRefund {
            charge: charge_id,
            amount,
            reason: params.reason,
            metadata: params.metadata,
        };
        let id = RefundId(Uuid::now_v7());
        let refund = store::refunds::insert(tx, account, id, &new, mode.of_refund()).await?;
        Ok(Written {
            refund,
            expand_charge: params.expand,
        })
    }
}

impl Command for CreateRefund {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let written = self.write(tx, Mode::OneTransaction).await?;
        refunded(&self.origin, tx, &written.refund, written.expand_charge).await
    }
}

impl Begin for CreateRefund {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let written = self.write(tx, Mode::Phases).await?;
        let ask = Ask::Refund(RefundRequest::of(&written.refund));
        let effect = Effect {
            expand: written.expand_charge,
            ..Effect::of(Verb::CreateRefund, ask)
        };
        self.origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer for a pending refund.
pub(in crate::commands) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    request: &RefundRequest,
    answer: Answer,
    expand_charge: bool,
) -> Result<Reply, Rejection> {
    match record_answer(origin, tx, request, answer).await? {
        Ok(refund) => refunded(origin, tx, &refund, expand_charge).await,
        Err(decline) => declined_by_processor(origin, tx, request.charge, decline).await,
    }
}

/// Ends the pending refund of a request that was answered. `Err` is the processor's decline: the
/// refund failed and no longer counts.
pub(in crate::commands) async fn record_answer(
    origin: &Origin,
    tx: &mut PgConnection,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Result<Refund, Decline>, Rejection> {
    let (account, refund) = (origin.account, request.refund);
    store::charges::lock(tx, account, request.charge).await?;
    match answer {
        Answer::Done => Ok(Ok(store::refunds::succeed(tx, account, refund).await?)),
        Answer::Declined(decline) => {
            let refund = store::refunds::fail(tx, account, refund).await?;
            let view = RefundView::from(&refund);
            origin.emit(tx, EventType::RefundFailed, &view).await?;
            Ok(Err(decline))
        }
    }
}

/// Deletes the pending refund of a request that was never executed.
pub(in crate::commands) async fn release(
    tx: &mut PgConnection,
    account: AccountId,
    request: &RefundRequest,
) -> Result<(), sqlx::Error> {
    store::refunds::delete_pending(tx, account, request.refund).await
}

/// Emits the events of a refund, and makes the order refunded if all of its charge was given back.
pub(in crate::commands) async fn refunded(
    origin: &Origin,
    tx: &mut PgConnection,
    refund: &Refund,
    expand_charge: bool,
) -> Result<Reply, Rejection> {
    let charge = store::charges::find(tx, origin.account, refund.charge)
        .await?
        .ok_or_else(|| Failure::internal("a refunded charge is gone"))
        .map_err(Rejection::Failed)?;
    let refund_view = RefundView::from(refund);
    origin
        .emit(tx, EventType::RefundCreated, &refund_view)
        .await?;
    let before = ChargeView::from(&charge.before_refund(refund.amount.minor_units));
    origin
        .emit_change(tx, EventType::ChargeRefunded, &before, &(&charge).into())
        .await?;
    if charge.is_refunded()
        && let Some(order) = store::orders::refund(tx, origin.account, charge.id).await?
    {
        let view = OrderView::from(&order);
        origin.emit(tx, EventType::OrderRefunded, &view).await?;
    }
    origin.refund(tx, CREATED, refund, expand_charge).await
}
