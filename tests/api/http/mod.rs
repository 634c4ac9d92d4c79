//! Requests and replies as they are on the wire.

mod bodies;
mod check_order;
mod connections;
mod headers;
mod holder_pages;
mod hosts;
mod messages;
mod missing_ids;
mod not_offered;
mod openapi_document;
mod pages;
mod pipelining;
mod problems;
mod protective_headers;
mod rate_limit;
mod requests;
mod routes;
mod upgrades;
