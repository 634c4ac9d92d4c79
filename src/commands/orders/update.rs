//! `POST /orders/{id}`: change what is written on an order, never what it is for.
//!
//! Reads    the order
//! Writes   metadata
//! Emits    order.updated, if anything changed
//! Refuses  parameters that are unknown or wrong

use charge_once_strict_params::Expansion;

use crate::commands::{
    Draft, RowId, Rules, Said, SeenRows, Verdict,
    replies::{OK, missing},
};
use crate::{
    domain::{event::EventType, ids::OrderId, order::Order},
    idempotency::Rejection,
    wire::{error::ApiError, orders::UpdateOrderParams},
};

/// Updates an order.
pub struct UpdateOrder {
    /// The order, as the path names it.
    pub id: String,
    /// What changes.
    pub params: UpdateOrderParams,
}

impl Rules for UpdateOrder {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = OrderId::parse(&self.id).map(RowId::Order);
        id.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let found = OrderId::parse(&self.id).and_then(|id| draft.get::<Order>(id));
        let before = found.ok_or_else(|| missing("id", OrderId::PREFIX))?.clone();
        let mut order = before.clone();
        let metadata = self.params.metadata.clone().apply(order.metadata);
        order.metadata = metadata.map_err(ApiError::from)?;
        if order != before {
            order = draft.put(order);
            draft.emit_change(EventType::OrderUpdated, &before, &order)?;
        }
        Ok(Verdict::Said(Said::show(OK, order, &self.params.expand)))
    }

    fn expand(&self) -> Option<&Expansion> {
        Some(&self.params.expand)
    }
}
