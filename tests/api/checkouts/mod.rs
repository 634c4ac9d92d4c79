//! Checkouts: an order, its charge and its items in one request.

mod crashes;
mod races;
pub mod resource;
