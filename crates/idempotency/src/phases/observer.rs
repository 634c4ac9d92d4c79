//! What happens between and after the transactions of a request in phases, told as it happens.

use std::{fmt, time::Duration};

use super::CallOutcome;
use crate::observer::Unobserved;

/// Is told of calls and their outcomes, under the rules of [`Observer`](crate::Observer). `kind` is
/// that of the effect.
pub trait PhasesObserver: fmt::Debug + Send + Sync + 'static {
    /// The effect outside the database was asked for, by a request or a reconciler.
    fn called(&self, kind: &'static str, took: Duration, answer: CallAnswer) {
        let _ = (kind, took, answer);
    }

    /// An effect outside the database has its outcome, and the key its record with this status.
    fn completed(&self, kind: &'static str, status: u16) {
        let _ = (kind, status);
    }
}

impl PhasesObserver for Unobserved {}

/// What came of a call: a [`CallOutcome`] without what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// The definite answer.
    Answered,
    /// Certainly not executed.
    NotExecuted,
    /// Whether it was executed is not known.
    Unknown,
}

impl<A> From<&CallOutcome<A>> for CallAnswer {
    fn from(outcome: &CallOutcome<A>) -> Self {
        match outcome {
            CallOutcome::Answered(_) => Self::Answered,
            CallOutcome::NotExecuted(_) => Self::NotExecuted,
            CallOutcome::Unknown(_) => Self::Unknown,
        }
    }
}
