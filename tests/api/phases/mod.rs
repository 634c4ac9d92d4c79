//! Effects at a card processor outside the database.

mod completion;
mod crash_table;
mod library;
mod mode_mismatch;
mod model;
mod operations;
mod payment_intents;
mod processor_client;
mod processor_faults;
mod processor_service;
mod processor_trouble;
