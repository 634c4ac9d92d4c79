//! `POST /payment_methods/{id}/detach`: take a card from its customer, for good.
//!
//! Locks    the payment method, and its customer if it is their default
//! Writes   the method's end; the customer's default
//! Emits    payment_method.detached, with whose it was; customer.updated, if it was their default
//! Refuses  a method that is no customer's
//! Fails    while a payment with a new method has no answer

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    payment_methods::given::lock,
    replies::{OK, checked},
};
use crate::{
    domain::{
        customer::Customer,
        event::EventType,
        ids::PaymentMethodId,
        payment_method::{Attachment, PaymentMethod},
    },
    idempotency::{Command, Rejection, Reply},
    store, webhooks,
    wire::{
        customers::CustomerView,
        payment_methods::{DetachPaymentMethodParams, PaymentMethodView, refused},
    },
};

/// Detaches a payment method.
pub struct DetachPaymentMethod {
    /// The request's origin.
    pub origin: Origin,
    /// The method, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for DetachPaymentMethod {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: DetachPaymentMethodParams = checked(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let before = lock(origin, tx, PaymentMethodId::parse(&self.id), "id").await?;
        let customer = before
            .must_be_attached()
            .map_err(|refusal| refused(refusal).with_param(None))?;
        let was = PaymentMethodView::from(&before);
        let detached = PaymentMethod {
            attachment: Attachment::Detached,
            ..before
        };
        let method = store::payment_methods::update(tx, account, detached).await?;
        let view = PaymentMethodView::from(&method);
        let mut events = vec![origin.change(EventType::PaymentMethodDetached, &was, &view)?];
        let updated = store::customers::forget_default(tx, account, customer, method.id).await?;
        if let Some(customer) = updated {
            let after = CustomerView::from(&customer);
            let before = CustomerView::from(&Customer {
                default_payment_method: Some(method.id),
                ..customer
            });
            events.push(origin.change(EventType::CustomerUpdated, &before, &after)?);
        }
        webhooks::emit(tx, &events).await?;
        origin.show(tx, OK, view.id, &method, &params.expand).await
    }
}
