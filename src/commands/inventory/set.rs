//! `PUT /inventory/{sku}`: say how much is there.
//!
//! Locks    the level
//! Writes   it
//! Emits    nothing
//! Refuses  parameters that are missing, unknown or wrong; a sku that no item of an order
//!          could have

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked},
};
use crate::{
    domain::inventory::sku,
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        inventory::{InventoryView, SetInventoryParams},
    },
};

/// Sets the level of one stock-keeping unit.
///
/// Setting it twice does nothing more, and needs a key all the same: without one, a late retry
/// would undo what was set or sold since.
pub struct SetInventory {
    /// The request's origin.
    pub origin: Origin,
    /// The stock-keeping unit, as the path names it: decoded, unchecked.
    pub sku: Vec<u8>,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for SetInventory {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: SetInventoryParams = checked(&self.params)?;
        let sku = sku(&self.sku).ok_or_else(|| {
            ApiError::explained(ErrorCode::ResourceMissing).with_param("sku".to_owned())
        })?;
        let inventory =
            store::inventory::set(tx, self.origin.account, sku, params.quantity).await?;
        let view = InventoryView::from(&inventory);
        self.origin.reply(OK, "inventory", sku.to_owned(), &view)
    }
}
