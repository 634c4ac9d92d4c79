//! `charge-once migrate`: brings the schema up to date, where servers must not do it themselves.

use super::{
    BoxError, print,
    session::{self, OnlyShard},
};
use crate::config::Config;

/// Which databases are migrated.
#[derive(Debug, clap::Args)]
pub struct MigrateArguments {
    #[command(flatten)]
    only: OnlyShard,
}

pub(super) fn run(arguments: &MigrateArguments) -> Result<(), BoxError> {
    let config = Config {
        migrate_on_start: true,
        ..Config::from_env()?
    };
    session::each(&config, &arguments.only, async |_| {
        print("The schema is current.")
    })
}
