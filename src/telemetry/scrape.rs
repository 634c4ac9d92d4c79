//! What `/metrics` tells of this moment, when Prometheus asks for it.
//!
//! Promise: a scrape asks no database.

use std::sync::Arc;

use charge_once_prometheus::value;

use super::metrics::Metrics;
use crate::{
    database::Database,
    idempotency::{Idempotency, ReplayCache},
};

/// What is looked at when it is asked for.
#[derive(Clone)]
pub struct Scrape {
    /// What is counted all the time.
    pub metrics: Metrics,
    /// Knows what is in flight.
    pub idempotency: Idempotency,
    /// How many requests wait for a batch now.
    pub batch_waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Knows its size.
    pub replay_cache: Option<ReplayCache>,
    /// Knows its pool.
    pub database: Database,
}

impl Scrape {
    /// All metrics as Prometheus reads them.
    pub fn render(&self) -> String {
        let Self {
            metrics,
            idempotency,
            batch_waiting,
            replay_cache,
            database,
        } = self;
        let in_flight = idempotency.in_flight_counts();
        metrics.keys_in_flight.set(value(in_flight.keys));
        metrics.waiters.set(value(in_flight.waiters));
        metrics.batch_waiting.set(value(batch_waiting()));
        if let Some(replay_cache) = replay_cache {
            let bytes = usize::try_from(replay_cache.bytes()).unwrap_or(usize::MAX);
            metrics.cache_bytes.set(value(bytes));
        }
        let pool = database.pool();
        metrics.pool_max.set(pool.options().get_max_connections());
        metrics.pool_open.set(pool.size());
        metrics.pool_idle.set(value(pool.num_idle()));
        metrics.registry.render()
    }
}
