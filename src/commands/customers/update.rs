//! `POST /customers/{id}`: change what is known of a customer.
//!
//! Reads    the payment method that becomes the default, the customer
//! Writes   what the client says of the customer
//! Emits    customer.updated, if anything changed
//! Refuses  parameters that are unknown or wrong; a default payment method that isn't the
//!          customer's; a customer who was deleted
//! Fails    while a payment with a new method has no answer

use charge_once_strict_params::{Change, Expansion};

use crate::commands::{
    Draft, RowId, Rules, Said, SeenRows, Verdict,
    payment_methods::given::{self, must_be_free},
    replies::OK,
};
use crate::{
    domain::{
        event::EventType,
        ids::{CustomerId, PaymentMethodId},
        payment_method::PaymentMethod,
    },
    idempotency::Rejection,
    wire::{
        customers::{UpdateCustomerParams, default_of, not_their_method},
        error::ApiError,
    },
};

/// Updates a customer.
pub struct UpdateCustomer {
    /// The customer, as the path names it.
    pub id: String,
    /// What changes.
    pub params: UpdateCustomerParams,
}

impl UpdateCustomer {
    fn default(&self) -> Change<PaymentMethodId> {
        default_of(self.params.invoice_settings.as_ref())
    }
}

impl Rules for UpdateCustomer {
    /// The default method is locked, so that it can't be detached before it is the default. A later
    /// detachment finds it there, and takes it away.
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = Vec::new();
        if let Change::Set(method) = self.default() {
            rows.push(RowId::Method(method));
        }
        rows.extend(CustomerId::parse(&self.id).map(RowId::Customer));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = &self.params;
        let before = given::customer(draft, CustomerId::parse(&self.id), "id")?.clone();
        if let Change::Set(method) = self.default() {
            let method = draft.get::<PaymentMethod>(method);
            let method = method.ok_or_else(not_their_method)?;
            must_be_free(draft, method)?;
            if method.customer() != Some(before.id) {
                return Err(not_their_method().into());
            }
        }
        let mut customer = before.clone();
        let default = self.default().apply(customer.default_payment_method);
        customer.default_payment_method = default;
        customer.details = customer.details.changed(params.change());
        let metadata = params.metadata.clone().apply(customer.details.metadata);
        customer.details.metadata = metadata.map_err(ApiError::from)?;
        if customer != before {
            customer = draft.put(customer);
            draft.emit_change(EventType::CustomerUpdated, &before, &customer)?;
        }
        Ok(Verdict::Said(Said::show(OK, customer, &params.expand)))
    }

    fn expand(&self) -> Option<&Expansion> {
        Some(&self.params.expand)
    }
}
