//! The resources of the API: their parameters, their states and their money.

pub mod captures;
pub mod charges;
mod events;
mod expansions;
mod inventory;
mod lists;
pub mod money_races;
pub mod order_payments;
mod orders;
mod refunds;
mod test_cards;
mod updates;
pub mod webhook_endpoints;
mod webhooks;
