//! `POST /charges/{id}/capture`: take what was promised, once; the rest is released.
//!
//! Reads    the charge
//! Writes   the captured amount
//! Emits    charge.captured
//! Refuses  a charge that failed, was captured or was released; more than was promised; one of an
//!          intent, which is captured instead
//! Fails    while another operation on the charge has no outcome; if another processor
//!          authorized it
//! Asks     for the capture

use crate::{
    commands::{prelude::*, replies::declined_by_processor, unfinished::must_be_free},
    domain::{charge::ChargeRefusal, operation::CaptureRequest},
    wire::charges::{CaptureChargeParams, refused},
};

/// Captures a charge.
pub type CaptureCharge = On<ChargeId, CaptureChargeParams>;

impl Rules for CaptureCharge {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        self.id.map(RowId::Charge).into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let charge = draft.find::<Charge>(self.id, "id")?;
        must_be_free(draft, charge)?;
        if let Some(of) = &charge.by_intent {
            let message = format!("The charge is an intent's: capture {} instead.", of.intent);
            return Err(ApiError::invalid("id", message).into());
        }
        let amount = charge.capture(self.params.amount);
        let amount = amount.map_err(|refusal| refused(refusal, "id"))?;
        let request = CaptureRequest {
            charge: charge.id,
            amount,
        };
        Ok(ask(Question::Capture(request)))
    }
}

/// Writes down the processor's answer, and reports it. After a decline the charge stays as it was.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    request: CaptureRequest,
    answer: Answer,
) -> Result<Said, Rejection> {
    if let Answer::Declined(decline) = answer {
        return declined_by_processor(draft, request.charge, decline);
    }
    let before = draft.known::<Charge>(Some(request.charge), "a captured charge")?;
    if before.captured {
        return Err(refused(ChargeRefusal::AlreadyCaptured, "id").into());
    }
    let charge = before.clone().taken(request.amount);
    let charge = draft.put_change(EventType::ChargeCaptured, &before, charge)?;
    Ok(Said::show(OK, charge))
}
