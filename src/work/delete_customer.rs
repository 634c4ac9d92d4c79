//! `DELETE /customers/{id}`: forget a customer, and free the cards.
//!
//! Locks    the customer's payment methods, then the customer
//! Writes   the end of the methods, and of the customer
//! Emits    payment_method.detached for each method, with whose it was; customer.deleted
//! Refuses  a customer who was deleted, or never was

use sqlx::PgConnection;

use crate::commands::Origin;
use crate::{
    domain::{
        customer::Customer,
        event::EventType,
        ids::CustomerId,
        payment_method::{Attachment, PaymentMethod},
    },
    idempotency::Rejection,
    store,
    webhooks::{self, NewEvent},
    wire::{customers::CustomerView, payment_methods::PaymentMethodView},
};

/// Deletes a customer. `false`: there is none, now. It needs no idempotency key, because a
/// repetition does nothing more, and it neither begins nor commits.
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
    let events = events(origin, detached, &customer);
    // Views are always JSON.
    let events = events.map_err(|_| sqlx::Error::Encode("a view is no JSON".into()))?;
    webhooks::emit(tx, &events).await?;
    Ok(true)
}

fn events(
    origin: &Origin,
    detached: Vec<PaymentMethod>,
    customer: &Customer,
) -> Result<Vec<NewEvent>, Rejection> {
    let of_method = |method: PaymentMethod| {
        let (after, version) = (PaymentMethodView::from(&method), method.version);
        let before = PaymentMethod {
            attachment: Attachment::To(customer.id),
            ..method
        };
        let before = PaymentMethodView::from(&before);
        origin.event(
            EventType::PaymentMethodDetached,
            Some(&before),
            &after,
            version,
        )
    };
    let mut events: Vec<NewEvent> = detached
        .into_iter()
        .map(of_method)
        .collect::<Result<_, _>>()?;
    let (view, version) = (CustomerView::from(customer), customer.version);
    events.push(origin.event(EventType::CustomerDeleted, None, &view, version)?);
    Ok(events)
}
