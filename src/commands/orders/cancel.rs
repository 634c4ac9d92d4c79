//! `POST /orders/{id}/cancel`: close an open order for good.
//!
//! Locks    the order
//! Writes   its status
//! Emits    order.canceled
//! Refuses  an order that was paid or canceled
//! Fails    while a payment or the checkout that made it is unfinished

use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use super::open::lock_open;
use crate::commands::{
    Origin,
    mode::Mode,
    replies::{OK, checked},
};
use crate::{
    domain::event::EventType,
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    store,
    wire::orders::{CancelOrderParams, OrderView},
};

/// Cancels an order.
pub struct CancelOrder {
    /// The request's origin.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl CancelOrder {
    async fn cancel(&self, tx: &mut PgConnection, mode: Mode) -> Result<Reply, Rejection> {
        let params: CancelOrderParams = checked(&self.params)?;
        let account = self.origin.account;
        let open = lock_open(tx, account, &self.id, mode).await?;
        let order = store::orders::cancel(tx, account, open.id).await?;
        self.origin
            .emit(tx, EventType::OrderCanceled, &OrderView::from(&order))
            .await?;
        let id = order.id.to_string();
        self.origin.show(tx, OK, id, &order, &params.expand).await
    }
}

impl Command for CancelOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        self.cancel(tx, Mode::OneTransaction).await
    }
}

/// Asks the processor nothing, so there is no operation to begin.
impl Begin for CancelOrder {
    async fn begin(&self, tx: &mut PgConnection, _: Uuid) -> Result<BeginOutcome, Rejection> {
        let canceled = self.cancel(tx, Mode::Phases).await;
        canceled.map(BeginOutcome::Replied)
    }
}
