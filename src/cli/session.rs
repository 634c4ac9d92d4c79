//! What all commands with a database share: logs, signals, and the private PostgreSQL.
//!
//! Promise: a private PostgreSQL that was started is stopped, however the command ends. Serving
//! ends gracefully when it is told to stop; everything else ends at once.

use std::{sync::Arc, time::Duration};

use charge_once_developer::{service::Stop, stop_signal};
use charge_once_postgres::embedded::EmbeddedSettings;

use super::{BoxError, api_key, say};
use crate::{
    config::{Config, DatabaseLocation, TraceSettings},
    database::{
        Database, StartError, WhenRefused,
        shards::{self, Reached, ShardUrl},
    },
    domain::ids::AccountId,
    telemetry,
};

/// How long the end of the process waits for tasks that can't be interrupted: the system resolves a
/// host's name for as long as it likes.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// Runs a server, which returns once it has stopped. A private PostgreSQL is made if need be.
pub(super) fn serve<T>(
    config: &Config,
    location: &DatabaseLocation,
    connect: impl AsyncFnOnce(&str) -> Result<T, StartError>,
    work: impl AsyncFnOnce(T, Stop) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    block_on(config, config.traces.as_ref(), async |mut stop| {
        let running = location.run(async |url| {
            tokio::select! {
                connected = connect(&url) => work(connected?, stop).await,
                // A requested stop is a success.
                () = &mut stop => Ok(()),
            }
        });
        running.await
    })
}

/// Which of several databases a command works on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OnlyShard {
    /// Only this database, where there are several: its name in SHARD_URLS, or main.
    #[arg(long, value_name = "NAME")]
    shard: Option<String>,
}

impl OnlyShard {
    /// Refuses to print several documents in place of one.
    pub(super) fn prints_one(&self, config: &Config, json: bool) -> Result<(), BoxError> {
        if json && self.shard.is_none() && !config.shards.is_empty() {
            return Err("--json is about one database: name it with --shard".into());
        }
        Ok(())
    }

    /// For the option `--account`.
    fn has_no_account(&self, name: &str) -> BoxError {
        let names = "`charge-once api-key list` shows the names";
        match &self.shard {
            None => format!("--account: there is no account {name:?}; {names}"),
            Some(shard) => format!("--account: the shard {shard} has no account {name:?}; {names}"),
        }
        .into()
    }

    /// Whether the command may choose this one.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.shard.as_deref().is_none_or(|only| only == name)
    }
}

/// Does one thing in each database of a server, which need not be running now. Where there are
/// several, each is named, and what fails in one hinders no other, but is a failure in the end.
pub(super) fn each(
    config: &Config,
    only: &OnlyShard,
    work: impl AsyncFnMut(&Database) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    each_when(config, only, WhenRefused::GiveUp, work)
}

/// As [`each`], for databases that may be starting.
pub(super) fn each_when(
    config: &Config,
    only: &OnlyShard,
    when_refused: WhenRefused,
    mut work: impl AsyncFnMut(&Database) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    at(config, only, async |wanted| {
        let settings = config.database_settings(config.schema());
        let reached = shards::reach(&wanted, settings, when_refused).await;
        let (mut failed, all) = (Vec::new(), reached.len());
        for (name, database) in reached {
            if config.shards.is_empty() {
                return work(&database?).await;
            }
            say(&format!("shard {name}:"));
            let worked = match database {
                Ok(database) => work(&database).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = worked {
                say(&format!("shard {name}: {error}"));
                failed.push(name);
            }
        }
        ensure_none(&failed, all)
    })
}

/// Fails if the work failed in any of `all` shards.
pub(super) fn ensure_none(failed: &[Arc<str>], all: usize) -> Result<(), BoxError> {
    if failed.is_empty() {
        return Ok(());
    }
    let (count, names) = (failed.len(), failed.join(", "));
    Err(format!("it failed in {count} of {all} shards: {names}").into())
}

/// Does one thing for the account with this name, or else with this id, in its database.
/// Where there are several, `only` says in which it must live.
pub(super) fn for_account(
    config: &Config,
    name: &str,
    only: &OnlyShard,
    work: impl AsyncFnOnce(&Database, AccountId) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    once(config, only, async |reached| {
        let (shards, failed) = api_key::split(reached)?;
        let found = api_key::find_account(&shards, name).await?;
        // What is asked of the only database finds nothing, if there is no account with this id.
        let of_only = || {
            let only = shards.first().filter(|_| config.shards.is_empty());
            only.zip(AccountId::parse(name))
        };
        match found.or_else(of_only) {
            Some((shard, account)) => work(&shard.database, account).await,
            None if failed.is_empty() => Err(only.has_no_account(name)),
            None => Err(format!(
                "no shard that can be reached has the account {name:?}, but it may live in {}",
                failed.join(", ")
            )
            .into()),
        }
    })
}

/// Does one thing with all databases of a server that `only` allows.
pub(super) fn once(
    config: &Config,
    only: &OnlyShard,
    work: impl AsyncFnOnce(Vec<Reached>) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    at(config, only, async |wanted| {
        let settings = config.database_settings(config.schema());
        work(shards::reach(&wanted, settings, WhenRefused::GiveUp).await).await
    })
}

/// Does one thing with where all databases of a server are that `only` allows.
pub(super) fn at(
    config: &Config,
    only: &OnlyShard,
    work: impl AsyncFnOnce(Vec<ShardUrl>) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    if let DatabaseLocation::Embedded(settings) = &config.database {
        refuse_an_empty_folder(settings)?;
    }
    block_on(config, None, async |stop| {
        let running = config.database.run(async |url| {
            let mut wanted = shards::all(&url, &config.shards);
            wanted.retain(|shard| only.allows(&shard.name));
            if wanted.is_empty() {
                return Err("--shard: SHARD_URLS names no such database".into());
            }
            tokio::select! {
                done = work(wanted) => done,
                () = stop => Err("stopped before it was done".into()),
            }
        });
        running.await
    })
}

/// A cluster that a command creates would not contain what the command needs.
fn refuse_an_empty_folder(settings: &EmbeddedSettings) -> Result<(), BoxError> {
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
    traces: Option<&TraceSettings>,
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
