//! `POST /checkouts`: an order, its charge and its items in one request.
//!
//! No transaction covers it, because a charge may be across a network. The request begins here, in
//! one transaction, and ends here, in another one; what lies between are the steps in `steps.rs`,
//! each a verb of its own.
//!
//! Reads    the checkout, at the end
//! Writes   one checkout with its planned steps; at the end its status
//! Emits    checkout.completed or checkout.canceled
//! Refuses  parameters that are missing, unknown or wrong; at the end, what a step refused for good

use crate::{
    commands::{prelude::*, replies::stored_refusal},
    domain::checkout::{CheckoutStatus, NewCheckout},
    wire::checkouts::{CheckoutView, refusal_of},
};

/// Begins a checkout.
pub fn begin(draft: &mut Draft<'_>, id: CheckoutId, new: NewCheckout) {
    let asked_by = draft.origin.asked_by.clone();
    draft.put(Checkout::begun(id, new, asked_by, draft.now));
}

/// Ends a checkout whose steps have all been run.
pub fn end(draft: &mut Draft<'_>, id: CheckoutId) -> Result<Reply, Rejection> {
    let checkout = draft.get::<Checkout>(id).cloned();
    let ended = checkout.and_then(Checkout::ended);
    let checkout = draft.put(ended.ok_or_else(|| lost("a checkout without a step"))?);
    let id = checkout.id.to_string();
    match checkout.status {
        CheckoutStatus::Completed => {
            draft.emit(EventType::CheckoutCompleted, &checkout)?;
            let view = CheckoutView::from(&checkout);
            draft.origin.reply(CREATED, "checkouts", id, &view)
        }
        CheckoutStatus::Canceled | CheckoutStatus::InProgress => {
            draft.emit(EventType::CheckoutCanceled, &checkout)?;
            let refusal = refusal_of(&checkout).ok_or_else(|| lost("what was refused"))?;
            let mut reply = stored_refusal(refusal)?;
            reply.resource_id = Some(id);
            Ok(reply)
        }
    }
}
