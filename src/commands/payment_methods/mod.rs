//! The verbs of `/payment_methods`, and methods as other commands use them.

mod attach;
mod create;
mod detach;
pub(in crate::commands) mod given;

pub use attach::AttachPaymentMethod;
pub use create::CreatePaymentMethod;
pub use detach::DetachPaymentMethod;
