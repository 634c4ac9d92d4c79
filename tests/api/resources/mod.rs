//! The resources of the API: their parameters, their states and their money.

mod captures;
mod charges;
mod event_versions;
mod events;
mod expansions;
mod inventory;
mod inventory_lists;
mod inventory_races;
mod lists;
mod money_races;
mod order_payments;
mod orders;
mod refunds;
mod test_cards;
mod updates;
mod webhook_endpoint_updates;
mod webhook_endpoints;
mod webhook_receivers;
mod webhook_refusals;
mod webhook_speed;
mod webhook_turns;
mod webhook_workers;
mod webhooks;
