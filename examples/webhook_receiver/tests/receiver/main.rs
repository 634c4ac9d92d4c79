//! The receiver over HTTP on a real PostgreSQL, and behind the service itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "a test may stop at the first surprise"
)]

mod deliveries;
mod program;
mod service;
mod signatures;
mod support;
