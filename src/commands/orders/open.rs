//! The order that a payment or a cancellation is about.

use crate::commands::{
    Draft, RowId,
    mode::{Mode, must_be_finished},
    replies::missing,
};
use crate::{
    domain::{ids::OrderId, order::Order},
    idempotency::Rejection,
    wire::error::ApiError,
};

/// The open order that a path names. Refuses one that is missing or not open, and fails while a
/// payment or the checkout that made it is unfinished.
pub(super) fn open_order(draft: &Draft<'_>, id: &str) -> Result<Order, Rejection> {
    let found = OrderId::parse(id).and_then(|id| draft.get::<Order>(id));
    let order = found.ok_or_else(|| missing("id", OrderId::PREFIX))?;
    let open = draft.open_work(RowId::Order(order.id));
    must_be_finished(Mode::of(draft.processor), open)?;
    order.status.must_be_open().map_err(ApiError::from)?;
    Ok(order.clone())
}
