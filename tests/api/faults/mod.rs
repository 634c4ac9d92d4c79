//! Faults on demand, test accounts, and that a server without `FAULTS` has nothing of it.

mod closing;
mod header;
mod lost_reply;
mod plans;
mod production;
mod report;
mod test_accounts;
