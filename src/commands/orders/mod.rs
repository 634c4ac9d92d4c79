//! The verbs of `/orders`.

mod cancel;
pub(super) mod create;
mod open;
pub(super) mod pay;
mod update;

pub use cancel::CancelOrder;
pub use create::CreateOrder;
pub use pay::PayOrder;
pub use update::UpdateOrder;
