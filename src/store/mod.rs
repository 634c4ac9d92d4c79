//! 5 · The SQL, one file per table.
//!
//! Promise: every function takes a connection and neither begins nor commits; each says which locks
//! it holds. The account leads every condition, so that no function can
//! return another account's row.

pub mod api_keys;
pub mod charges;
pub mod checkout_steps;
pub mod checkouts;
pub mod events;
pub mod inventory;
mod items;
pub mod manual_resolutions;
pub mod operations;
pub mod orders;
pub mod page;
pub mod refunds;
pub mod slow_card;
mod unknown;
pub mod webhook_deliveries;
pub mod webhook_endpoints;
