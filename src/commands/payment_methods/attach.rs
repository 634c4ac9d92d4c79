//! `POST /payment_methods/{id}/attach`: keep a card for a customer's later payments.
//!
//! Locks    the payment method, then the customer
//! Writes   whose the method is; the method itself, where a template such as pm_card_visa is named
//! Emits    payment_method.attached, unless it is the customer's already
//! Refuses  a method that was used up, detached, or is another customer's; a card that is declined;
//!          a customer who was deleted, or has no room

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    payment_methods::given::{attach_to, find_customer, keep, lock},
    replies::{OK, checked},
};
use crate::{
    idempotency::{Command, Rejection, Reply},
    wire::payment_methods::{AttachPaymentMethodParams, GivenMethod, NamedMethod},
};

/// Attaches a payment method to a customer.
pub struct AttachPaymentMethod {
    /// The request's origin.
    pub origin: Origin,
    /// The method, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for AttachPaymentMethod {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: AttachPaymentMethodParams = checked(&self.params)?;
        let origin = &self.origin;
        let method = match GivenMethod::from(NamedMethod::of(&self.id)) {
            GivenMethod::New(new) => keep(origin, tx, &new).await?,
            GivenMethod::Existing(id) => lock(origin, tx, id, "id").await?,
        };
        let customer = find_customer(tx, origin.account, params.customer, "customer").await?;
        let method = attach_to(origin, tx, method, customer.id).await?;
        let id = method.id.to_string();
        origin.show(tx, OK, id, &method, &params.expand).await
    }
}
