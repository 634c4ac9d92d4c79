//! Whether memory had what was asked for, told as it happens.

use std::fmt;

use crate::observer::Unobserved;

/// Is told of look-ups in memory, under the rules of [`Observer`](crate::Observer).
pub trait ReplayCacheObserver: fmt::Debug + Send + Sync + 'static {
    /// A key was looked up among the records in memory. `found`: it was answered from there.
    fn looked_up(&self, found: bool) {
        let _ = found;
    }
}

impl ReplayCacheObserver for Unobserved {}
