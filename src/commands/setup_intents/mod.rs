//! `/setup_intents`: cards that are made ready for later payments. No money moves, so no processor
//! is asked.

mod attempt;
mod authenticate;
mod cancel;
mod confirm;
mod create;
mod update;

pub use self::{
    authenticate::AuthenticateSetup, cancel::CancelSetupIntent, confirm::ConfirmSetupIntent,
    create::CreateSetupIntent, update::UpdateSetupIntent,
};
