//! 4 · What clients send and see: parameters, resource views, error codes.
//!
//! Promise: a parameter is checked here and nowhere else, and every object in a reply, in an event
//! or in a list is one of the views in this folder. A resource's file has the parameters of each of
//! its endpoints (`parameters!`, which the OpenAPI document comes from too) and its view
//! (`ChargeView::from(&charge)`). It knows the entities in `domain/`, and neither HTTP nor the
//! database.

pub mod api_version;
pub mod card;
pub mod charges;
pub mod checkouts;
pub mod customers;
pub mod dialect;
pub mod error;
pub mod events;
pub mod fault_plans;
pub mod intent_parameters;
pub mod inventory;
pub mod list;
pub mod metadata;
pub mod names;
pub mod not_offered;
pub mod orders;
pub mod parameter;
pub mod payment_intents;
pub mod payment_methods;
pub mod people;
mod prelude;
pub mod problem;
pub mod refunds;
pub mod report;
pub mod setup_intents;
pub mod source;
pub mod test_accounts;
pub mod view;
pub mod views;
pub mod webhook_deliveries;
pub mod webhook_endpoints;
