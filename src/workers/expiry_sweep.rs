//! Removes expired idempotency keys, what test accounts leave behind, and what is kept for a time
//! only, on every replica, for as long as the process runs.
//!
//! Promise: it uses a connection of its own and survives a database that is down or silent. An
//! interrupted sweep loses nothing: an expired record is dead even before it is swept, and what is
//! removed by age is not read any more.

use std::time::Duration;

use charge_once_service::retention::Stop;
use sqlx::{Connection, PgConnection};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, timeout},
};

use super::{
    retention::{Removed, Retention, Round},
    test_accounts::{Closed, Closing},
};
use crate::{
    config::Config,
    database::{Database, plain},
    idempotency::{self, SweepPace},
    store::test_accounts::Ended,
    telemetry::metrics::Metrics,
};

/// Pause after a round through all accounts that left nothing. What is removed is days old.
const ROUND_PAUSE: Duration = Duration::from_secs(3600);

/// Pause after a round in which accounts failed, in intervals of the sweep, and at most. The alert
/// waits for longer, so a failure that was one of the moment has passed before it.
const FAILED_ROUND_PAUSE: u32 = 5;
const FAILED_ROUND_PAUSE_MAX: Duration = Duration::from_secs(300);

/// Sweeps every `EXPIRY_SWEEP_INTERVAL` until `stopping`.
pub async fn run(
    database: Database,
    config: Config,
    metrics: Metrics,
    mut stopping: watch::Receiver<bool>,
) {
    let interval = config.values.expiry_sweep_interval;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep = Sweep::new(database, &config, SweepPace::default().rest);
    let mut next_round = Instant::now();
    let mut last_round = Round::GoesOn;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        // The keys are swept to the end. Each part after them has a time of its own, however long
        // the part before it took.
        let until = || Instant::now() + interval;
        let sweeping = async {
            sweep_keys(&mut sweep, &metrics).await;
            close_test_accounts(&mut sweep, &metrics, until()).await;
            if Instant::now() >= next_round {
                last_round = remove_old_rows(&mut sweep, &metrics, until()).await;
                next_round = Instant::now() + pause_after(last_round, interval);
            } else if last_round == Round::Whole {
                metrics.sweep_parts.old_rows.ended(true);
            }
        };
        tokio::select! {
            () = sweeping => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        sweep.disconnect().await;
    }
}

/// The pause before the next round, by how the last one ended.
fn pause_after(round: Round, sweep_interval: Duration) -> Duration {
    match round {
        Round::GoesOn | Round::Over => Duration::ZERO,
        Round::Whole => ROUND_PAUSE,
        Round::Failed => FAILED_ROUND_PAUSE_MAX.min(sweep_interval * FAILED_ROUND_PAUSE),
    }
}

async fn sweep_keys(sweep: &mut Sweep, metrics: &Metrics) {
    let began = Instant::now();
    let swept = sweep.keys().await;
    metrics.sweep_parts.keys.ended(swept.is_ok());
    let removed = match swept {
        Ok(removed) => removed,
        Err(error) => return tell_failure(&error, "the expiry sweep failed"),
    };
    metrics.sweep_seconds.record(began.elapsed());
    metrics.swept.keys.increment(removed);
    match removed {
        0 => tracing::debug!("no expired idempotency keys"),
        _ => tracing::info!(removed, "swept expired idempotency keys"),
    }
}

async fn close_test_accounts(sweep: &mut Sweep, metrics: &Metrics, until: Instant) {
    let closed = sweep.test_accounts(until).await;
    let are_closed = closed.as_ref().is_ok_and(|it| it.failed_accounts == 0);
    metrics.sweep_parts.test_accounts.ended(are_closed);
    let Closed { rows, accounts, .. } = match closed {
        Ok(closed) => closed,
        Err(error) => return tell_failure(&error, "test accounts stay open"),
    };
    metrics.swept.test_accounts.increment(rows);
    match (rows, accounts) {
        (0, 0) => tracing::debug!("no test accounts have ended"),
        _ => tracing::info!(rows, accounts, "closed test accounts"),
    }
}

