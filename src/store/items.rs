//! The column `items` of orders and checkouts.

use serde::{Deserialize, Serialize};

use crate::domain::order;

/// One line as the column holds it. Every replica reads what any other wrote, so members are only
/// ever added.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredItem {
    amount: i64,
    description: Option<String>,
    quantity: i64,
    sku: Option<String>,
    unit_amount: i64,
}

impl From<&order::Item> for StoredItem {
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

impl From<StoredItem> for order::Item {
    fn from(item: StoredItem) -> Self {
        Self {
            sku: item.sku,
            description: item.description,
            quantity: item.quantity,
            unit_amount: item.unit_amount,
        }
    }
}

/// The column's value for these lines.
pub(super) fn stored(items: &[order::Item]) -> Vec<StoredItem> {
    items.iter().map(StoredItem::from).collect()
}

/// The lines that the column holds.
pub(super) fn read(items: Vec<StoredItem>) -> Vec<order::Item> {
    items.into_iter().map(order::Item::from).collect()
}
