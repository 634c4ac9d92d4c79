//! Removes expired idempotency keys, on every replica, for as long as the process runs.
//!
//! Promise: it uses a connection of its own and survives a database that is down. An interrupted
//! sweep loses nothing: an expired record is dead even before it is swept.

use std::time::Duration;

use sqlx::Connection;
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{database::Database, idempotency};

/// Sweeps every `interval` until `stopping`.
pub async fn run(database: Database, interval: Duration, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let swept = tokio::select! {
            swept = sweep_once(&database) => swept,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match swept {
            Ok(0) => tracing::debug!("no expired idempotency keys"),
            Ok(removed) => tracing::info!(removed, "swept expired idempotency keys"),
            Err(error) => tracing::warn!(%error, "the expiry sweep failed; it will be repeated"),
        }
    }
}

/// One sweep on a connection of its own; returns how many records it removed.
pub async fn sweep_once(database: &Database) -> Result<u64, sqlx::Error> {
    let mut connection = database.connect_aside().await?;
    let removed = idempotency::sweep(&mut connection).await?;
    connection.close().await?;
    Ok(removed)
}
