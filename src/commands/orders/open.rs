//! The order that a payment or a cancellation is about.

use crate::commands::{prelude::*, unfinished::must_be_finished};

/// The open order that a path names. Refuses one that is missing or not open, and fails while a
/// payment or the checkout that made it is unfinished.
pub(super) fn open_order(draft: &Draft<'_>, id: &str) -> Result<Order, Rejection> {
    let order = draft.find::<Order>(OrderId::parse(id), "id")?;
    must_be_finished(draft, RowId::Order(order.id))?;
    order.status.must_be_open().map_err(ApiError::from)?;
    Ok(order.clone())
}
