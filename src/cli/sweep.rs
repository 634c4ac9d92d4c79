//! `charge-once sweep`: removes expired idempotency keys, and events, operations and logged requests that
//! are older than they are kept, as each server does by itself.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{BoxError, aside, print, session};
use crate::{
    config::Config,
    store::sweepable::{self, Kept, Sweepable},
    workers::expiry_sweep::Sweep,
};

/// How long one run removes old rows. What is left then is for the next one.
const ROUND_MAX: Duration = Duration::from_secs(3600);

/// What is done, or only counted.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Removes nothing, and prints what would be removed now.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: prints one JSON document.
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// With --dry-run: how long counting may take, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "10m", requires = "dry_run",
          value_parser = aside::limit)]
    timeout: Duration,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), BoxError> {
    if arguments.dry_run {
        return count(arguments);
    }
    let config = Config::from_env()?;
    session::once(&config.clone(), async move |database| {
        // A person waits for it: no rests.
        let mut sweep = Sweep::new(database.clone(), &config, 0);
        let keys = sweep.keys().await?;
        print(&format!("Removed {keys} expired idempotency keys."))?;
        let closed = sweep.test_accounts(Instant::now() + ROUND_MAX).await?;
        if closed.accounts > 0 {
            print(&format!(
                "Closed {} test accounts that ended.",
                closed.accounts
            ))?;
        }
        let removed = sweep.old_rows(Instant::now() + ROUND_MAX).await?;
        print(&format!(
            "Removed {} events, {} operations and {} logged requests that are older than they are kept.",
            removed.events, removed.operations, removed.requests
        ))
    })
}

/// Prints what a sweep would remove. By the time of the sweep, it may be more.
fn count(arguments: &Arguments) -> Result<(), BoxError> {
    let config = aside::config()?;
    let kept = Kept {
        events: config.retention.events,
        operations: config.retention.operations,
        requests: config.retention.request_log,
    };
    session::once(&config, async |database| {
        let counting = aside::look(database, arguments.timeout, async |snapshot| {
            Ok(sweepable::count(snapshot, kept).await?)
        });
        let Sweepable {
            keys,
            test_accounts,
            events,
            operations,
            requests,
        } = counting.await?;
        if arguments.json {
            let counted = json!({
                "idempotency_keys": keys,
                "test_accounts": test_accounts,
                "events": events,
                "operations": operations,
                "logged_requests": requests,
            });
            return print(&counted.to_string());
        }
        print(&format!(
            "A sweep would remove {keys} expired idempotency keys, close {test_accounts} test \
             accounts, and remove {events} events, {operations} operations and {requests} logged \
             requests that are older than they are kept."
        ))
    })
}
