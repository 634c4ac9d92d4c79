//! 5 · The SQL, one file per table.
//!
//! Promise: every function takes a connection and neither begins nor commits, and its documentation
//! says which locks it takes. What a client's request calls has a condition on the account, so it
//! can't return another account's row. Only `invariants`, `operations::list_waiting`,
//! `operations::list_refused_refunds`, `sweepable` and `test_accounts` look at all accounts, for
//! the command line and workers. `last_check` is about none.

pub mod charges;
pub mod checkouts;
pub mod customers;
pub mod fault_plans;
pub mod holder_pages;
pub mod invariants;
pub mod inventory;
pub mod key_story;
pub mod last_check;
pub mod manual_resolutions;
pub mod old_rows;
pub mod operations;
pub mod orders;
pub mod payment_intents;
pub mod payment_methods;
pub mod refunds;
pub mod report;
mod rows;
pub mod setup_intents;
pub mod slow_card;
pub mod sweepable;
pub mod test_accounts;
