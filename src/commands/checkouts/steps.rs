//! The steps of a checkout. Each is a verb, under a key that no client can send.
//!
//! Promise: a step runs once. The checkout decides what has run, under its lock and in the
//! transaction that runs it; the step's idempotency record shows which process runs it.
//!
//! Reads    the checkout; its order; for `allocate_inventory` the levels; for `create_refund` the
//!          charge
//! Writes   what the step is about, and its state
//! Emits    order.created · charge.succeeded or charge.failed · order.paid · refund.created and
//!          charge.refunded, or refund.failed · order.canceled
//! Fails    when the processor is down or its slow lane is full
//! Asks     for the money, or for the refund

use crate::{
    commands::{
        charges::create as charges,
        orders::{cancel::cancel, create::open, pay::pay},
        prelude::*,
        refunds::create as create_refund,
        unfinished::must_have_taken_the_money,
    },
    domain::{checkout::StepName, inventory::allocate},
};

/// Runs one step of a checkout, if that is the one to be run.
pub struct RunStep {
    /// Which checkout.
    pub checkout: CheckoutId,
    /// Which step.
    pub step: StepName,
}

impl Rules for RunStep {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = vec![RowId::Checkout(self.checkout)];
        let checkout = seen.get::<Checkout>(self.checkout);
        let Some(checkout) = checkout.filter(|found| found.next() == Some(self.step)) else {
            return rows;
        };
        match self.step {
            StepName::CreateOrder => {}
            StepName::CreateCharge | StepName::CancelOrder => {
                rows.extend(checkout.order.map(RowId::Order));
            }
            StepName::AllocateInventory => {
                rows.extend(checkout.order.map(RowId::Order));
                let skus = checkout
                    .terms
                    .items
                    .iter()
                    .filter_map(|item| item.sku.clone());
                rows.extend(skus.map(RowId::Level));
            }
            StepName::CreateRefund => rows.extend(refund_reads(seen, checkout)),
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let checkout = draft.known::<Checkout>(Some(self.checkout), "a checkout")?;
        if checkout.next() != Some(self.step) {
            return Ok(Verdict::Answered(has_run()?));
        }
        match self.step {
            StepName::CreateOrder => create_order(draft, checkout)?,
            StepName::CreateCharge => return create_charge(draft, &checkout),
            StepName::AllocateInventory => allocate_inventory(draft, checkout)?,
            StepName::CreateRefund => return give_back(draft, &checkout),
            StepName::CancelOrder => {
                let order = draft.known(checkout.order, "an order")?;
                let order = cancel(draft, order)?;
                draft.put(checkout.done(order.id.to_string()));
            }
        }
        Ok(Verdict::Answered(has_run()?))
    }
}

/// The outcome of a step is in the checkout, so its idempotency record holds nothing, and a step
/// that has run doesn't run again even if its record is gone. A step's record is never a refusal
/// either: a decline or a lack of stock is stored in the checkout, together with the compensating
/// steps.
fn has_run() -> Result<Said, Rejection> {
    Ok(Said::Reply(Reply::json(OK, &serde_json::Map::new())?))
}

fn create_order(draft: &mut Draft<'_>, mut checkout: Checkout) -> Result<(), Rejection> {
    let order = open(draft, checkout.terms.clone())?;
    checkout.order = Some(order.id);
    draft.put(checkout.done(order.id.to_string()));
    Ok(())
}

fn create_charge(draft: &mut Draft<'_>, checkout: &Checkout) -> Result<Verdict, Rejection> {
    let order = draft.known::<Order>(checkout.order, "an order")?;
    let new = order.charge_for(checkout.card);
    let card = charges::open(draft, &new, Some(order.id));
    let question = Question::CheckoutPayment(checkout.id, order.id, card);
    Ok(ask(question))
}

fn allocate_inventory(draft: &mut Draft<'_>, checkout: Checkout) -> Result<(), Rejection> {
    let order = draft.known::<Order>(checkout.order, "an order")?;
    let charge = checkout.charge().ok_or_else(|| lost("a charge"))?;
    let level = |sku: &str| draft.get::<Inventory>(sku.to_owned());
    let left = |sku: &str| level(sku).map_or(0, |level| level.quantity);
    let taken = match allocate(left, &checkout.terms.items) {
        Ok(taken) => taken,
        Err(out_of_stock) => {
            let why = ApiError::from(out_of_stock).into();
            draft.put(checkout.refused(None, why));
            return Ok(());
        }
    };
    for (sku, quantity) in taken {
        let level = draft.known::<Inventory>(Some(sku), "a level")?;
        let left = level.quantity - quantity;
        draft.put(level.with(left, draft.now));
    }
    let order = pay(draft, order.id, charge)?;
    draft.put(checkout.done(order.id.to_string()));
    Ok(())
}

