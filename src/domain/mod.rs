//! 4 · The rules, pure: no async, SQL, HTTP, clock or randomness in here.
//!
//! Promise: everything in this folder can be tested with a table, and a reader finds each business
//! rule in one place, stated without the machinery around it.

pub mod card_numbers;
pub mod charge;
pub mod checkout;
pub mod dialect;
pub mod error;
pub mod event;
pub mod ids;
pub mod inventory;
pub mod list;
pub mod money;
pub mod operation;
pub mod order;
pub mod params;
pub mod public_addresses;
pub mod refund;
pub mod test_cards;
pub mod webhook_delivery;
pub mod webhook_endpoint;
