//! The verbs of `/payment_intents`, and of the page on which a card's holder authenticates.

pub(super) mod attempt;
mod authenticate;
pub(super) mod cancel;
pub(super) mod capture;
mod confirm;
mod create;
pub(super) mod found;
mod update;

pub use authenticate::AuthenticateIntent;
pub use cancel::CancelIntent;
pub use capture::CaptureIntent;
pub use confirm::ConfirmIntent;
pub use create::CreateIntent;
pub use update::UpdateIntent;
