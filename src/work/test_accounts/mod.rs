//! Accounts for tests, and what they may do with their keys.

mod create;
mod expire_keys;
mod fault_plans;

pub use create::CreateTestAccount;
pub use expire_keys::ExpireKeys;
pub use fault_plans::{CreateFaultPlan, DeleteFaultPlan};
