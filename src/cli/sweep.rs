//! `charge-once sweep`: removes expired idempotency keys, as each server does by itself.

use super::{BoxError, print, session};
use crate::{config::Config, workers::expiry_sweep};

pub(super) fn run() -> Result<(), BoxError> {
    session::once(&Config::from_env()?, async |database| {
        let removed = expiry_sweep::sweep_once(database).await?;
        print(&format!("Removed {removed} expired idempotency keys."))
    })
}
