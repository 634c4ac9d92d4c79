//! `charge-once processor`: the card processor's simulator as a process of its own.

use super::{BoxError, listen, print, reachable, session};
use crate::{config::Config, processor::service};

pub(super) fn run() -> Result<(), BoxError> {
    let config = Config {
        // No other command brings this schema up to date.
        migrate_on_start: true,
        // The simulator takes the place of another company's system.
        traces: None,
        ..Config::from_env()?
    };
    let settings = &config.processor_service;
    let listener = listen("PROCESSOR_BIND_ADDRESS", settings.bind_address)?;
    let work = async |database, stop| {
        let url = reachable(listener.local_addr()?);
        print(&format!(
            "charge-once {} serves the simulated card processor at {url}\n  \
             Ledger      {url}/ledger\n  Faults      {url}/faults\n\n\
             Start the API with it: PROCESSOR_URL={url} charge-once\n",
            crate::VERSION,
        ))?;
        Ok(service::serve(listener, database, &config, stop).await?)
    };
    session::serve(&config, &settings.database, service::SCHEMA, work)
}
