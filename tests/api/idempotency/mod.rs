//! A key, its record, and what a retry meets.

mod abandoned;
mod assigned_keys;
mod database_failures;
mod deletions;
mod disconnects;
mod duplicates;
mod expiry;
mod fingerprints;
mod first_charge;
mod followers;
mod forgotten;
mod in_flight;
mod key_inspection;
mod keys;
mod limits;
mod outcomes;
mod policy;
mod remembered;
mod retention;
mod sealed;
mod shapes;
mod shedding;
mod workflow_pages;
mod workflows;
