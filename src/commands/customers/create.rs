//! `POST /customers`: write down who pays.
//!
//! Reads    the payment method that it brings
//! Writes   one customer; the payment method's attachment
//! Emits    customer.created, payment_method.attached; customer.updated if that becomes the default
//! Refuses  parameters that are unknown or wrong; a payment method that can't be attached; a
//!          default one that isn't the customer's
//! Fails    while a payment with a new method has no answer

use crate::{
    commands::{
        payment_methods::given::{attach_to, take},
        prelude::*,
    },
    domain::customer::CustomerDetails,
    wire::{
        customers::{CreateCustomerParams, default_of, not_their_method},
        payment_methods::NamedMethod,
    },
};

/// Creates a customer.
pub struct CreateCustomer(pub CreateCustomerParams);

impl Rules for CreateCustomer {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let method = self.0.payment_method.and_then(NamedMethod::id);
        method.map(RowId::Method).into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.0.clone();
        let default = default_of(params.invoice_settings.as_ref());
        let named = params.payment_method;
        let method = named.map(|named| take(draft, named.into())).transpose()?;
        let customer = Customer {
            id: CustomerId(Uuid::now_v7()),
            details: params.details.apply(CustomerDetails::default()),
            email: params.email,
            metadata: params.metadata,
            default_payment_method: None,
            version: 1,
            created_at: draft.now,
            deleted: false,
        };
        let mut customer = draft.put_with(EventType::CustomerCreated, customer)?;
        let attached = match method {
            Some(method) => Some(attach_to(draft, method, customer.id)?.id),
            None => None,
        };
        if let Change::Set(default) = default {
            if attached != Some(default) {
                return Err(not_their_method().into());
            }
            let mut with_default = customer.clone();
            with_default.default_payment_method = attached;
            customer = draft.put_change(EventType::CustomerUpdated, &customer, with_default)?;
        }
        Ok(show(CREATED, customer))
    }
}
