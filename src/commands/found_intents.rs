//! The intent that a verb is about, and its refusals, which hold the whole intent.
//!
//! Each verb locks its intent first, so what a refusal shows is what decided it, and no other verb
//! changes it before the refusal is stored. A client that sees `succeeded` or `canceled` there
//! knows that what it wanted has happened.

use crate::{
    commands::{
        prelude::*,
        unfinished::{must_be_finished, must_be_free},
    },
    domain::payment_intent::UnexpectedStatus,
};

/// The intent that a path names by `id`, and the charge that a processor may be asked about.
pub(super) fn reads(seen: &SeenRows<'_>, id: Option<PaymentIntentId>) -> Vec<RowId> {
    let mut rows = Vec::new();
    if let Some(id) = id {
        rows.push(RowId::Intent(id));
        let charge = seen.get::<PaymentIntent>(id).and_then(unsettled_charge);
        rows.extend(charge.map(RowId::Charge));
    }
    rows
}

/// The intent of a processor's answer, and its method, which a decline shows.
pub(super) fn reads_to_answer(seen: &SeenRows<'_>, id: PaymentIntentId) -> Vec<RowId> {
    let mut rows = vec![RowId::Intent(id)];
    let method = seen.get::<PaymentIntent>(id);
    let method = method.and_then(|intent| intent.terms.payment_method);
    rows.extend(method.map(RowId::MethodToPay));
    rows
}

/// The intent that `param` names, if its status is known: the processor isn't asked about its
/// money.
pub(super) fn settled(
    draft: &Draft<'_>,
    id: Option<PaymentIntentId>,
    param: &str,
) -> Result<PaymentIntent, Rejection> {
    let intent = draft.find::<PaymentIntent>(id, param)?;
    if let Some(charge) = unsettled_charge(intent) {
        must_be_finished(draft, RowId::Charge(charge))?;
    }
    Ok(intent.clone())
}

/// The charge of an intent that a processor may be asked about.
pub(super) fn unsettled_charge(intent: &PaymentIntent) -> Option<ChargeId> {
    match intent.status {
        IntentStatus::Processing => intent.latest_charge,
        IntentStatus::RequiresCapture => intent.charge,
        IntentStatus::RequiresPaymentMethod
        | IntentStatus::RequiresConfirmation
        | IntentStatus::RequiresAction
        | IntentStatus::Succeeded
        | IntentStatus::Canceled => None,
    }
}

/// The charge that promised an intent's money, about which nothing is unfinished.
pub(super) fn promised(draft: &Draft<'_>, intent: &PaymentIntent) -> Result<Charge, Rejection> {
    let charge = draft.known(intent.charge, "an intent's charge")?;
    must_be_free(draft, &charge)?;
    Ok(charge)
}

/// Makes an intent what it was before the processor was asked.
pub(super) fn restore(
    draft: &mut Draft<'_>,
    id: PaymentIntentId,
) -> Result<PaymentIntent, Rejection> {
    let before = draft.find::<PaymentIntent>(Some(id), "intent")?.restored();
    let before = before.ok_or_else(|| lost("what an intent was before"))?;
    Ok(draft.put(before))
}

/// The processor's definite no about the promised money of an intent, which is made what it was.
pub(super) fn declined_by_processor(
    draft: &mut Draft<'_>,
    intent: PaymentIntentId,
    charge: ChargeId,
    decline: Decline,
) -> Result<Said, Rejection> {
    let intent = restore(draft, intent)?;
    let mut error = ApiError::declined(decline, charge.to_string());
    error.about.advice = Some(STORED_DECLINE);
    let method = intent.terms.payment_method;
    if let Some(method) = method.and_then(|id| draft.get::<PaymentMethod>(id)) {
        error.about.payment_method = Some(whole(method)?);
    }
    error.about.payment_intent = Some(whole(&intent)?);
    let mut reply = error_reply(&error)?;
    reply.resource_id = Some(intent.id.to_string());
    Ok(Said::Reply(reply))
}

/// The refusal of a verb that needs another status. `verb` completes "You cannot".
pub(super) fn unexpected(
    intent: &PaymentIntent,
    verb: &str,
    UnexpectedStatus(status): UnexpectedStatus,
) -> Rejection {
    let because = if status == IntentStatus::Succeeded {
        "it has already succeeded after being previously confirmed".to_owned()
    } else {
        format!("it has a status of {}", status.as_str())
    };
    let message = format!("You cannot {verb} this PaymentIntent because {because}.");
    refusal(intent, message)
}

/// A refusal for the state that the intent is in.
pub(super) fn refusal(intent: &PaymentIntent, message: String) -> Rejection {
    let refused = whole(intent).map(|whole| {
        let mut error = ApiError::new(ErrorCode::PaymentIntentUnexpectedState, message);
        error.about.payment_intent = Some(whole);
        error.into()
    });
    refused.unwrap_or_else(|failed| failed)
}
