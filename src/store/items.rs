//! The column `items` of orders and checkouts.

use serde::{Deserialize, Serialize};

use crate::domain::order;

/// One line as the column holds it. Every replica reads what any other wrote, so members are only
/// ever added.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Item {
    amount: i64,
    description: Option<String>,
    quantity: i64,
    sku: Option<String>,
    unit_amount: i64,
}

impl From<&order::Item> for Item {
    fn from(item: &order::Item) -> Self {
        Self {
            amount: item.amount(),
            description: item.description.clone(),
            quantity: item.quantity,
            sku: item.sku.clone(),
            unit_amount: item.unit_amount,
        }
    }
}

impl From<Item> for order::Item {
    fn from(item: Item) -> Self {
        Self {
            sku: item.sku,
            description: item.description,
            quantity: item.quantity,
            unit_amount: item.unit_amount,
        }
    }
}

/// The column's value for these lines.
pub(super) fn stored(items: &[order::Item]) -> Vec<Item> {
    items.iter().map(Item::from).collect()
}

/// The lines that the column holds.
pub(super) fn read(items: Vec<Item>) -> Vec<order::Item> {
    items.into_iter().map(order::Item::from).collect()
}
