//! Continues abandoned operations and checkouts: their process died, or their outcome was unknown,
//! and the client did not retry.
//!
//! Promise: it runs on every replica without a leader. It does what a client's retry would do, with
//! the same keys, so it can't cause a second effect.

use std::time::Duration;

use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::idempotency::{ExternalEffect, Phases};

/// Pause between two looks for abandoned operations: short against a lease, cheap by its index.
const INTERVAL: Duration = Duration::from_secs(1);

/// Operations that one replica completes at a time. Each waits for the processor without a
/// connection.
const AT_A_TIME_MAX: usize = 4;

/// Takes operations over until `stopping`.
pub async fn run<E: ExternalEffect>(phases: Phases<E>, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        // One that is cut off here is in doubt, like after a crash, and taken over later.
        tokio::select! {
            () = look(&phases) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// One task looks. Only if it finds something do several go to work.
async fn look<E: ExternalEffect>(phases: &Phases<E>) {
    match phases.is_any_abandoned().await {
        Ok(true) => recover_all(phases).await,
        Ok(false) => {}
        Err(failure) => {
            let cause = failure.cause;
            tracing::warn!(kind = E::KIND, %cause, "the reconciler failed; it will look again");
        }
    }
}

/// Several at a time, each in a task of its own: a processor that is silent about one operation
/// holds up no other, and a panic ends nothing but its task.
async fn recover_all<E: ExternalEffect>(phases: &Phases<E>) {
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME_MAX {
        let phases = phases.clone();
        tasks.spawn(async move {
            loop {
                match phases.recover_one().await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(failure) => {
                        let cause = failure.cause;
                        tracing::warn!(kind = E::KIND, %cause, "the reconciler failed; it will look again");
                        return;
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(panicked) = ended {
            tracing::error!(%panicked, "taking an operation over panicked");
        }
    }
}
