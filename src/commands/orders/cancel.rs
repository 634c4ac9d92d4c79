//! `POST /orders/{id}/cancel`: close an open order for good.
//!
//! Locks    the order
//! Writes   its status
//! Emits    order.canceled
//! Refuses  an order that was paid or canceled
//! Fails    while a payment or the checkout that made it is unfinished

use sqlx::PgConnection;

use super::open::lock_open;
use crate::commands::{Origin, mode::Mode, replies::OK};
use crate::{
    api::{
        orders::{CancelOrderParams, OrderView},
        params::Params,
    },
    domain::event::EventType,
    idempotency::{Command, Rejection, Reply},
    store,
};

/// Cancels an order.
pub struct CancelOrder {
    /// The request's origin.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// How payments run in this process.
    pub mode: Mode,
}

impl Command for CancelOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params = CancelOrderParams::parse(&self.params)?;
        let account = self.origin.account;
        let open = lock_open(tx, account, &self.id, self.mode).await?;
        let order = store::orders::cancel(tx, account, open.id).await?;
        self.origin
            .emit(tx, EventType::OrderCanceled, &OrderView::from(&order))
            .await?;
        self.origin
            .order(tx, OK, &order, params.expand_charge)
            .await
    }
}
