//! Reads from the database what metrics tell of it, while `/metrics` is served.
//!
//! Promise: a scrape never asks the database. The statements run now and then on a connection of
//! their own, each is bounded, and a database that is down or silent costs fresh values and nothing
//! else.

use std::time::Duration;

use charge_once_prometheus::{Gauge, set_to_now, value};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, timeout},
};

use crate::{
    commands::CheckoutSteps,
    database::Database,
    idempotency::{self, ExternalEffect},
    store,
    telemetry::metrics::Metrics,
    webhooks,
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
    database: Database,
    metrics: Metrics,
    deadline: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = tokio::time::interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        metrics.registry.tidy_up();
        // Taken out, so that a connection in doubt is closed and not used again.
        let looking = look(&database, connection.take(), &metrics);
        match timeout(deadline, looking).await {
            Ok(Ok(clean)) => connection = Some(clean),
            Ok(Err(error)) => tracing::warn!(%error, "metrics can't be read from the database"),
            Err(_) => tracing::warn!("metrics were not read from the database in time"),
        }
    }
}

/// Looks once. Returns the connection, which is clean.
async fn look(
    database: &Database,
    connection: Option<PgConnection>,
    metrics: &Metrics,
) -> Result<PgConnection, sqlx::Error> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => database.connect_aside().await?,
    };
    let expired = idempotency::oldest_expired(&mut connection).await?;
    metrics.oldest_expired.set(expired.unwrap_or_default());
    for (kind, handles) in &metrics.phases {
        let leased = idempotency::leased(&mut connection, kind, PHASES_MAX).await?;
        set(&handles.running, leased.running);
        set(&handles.waiting, leased.waiting);
        set(&handles.in_doubt, leased.in_doubt);
        handles.oldest.set(age(leased.oldest));
        if *kind == CheckoutSteps::KIND {
            set(
                &metrics.checkouts_in_progress,
                leased.running + leased.waiting,
            );
        }
    }
    let refused = store::checkouts::count_refused_refunds(&mut connection, PHASES_MAX).await?;
    set(&metrics.checkouts_refund_refused, refused);
    let due = webhooks::count_due(&mut connection, DELIVERIES_MAX).await?;
    set(&metrics.webhooks_due, due);
    let longest = webhooks::longest_due(&mut connection, ENDPOINTS_MAX).await?;
    metrics.webhooks_oldest_due.set(longest.unwrap_or_default());
    if let Some(last) = store::last_check::find(&mut connection).await? {
        metrics.show_last_check(last.violations, last.finished_at);
    }
    set_to_now(&metrics.read_success);
    Ok(connection)
}

fn set(gauge: &Gauge, count: i64) {
    gauge.set(value(usize::try_from(count).unwrap_or_default()));
}

/// How long ago that was. A clock that runs ahead makes it now.
fn age(since: Option<DateTime<Utc>>) -> Duration {
    since.map_or(Duration::ZERO, |since| {
        (Utc::now() - since).to_std().unwrap_or_default()
    })
}
