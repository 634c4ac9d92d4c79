//! `POST /orders`: write down what a customer wants to buy.
//!
//! Reads    the order that has this client_order_id, without a lock: neither ever changes. Where a
//!          racing create of the same name comes first, the constraint decides, and this one reads
//!          and decides again.
//! Writes   one open order, or none where its natural key names one already
//! Emits    order.created
//! Refuses  parameters that are missing, unknown or wrong; a client_order_id with other content

use sha2::{Digest, Sha256};

use crate::{
    commands::prelude::*,
    wire::orders::{CreateOrderParams, OrderContent},
};

/// Creates an order.
pub struct CreateOrder(pub CreateOrderParams);

impl Rules for CreateOrder {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let name = self.0.client_order_id.clone().map(RowId::OrderNamed);
        name.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let new = OrderTerms::from(self.0.clone());
        let name = new.client_order_id.as_deref();
        let Some(order) = name.and_then(|name| draft.order_named(name)).cloned() else {
            return Ok(show(CREATED, open(draft, new)?));
        };
        // Its client may have lost its own idempotency key. The answer is the order as it is now.
        if content_hash(&new)? != order.content_hash {
            let message =
                "Another order of this account has this client_order_id, with other content.";
            return Err(ApiError::invalid("client_order_id", message).into());
        }
        Ok(show(OK, order))
    }
}

/// Opens an order, and reports it.
pub(in crate::commands) fn open(
    draft: &mut Draft<'_>,
    new: OrderTerms,
) -> Result<Order, Rejection> {
    let hash = content_hash(&new)?;
    let id = OrderId(Uuid::now_v7());
    let order = Order::opened(id, new, hash, draft.now);
    draft.put_with(EventType::OrderCreated, order)
}

/// What tells the content of an order from another's.
fn content_hash(new: &OrderTerms) -> Result<Vec<u8>, Rejection> {
    let content = serde_json_canonicalizer::to_vec(&OrderContent::from(new))
        .map_err(|error| Rejection::Failed(Failure::internal(error)))?;
    Ok(Sha256::digest(&content).to_vec())
}
