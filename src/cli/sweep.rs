//! `charge-once sweep`: removes expired idempotency keys, and events, operations and logged
//! requests that are older than they are kept, as each server does by itself.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{
    BoxError, aside, print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    store::sweepable::{self, Kept, Sweepable},
    workers::{expiry_sweep::Sweep, test_accounts::Closed},
};

/// How long one run removes old rows. What is left then is for the next one.
const ROUND_MAX: Duration = Duration::from_secs(3600);

/// What is done, or only counted.
#[derive(Debug, clap::Args)]
pub struct SweepArguments {
    /// Removes nothing, and prints what would be removed now.
    #[arg(long)]
    dry_run: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
    /// With --dry-run: how long counting may take, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "10m", requires = "dry_run",
          value_parser = aside::limit)]
    timeout: Duration,
    #[command(flatten)]
    only: OnlyShard,
}

pub(super) fn run(arguments: &SweepArguments) -> Result<(), BoxError> {
    if arguments.dry_run {
        return count(arguments);
    }
    let config = Config::from_env()?;
    let json = arguments.json;
    arguments.only.prints_one(&config, json)?;
    session::each(&config, &arguments.only, async |database| {
        // A person waits for it: no rests.
        let mut sweep = Sweep::new(database.clone(), &config, 0);
        let tell = |line: &str| match json {
            true => Ok(()),
            false => print(line),
        };
        let keys = sweep.keys().await?;
        tell(&format!("Removed {keys} expired idempotency keys."))?;
        let closed = match sweep.test_accounts(Instant::now() + ROUND_MAX).await {
            Err(error) if is_not_permitted(&error) => {
                say(&format!(
                    "test accounts that ended are left to the servers, because this role may not close them: {error}"
                ));
                Closed::default()
            }
            closed => closed?,
        };
        let accounts = closed.accounts;
        if accounts > 0 {
            tell(&format!("Closed {accounts} test accounts that ended."))?;
        }
        let removed = sweep.old_rows(Instant::now() + ROUND_MAX).await?;
        sweep.disconnect().await;
        tell(&format!(
            "Removed {} events, {} operations and {} logged requests that are older than they are kept.",
            removed.events, removed.operations, removed.requests
        ))?;
        if json {
            print(&as_json(&Sweepable {
                keys: keys.try_into()?,
                test_accounts: accounts.try_into()?,
                events: removed.events.try_into()?,
                operations: removed.operations.try_into()?,
                requests: removed.requests.try_into()?,
            }))?;
        }
        if let Some((account, error)) = closed.last_failure
            && closed.failed_accounts > 0
        {
            return Err(format!(
                "test accounts that could not be closed: {}; the last one is {account}: {error}",
                closed.failed_accounts
            )
            .into());
        }
        let Some((account, error)) = removed.last_failure else {
            return Ok(());
        };
        Err(format!(
            "accounts whose old rows could not be removed: {}; the last one is {account}: {error}",
            removed.failed_accounts
        )
        .into())
    })
}

/// Whether PostgreSQL said that the role lacks a right (insufficient_privilege).
fn is_not_permitted(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "42501")
}

/// Prints what a sweep would remove. By the time of the sweep, it may be more.
fn count(arguments: &SweepArguments) -> Result<(), BoxError> {
    let config = aside::config()?;
    let kept = Kept {
        events: config.retention.events,
        operations: config.retention.operations,
        requests: config.retention.request_log,
    };
    arguments.only.prints_one(&config, arguments.json)?;
    session::each(&config, &arguments.only, async |database| {
        let counting = aside::look(database, arguments.timeout, async |snapshot| {
            Ok(sweepable::count(snapshot, kept).await?)
        });
        let counted = counting.await.map_err(|error: BoxError| {
            let cause = error.downcast_ref::<sqlx::Error>();
            if !cause.is_some_and(is_not_permitted) {
                return error;
            }
            format!("{error}: count with a role that reads it all, as charge_once_reader").into()
        })?;
        if arguments.json {
            return print(&as_json(&counted));
        }
        let Sweepable {
            keys,
            test_accounts,
            events,
            operations,
            requests,
        } = counted;
        print(&format!(
            "A sweep would remove {keys} expired idempotency keys, close {test_accounts} test \
             accounts, and remove {events} events, {operations} operations and {requests} logged \
             requests that are older than they are kept."
        ))
    })
}

/// What was removed, or would be: the same document for both.
fn as_json(counted: &Sweepable) -> String {
    let document = json!({
        "idempotency_keys": counted.keys,
        "test_accounts": counted.test_accounts,
        "events": counted.events,
        "operations": counted.operations,
        "logged_requests": counted.requests,
    });
    document.to_string()
}
