//! `POST /payment_methods/{id}`: change what is written on a customer's payment method.
//!
//! Reads    the payment method
//! Writes   billing details, expiry date, redisplay, metadata
//! Emits    payment_method.updated, if anything changed
//! Refuses  parameters that are unknown or wrong; a method that is no customer's
//! Fails    while a payment with a new method has no answer

use charge_once_strict_params::Expansion;

use crate::commands::{
    Draft, RowId, Rules, Said, SeenRows, Verdict, payment_methods::given::free, replies::OK,
};
use crate::{
    domain::{event::EventType, ids::PaymentMethodId},
    idempotency::Rejection,
    wire::{
        error::ApiError,
        payment_methods::{UpdatePaymentMethodParams, refused},
    },
};

/// Updates a payment method.
pub struct UpdatePaymentMethod {
    /// The method, as the path names it.
    pub id: String,
    /// What changes.
    pub params: UpdatePaymentMethodParams,
}

impl Rules for UpdatePaymentMethod {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = PaymentMethodId::parse(&self.id).map(RowId::Method);
        id.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = &self.params;
        let before = free(draft, PaymentMethodId::parse(&self.id), "id")?;
        before
            .must_be_attached()
            .map_err(|refusal| refused(refusal).with_param(None))?;
        let mut method = before.clone().changed(params.change());
        let metadata = params.metadata.clone().apply(method.metadata);
        method.metadata = metadata.map_err(ApiError::from)?;
        if method != before {
            method = draft.put(method);
            draft.emit_change(EventType::PaymentMethodUpdated, &before, &method)?;
        }
        Ok(Verdict::Said(Said::show(OK, method, &params.expand)))
    }

    fn expand(&self) -> Option<&Expansion> {
        Some(&self.params.expand)
    }
}
