//! What all commands with a database share: logs, signals, and the private PostgreSQL.
//!
//! Promise: a private PostgreSQL that was started is stopped, however the command ends. Serving
//! ends gracefully when it is told to stop; everything else ends at once.

use std::time::Duration;

use charge_once_developer::{service::Stop, stop_signal};
use charge_once_embedded_postgres::Settings;

use super::BoxError;
use crate::{
    config::{Config, DatabaseLocation, Traces},
    database::{Database, SCHEMA, Schema, WhenRefused},
    telemetry,
};

/// The message of a command that was stopped before it was done.
const STOPPED_EARLY: &str = "stopped before it was done";

/// How long the end of the process waits for tasks that can't be interrupted: the system resolves a
/// host's name for as long as it likes.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// Runs a server, which returns once it has stopped. A private PostgreSQL is made if need be.
pub(super) fn serve(
    config: &Config,
    location: &DatabaseLocation,
    schema: Schema,
    work: impl AsyncFnOnce(Database, Stop) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let settings = config.database_settings(schema);
    block_on(config, config.traces.as_ref(), async |mut stop| {
        location
            .run(async |url| {
                tokio::select! {
                    connected = Database::connect(&url, settings, WhenRefused::TryAgain) => {
                        work(connected?, stop).await
                    }
                    // A requested stop is a success.
                    () = &mut stop => Ok(()),
                }
            })
            .await
    })
}

/// Does one thing in the database of a server, which need not be running now.
pub(super) fn once(
    config: &Config,
    work: impl AsyncFnOnce(&Database) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    if let DatabaseLocation::Embedded(settings) = &config.database {
        refuse_an_empty_folder(settings)?;
    }
    let settings = config.database_settings(SCHEMA);
    block_on(config, None, async |stop| {
        config
            .database
            .run(async |url| {
                let work = async {
                    let refused = WhenRefused::GiveUp;
                    let database = Database::connect(&url, settings, refused).await?;
                    work(&database).await
                };
                tokio::select! {
                    done = work => done,
                    () = stop => Err(STOPPED_EARLY.into()),
                }
            })
            .await
    })
}

/// A cluster that a command creates would not contain what the command needs.
fn refuse_an_empty_folder(settings: &Settings) -> Result<(), BoxError> {
    if settings.has_database() {
        return Ok(());
    }
    let folder = std::path::absolute(&settings.data_dir)?;
    let message = format!(
        "no server has run here: {} ({}) holds no database. Set DATA_DIR or DATABASE_URL as the \
         server has it",
        settings.names.data_dir,
        folder.display()
    );
    Err(message.into())
}

/// Starts the logs and the runtime, and listens for signals before anything is started that a
/// signal should stop. The last traces are sent once the work is done.
fn block_on(
    config: &Config,
    traces: Option<&Traces>,
    work: impl AsyncFnOnce(Stop) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let export = telemetry::start(&config.log, traces, runtime.handle())?;
    let outcome = runtime.block_on(async { work(stop_signal()?).await });
    if let Some(export) = export {
        export.end();
    }
    runtime.shutdown_timeout(LAST_TASKS);
    outcome
}
