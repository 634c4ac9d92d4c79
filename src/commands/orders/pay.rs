//! `POST /orders/{id}/pay`: make the one charge for an order.
//!
//! Reads    the order
//! Writes   one charge that names the order; where it succeeded, the order's status; across a
//!          network the charge is pending meanwhile
//! Emits    charge.succeeded and order.paid, or charge.failed
//! Refuses  an order that was paid or canceled
//! Fails    when the processor is down or its slow lane is full; while a payment or the checkout
//!          that made it is unfinished
//! Asks     for the money

use crate::{
    commands::{
        charges::create as charges, prelude::*, replies::declined, unfinished::must_be_finished,
    },
    wire::orders::PayOrderParams,
};

/// Pays an order.
pub type PayOrder = On<OrderId, PayOrderParams>;

impl Rules for PayOrder {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        self.id.map(RowId::Order).into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let order = open_order(draft, self.id)?;
        let new = order.charge_for(self.params.source);
        let card = charges::open(draft, &new, Some(order.id));
        let question = Question::OrderPayment(order.id, card);
        Ok(ask(question))
    }

    fn card(&self) -> Option<Card> {
        Some(self.params.source)
    }
}

/// Writes down the processor's answer, and reports it. A decline leaves the order open: another
/// card may pay it, under another key.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    order: OrderId,
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<Said, Rejection> {
    match charges::end(draft, authorization, answer)? {
        (charge, None) => Ok(Said::show(OK, pay(draft, order, charge.id)?)),
        (charge, Some(decline)) => Ok(Said::Reply(declined(decline, &charge)?)),
    }
}

/// Makes an order paid by `charge`, and reports it.
pub(in crate::commands) fn pay(
    draft: &mut Draft<'_>,
    order: OrderId,
    charge: ChargeId,
) -> Result<Order, Rejection> {
    let mut order = draft.known::<Order>(Some(order), "an order")?;
    order.status = OrderStatus::Paid;
    order.charge = Some(charge);
    draft.put_with(EventType::OrderPaid, order)
}

/// The open order that a path names. Refuses one that is missing or not open, and fails while a
/// payment or the checkout that made it is unfinished.
pub(super) fn open_order(draft: &Draft<'_>, id: Option<OrderId>) -> Result<Order, Rejection> {
    let order = draft.find::<Order>(id, "id")?;
    must_be_finished(draft, RowId::Order(order.id))?;
    order.status.must_be_open().map_err(ApiError::from)?;
    Ok(order.clone())
}
