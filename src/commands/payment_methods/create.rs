//! `POST /payment_methods`: keep a card, for one payment or for a customer.
//!
//! Locks    nothing
//! Writes   one payment method, without the card's number
//! Emits    nothing
//! Refuses  parameters that are unknown or wrong

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    payment_methods::given::keep,
    replies::{CREATED, checked},
};
use crate::{
    idempotency::{Command, Rejection, Reply},
    wire::payment_methods::CreatePaymentMethodParams,
};

/// Creates a payment method.
pub struct CreatePaymentMethod {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreatePaymentMethod {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let mut params: CreatePaymentMethodParams = checked(&self.params)?;
        let expand = std::mem::take(&mut params.expand);
        let method = keep(&self.origin, tx, &params.into()).await?;
        let id = method.id.to_string();
        self.origin.show(tx, CREATED, id, &method, &expand).await
    }
}
