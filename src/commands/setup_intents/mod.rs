//! `/setup_intents`: cards that are made ready for later payments. No money moves, so no processor
//! is asked.

mod attempt;
pub(super) mod authenticate;
pub(super) mod cancel;
pub(super) mod confirm;
pub(super) mod create;
pub(super) mod update;
