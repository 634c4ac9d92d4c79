//! The card processor: who moves the money.
//!
//! Promise: an instruction carries a key of its own, and however often it is sent under that key it
//! is executed at most once. What came of it is told apart in three: a definite answer, certainty
//! that nothing was executed, and doubt. Doubt is never turned into a guess.

mod http;
pub mod service;
mod simulated;
mod wire;

use std::future::Future;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use http::{HttpProcessor, HttpProcessorError};
pub use simulated::SimulatedProcessor;

use crate::domain::test_cards::Decline;

/// What a processor is asked to do. References are this service's ids with their prefixes, amounts
/// are minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Instruction {
    /// Promise money, and take it at once where `capture` says so.
    Authorise {
        /// The charge that it is for: `ch_…`.
        charge: String,
        /// How much.
        amount: i64,
        /// ISO 4217, lower case.
        currency: String,
        /// The card, as the canonical test token.
        card: String,
        /// Whether to take the money at once.
        capture: bool,
    },
    /// Take promised money, once; the rest is released.
    Capture {
        /// The charge that promised it.
        charge: String,
        /// How much, at most what was promised.
        amount: i64,
    },
    /// Give money back, or release what was only promised.
    Refund {
        /// The charge that took it.
        charge: String,
        /// The refund that it is for: `re_…`.
        refund: String,
        /// How much.
        amount: i64,
    },
}

/// A definite answer: it stays the same however often the instruction is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Executed.
    Done,
    /// Refused for good.
    Declined(Decline),
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The processor's own definite answer for this key.
    Answered(Answer),
    /// Certain: this attempt was not executed and will not be. Says nothing about earlier ones.
    NotExecuted(String),
    /// Anything else: a reply that didn't come, an error after the request was sent, "in progress",
    /// "not found". The text is for the log.
    Unknown(String),
}

/// A card processor across a network.
pub trait CardProcessor: Send + Sync + 'static {
    /// Sends `instruction` under `key`, within the processor's own time limit. The same key always
    /// comes with the same instruction.
    fn execute(&self, key: Uuid, instruction: &Instruction) -> impl Future<Output = Asked> + Send;

    /// Asks what became of `key` without executing anything. Only a definite answer for the key is
    /// [`Asked::Answered`]; "not found" is doubt, because the instruction may still be on its way.
    fn look_up(&self, key: Uuid) -> impl Future<Output = Asked> + Send;
}
