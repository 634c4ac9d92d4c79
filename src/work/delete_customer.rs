//! `DELETE /customers/{id}`: forget a customer, and free the cards.
//!
//! Locks    the customer's payment methods, then the customer
//! Writes   the end of the methods, and of the customer
//! Emits    payment_method.detached for each method, with whose it was; customer.deleted
//! Refuses  a customer who was deleted, or never was

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::{
    commands::{
        Origin,
        replies::{OK, checked},
    },
    domain::{
        event::EventType,
        ids::CustomerId,
        payment_method::{Attachment, PaymentMethod},
    },
    idempotency::{Command, Rejection, Reply},
    store, webhooks,
    wire::{
        customers::{CustomerView, DeletedCustomerView},
        payment_methods::PaymentMethodView,
    },
};

/// Deletes a customer under an idempotency key.
pub struct DeleteCustomer {
    /// The request's origin. Its path names the customer.
    pub origin: Origin,
    /// As decoded; there may be none, and that refusal is stored.
    pub params: Params,
}

impl Command for DeleteCustomer {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        checked::<()>(&self.params)?;
        let id = CustomerId::parse(&self.origin.path_id);
        let gone = || self.origin.missing("id", id);
        let id = id.ok_or_else(gone)?;
        if !delete_customer(&self.origin, tx, id).await? {
            return Err(gone().into());
        }
        let view = DeletedCustomerView::of(id);
        self.origin.reply(OK, "customers", id.to_string(), &view)
    }
}

/// Deletes a customer. `false`: there is none, now. It may run without an idempotency key, because
/// a repetition does nothing more, and it neither begins nor commits.
pub async fn delete_customer(
    origin: &Origin,
    tx: &mut PgConnection,
    id: CustomerId,
) -> Result<bool, sqlx::Error> {
    let account = origin.account;
    let mut detached = store::payment_methods::detach_all(tx, account, id).await?;
    let Some(customer) = store::customers::delete(tx, account, id).await? else {
        return Ok(false);
    };
    // Methods that were attached before the customer's row was locked. From now on none is: an
    // attachment waits for that lock, and then finds that the customer was deleted.
    detached.extend(store::payment_methods::detach_all(tx, account, id).await?);
    // Views are always JSON.
    let no_json = |_| sqlx::Error::Encode("a view is no JSON".into());
    let of_method = |method: &PaymentMethod| {
        let mut before = method.clone();
        before.attachment = Attachment::To(id);
        let before = PaymentMethodView::from(&before);
        let of = EventType::PaymentMethodDetached;
        origin.event(of, Some(&before), &method.into(), method.version)
    };
    let events: Result<Vec<_>, _> = detached.iter().map(of_method).collect();
    let mut events = events.map_err(no_json)?;
    let (view, version) = (CustomerView::from(&customer), customer.version);
    let deleted = origin.event(EventType::CustomerDeleted, None, &view, version);
    events.push(deleted.map_err(no_json)?);
    webhooks::emit(tx, &events).await?;
    Ok(true)
}
