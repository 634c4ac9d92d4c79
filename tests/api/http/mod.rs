//! Requests and replies as they are on the wire.

mod bodies;
mod check_order;
mod headers;
mod rate_limit;
pub mod requests;
mod routes;