/// Begins a refund of the whole charge, if the processor that took the money can be asked for one
/// now.
fn give_back(draft: &mut Draft<'_>, checkout: &Checkout) -> Result<Verdict, Rejection> {
    if checkout.refund_waits(draft.now) {
        return Err(Rejection::Failed(Failure::unavailable(
            "the processor refused to give the money back, and a person should see why; the next \
             refund is made an hour after the last one",
        )));
    }
    let charge = draft.known(checkout.charge(), "a charge")?;
    must_have_taken_the_money(draft, &charge)?;
    let request = open_refund(draft, charge)?;
    let question = Question::CheckoutRefund(checkout.id, request);
    Ok(ask(question))
}

/// A pending refund counts, so there is no second one.
fn open_refund(draft: &mut Draft<'_>, charge: Charge) -> Result<RefundRequest, Rejection> {
    let amount = charge.refund(None).map_err(|refusal| {
        let cause = format!("a checkout's charge can't be given back: {refusal:?}");
        Rejection::Failed(Failure::internal(cause))
    })?;
    let refund = create_refund::open(draft, charge, amount, None, Metadata::new());
    Ok(RefundRequest::of(&refund))
}

fn refund_reads(seen: &SeenRows<'_>, checkout: &Checkout) -> Vec<RowId> {
    let charge = checkout.charge();
    let order = charge.and_then(|id| create_refund::order_of(seen, id));
    charge.map(RowId::Charge).into_iter().chain(order).collect()
}

/// The checkout that waits for what `step` asked.
fn waiting(draft: &Draft<'_>, id: CheckoutId, step: StepName) -> Result<Checkout, Rejection> {
    let found = draft.get::<Checkout>(id);
    let waiting = found.filter(|checkout| checkout.next() == Some(step));
    Ok(waiting.ok_or_else(|| lost("a pending step"))?.clone())
}

/// Writes down the processor's answer about the charge. It pays the order later, once the items are
/// allocated: a shop that ships on `order.paid` must not see that event before.
pub(in crate::commands) fn paid(
    draft: &mut Draft<'_>,
    id: CheckoutId,
    card: &CardAuthorization,
    answer: Answer,
) -> Result<Said, Rejection> {
    let checkout = waiting(draft, id, StepName::CreateCharge)?;
    let (charge, decline) = charges::end(draft, card, answer)?;
    let charge = charge.id.to_string();
    let checkout = match decline {
        None => checkout.done(charge),
        Some(decline) => {
            let why = ApiError::declined(decline, charge.clone()).into();
            checkout.refused(Some(charge), why)
        }
    };
    draft.put(checkout);
    has_run()
}

/// Writes down the processor's answer about the refund. The money must go back, so a refused one
/// leaves the step pending.
pub(in crate::commands) fn gave_back(
    draft: &mut Draft<'_>,
    id: CheckoutId,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Said, Rejection> {
    let checkout = waiting(draft, id, StepName::CreateRefund)?;
    let checkout = match create_refund::end(draft, request, answer)? {
        Ok(refund) => {
            create_refund::report(draft, &refund)?;
            checkout.done(refund.id.to_string())
        }
        Err(_) => checkout.refund_refused(draft.now),
    };
    draft.put(checkout);
    has_run()
}

/// The rows that [`refund_elsewhere`] needs.
pub fn refund_elsewhere_reads(seen: &SeenRows<'_>, id: CheckoutId) -> Vec<RowId> {
    let mut rows = vec![RowId::Checkout(id)];
    if let Some(checkout) = seen.get::<Checkout>(id) {
        rows.extend(refund_reads(seen, checkout));
    }
    rows
}

/// Writes down that the money of a canceled checkout was returned outside the service, although
/// the refund was refused.
pub fn refund_elsewhere(draft: &mut Draft<'_>, id: CheckoutId) -> Result<Said, Rejection> {
    let checkout = draft.known::<Checkout>(Some(id), "a checkout")?;
    if checkout.next() != Some(StepName::CreateRefund) {
        let cause = "the checkout doesn't wait for a refund any more";
        return Err(Rejection::Failed(Failure::unavailable(cause)));
    }
    let charge = draft.known(checkout.charge(), "a charge")?;
    let request = open_refund(draft, charge)?;
    gave_back(draft, id, &request, Answer::Done)
}
