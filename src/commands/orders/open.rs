//! The order that a payment or a cancellation is about.

use sqlx::PgConnection;

use crate::commands::{
    mode::{Mode, must_be_finished},
    replies::missing,
};
use crate::{
    domain::{
        ids::{AccountId, OrderId},
        order::Order,
    },
    idempotency::Rejection,
    store,
    wire::error::ApiError,
};

/// Locks the order that a path names by `id`. Refuses one that is missing or not open, and fails
/// while a payment or the checkout that made it is unfinished.
pub(super) async fn lock_open(
    tx: &mut PgConnection,
    account: AccountId,
    id: &str,
    mode: Mode,
) -> Result<Order, Rejection> {
    let id = OrderId::parse(id).ok_or_else(|| missing("id", OrderId::PREFIX))?;
    let order = store::orders::lock(tx, account, id)
        .await?
        .ok_or_else(|| missing("id", OrderId::PREFIX))?;
    must_be_finished(mode, store::orders::open_work(tx, account, id).await?)?;
    order.status.must_be_open().map_err(ApiError::from)?;
    Ok(order)
}
