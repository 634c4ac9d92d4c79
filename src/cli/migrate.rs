//! `charge-once migrate`: brings the schema up to date, where servers must not do it themselves.

use super::{BoxError, print, session};
use crate::config::Config;

pub(super) fn run() -> Result<(), BoxError> {
    let config = Config {
        migrate_on_start: true,
        ..Config::from_env()?
    };
    session::once(&config, async |_| print("The schema is current."))
}
