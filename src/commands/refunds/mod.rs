//! The verbs of `/refunds`.

pub(super) mod create;
mod update;

pub use create::CreateRefund;
pub use update::UpdateRefund;
