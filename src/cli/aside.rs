//! Commands that look at the whole database, beside a running server.

pub(super) use charge_once_postgres::database::{look, look_limit as limit};

use super::BoxError;
use crate::config::Config;

/// The configuration of a command that looks: it migrates nothing, whatever MIGRATE_ON_START says.
pub(super) fn config() -> Result<Config, BoxError> {
    let mut config = Config::from_env()?;
    config.values.migrate_on_start = false;
    Ok(config)
}
