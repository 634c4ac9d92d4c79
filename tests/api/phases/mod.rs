//! Effects at a card processor outside the database.

pub mod crash_table;
mod library;
mod operations;
mod processor_client;
mod processor_service;
