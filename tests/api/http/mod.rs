//! Requests and replies as they are on the wire.

mod bodies;
mod check_order;
mod connections;
mod headers;
mod messages;
mod pages;
mod pipelining;
mod rate_limit;
mod requests;
mod routes;
