//! `POST /orders/{id}/pay`: make the one charge for an order.
//!
//! Locks    the order, for as long as the processor takes
//! Writes   one charge that names the order; where it succeeded, the order's status
//! Emits    charge.succeeded and order.paid, or charge.failed
//! Refuses  an order that was paid or canceled
//! Fails    when the processor is down or its slow lane is full

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{OK, Origin, declined, missing};
use crate::{
    domain::{
        charge::Authorisation,
        error::ApiError,
        event::EventType,
        ids::{ChargeId, OrderId},
        order::Payment,
        params::Params,
    },
    idempotency::{Command, Failure, Rejection, Reply},
    processor::SimulatedProcessor,
    store,
};

/// Pays an order.
pub struct PayOrder {
    /// Who sells.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// Where cards are authorised.
    pub processor: Arc<SimulatedProcessor>,
}

impl Command for PayOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let payment = Payment::parse(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let id = OrderId::parse(&self.id).ok_or_else(|| missing("id"))?;
        let order = store::orders::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id"))?;
        order.status.must_be_open().map_err(ApiError::from)?;
        let new = order
            .charge_for(payment.card)
            .ok_or_else(|| Failure::internal("an order has a currency that isn't one"))
            .map_err(Rejection::Failed)?;
        let authorisation = self.processor.authorise(payment.card.card).await?;
        let charge_id = ChargeId(Uuid::now_v7());
        let charge =
            store::charges::insert(tx, account, charge_id, &new, Some(id), authorisation).await?;
        match authorisation {
            Authorisation::Approved => {
                let order = store::orders::pay(tx, account, id, charge_id).await?;
                origin.emit(tx, EventType::ChargeSucceeded, &charge).await?;
                origin.emit(tx, EventType::OrderPaid, &order).await?;
                origin.order(tx, OK, order, payment.expand_charge).await
            }
            // The order stays open: another card may pay it, under another key.
            Authorisation::Declined(decline) => {
                origin.emit(tx, EventType::ChargeFailed, &charge).await?;
                declined(decline, &charge)
            }
        }
    }
}
