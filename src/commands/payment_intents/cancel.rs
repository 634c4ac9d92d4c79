//! `POST /payment_intents/{id}/cancel`: give a payment up; what was promised is released.
//!
//! Reads    the intent, its charge
//! Writes   the intent's end; if money was promised, one refund that releases it, which is pending
//!          while a processor across a network is asked
//! Emits    refund.created and charge.refunded, if money was promised; payment_intent.canceled
//! Refuses  an intent whose money was taken, or that was canceled
//! Fails    while an answer about the intent is out; if another processor authorized its charge
//! Asks     for the release, if money was promised

use crate::{
    commands::{
        found_intents::{declined_by_processor, promised, reads, settled, unexpected},
        prelude::*,
        refunds::create as refunds,
    },
    wire::payment_intents::CancelPaymentIntentParams,
};

/// Cancels an intent.
pub type CancelIntent = On<PaymentIntentId, CancelPaymentIntentParams>;

impl Rules for CancelIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        reads(seen, self.id)
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let before = settled(draft, self.id, "intent")?;
        before
            .must_be_cancelable()
            .map_err(|status| unexpected(&before, "cancel", status))?;
        let mut intent = before.clone();
        intent.cancellation_reason = self.params.cancellation_reason;
        if before.status != IntentStatus::RequiresCapture {
            return Ok(Verdict::Answered(cancel(draft, intent)?));
        }
        let charge = promised(draft, &before)?;
        let amount = before.amount_capturable;
        let refund = refunds::open(draft, charge, amount, None, Metadata::new());
        // The reason is shown when the intent is canceled.
        let intent = draft.put(intent.asked(before));
        let question = Question::IntentCancellation(intent.id, RefundRequest::of(&refund));
        Ok(ask(question))
    }
}

/// Writes down the processor's answer, and reports it. After a decline, the money is still
/// promised.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    intent: PaymentIntentId,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Said, Rejection> {
    match refunds::end(draft, request, answer)? {
        Ok(refund) => {
            refunds::report(draft, &refund)?;
            let intent = draft.find::<PaymentIntent>(Some(intent), "intent")?.clone();
            cancel(draft, intent)
        }
        Err(decline) => declined_by_processor(draft, intent, request.charge, decline),
    }
}

/// Closes the intent, and reports it.
fn cancel(draft: &mut Draft<'_>, intent: PaymentIntent) -> Result<Said, Rejection> {
    let intent = intent.canceled(draft.now);
    let intent = draft.put_with(EventType::PaymentIntentCanceled, intent)?;
    Ok(Said::show(OK, intent))
}
