//! `POST /refunds`: give money back, or release what was only promised.
//!
//! Locks    the intent, if the request names it; the charge, and then the order that it paid if all
//!          of it is given back
//! Writes   one refund, the charge's refunded amount, the order's status; across a network the
//!          refund is pending meanwhile, and counts
//! Emits    refund.created, charge.refunded, order.refunded
//! Refuses  a charge that failed or has nothing left; more than is left; a part of what was only
//!          promised; all that was only promised for an intent, which is canceled instead; an
//!          intent that nothing was taken for
//! Fails    while another operation on the charge, or the checkout that made it, has no outcome; if
//!          another processor took the money

use charge_once_strict_params::{Expansion, Params};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    mode::{Mode, must_be_free},
    payment_intents::charge_of,
    replies::{CREATED, checked, declined_by_processor, missing},
};
use crate::{
    domain::{
        event::EventType,
        ids::{AccountId, ChargeId, PaymentIntentId, RefundId},
        operation::{Answer, Ask, Effect, RefundRequest, Verb},
        refund::{NewRefund, Refund},
        test_cards::Decline,
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::{
        charges::{ChargeView, refused},
        error::{ApiError, ErrorCode},
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

impl CreateRefund {
    /// Locks the charge, and writes the refund. The reply shows whole what the second value names.
    async fn write(
        &self,
        tx: &mut PgConnection,
        mode: Mode,
    ) -> Result<(Refund, Expansion), Rejection> {
        let params: CreateRefundParams = checked(&self.params)?;
        let account = self.origin.account;
        let (charge_id, param) = self
            .charge(tx, params.charge, params.payment_intent, mode)
            .await?;
        let charge = store::charges::lock(tx, account, charge_id)
            .await?
            .ok_or_else(|| missing(param, ChargeId::PREFIX))?;
        must_be_free(tx, account, charge_id, mode).await?;
        if charge.by_intent.is_some() && charge.is_only_promised() {
            let message = "The intent's charge was not captured, so there is nothing to give back. \
                           Cancel the PaymentIntent: that releases what was promised.";
            let error = ApiError::new(ErrorCode::ChargeNotCaptured, message);
            return Err(error.with_param(param.to_owned()).into());
        }
        let refuse = |refusal| refused(refusal, param);
        let amount = charge.refund(params.amount).map_err(refuse)?;
        let new = NewRefund {
            charge: charge_id,
            amount,
            reason: params.reason,
            metadata: params.metadata,
        };
        let id = RefundId(Uuid::now_v7());
        let refund = store::refunds::insert(tx, account, id, &new, mode.of_refund()).await?;
        Ok((refund, params.expand))
    }

    /// The charge to give back, and the parameter that names it. An intent is locked before its
    /// charge, so that what is said of it stays true.
    async fn charge(
        &self,
        tx: &mut PgConnection,
        charge: Option<Option<ChargeId>>,
        intent: Option<Option<PaymentIntentId>>,
        mode: Mode,
    ) -> Result<(ChargeId, &'static str), Rejection> {
        let no_charge = || missing("charge", ChargeId::PREFIX);
        match (charge, intent) {
            (Some(charge), None) => Ok((charge.ok_or_else(no_charge)?, "charge")),
            (charge, Some(intent)) => {
                let found = charge_of(tx, self.origin.account, intent, mode).await?;
                if let Some(charge) = charge
                    && charge.ok_or_else(no_charge)? != found
                {
                    let message = "The charge is another intent's, or none's.";
                    let error = ApiError::new(ErrorCode::ParameterInvalid, message);
                    return Err(error.with_param("charge".to_owned()).into());
                }
                Ok((found, "payment_intent"))
            }
            (None, None) => {
                let message = "Missing parameter: charge, or payment_intent.";
                let error = ApiError::new(ErrorCode::ParameterMissing, message);
                Err(error.with_param("charge".to_owned()).into())
            }
        }
    }
}

impl Command for CreateRefund {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let (refund, expand) = self.write(tx, Mode::OneTransaction).await?;
        refunded(&self.origin, tx, &refund, &expand).await
    }
}

impl Begin for CreateRefund {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let (refund, expand) = self.write(tx, Mode::Phases).await?;
        let ask = Ask::Refund(RefundRequest::of(&refund));
        let effect = Effect {
            expand,
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
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    match record_answer(origin, tx, request, answer).await? {
        Ok(refund) => refunded(origin, tx, &refund, expand).await,
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

/// Reports a refund, in events and in the reply.
pub(in crate::commands) async fn refunded(
    origin: &Origin,
    tx: &mut PgConnection,
    refund: &Refund,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    report(origin, tx, refund).await?;
    let id = refund.id.to_string();
    origin.show(tx, CREATED, id, refund, expand).await
}

/// Emits the events of a refund, and makes the order refunded if all of its charge was given back.
pub(in crate::commands) async fn report(
    origin: &Origin,
    tx: &mut PgConnection,
    refund: &Refund,
) -> Result<(), Rejection> {
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
    Ok(())
}
