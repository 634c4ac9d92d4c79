//! `POST /orders/{id}`: change what is written on an order, never what it is for.
//!
//! Locks    the order
//! Writes   metadata
//! Emits    order.updated, if anything changed
//! Refuses  parameters that are unknown or wrong

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked, missing},
};
use crate::{
    domain::{event::EventType, ids::OrderId},
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        error::ApiError,
        orders::{OrderView, UpdateOrderParams},
    },
};

/// Updates an order.
pub struct UpdateOrder {
    /// The request's origin.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateOrderParams = checked(&self.params)?;
        let account = self.origin.account;
        let id = OrderId::parse(&self.id).ok_or_else(|| missing("id", OrderId::PREFIX))?;
        let before = store::orders::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id", OrderId::PREFIX))?;
        let mut order = before.clone();
        order.metadata = update
            .metadata
            .apply(order.metadata)
            .map_err(ApiError::from)?;
        if order != before {
            order = store::orders::update(tx, account, id, &order).await?;
            let views = (OrderView::from(&before), OrderView::from(&order));
            self.origin
                .emit_change(tx, EventType::OrderUpdated, &views.0, &views.1)
                .await?;
        }
        let id = order.id.to_string();
        self.origin.show(tx, OK, id, &order, &update.expand).await
    }
}
