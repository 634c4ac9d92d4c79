//! Inventory as clients send and see it.

use super::prelude::*;
use crate::domain::inventory::{Inventory, LEVEL_MAX, OutOfStock};

parameters! {
    /// A level of inventory.
    pub struct SetInventoryParams as "SetInventory" {
        /// How many are there to be sold.
        quantity: Integer<0, LEVEL_MAX>,
    }
    example {"quantity": 40}
}

impl From<OutOfStock> for ApiError {
    fn from(OutOfStock { item }: OutOfStock) -> Self {
        Self::explained(ErrorCode::OutOfStock).with_param(format!("items[{item}][quantity]"))
    }
}

views! {
    /// How much of one stock-keeping unit is there, as clients see it.
    pub struct InventoryView as Inventory from inventory: &Inventory {
        /// Always `inventory`.
        always object: &'static str = "inventory";
        /// What is left to sell, 0 to 1 000 000 000.
        quantity: i64 [example = 40] = inventory.quantity;
        /// Your stock-keeping unit.
        sku: String [example = "mug"] = inventory.sku.clone();
        /// When it was last set or taken from, in unix seconds.
        updated: i64 [example = 1_795_000_000] = inventory.updated_at.timestamp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_line() {
        let error = ApiError::from(OutOfStock { item: 7 });
        assert_eq!(
            (error.code, error.param.as_deref()),
            (ErrorCode::OutOfStock, Some("items[7][quantity]"))
        );
    }
}
