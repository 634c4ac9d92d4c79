//! `POST /setup_intents/{id}`: change what is set up, and for whom, before it has ended; and what
//! is written on it at any time.
//!
//! Reads    the setup intent, its method, the customer that the request names
//! Writes   the setup intent, and a method that is made of a test card
//! Emits    nothing
//! Refuses  another method or customer for a setup intent that has ended; unknown ones; a method of
//!          another customer
//! Fails    while a payment with a new method has no answer

use super::attempt::unexpected;
use crate::{
    commands::{payment_methods::given, prelude::*},
    wire::{payment_methods::refused, setup_intents::UpdateSetupIntentParams},
};

/// Updates a setup intent.
pub type UpdateSetupIntent = On<SetupIntentId, UpdateSetupIntentParams>;

impl Rules for UpdateSetupIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows: Vec<RowId> = self.id.map(RowId::Setup).into_iter().collect();
        if let Change::Set(Some(customer)) = self.params.customer {
            rows.push(RowId::CustomerSeen(customer));
        }
        let setup = self.id.and_then(|id| seen.get::<SetupIntent>(id));
        let method = match (&self.params.payment_method, &self.params.customer) {
            (Change::Set(named), _) => named.id(),
            (Change::Unset, _) | (Change::Keep, Change::Keep) => None,
            (Change::Keep, _) => setup.and_then(|setup| setup.terms.payment_method),
        };
        rows.extend(method.map(RowId::Method));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.params.clone();
        let before = draft.find::<SetupIntent>(self.id, "intent")?.clone();
        let method = params.payment_method;
        let method = method.try_map(|named| given::take(draft, named.into()))?;
        let customer = params.customer;
        let customer = customer.try_map(|id| given::customer(draft, id))?;
        let names_what = customer != Change::Keep || method != Change::Keep;
        let mut terms = before.terms.clone();
        terms.customer = customer.apply(terms.customer);
        terms.description = params.description.apply(terms.description);
        let id = method.clone().map(|method| method.id);
        terms.payment_method = id.apply(terms.payment_method);
        let updated = before.clone().updated(terms, names_what);
        let mut setup = updated.map_err(|UnexpectedSetupStatus(status)| {
            let message = format!(
                "This SetupIntent's payment method and customer can't be updated because it has a \
                 status of {}.",
                status.as_str()
            );
            unexpected(&before, message)
        })?;
        setup.terms.metadata = params.metadata.apply(setup.terms.metadata)?;
        must_fit(draft, &before, &setup, method)?;
        if setup != before {
            setup = draft.put(setup);
        }
        Ok(show(OK, setup))
    }
}

/// The method must be usable by the customer, if either has changed.
fn must_fit(
    draft: &Draft<'_>,
    before: &SetupIntent,
    after: &SetupIntent,
    given: Change<PaymentMethod>,
) -> Result<(), Rejection> {
    let (before, after) = (&before.terms, &after.terms);
    let is_same =
        before.customer == after.customer && before.payment_method == after.payment_method;
    let method = match (given, after.payment_method) {
        (Change::Set(method), _) => method,
        (Change::Keep, Some(id)) if !is_same => given::free(draft, Some(id), "payment_method")?,
        (Change::Keep | Change::Unset, _) => return Ok(()),
    };
    Ok(method.may_pay_for(after.customer).map_err(refused)?)
}
