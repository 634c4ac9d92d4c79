//! `POST /customers/{id}`: change what is known of a customer.
//!
//! Locks    the payment method that becomes the default, then the customer
//! Writes   what the client says of the customer
//! Emits    customer.updated, if anything changed
//! Refuses  parameters that are unknown or wrong; a default payment method that isn't the
//!          customer's; a customer who was deleted

use charge_once_strict_params::{Change, Params};
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    payment_methods::given::{find_customer, must_be_free},
    replies::{OK, checked, missing},
};
use crate::{
    domain::{
        event::EventType,
        ids::{CustomerId, PaymentMethodId},
    },
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        customers::{CustomerView, UpdateCustomerParams, default_of, not_their_method},
        error::ApiError,
    },
};

/// Updates a customer.
pub struct UpdateCustomer {
    /// The request's origin.
    pub origin: Origin,
    /// The customer, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl UpdateCustomer {
    /// The method is locked first, so that it can't be detached before it is the default. A later
    /// detachment finds it there, and takes it away.
    async fn lock_default(
        &self,
        tx: &mut PgConnection,
        customer: CustomerId,
        method: PaymentMethodId,
    ) -> Result<(), Rejection> {
        let (origin, account) = (&self.origin, self.origin.account);
        find_customer(tx, account, Some(customer), "id").await?;
        let method = store::payment_methods::lock(tx, account, method).await?;
        if let Some(method) = &method {
            must_be_free(origin, tx, method).await?;
        }
        match method.and_then(|method| method.customer()) {
            Some(owner) if owner == customer => Ok(()),
            Some(_) | None => Err(not_their_method().into()),
        }
    }
}

impl Command for UpdateCustomer {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateCustomerParams = checked(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let none = || missing("id", CustomerId::PREFIX);
        let id = CustomerId::parse(&self.id).ok_or_else(none)?;
        let default = default_of(update.invoice_settings.as_ref());
        if let Change::Set(method) = default {
            self.lock_default(tx, id, method).await?;
        }
        let before = store::customers::lock(tx, account, id).await?;
        let before = before.filter(|customer| !customer.deleted);
        let before = before.ok_or_else(none)?;
        let mut customer = before.clone();
        customer.default_payment_method = default.apply(customer.default_payment_method);
        customer.details = customer.details.changed(update.change());
        customer.details.metadata = update
            .metadata
            .apply(customer.details.metadata)
            .map_err(ApiError::from)?;
        if customer != before {
            let was = CustomerView::from(&before);
            customer = store::customers::update(tx, account, customer).await?;
            let view = CustomerView::from(&customer);
            origin
                .emit_change(tx, EventType::CustomerUpdated, &was, &view)
                .await?;
        }
        origin
            .show(tx, OK, id.to_string(), &customer, &update.expand)
            .await
    }
}
