//! A key, its record, and what a retry meets.

mod database_failures;
pub mod disconnects;
pub mod duplicates;
mod expiry;
mod fingerprints;
mod first_charge;
pub mod followers;
mod in_flight;
pub mod key_inspection;
pub mod keys;
pub mod outcomes;
mod workflows;
