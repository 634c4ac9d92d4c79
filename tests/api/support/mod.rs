//! What the tests stand on: servers, databases, networks that fail, and receivers.

pub mod go_between;
pub mod harness;
pub mod obstacle;
pub mod processor;
pub mod program;
pub mod proxy;
pub mod receiver;
