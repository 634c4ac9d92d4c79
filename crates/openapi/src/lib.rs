#![doc = include_str!("../README.md")]

mod example_keys;
mod form_bodies;
mod headers;
mod names;
mod operations;
mod references;
#[cfg(feature = "actix")]
pub mod served;
mod shared_responses;
#[cfg(test)]
mod tests;

pub use example_keys::ExampleKeys;
pub use form_bodies::FormBodies;
pub use headers::{ReplyHeader, describe_headers, list_header};
pub use operations::{has_parameter, operations};
pub use references::References;
pub use shared_responses::{SharedResponses, shared};
/// For the macros of this crate.
#[doc(hidden)]
pub use {serde, utoipa};
