//! `POST /{collection}/{id}`: change what is written on an object, never its money.
//!
//! Reads    the object; for a customer, the payment method that becomes the default
//! Writes   what the client says of it: see [`Editable::edited`] of each
//! Emits    the object's `*.updated`, if anything changed
//! Refuses  parameters that are unknown or wrong; a method that is no customer's; a default method
//!          that isn't the customer's; a customer who was deleted
//! Fails    while a processor across a network is asked about the charge, the refund, or a payment
//!          with a new method

use charge_once_strict_params::ParameterSet;

use super::{Noun, Object, payment_methods::given::must_be_free};
use crate::{
    commands::prelude::*,
    wire::{
        charges::UpdateChargeParams,
        customers::{UpdateCustomerParams, default_of, not_their_method},
        orders::UpdateOrderParams,
        payment_methods::{UpdatePaymentMethodParams, refused},
        refunds::UpdateRefundParams,
    },
};

/// An object on which clients change what they wrote.
pub trait Editable: Noun<Id: ObjectId> + Into<Object> + PartialEq {
    /// What a request may change.
    type Params: ParameterSet + Send + Sync + 'static;
    /// What happened to it then.
    const UPDATED: EventType;

    /// The row that the parameters name.
    fn named(_: &Self::Params) -> Option<RowId> {
        None
    }

    /// Whether it may be changed now.
    fn must_be_editable(&self, draft: &Draft<'_>, params: &Self::Params) -> Result<(), Rejection>;

    /// The object with these changes.
    fn edited(self, params: &Self::Params) -> Result<Self, ApiError>;
}

/// Updates an object.
pub struct Update<N: Editable> {
    /// The object, as the path names it.
    pub id: String,
    /// What changes.
    pub params: N::Params,
}

impl<N: Editable + 'static> Rules for Update<N> {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = N::Id::parse(&self.id).map(N::ROW);
        N::named(&self.params).into_iter().chain(id).collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let before = draft.find::<N>(N::Id::parse(&self.id), "id")?.clone();
        before.must_be_editable(draft, &self.params)?;
        let mut object = before.clone().edited(&self.params)?;
        if object != before {
            object = draft.put_change(N::UPDATED, &before, object)?;
        }
        Ok(show(OK, object))
    }
}

impl Editable for Charge {
    type Params = UpdateChargeParams;
    const UPDATED: EventType = EventType::ChargeUpdated;

    /// If its processor was never asked, the charge is deleted, and this update with it. What a
    /// pending refund counts may be taken back, and its event would have told it.
    fn must_be_editable(&self, draft: &Draft<'_>, _: &Self::Params) -> Result<(), Rejection> {
        let is_asked = draft.open_work(RowId::Charge(self.id)).operation;
        if self.status == ChargeStatus::Pending || is_asked {
            let busy = "the processor is asked about the charge";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        Ok(())
    }

    fn edited(self, params: &UpdateChargeParams) -> Result<Self, ApiError> {
        Ok(Self {
            description: params.description.clone().apply(self.description),
            receipt_email: params.receipt_email.clone().apply(self.receipt_email),
            metadata: params.metadata.clone().apply(self.metadata)?,
            ..self
        })
    }
}

impl Editable for Refund {
    type Params = UpdateRefundParams;
    const UPDATED: EventType = EventType::RefundUpdated;

    /// If its processor was never asked, the refund is deleted, and this update with it.
    fn must_be_editable(&self, _: &Draft<'_>, _: &Self::Params) -> Result<(), Rejection> {
        if self.status == RefundStatus::Pending {
            let busy = "the processor is asked for the refund";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        Ok(())
    }

    fn edited(self, params: &UpdateRefundParams) -> Result<Self, ApiError> {
        Ok(Self {
            metadata: params.metadata.clone().apply(self.metadata)?,
            ..self
        })
    }
}

impl Editable for Order {
    type Params = UpdateOrderParams;
    const UPDATED: EventType = EventType::OrderUpdated;

    fn must_be_editable(&self, _: &Draft<'_>, _: &Self::Params) -> Result<(), Rejection> {
        Ok(())
    }

    fn edited(self, params: &UpdateOrderParams) -> Result<Self, ApiError> {
        let terms = OrderTerms {
            metadata: params.metadata.clone().apply(self.terms.metadata)?,
            ..self.terms
        };
        Ok(Self { terms, ..self })
    }
}

impl Editable for PaymentMethod {
    type Params = UpdatePaymentMethodParams;
    const UPDATED: EventType = EventType::PaymentMethodUpdated;

    fn must_be_editable(&self, draft: &Draft<'_>, _: &Self::Params) -> Result<(), Rejection> {
        must_be_free(draft, self)?;
        self.must_be_attached()
            .map_err(|refusal| refused(refusal).with_param(None))?;
        Ok(())
    }

    fn edited(self, params: &UpdatePaymentMethodParams) -> Result<Self, ApiError> {
        let method = params.apply(self);
        Ok(Self {
            metadata: params.metadata.clone().apply(method.metadata)?,
            ..method
        })
    }
}

/// What becomes a customer's default method.
fn default_method(params: &UpdateCustomerParams) -> Change<PaymentMethodId> {
    default_of(params.invoice_settings.as_ref())
}

impl Editable for Customer {
    type Params = UpdateCustomerParams;
    const UPDATED: EventType = EventType::CustomerUpdated;

    /// The default method is locked, so that it can't be detached before it is the default. A later
    /// detachment finds it there, and takes it away.
    fn named(params: &UpdateCustomerParams) -> Option<RowId> {
        match default_method(params) {
            Change::Set(method) => Some(RowId::Method(method)),
            Change::Keep | Change::Unset => None,
        }
    }

    fn must_be_editable(
        &self,
        draft: &Draft<'_>,
        params: &UpdateCustomerParams,
    ) -> Result<(), Rejection> {
        if self.deleted {
            return Err(draft.origin.missing("id", Some(self.id)).into());
        }
        if let Change::Set(method) = default_method(params) {
            let method = draft.get::<PaymentMethod>(method);
            let method = method.ok_or_else(not_their_method)?;
            must_be_free(draft, method)?;
            if method.customer() != Some(self.id) {
                return Err(not_their_method().into());
            }
        }
        Ok(())
    }

    fn edited(self, params: &UpdateCustomerParams) -> Result<Self, ApiError> {
        let params = params.clone();
        Ok(Self {
            default_payment_method: default_method(&params).apply(self.default_payment_method),
            details: params.details.apply(self.details),
            email: params.email.apply(self.email),
            metadata: params.metadata.apply(self.metadata)?,
            ..self
        })
    }
}
