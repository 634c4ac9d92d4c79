//! Inventory as clients send and see it.

use charge_once_strict_params::{Integer, parameters};
use serde::Serialize;

use super::error::{ApiError, ErrorCode};
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

/// How much of one stock-keeping unit is there, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Inventory)]
pub struct InventoryView {
    /// Always `inventory`.
    #[schema(example = "inventory")]
    pub object: &'static str,
    /// What is left to sell, 0 to 1 000 000 000.
    #[schema(example = 40)]
    pub quantity: i64,
    /// Your stock-keeping unit.
    #[schema(example = "mug")]
    pub sku: String,
    /// When it was last set or taken from, in unix seconds.
    #[schema(example = 1_795_000_000)]
    pub updated: i64,
}

impl From<&Inventory> for InventoryView {
    fn from(inventory: &Inventory) -> Self {
        Self {
            object: "inventory",
            quantity: inventory.quantity,
            sku: inventory.sku.clone(),
            updated: inventory.updated_at.timestamp(),
        }
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
