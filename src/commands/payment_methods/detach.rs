//! `POST /payment_methods/{id}/detach`: take a card from its customer, for good.
//!
//! Reads    the payment method; its customer, who is locked if it is their default
//! Writes   the method's end; the customer's default
//! Emits    payment_method.detached, with whose it was; customer.updated, if it was their default
//! Refuses  a method that is no customer's
//! Fails    while a payment with a new method has no answer

use crate::{
    commands::{payment_methods::given::free, prelude::*},
    wire::payment_methods::{DetachPaymentMethodParams, refused},
};

/// Detaches a payment method.
pub type DetachPaymentMethod = On<PaymentMethodId, DetachPaymentMethodParams>;

impl Rules for DetachPaymentMethod {
    /// Whether it is the default can't change under the method's lock.
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = Vec::new();
        let Some(id) = self.id else {
            return rows;
        };
        rows.push(RowId::Method(id));
        let method = seen.get::<PaymentMethod>(id);
        if let Some(customer) = method.and_then(PaymentMethod::customer) {
            rows.push(RowId::CustomerSeen(customer));
            let found = seen.customer(customer);
            if found.is_some_and(|found| found.default_payment_method == Some(id)) {
                rows.push(RowId::Customer(customer));
            }
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let before = free(draft, self.id, "id")?;
        let customer = before
            .must_be_attached()
            .map_err(|refusal| refused(refusal).with_param(None))?;
        let method = PaymentMethod {
            attachment: Attachment::Detached,
            ..before.clone()
        };
        let method = draft.put_change(EventType::PaymentMethodDetached, &before, method)?;
        let owner = draft.get::<Customer>(customer).cloned();
        let owner = owner.filter(|owner| owner.default_payment_method == Some(method.id));
        if let Some(owner) = owner {
            let without = Customer {
                default_payment_method: None,
                ..owner.clone()
            };
            draft.put_change(EventType::CustomerUpdated, &owner, without)?;
        }
        Ok(show(OK, method))
    }
}
