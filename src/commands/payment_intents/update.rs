//! `POST /payment_intents/{id}`: change what is to be paid, or what is written on it.
//!
//! Reads    the intent, with the charge that a processor may be asked about; the method; the
//!          customer that it names
//! Writes   the intent; a new method, if its card comes with the request
//! Emits    nothing: Stripe has no event for it
//! Refuses  a change of the payment when its money was promised, or it was canceled; a customer or
//!          a method that isn't there; a method that may not be used for it
//! Fails    while an answer about the intent is out

use crate::{
    commands::{
        found_intents::{reads, unexpected, unsettled_charge},
        payment_methods::given,
        prelude::*,
        unfinished::must_not_wait,
    },
    wire::{
        payment_intents::UpdatePaymentIntentParams,
        payment_methods::{GivenMethod, refused},
    },
};

/// Updates an intent.
pub type UpdateIntent = On<PaymentIntentId, UpdatePaymentIntentParams>;

impl Rules for UpdateIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = reads(seen, self.id);
        if let Change::Set(Some(customer)) = self.params.customer {
            rows.push(RowId::CustomerSeen(customer));
        }
        let intent = self.id.and_then(|id| seen.get::<PaymentIntent>(id));
        let method = intent.and_then(|intent| intent.terms.payment_method);
        let method = method.filter(|_| self.params.customer != Change::Keep);
        let given = self.params.given();
        rows.extend(given::reads(seen, &given, method, false, None));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.params.clone();
        let given = self.params.given()?;
        let before = draft.find::<PaymentIntent>(self.id, "intent")?.clone();
        if let Some(charge) = unsettled_charge(&before) {
            // Whichever server began what is unfinished, this one only waits for it. If its
            // processor was never asked, the intent is made what it was, and this update would be
            // undone with it.
            must_not_wait(draft.open_work(RowId::Charge(charge)))?;
        }
        let refuse = |status| unexpected(&before, "change the payment of", status);
        if given.is_some() || params.touches_the_payment() {
            before.must_be_confirmable().map_err(refuse)?;
        }
        let customer = params.customer.clone();
        let customer = customer.try_map(|id| given::customer(draft, id))?;
        let method = method(draft, &before, given, customer.clone())?;
        let metadata = params.metadata.clone().apply(before.terms.metadata.clone());
        let terms = params.apply(before.terms.clone(), customer, method);
        let updated = before.clone().updated(terms, method.is_some());
        let mut intent = updated.map_err(refuse)?;
        intent.terms.metadata = metadata?;
        if intent != before {
            intent = draft.put(intent);
        }
        Ok(show(OK, intent))
    }
}

/// The method that the request gives. It must fit the customer, and so must the one that the intent
/// has if only the customer changes.
fn method(
    draft: &mut Draft<'_>,
    before: &PaymentIntent,
    given: Option<GivenMethod>,
    customer: Change<CustomerId>,
) -> Result<Option<PaymentMethodId>, Rejection> {
    let is_other = customer != Change::Keep;
    let customer = customer.apply(before.terms.customer);
    let fits = |method: &PaymentMethod| method.may_pay_for(customer).map_err(refused);
    match (given, before.terms.payment_method) {
        (Some(given), _) => {
            let method = given::take(draft, given)?;
            fits(&method)?;
            Ok(Some(method.id))
        }
        (None, Some(id)) if is_other => {
            fits(&given::free(draft, Some(id), "payment_method")?)?;
            Ok(None)
        }
        (None, _) => Ok(None),
    }
}
