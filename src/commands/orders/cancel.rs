//! `POST /orders/{id}/cancel`: close an open order for good.
//!
//! Reads    the order
//! Writes   its status
//! Emits    order.canceled
//! Refuses  an order that was paid or canceled
//! Fails    while a payment or the checkout that made it is unfinished

use super::pay::open_order;
use crate::{commands::prelude::*, wire::orders::CancelOrderParams};

/// Cancels an order.
pub type CancelOrder = On<OrderId, CancelOrderParams>;

impl Rules for CancelOrder {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        self.id.map(RowId::Order).into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let order = open_order(draft, self.id)?;
        let order = cancel(draft, order)?;
        Ok(show(OK, order))
    }
}

/// Closes an order, and reports it.
pub(in crate::commands) fn cancel(
    draft: &mut Draft<'_>,
    mut order: Order,
) -> Result<Order, Rejection> {
    order.status = OrderStatus::Canceled;
    draft.put_with(EventType::OrderCanceled, order)
}
