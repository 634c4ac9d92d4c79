//! The card processor, which moves the money: how it is asked across a network, and its simulator.
//!
//! Promise: an instruction carries a key of its own, and is executed at most once however often it
//! is sent with that key. There are three outcomes: a definite answer, certainty that nothing was
//! executed, and doubt. Doubt is never turned into a guess.

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;

mod http;
pub mod service;
pub mod test_cards;
mod wire;

use std::future::Future;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use test_cards::Decline;

pub use http::{HttpProcessor, HttpProcessorError, TRACE_TARGET};
pub use wire::Instruction;

/// A definite answer: it stays the same however often the instruction is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Executed.
    Done,
    /// Refused for good.
    Declined(Decline),
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstructionOutcome {
    /// The processor's definite answer for this key.
    Answered(Answer),
    /// Certain: this attempt was not executed and will not be. It says nothing about earlier
    /// attempts.
    NotExecuted(String),
    /// Anything else: a missing reply, an error after the request was sent, "in progress", "not
    /// found". The text is for the log.
    Unknown(String),
}

/// A card processor across a network.
pub trait CardProcessor: Send + Sync + 'static {
    /// Sends `instruction` with `key`, within the processor's time limit. A key always comes with
    /// the same instruction. What arrives later than `not_after` is not executed.
    fn execute(
        &self,
        key: Uuid,
        instruction: &Instruction,
        not_after: DateTime<Utc>,
    ) -> impl Future<Output = InstructionOutcome> + Send;

    /// Looks `key` up and executes nothing. Only a definite answer for the key is
    /// [`InstructionOutcome::Answered`]; "not found" is doubt, because the instruction may still be
    /// on its way.
    fn look_up(&self, key: Uuid) -> impl Future<Output = InstructionOutcome> + Send;
}
