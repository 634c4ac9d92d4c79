//! `charge-once migrate`: brings the schema up to date, where servers must not do it themselves.

use std::time::Duration;

use super::{
    BoxError, aside, print,
    session::{self, OnlyShard},
};
use crate::{config::Config, database::WhenRefused};

/// Which databases are migrated.
#[derive(Debug, clap::Args)]
pub struct MigrateArguments {
    /// How long to wait for a database that doesn't answer yet, from 1s to 24h.
    #[arg(long, value_name = "DURATION", value_parser = aside::limit)]
    wait: Option<Duration>,
    #[command(flatten)]
    only: OnlyShard,
}

pub(super) fn run(arguments: &MigrateArguments) -> Result<(), BoxError> {
    let mut config = Config::from_env()?;
    config.values.migrate_on_start = true;
    let when_refused = arguments
        .wait
        .map_or(WhenRefused::GiveUp, WhenRefused::WaitFor);
    session::each_when(&config, &arguments.only, when_refused, async |_| {
        print("The schema is current.")
    })
}
