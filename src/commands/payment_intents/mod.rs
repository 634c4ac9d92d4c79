//! The verbs of `/payment_intents`, and of the page on which a card's holder authenticates.

pub(super) mod attempt;
pub(super) mod authenticate;
pub(super) mod cancel;
pub(super) mod capture;
pub(super) mod confirm;
pub(super) mod create;
pub(super) mod update;