async fn remove_old_rows(sweep: &mut Sweep, metrics: &Metrics, until: Instant) -> Round {
    let removed = sweep.old_rows(until).await;
    let are_removed = removed.as_ref().is_ok_and(|it| it.failed_accounts == 0);
    metrics.sweep_parts.old_rows.ended(are_removed);
    let removed = match removed {
        Ok(removed) => removed,
        Err(error) => {
            tell_failure(&error, "old rows were not removed");
            return Round::GoesOn;
        }
    };
    let (events, operations, requests) = (removed.events, removed.operations, removed.requests);
    metrics.swept.events.increment(events);
    metrics.swept.operations.increment(operations);
    metrics.swept.request_log.increment(requests);
    match (events, operations, requests) {
        (0, 0, 0) => tracing::debug!("no old rows were removed"),
        _ => tracing::info!(
            events,
            operations,
            requests,
            "removed what is older than it is kept"
        ),
    }
    removed.round
}

fn tell_failure(error: &sqlx::Error, what: &str) {
    tracing::warn!(error = plain(error), "{what}; it will be repeated");
}

/// What a sweep removes, and how. Its parts share a connection, one after the other.
pub struct Sweep {
    database: Database,
    /// That of the last part, unless it failed.
    connection: Option<PgConnection>,
    deadline: Duration,
    rest: u32,
    memory: Option<Duration>,
    retention: Retention,
    closing: Closing,
}

impl Sweep {
    /// Rests after each batch for as many times as the batch took.
    pub fn new(database: Database, config: &Config, rest: u32) -> Self {
        let deadline = config.values.database_deadline;
        Self {
            database,
            connection: None,
            deadline,
            rest,
            memory: config.values.key_memory,
            retention: Retention::new(config.retention, deadline, rest),
            closing: Closing::new(deadline, rest),
        }
    }

    /// Removes expired idempotency keys, and returns how many there were.
    pub async fn keys(&mut self) -> Result<u64, sqlx::Error> {
        let pace = SweepPace {
            batch_deadline: self.deadline,
            rest: self.rest,
            memory: self.memory,
        };
        let mut connection = self.connect().await?;
        let removed = idempotency::sweep(&mut connection, pace).await?;
        self.connection = Some(connection);
        Ok(removed)
    }

    /// Removes what test accounts that have ended leave behind, until nothing is left or `until`.
    /// The next call goes on where this one stopped. An account that fails is passed over until the
    /// next round.
    pub async fn test_accounts(&mut self, until: Instant) -> Result<Closed, sqlx::Error> {
        let mut closed = Closed::default();
        loop {
            let mut connection = self.connect().await?;
            let walk = self.closing.go_on(&mut connection, &mut closed, until);
            match walk.await? {
                Stop::Failed(Ended { id: account, .. }, error) => {
                    let error = plain(&error);
                    tracing::warn!(%account, error, "a test account stays open; it will be repeated");
                    closed.last_failure = Some((account, error));
                }
                Stop::At(round) => {
                    self.connection = Some(connection);
                    if round != Round::Over {
                        return Ok(closed);
                    }
                }
            }
        }
    }

    /// Removes what is older than it is kept, round after round, until nothing is left or `until`.
    /// The next call goes on where this one stopped. An account that fails is passed over until the
    /// next round.
    pub async fn old_rows(&mut self, until: Instant) -> Result<Removed, sqlx::Error> {
        let mut removed = Removed::default();
        loop {
            let mut connection = self.connect().await?;
            let walk = self.retention.go_on(&mut connection, &mut removed, until);
            match walk.await? {
                Stop::Failed(account, error) => {
                    let cause = plain(&error);
                    tracing::warn!(%account, cause, "old rows of an account were not removed; it will be repeated");
                    removed.last_failure = Some((account, error));
                }
                Stop::At(round) => {
                    self.connection = Some(connection);
                    if round != Round::Over {
                        removed.round = round;
                        return Ok(removed);
                    }
                    removed.last_failure = None;
                }
            }
        }
    }

    /// Ends the session, if one is left, until the next part.
    pub async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            // It has nothing left to do: whether the end is answered tells nothing.
            let _ = timeout(self.deadline, connection.close()).await;
        }
    }

    async fn connect(&mut self) -> Result<PgConnection, sqlx::Error> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let connecting = timeout(self.deadline, self.database.connect_aside());
        connecting.await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }
}
