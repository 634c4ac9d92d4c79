//! What a card is asked for, by whichever verb, and where the answer goes.
//!
//! The same functions run whether the answer comes at once, in the transaction that asked, or from
//! a processor across a network, in a later one.

use super::{
    Draft, RowId, Said, SeenRows,
    charges::{capture, create as create_charge},
    orders::pay as pay_order,
    refunds::create as create_refund,
};
use crate::{
    domain::operation::{Answer, Ask, Effect, Verb},
    idempotency::{Failure, Rejection},
};

/// The rows that the answer needs.
pub(super) fn reads(effect: &Effect, seen: &SeenRows<'_>) -> Vec<RowId> {
    let mut rows = match &effect.ask {
        Ask::Authorize(authorization) => vec![RowId::Charge(authorization.charge)],
        Ask::Capture(request) => vec![RowId::Charge(request.charge)],
        Ask::Refund(request) => create_refund::reads(seen, request),
    };
    rows.extend(effect.order.map(RowId::Order));
    rows
}

/// Hands the answer to the verb that asked.
pub(super) fn answered(
    effect: &Effect,
    answer: Answer,
    draft: &mut Draft<'_>,
) -> Result<Said, Rejection> {
    let expand = &effect.expand;
    match (effect.verb, &effect.ask, effect.order) {
        (Verb::CreateCharge, Ask::Authorize(authorization), None) => {
            create_charge::answered(draft, authorization, answer, expand)
        }
        (Verb::CaptureCharge, Ask::Capture(request), None) => {
            capture::answered(draft, *request, answer, expand)
        }
        (Verb::CreateRefund, Ask::Refund(request), None) => {
            create_refund::answered(draft, request, answer, expand)
        }
        (Verb::PayOrder, Ask::Authorize(authorization), Some(order)) => {
            pay_order::answered(draft, order, authorization, answer, expand)
        }
        (verb, ..) => {
            let cause = format!("an operation {} that no command begins", verb.as_str());
            Err(Rejection::Failed(Failure::internal(cause)))
        }
    }
}

/// Undoes what a question reserved that was never executed.
pub(super) fn withdraw(effect: &Effect, draft: &mut Draft<'_>) -> Result<(), Rejection> {
    match &effect.ask {
        Ask::Authorize(authorization) => {
            create_charge::withdraw(draft, authorization)?;
        }
        Ask::Refund(request) => create_refund::withdraw(draft, request)?,
        // A capture reserves nothing.
        Ask::Capture(_) => {}
    }
    Ok(())
}
