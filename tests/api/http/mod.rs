//! Requests and replies as they are on the wire.

mod bodies;
mod check_order;
mod headers;
mod messages;
mod pages;
mod rate_limit;
mod requests;
mod routes;
