//! `PUT /inventory/{sku}`: say how much is there.
//!
//! Reads    the level
//! Writes   it
//! Emits    nothing
//! Refuses  parameters that are missing, unknown or wrong; a sku that no item of an order
//!          could have

use crate::{
    commands::prelude::*,
    domain::inventory::sku,
    wire::inventory::{InventoryView, SetInventoryParams},
};

/// Sets the level of one stock-keeping unit.
///
/// Setting it twice does nothing more, and needs a key all the same: without one, a late retry
/// would undo what was set or sold since.
pub struct SetInventory {
    /// The stock-keeping unit, as the path names it: decoded, unchecked.
    pub sku: Vec<u8>,
    /// How much is there.
    pub params: SetInventoryParams,
}

impl Rules for SetInventory {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let level = sku(&self.sku).map(|sku| RowId::Level(sku.to_owned()));
        level.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let sku = sku(&self.sku).map(str::to_owned).ok_or_else(|| {
            ApiError::explained(ErrorCode::ResourceMissing).with_param("sku".to_owned())
        })?;
        let (quantity, now) = (self.params.quantity, draft.now);
        let level = match draft.get::<Inventory>(sku.clone()) {
            Some(level) => level.clone().with(quantity, now),
            None => Inventory {
                sku: sku.clone(),
                quantity,
                updated_at: now,
                version: 1,
            },
        };
        let view = InventoryView::from(&draft.put(level));
        let reply = draft.origin.reply(OK, "inventory", sku, &view)?;
        Ok(Verdict::Answered(Said::Reply(reply)))
    }
}
