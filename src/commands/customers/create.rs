//! `POST /customers`: write down who pays.
//!
//! Locks    the payment method that it brings
//! Writes   one customer; the payment method's attachment
//! Emits    customer.created, payment_method.attached; customer.updated if that becomes the default
//! Refuses  parameters that are unknown or wrong; a payment method that can't be attached; a
//!          default one that isn't the customer's

use charge_once_strict_params::{Change, Params};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    payment_methods::given::{attach_to, take},
    replies::{CREATED, checked},
};
use crate::{
    domain::{event::EventType, ids::CustomerId},
    idempotency::{Command, Rejection, Reply},
    store,
    wire::customers::{CreateCustomerParams, CustomerView, default_of, not_their_method},
};

/// Creates a customer.
pub struct CreateCustomer {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreateCustomer {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let mut params: CreateCustomerParams = checked(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let default = default_of(params.invoice_settings.as_ref());
        let expand = std::mem::take(&mut params.expand);
        let method = match params.payment_method {
            Some(named) => Some(take(origin, tx, named.into(), true).await?),
            None => None,
        };
        let id = CustomerId(Uuid::now_v7());
        let mut customer = store::customers::insert(tx, account, id, &params.into()).await?;
        let view = CustomerView::from(&customer);
        origin.emit(tx, EventType::CustomerCreated, &view).await?;
        let attached = match method {
            Some(method) => Some(attach_to(origin, tx, method, id).await?.id),
            None => None,
        };
        if let Change::Set(default) = default {
            if attached != Some(default) {
                return Err(not_their_method().into());
            }
            customer.default_payment_method = attached;
            customer = store::customers::update(tx, account, customer).await?;
            let with_default = CustomerView::from(&customer);
            origin
                .emit_change(tx, EventType::CustomerUpdated, &view, &with_default)
                .await?;
        }
        origin
            .show(tx, CREATED, id.to_string(), &customer, &expand)
            .await
    }
}
