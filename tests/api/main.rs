//! Every test of the service: over HTTP, against a real server and a real PostgreSQL.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]

mod harness;

mod copied_folder;
mod embedded;
mod first_charge;
mod layers;
mod readme;
mod session_defaults;
