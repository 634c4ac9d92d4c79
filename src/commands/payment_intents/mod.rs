//! The verbs of `/payment_intents`, and of the page on which a card's holder authenticates.

mod attempt;
mod authenticate;
mod cancel;
mod capture;
mod confirm;
mod create;
pub(super) mod found;
mod phases;
mod update;

pub use authenticate::AuthenticateIntent;
pub use cancel::CancelIntent;
pub use capture::CaptureIntent;
pub use confirm::ConfirmIntent;
pub use create::{CreateBareIntent, CreateIntent};
pub use update::UpdateIntent;

pub(super) use phases::{complete, release};
