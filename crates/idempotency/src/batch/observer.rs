//! What happens to batches, told as it happens.

use std::{fmt, time::Duration};

use crate::observer::Unobserved;

/// Is told what happens to batches, under the rules of [`Observer`](crate::Observer).
pub trait BatchObserver: fmt::Debug + Send + Sync + 'static {
    /// A batch has claimed the keys of so many requests, or found what has them. Another process
    /// that works on one of them is part of the time, which each of these requests waited.
    fn claimed_batch(&self, requests: usize, took: Duration) {
        let _ = (requests, took);
    }

    /// A batch of so many requests ended. `committed`: their outcomes are stored, or were before.
    fn ended_batch(&self, requests: usize, took: Duration, committed: bool) {
        let _ = (requests, took, committed);
    }

    /// A request that could share a transaction runs in one of its own.
    fn ran_alone(&self, because: RanAlone) {
        let _ = because;
    }
}

impl BatchObserver for Unobserved {}

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
