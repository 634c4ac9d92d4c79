//! Faults on demand or planned, test accounts, and a server without `FAULTS` that has none of it.

mod closing;
mod header;
mod lost_reply;
mod plans;
mod production;
mod report;
mod test_accounts;
mod webhooks;
