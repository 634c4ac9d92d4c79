//! Reads from the database what metrics tell of it, while `/metrics` is served.
//!
//! Promise: a scrape never asks the database. The statements run now and then on a connection of
//! their own, each is bounded, and a database that is down or silent costs fresh values and nothing
//! else.

use std::time::Duration;

use charge_once_service::prometheus::{Gauge, set_to_now, value};
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use sqlx::PgConnection;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, timeout},
};

use crate::{
    database::{
        Database,
        move_account::{KnownMove, furthest, known_moves},
        plain,
    },
    idempotency::{self, ExternalEffect, Leased},
    store::{self, last_check::LastCheck},
    telemetry::metrics::Metrics,
    webhooks,
    work::CheckoutSteps,
};

/// Pause between two looks: about as often as Prometheus asks.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Operations of a kind, and checkouts, that are counted at most.
const PHASES_MAX: i64 = 1_000;

/// Deliveries that are counted at most: two milliseconds of PostgreSQL's time.
const DELIVERIES_MAX: i64 = 10_000;

/// Webhook endpoints that are looked at at most.
const ENDPOINTS_MAX: i32 = 1_000;

/// Reads until `stopping`. Each look has the deadline.
pub async fn run(
    databases: Vec<Database>,
    metrics: Metrics,
    deadline: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = tokio::time::interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // An account moves between two databases, and a process that knows one of them would not know
    // whether it has arrived.
    let has_moves = databases.len() > 1;
    let looked = databases.into_iter().map(|one| (one, None, Vec::new()));
    let mut looked: Vec<_> = looked.collect();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        metrics.registry.tidy_up();
        // Those that don't answer all take their time at once.
        let looks = looked
            .iter_mut()
            .map(async |(database, connection, moves)| {
                // Taken out, so that a connection in doubt is closed and not used again.
                let looking = async {
                    let looked = look(database, connection.take(), &metrics);
                    let (mut clean, seen) = looked.await?;
                    if has_moves {
                        *moves = known_moves(&mut clean).await?;
                    }
                    Ok((clean, seen))
                };
                match timeout(deadline, looking).await {
                    Ok(Ok((clean, seen))) => {
                        *connection = Some(clean);
                        return Some(seen);
                    }
                    Ok(Err(error)) => tracing::warn!(
                        error = plain(&error),
                        "metrics can't be read from the database"
                    ),
                    Err(_) => tracing::warn!("metrics were not read from the database in time"),
                }
                None
            });
        let seen: Vec<_> = join_all(looks).await;
        let is_whole = seen.iter().all(Option::is_some);
        // Half of a sum would look like an improvement.
        if is_whole && let Some(seen) = seen.into_iter().flatten().reduce(Seen::and) {
            seen.show(&metrics);
        }
        // A database that has closed an account and doesn't answer has not opened it.
        show_moves(&metrics, looked.iter().flat_map(|(_, _, moves)| moves));
    }
}

fn show_moves<'m>(metrics: &Metrics, moves: impl Iterator<Item = &'m KnownMove>) {
    let moves = furthest(moves);
    for (state, handles) in &metrics.moves {
        let is_there = |one: &&&KnownMove| one.state == *state;
        let since = moves.iter().filter(is_there).map(|one| one.since);
        handles.moves.set(value(since.clone().count()));
        handles.oldest.set(age(since.min()));
    }
}

/// What was seen in a database, or in several.
struct Seen {
    expired: Duration,
    /// As they are in [`Metrics`].
    phases: Vec<Leased>,
    refused: i64,
    due: i64,
    longest_due: Duration,
    last_check: Option<LastCheck>,
}

impl Seen {
    /// Both together: the sums, the oldest, and the check that is longer ago.
    fn and(self, other: Self) -> Self {
        let phases = self.phases.into_iter().zip(other.phases);
        let phases = phases.map(|(one, other)| Leased {
            running: one.running + other.running,
            waiting: one.waiting + other.waiting,
            in_doubt: one.in_doubt + other.in_doubt,
            oldest: one.oldest.into_iter().chain(other.oldest).min(),
        });
        let last_check = self.last_check.zip(other.last_check);
        Self {
            expired: self.expired.max(other.expired),
            phases: phases.collect(),
            refused: self.refused + other.refused,
            due: self.due + other.due,
            longest_due: self.longest_due.max(other.longest_due),
            last_check: last_check.map(|(one, other)| LastCheck {
                violations: one.violations.saturating_add(other.violations),
                finished_at: one.finished_at.min(other.finished_at),
            }),
        }
    }

    fn show(self, metrics: &Metrics) {
        metrics.oldest_expired.set(self.expired);
        for ((kind, handles), leased) in metrics.phases.iter().zip(self.phases) {
            set(&handles.running, leased.running);
            set(&handles.waiting, leased.waiting);
            set(&handles.in_doubt, leased.in_doubt);
            handles.oldest.set(age(leased.oldest));
            if *kind == CheckoutSteps::KIND {
                let in_progress = leased.running + leased.waiting;
                set(&metrics.checkouts_in_progress, in_progress);
            }
        }
        set(&metrics.checkouts_refund_refused, self.refused);
        set(&metrics.webhooks_due, self.due);
        metrics.webhooks_oldest_due.set(self.longest_due);
        if let Some(last) = self.last_check {
            metrics.show_last_check(last.violations, last.finished_at);
        }
        set_to_now(&metrics.read_success);
    }
}

/// Looks once. Returns the connection, which is clean.
async fn look(
    database: &Database,
    connection: Option<PgConnection>,
    metrics: &Metrics,
) -> Result<(PgConnection, Seen), sqlx::Error> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => database.connect_aside().await?,
    };
    let expired = idempotency::oldest_expired(&mut connection).await?;
    let mut phases = Vec::new();
    for (kind, _) in &metrics.phases {
        phases.push(idempotency::leased(&mut connection, kind, PHASES_MAX).await?);
    }
    let refused = store::checkouts::count_refused_refunds(&mut connection, PHASES_MAX).await?;
    let due = webhooks::count_due(&mut connection, DELIVERIES_MAX).await?;
    let longest_due = webhooks::longest_due(&mut connection, ENDPOINTS_MAX).await?;
    let last_check = store::last_check::find(&mut connection).await?;
    let seen = Seen {
        expired: expired.unwrap_or_default(),
        phases,
        refused,
        due,
        longest_due: longest_due.unwrap_or_default(),
        last_check,
    };
    Ok((connection, seen))
}

fn set(gauge: &Gauge, count: i64) {
    gauge.set(value(usize::try_from(count).unwrap_or_default()));
}

/// How long ago that was. A clock that runs ahead makes it now.
fn age(since: Option<DateTime<Utc>>) -> Duration {
    let age = since.and_then(|since| (Utc::now() - since).to_std().ok());
    age.unwrap_or_default()
}
