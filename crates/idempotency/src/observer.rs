//! What happens in here, told as it happens: for the metrics of an application.
//!
//! Promise: an observer sees durations and counts, and never an account, a key or a reply. Nothing waits for
//! it, and nothing depends on it.

use std::{fmt, time::Duration};

/// Is told what happens. Every method does nothing unless it is written, so that an application takes what
/// it counts. Each one runs in the path of a request: it must be fast, and must neither block nor panic.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A request or a worker waited so long for a pooled connection, and has it unless the wait `timed_out`.
    fn waited_for_connection(&self, waited: Duration, timed_out: bool) {
        let _ = (waited, timed_out);
    }

    /// A connection in doubt was closed, and goes back to no pool.
    fn discarded_connection(&self) {}

    /// A transaction of its own has claimed a key, or found what has it. Another process that works on the
    /// key is part of the time, and so are statements. `held_elsewhere`: the wait for that process is over.
    fn claimed(&self, took: Duration, held_elsewhere: bool) {
        let _ = (took, held_elsewhere);
    }

    /// The work waited for a row that another transaction has locked, and gave its connection back.
    fn gave_up_a_row(&self) {}

    /// A batch of so many requests ended. `committed`: their outcomes are stored, or were before.
    fn ended_batch(&self, requests: usize, took: Duration, committed: bool) {
        let _ = (requests, took, committed);
    }

    /// A request that could share a transaction runs in one of its own.
    fn ran_alone(&self, because: RanAlone) {
        let _ = because;
    }

    /// A key was looked up among the records in memory. `found`: it was answered from there.
    fn looked_up(&self, found: bool) {
        let _ = found;
    }

    /// The effect outside the database was asked for, by a request or a reconciler. `kind` is that of the
    /// effect.
    fn called(&self, kind: &'static str, took: Duration, answer: CallAnswer) {
        let _ = (kind, took, answer);
    }

    /// An effect outside the database has its outcome, and the key its record with this status.
    fn completed(&self, kind: &'static str, status: u16) {
        let _ = (kind, status);
    }
}

/// Why a request has a transaction of its own, though it could share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RanAlone {
    /// A batch could not decide about it.
    Undecided,
    /// Its batch failed.
    BatchFailed,
    /// Its account holds up batches for the moment.
    AccountHeldUp,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// The definite answer.
    Answered,
    /// Certainly not executed.
    NotExecuted,
    /// Whether it was executed is not known.
    Unknown,
}

/// Where an application counts nothing.
#[derive(Debug)]
pub(crate) struct Unobserved;

impl Observer for Unobserved {}
