//! Continues abandoned operations: their process died, or their outcome was unknown, and the client
//! did not retry.
//!
//! Promise: it runs on every replica without a leader. It does what a client's retry would do, with
//! the same keys, so it can't cause a second effect.

use std::time::Duration;

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::MissedTickBehavior,
};

use super::{ExternalEffect, Phases};
use crate::Failure;

/// Pause between two looks for abandoned operations: short against a lease, cheap by its index.
const INTERVAL: Duration = Duration::from_secs(1);

/// Operations that one replica completes at a time. Each waits for the processor without a
/// connection.
const AT_A_TIME_MAX: usize = 4;

impl<E: ExternalEffect> Phases<E> {
    /// Takes operations over until `stopping`: a worker for every replica. After each, `taken_over`
    /// is called.
    pub async fn reconcile(
        self,
        taken_over: impl Fn() + Clone + Send + 'static,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut recovering = JoinSet::new();
        loop {
            // What is cut off at the end is in doubt, like after a crash, and taken over later.
            tokio::select! {
                _ = ticks.tick() => {}
                Some(ended) = recovering.join_next() => {
                    log_panic(ended);
                    continue;
                }
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
            tokio::select! {
                () = look(&self, &taken_over, &mut recovering) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    }
}

/// One task looks. Only if it finds something do several go to work, as many as the ones at work
/// leave room for: a processor that is silent about fewer than [`AT_A_TIME_MAX`] operations holds
/// up no other.
async fn look<E: ExternalEffect>(
    phases: &Phases<E>,
    taken_over: &(impl Fn() + Clone + Send + 'static),
    recovering: &mut JoinSet<()>,
) {
    while let Some(ended) = recovering.try_join_next() {
        log_panic(ended);
    }
    let room = AT_A_TIME_MAX.saturating_sub(recovering.len());
    if room == 0 {
        return;
    }
    match phases.is_any_abandoned().await {
        Ok(true) => {
            for _ in 0..room {
                recovering.spawn(recover(phases.clone(), taken_over.clone()));
            }
        }
        Ok(false) => {}
        Err(failure) => log(E::KIND, &failure),
    }
}

/// Takes over one operation after the other, until none is left.
async fn recover<E: ExternalEffect>(phases: Phases<E>, taken_over: impl Fn()) {
    loop {
        match phases.recover_one().await {
            Ok(true) => taken_over(),
            Ok(false) => return,
            Err(failure) => return log(E::KIND, &failure),
        }
    }
}

fn log(kind: &str, Failure { cause, .. }: &Failure) {
    tracing::warn!(kind, %cause, "the reconciler failed; it will look again");
}

/// A panic ends nothing but its task.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(panicked) = ended {
        tracing::error!(%panicked, "taking an operation over panicked");
    }
}
