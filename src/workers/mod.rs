//! 6 · What runs beside requests.

pub mod database_metrics;
pub mod expiry_sweep;
pub mod late_shards;
pub mod retention;
pub mod test_accounts;
pub mod webhooks;
