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
pub struct CaptureCharge {
    /// The charge, as the path names it.
    pub id: String,
    /// How much.
    pub params: CaptureChargeParams,
}

impl Rules for CaptureCharge {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = ChargeId::parse(&self.id).map(RowId::Charge);
        id.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let charge = draft.find::<Charge>(ChargeId::parse(&self.id), "id")?;
        must_be_free(draft, charge)?;
        if let Some(of) = &charge.by_intent {
            let message = format!("The charge is an intent's: capture {} instead.", of.intent);
            let error = ApiError::new(ErrorCode::ParameterInvalid, message);
            return Err(error.with_param("id".to_owned()).into());
        }
        let amount = charge.capture(self.params.amount);
        let amount = amount.map_err(|refusal| refused(refusal, "id"))?;
        let request = CaptureRequest {
            charge: charge.id,
            amount,
        };
        Ok(Verdict::ask(
            Question::Capture(request),
            &self.params.expand,
        ))
    }
}

/// Writes down the processor's answer, and reports it. After a decline the charge stays as it was.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    request: CaptureRequest,
    answer: Answer,
    expand: &Expansion,
) -> Result<Said, Rejection> {
    if let Answer::Declined(decline) = answer {
        return declined_by_processor(draft, request.charge, decline);
    }
    let found = draft.get::<Charge>(request.charge);
    let before = found.ok_or_else(|| lost("a captured charge"))?.clone();
    if before.captured {
        return Err(refused(ChargeRefusal::AlreadyCaptured, "id").into());
    }
    let charge = draft.put(before.clone().taken(request.amount));
    draft.emit_change(EventType::ChargeCaptured, &before, &charge)?;
    Ok(Said::show(OK, charge, expand))
}
