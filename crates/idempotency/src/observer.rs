//! What happens in here, told as it happens: for the metrics of an application.
//!
//! Promise: an observer sees durations and counts, and never an account, a key or a reply. Nothing
//! waits for it, and nothing depends on it.

use std::{fmt, time::Duration};

/// Is told what happens. Every method does nothing unless it is written, so that an application
/// takes what it counts. Each one runs in the path of a request: it must be fast, and must neither
/// block nor panic.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A request or a worker waited so long for a connection, and has it unless it `timed_out`.
    fn waited_for_connection(&self, waited: Duration, timed_out: bool) {
        let _ = (waited, timed_out);
    }

    /// A connection in doubt was closed, and goes back to no pool.
    fn discarded_connection(&self) {}

    /// A transaction of its own has claimed a key, or found what has it. Another process that works
    /// on the key is part of the time, and so are statements. `held_elsewhere`: the wait for that
    /// process is over.
    fn claimed(&self, took: Duration, held_elsewhere: bool) {
        let _ = (took, held_elsewhere);
    }

    /// The work waited for a row that another transaction has locked, and gave its connection back.
    fn gave_up_a_row(&self) {}
}

/// Where an application counts nothing.
#[derive(Debug)]
pub(crate) struct Unobserved;

impl Observer for Unobserved {}
