//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Reads    nothing
//! Writes   one charge, succeeded or failed; across a network it is pending meanwhile
//! Emits    charge.succeeded or charge.failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full
//! Asks     for the money

use crate::{
    commands::{prelude::*, replies::declined},
    wire::charges::CreateChargeParams,
};

/// Creates a charge.
pub struct CreateCharge(pub CreateChargeParams);

impl Rules for CreateCharge {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        Vec::new()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let new = NewCharge::from(self.0.clone());
        let question = Question::Charge(open(draft, &new, None));
        Ok(ask(question))
    }

    fn card(&self) -> Option<Card> {
        Some(self.0.source)
    }
}

/// Begins a charge, which is pending, and says what its card is to be asked for.
pub(in crate::commands) fn open(
    draft: &mut Draft<'_>,
    new: &NewCharge,
    order: Option<OrderId>,
) -> CardAuthorization {
    let id = ChargeId(Uuid::now_v7());
    draft.put(Charge::made(id, new, order, None, draft.now));
    CardAuthorization::of(id, new)
}

/// Writes down the processor's answer, and reports it.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<Said, Rejection> {
    match end(draft, authorization, answer)? {
        (charge, None) => Ok(Said::show(CREATED, charge)),
        (charge, Some(decline)) => Ok(Said::Reply(declined(decline, &charge)?)),
    }
}

/// Ends the pending charge of an authorization that was answered, and emits its event. The second
/// value is the processor's decline.
pub(in crate::commands) fn end(
    draft: &mut Draft<'_>,
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<(Charge, Option<Decline>), Rejection> {
    let (charge, said) = record_answer(draft, authorization, answer)?;
    let event = match said {
        Authorization::Approved => EventType::ChargeSucceeded,
        Authorization::Declined(_) => EventType::ChargeFailed,
    };
    draft.emit(event, &charge)?;
    Ok((charge, said.decline()))
}

/// Ends the pending charge of an authorization that was answered.
pub(in crate::commands) fn record_answer(
    draft: &mut Draft<'_>,
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<(Charge, Authorization), Rejection> {
    let said = match answer {
        Answer::Done => Authorization::Approved,
        Answer::Declined(decline) => Authorization::Declined(decline),
    };
    let charge = pending(draft, authorization.charge)?;
    let charge = charge.answered(said, authorization.capture, draft.server.processor);
    Ok((draft.put(charge), said))
}

/// Forgets the pending charge of an authorization that was never executed.
pub(in crate::commands) fn withdraw(
    draft: &mut Draft<'_>,
    authorization: &CardAuthorization,
) -> Result<Charge, Rejection> {
    let charge = pending(draft, authorization.charge)?;
    draft.delete::<Charge>(charge.id);
    Ok(charge)
}

fn pending(draft: &Draft<'_>, id: ChargeId) -> Result<Charge, Rejection> {
    let found = draft.get::<Charge>(id);
    let pending = found.filter(|charge| charge.status == ChargeStatus::Pending);
    pending.cloned().ok_or_else(|| lost("a pending charge"))
}
