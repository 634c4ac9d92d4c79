//! What the tests stand on: servers, databases, networks that fail, receivers, and first resources.

pub mod accounts;
pub mod checkouts;
pub mod client_examples;
pub mod client_library;
pub mod connection;
pub mod documents;
pub mod effects;
pub mod far_side;
pub mod harness;
pub mod http_proxy;
pub mod metrics;
pub mod openapi;
pub mod pause_point;
pub mod pgbouncer;
pub mod postgres_proxy;
pub mod processor;
pub mod program;
pub mod racers;
pub mod records;
pub mod resources;
pub mod webhook_receiver;
pub mod webhooks;
pub mod wire;
pub mod workflows;
pub mod world;
