//! The verbs of `/orders`.

mod cancel;
mod create;
mod open;
pub(super) mod pay;

pub use cancel::CancelOrder;
pub use create::CreateOrder;
pub use pay::PayOrder;

pub(super) use cancel::cancel;
pub(super) use create::open;
pub(super) use pay::pay;
