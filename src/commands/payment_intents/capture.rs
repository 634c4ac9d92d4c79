//! `POST /payment_intents/{id}/capture`: take what was promised, once; the rest is released.
//!
//! Reads    the intent, its charge
//! Writes   the captured amount and the descriptor, on both; metadata of the intent
//! Emits    charge.captured, payment_intent.succeeded
//! Refuses  an intent of which nothing is promised, or was taken; more than was promised
//! Fails    while another operation on the charge has no outcome; if another processor
//!          authorized it
//! Asks     for the capture

use crate::{
    commands::{
        found_intents::{declined_by_processor, promised, reads, refusal, settled},
        prelude::*,
    },
    domain::{operation::CaptureRequest, payment_intent::IntentCaptureRefusal},
    wire::payment_intents::CapturePaymentIntentParams,
};

/// Captures an intent.
pub type CaptureIntent = On<PaymentIntentId, CapturePaymentIntentParams>;

impl Rules for CaptureIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        reads(seen, self.id)
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.params.clone();
        let before = settled(draft, self.id, "intent")?;
        let amount = before
            .capture(params.amount_to_capture)
            .map_err(|refused| refuse(&before, refused))?;
        let charge = promised(draft, &before)?.id;
        let mut intent = before.clone();
        intent.terms.metadata = params.metadata.apply(intent.terms.metadata)?;
        let suffix = &mut intent.terms.details.statement_descriptor_suffix;
        *suffix = params.statement_descriptor_suffix.apply(suffix.take());
        let intent = draft.put(intent.asked(before));
        let question = Question::IntentCapture(intent.id, CaptureRequest { charge, amount });
        Ok(ask(question))
    }
}

fn refuse(intent: &PaymentIntent, refused: IntentCaptureRefusal) -> Rejection {
    match refused {
        IntentCaptureRefusal::UnexpectedStatus(status) => refusal(
            intent,
            format!(
                "This PaymentIntent could not be captured because it has a status of {}. Only one \
                 that requires_capture can be.",
                status.as_str()
            ),
        ),
        IntentCaptureRefusal::TooLarge { capturable } => {
            let message =
                format!("At most {capturable} minor units can be captured of this intent.");
            ApiError::new(ErrorCode::CaptureAmountTooLarge, message)
                .with_param("amount_to_capture".to_owned())
                .into()
        }
    }
}

/// Writes down the processor's answer, and reports it. After a decline, the money is still
/// promised.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    intent: PaymentIntentId,
    request: CaptureRequest,
    answer: Answer,
) -> Result<Said, Rejection> {
    if let Answer::Declined(decline) = answer {
        return declined_by_processor(draft, intent, request.charge, decline);
    }
    let intent = draft.find::<PaymentIntent>(Some(intent), "intent")?.clone();
    let before = draft.known::<Charge>(Some(request.charge), "an intent's charge")?;
    if before.captured {
        return Err(lost("an intent's charge, not captured,"));
    }
    let mut charge = before.clone().taken(request.amount);
    let suffix = &intent.terms.details.statement_descriptor_suffix;
    if let (Some(of), Some(suffix)) = (&mut charge.by_intent, suffix) {
        of.statement_descriptor_suffix = Some(suffix.clone());
    }
    draft.put_change(EventType::ChargeCaptured, &before, charge)?;
    let intent = intent.captured(request.amount);
    let intent = draft.put_with(EventType::PaymentIntentSucceeded, intent)?;
    Ok(Said::show(OK, intent))
}
