//! Every test of the service: over HTTP, against a real server and a real PostgreSQL.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]
#![allow(
    clippy::too_many_lines,
    reason = "a table of cases is read top to bottom"
)]

mod bodies;
mod captures;
mod charges;
mod check_order;
mod checkout_client;
mod checkout_crashes;
mod checkout_races;
mod checkouts;
mod client;
mod copied_folder;
mod crash_table;
mod database_failures;
mod disconnects;
mod documents;
mod duplicates;
mod events;
mod expansions;
mod expiry;
mod fingerprints;
mod first_charge;
mod followers;
mod go_between;
mod harness;
mod headers;
mod in_flight;
mod inventory;
mod key_inspection;
mod keys;
mod layers;
mod lists;
mod money_races;
mod obstacle;
mod operations;
mod order_payments;
mod orders;
mod outcomes;
mod pay;
mod phases;
mod processor;
mod processor_client;
mod processor_service;
mod program;
mod proxy;
mod rate_limit;
mod readme;
mod receiver;
mod refunds;
mod requests;
mod routes;
mod session_defaults;
mod test_cards;
mod updates;
mod webhook_endpoints;
mod webhooks;
mod workflows;
