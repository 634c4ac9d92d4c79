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

mod checkouts;
mod client;
mod commands;
mod console;
mod docs;
mod faults;
mod http;
mod idempotency;
mod migrations;
mod observability;
mod phases;
mod process;
mod resources;
mod scale;
mod support;
