//! `POST /payment_methods/{id}/attach`: keep a card for a customer's later payments.
//!
//! Reads    the payment method; the customer, with how many methods they have
//! Writes   whose the method is; the method itself, where a template such as pm_card_visa is named
//! Emits    payment_method.attached, unless it is the customer's already
//! Refuses  a method that was used up, detached, or is another customer's; a card that is declined;
//!          a customer who was deleted, or has no room
//! Fails    while a payment with a new method has no answer

use crate::{
    commands::{
        payment_methods::given::{attach_to, customer, free, make},
        prelude::*,
    },
    wire::payment_methods::{AttachPaymentMethodParams, GivenMethod, NamedMethod},
};

/// Attaches a payment method to a customer.
pub struct AttachPaymentMethod {
    /// The method, as the path names it.
    pub id: String,
    /// The customer.
    pub params: AttachPaymentMethodParams,
}

impl Rules for AttachPaymentMethod {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = Vec::new();
        rows.extend(PaymentMethodId::parse(&self.id).map(RowId::Method));
        if let Some(customer) = self.params.customer {
            rows.extend([RowId::Customer(customer), RowId::MethodsOf(customer)]);
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let method = match GivenMethod::from(NamedMethod::of(&self.id)) {
            GivenMethod::New(new) => make(draft, *new),
            GivenMethod::Existing(id) => free(draft, id, "id")?,
        };
        let customer = customer(draft, self.params.customer)?;
        let method = attach_to(draft, method, customer)?;
        Ok(show(OK, method))
    }
}
