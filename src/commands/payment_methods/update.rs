//! `POST /payment_methods/{id}`: change what is written on a customer's payment method.
//!
//! Locks    the payment method
//! Writes   billing details, expiry date, redisplay, metadata
//! Emits    payment_method.updated, if anything changed
//! Refuses  parameters that are unknown or wrong; a method that is no customer's

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    payment_methods::given::lock,
    replies::{OK, checked},
};
use crate::{
    domain::{event::EventType, ids::PaymentMethodId},
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        error::ApiError,
        payment_methods::{PaymentMethodView, UpdatePaymentMethodParams, refused},
    },
};

/// Updates a payment method.
pub struct UpdatePaymentMethod {
    /// The request's origin.
    pub origin: Origin,
    /// The method, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdatePaymentMethod {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdatePaymentMethodParams = checked(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let before = lock(origin, tx, PaymentMethodId::parse(&self.id), "id").await?;
        before
            .must_be_attached()
            .map_err(|refusal| refused(refusal).with_param(None))?;
        let mut method = before.clone().changed(update.change());
        method.metadata = update
            .metadata
            .apply(method.metadata)
            .map_err(ApiError::from)?;
        if method != before {
            let was = PaymentMethodView::from(&before);
            method = store::payment_methods::update(tx, account, method).await?;
            let view = PaymentMethodView::from(&method);
            origin
                .emit_change(tx, EventType::PaymentMethodUpdated, &was, &view)
                .await?;
        }
        let id = method.id.to_string();
        origin.show(tx, OK, id, &method, &update.expand).await
    }
}
