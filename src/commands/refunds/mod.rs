//! The verbs of `/refunds`.

pub(super) mod create;

pub use create::CreateRefund;
