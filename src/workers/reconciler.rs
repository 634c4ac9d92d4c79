//! Goes on with operations that nobody works on: their process died, or the processor's answer was
//! unknown, and the client never came back.
//!
//! Promise: it runs on every replica without a leader, does nothing that a client's retry would not
//! do, and asks the processor under the same key, so it can't cause a second effect.

use std::time::Duration;

use tokio::{sync::watch, time::MissedTickBehavior};

use crate::http::NetworkPhases;

/// Pause between two looks for abandoned operations: short against a lease, cheap by its index.
const INTERVAL: Duration = Duration::from_secs(1);

/// Goes on with one operation after the other until `stopping`.
pub async fn run(phases: NetworkPhases, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        // One that is cut off here is in doubt, like after a crash, and taken over later.
        tokio::select! {
            () = recover_all(&phases) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

async fn recover_all(phases: &NetworkPhases) {
    loop {
        match phases.recover_one().await {
            Ok(true) => {}
            Ok(false) => return,
            Err(failure) => {
                let cause = failure.cause;
                tracing::warn!(%cause, "the reconciler failed; it will look again");
                return;
            }
        }
    }
}
