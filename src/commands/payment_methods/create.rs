//! `POST /payment_methods`: keep a card, for one payment or for a customer.
//!
//! Reads    nothing
//! Writes   one payment method, without the card's number
//! Emits    nothing
//! Refuses  parameters that are unknown or wrong

use crate::{
    commands::{payment_methods::given::make, prelude::*},
    wire::payment_methods::CreatePaymentMethodParams,
};

/// Creates a payment method.
pub struct CreatePaymentMethod(pub CreatePaymentMethodParams);

impl Rules for CreatePaymentMethod {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        Vec::new()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let method = make(draft, self.0.method.clone().into());
        Ok(show(CREATED, method))
    }
}
