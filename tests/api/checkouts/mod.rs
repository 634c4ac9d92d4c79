//! Checkouts: an order, its charge and its items in one request.

mod crashes;
mod processors;
mod races;
mod recovery;
mod resource;
