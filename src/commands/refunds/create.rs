//! `POST /refunds`: give money back, or release what was only promised.
//!
//! Reads    the intent, if the request names it; the charge; the order that it paid
//! Writes   one refund, the charge's refunded amount; the order's status, if all of its charge is
//!          given back; across a network the refund is pending meanwhile, and counts
//! Emits    refund.created, charge.refunded, order.refunded; refund.failed
//! Refuses  a charge that failed or has nothing left; more than is left; a part of what was only
//!          promised; all that was only promised for an intent, which is canceled instead; an
//!          intent that nothing was taken for
//! Fails    while another operation on the charge, or the checkout that made it, has no outcome; if
//!          another processor took the money
//! Asks     for the refund

use crate::{
    commands::{
        charges::charge_of, prelude::*, replies::declined_by_processor, unfinished::must_be_free,
    },
    domain::refund::RefundReason,
    wire::{charges::refused, refunds::CreateRefundParams},
};

/// Creates a refund.
pub struct CreateRefund(pub CreateRefundParams);

impl Rules for CreateRefund {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = Vec::new();
        let mut charge = self.0.charge.flatten();
        if let Some(intent) = self.0.payment_intent {
            rows.extend(intent.map(RowId::Intent));
            let intent = intent.and_then(|id| seen.get::<PaymentIntent>(id));
            charge = intent.and_then(|intent| intent.charge.or(intent.latest_charge));
        }
        rows.extend(charge.map(RowId::Charge));
        rows.extend(charge.and_then(|charge| order_of(seen, charge)));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = &self.0;
        let (id, param) = self.charge(draft)?;
        let charge = draft.find::<Charge>(Some(id), param)?.clone();
        must_be_free(draft, &charge)?;
        if charge.by_intent.is_some() && charge.is_only_promised() {
            let message = "The intent's charge was not captured, so there is nothing to give back. \
                           Cancel the PaymentIntent: that releases what was promised.";
            let error = ApiError::new(ErrorCode::ChargeNotCaptured, message);
            return Err(error.with_param(param.to_owned()).into());
        }
        let refuse = |refusal| refused(refusal, param);
        let amount = charge.refund(params.amount).map_err(refuse)?;
        let (reason, metadata) = (params.reason, params.metadata.clone());
        let refund = open(draft, charge, amount, reason, metadata);
        let question = Question::Refund(RefundRequest::of(&refund));
        Ok(ask(question))
    }
}

impl CreateRefund {
    /// The charge to give back, and the parameter that names it. An intent is locked with its
    /// charge, so that what is said of it stays true.
    fn charge(&self, draft: &Draft<'_>) -> Result<(ChargeId, &'static str), Rejection> {
        let no_charge = || draft.origin.missing::<ChargeId>("charge", None);
        match (self.0.charge, self.0.payment_intent) {
            (Some(charge), None) => Ok((charge.ok_or_else(no_charge)?, "charge")),
            (charge, Some(intent)) => {
                let found = charge_of(draft, intent)?;
                if let Some(charge) = charge
                    && charge.ok_or_else(no_charge)? != found
                {
                    let message = "The charge is another intent's, or none's.";
                    return Err(ApiError::invalid("charge", message).into());
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

/// The order that a charge paid, or was to pay: a refund of all of the charge changes it.
pub(in crate::commands) fn order_of(seen: &SeenRows<'_>, charge: ChargeId) -> Option<RowId> {
    seen.get::<Charge>(charge)?.order.map(RowId::Order)
}

/// Begins a refund of `amount` minor units. It is pending and counts, so that no money is given
/// back twice.
pub(in crate::commands) fn open(
    draft: &mut Draft<'_>,
    charge: Charge,
    amount: i64,
    reason: Option<RefundReason>,
    metadata: Metadata,
) -> Refund {
    let mut money = charge.amount;
    money.minor_units = amount;
    let refund = draft.put(Refund {
        id: RefundId(Uuid::now_v7()),
        charge: charge.id,
        intent: charge.by_intent.as_ref().map(|of| of.intent),
        amount: money,
        reason,
        status: RefundStatus::Pending,
        metadata,
        version: 1,
        created_at: draft.now,
    });
    draft.put(charge.refunded(amount));
    refund
}

/// What the answer to a refund needs.
pub(in crate::commands) fn reads(seen: &SeenRows<'_>, request: &RefundRequest) -> Vec<RowId> {
    let mut rows = vec![RowId::Charge(request.charge), RowId::Refund(request.refund)];
    rows.extend(order_of(seen, request.charge));
    rows
}

/// Writes down the processor's answer, and reports it.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Said, Rejection> {
    match end(draft, request, answer)? {
        Ok(refund) => {
            report(draft, &refund)?;
            Ok(Said::show(CREATED, refund))
        }
        Err(decline) => declined_by_processor(draft, request.charge, decline),
    }
}

/// Ends the pending refund of a request that was answered. `Err` is the processor's decline: the
/// refund failed and no longer counts.
pub(in crate::commands) fn end(
    draft: &mut Draft<'_>,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Result<Refund, Decline>, Rejection> {
    let mut refund = pending(draft, request)?;
    match answer {
        Answer::Done => {
            refund.status = RefundStatus::Succeeded;
            Ok(Ok(draft.put(refund)))
        }
        Answer::Declined(decline) => {
            uncount(draft, &refund)?;
            refund.status = RefundStatus::Failed;
            draft.put_with(EventType::RefundFailed, refund)?;
            Ok(Err(decline))
        }
    }
}

/// Forgets the pending refund of a request that was never executed.
pub(in crate::commands) fn withdraw(
    draft: &mut Draft<'_>,
    request: &RefundRequest,
) -> Result<(), Rejection> {
    let refund = pending(draft, request)?;
    uncount(draft, &refund)?;
    draft.delete::<Refund>(refund.id);
    Ok(())
}

fn pending(draft: &Draft<'_>, request: &RefundRequest) -> Result<Refund, Rejection> {
    let found = draft.get::<Refund>(request.refund);
    let pending = found.filter(|refund| refund.status == RefundStatus::Pending);
    pending.cloned().ok_or_else(|| lost("a pending refund"))
}

/// Counts a refund no longer.
fn uncount(draft: &mut Draft<'_>, refund: &Refund) -> Result<(), Rejection> {
    let charge = draft.known::<Charge>(Some(refund.charge), "a refunded charge")?;
    let before = charge.before_refund(refund.amount.minor_units);
    draft.put(before);
    Ok(())
}

/// Emits the events of a refund, and makes the order refunded if all of its charge was given back.
pub(in crate::commands) fn report(draft: &mut Draft<'_>, refund: &Refund) -> Result<(), Rejection> {
    let charge = draft.known::<Charge>(Some(refund.charge), "a refunded charge")?;
    draft.emit(EventType::RefundCreated, refund)?;
    let before = charge.before_refund(refund.amount.minor_units);
    // What its event tells is a version of its own, though the refund counts since it was begun:
    // while the processor was asked, the charge's words may have changed.
    let charge = draft.put_change(EventType::ChargeRefunded, &before, charge)?;
    let order = charge.order.and_then(|order| draft.get::<Order>(order));
    if charge.is_refunded()
        && let Some(order) = order.filter(|order| order.charge == Some(charge.id))
    {
        let refunded = Order {
            status: OrderStatus::Refunded,
            ..order.clone()
        };
        draft.put_with(EventType::OrderRefunded, refunded)?;
    }
    Ok(())
}
