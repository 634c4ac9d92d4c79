//! Accounts for tests, and what they may do with their keys.

mod create;
mod create_fault_plan;
mod expire_keys;

pub use create::CreateTestAccount;
pub use create_fault_plan::CreateFaultPlan;
pub use expire_keys::ExpireKeys;
