//! What `/metrics` tells of this moment, when Prometheus asks for it.
//!
//! Promise: a scrape asks no database.

use charge_once_service::prometheus::value;
use sqlx::PgPool;

use super::metrics::Metrics;
use crate::{
    database::Database,
    idempotency::{Idempotency, ReplayCache},
};

/// What is looked at of one database.
pub struct ScrapedDatabase {
    /// Knows what is in flight.
    pub idempotency: Idempotency,
    /// How many requests wait for a batch now.
    pub batch_waiting: Box<dyn Fn() -> usize + Send + Sync>,
    /// Knows its size.
    pub replay_cache: Option<ReplayCache>,
    /// Knows its pool.
    pub database: Database,
}

/// All metrics as Prometheus reads them. Those of several databases are added up.
pub fn render(metrics: &Metrics, databases: &[ScrapedDatabase]) -> String {
    let sum = |of: &dyn Fn(&ScrapedDatabase) -> usize| value(databases.iter().map(of).sum());
    let in_flight = |one: &ScrapedDatabase| one.idempotency.in_flight_counts();
    metrics.keys_in_flight.set(sum(&|one| in_flight(one).keys));
    metrics.waiters.set(sum(&|one| in_flight(one).waiters));
    metrics.batch_waiting.set(sum(&|one| (one.batch_waiting)()));
    if databases.iter().any(|one| one.replay_cache.is_some()) {
        metrics.cache_bytes.set(sum(&|one| {
            let bytes = one.replay_cache.as_ref().map(ReplayCache::bytes);
            usize::try_from(bytes.unwrap_or_default()).unwrap_or(usize::MAX)
        }));
    }
    let pools = || databases.iter().map(|one| one.database.pool());
    let max = pools().map(|pool| pool.options().get_max_connections());
    metrics.pool_max.set(max.sum::<u32>());
    let open = pools().map(PgPool::size);
    metrics.pool_open.set(open.sum::<u32>());
    let idle = pools().map(PgPool::num_idle).sum();
    metrics.pool_idle.set(value(idle));
    metrics.registry.render()
}
