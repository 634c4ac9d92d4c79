//! `charge-once healthcheck`: asks a server whether it is ready.

use charge_once_developer::healthcheck;

use super::BoxError;
use crate::config::Config;

/// Which server is asked.
#[derive(Debug, clap::Args)]
pub struct HealthcheckArguments {
    /// The card processor's simulator instead, at PROCESSOR_BIND_ADDRESS.
    #[arg(long)]
    processor: bool,
}

pub(super) fn run(arguments: &HealthcheckArguments) -> Result<(), BoxError> {
    let config = Config::from_env()?;
    let address = match arguments.processor {
        true => config.values.processor_bind_address,
        false => config.values.bind_address,
    };
    healthcheck::check(address, &config.own_host())
}
