//! What the tests stand on: servers, databases, networks that fail, and receivers.

#[cfg(feature = "client")]
pub mod go_between;
pub mod harness;
pub mod obstacle;
pub mod processor;
pub mod proxy;
pub mod receiver;
