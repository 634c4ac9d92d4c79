//! `charge-once sweep`: removes expired idempotency keys, and events, operations and logged requests that
//! are older than they are kept, as each server does by itself.

use std::time::Duration;

use tokio::time::Instant;

use super::{BoxError, print, session};
use crate::{config::Config, workers::expiry_sweep::Sweep};

/// How long one run removes old rows. What is left then is for the next one.
const ROUND_MAX: Duration = Duration::from_secs(3600);

pub(super) fn run() -> Result<(), BoxError> {
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
