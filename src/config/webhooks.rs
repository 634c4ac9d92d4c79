//! How webhooks are delivered.

use std::time::Duration;

use charge_once_service::settings::Source;

use super::variables::{
    WEBHOOK_ALLOW_PRIVATE, WEBHOOK_POLL_INTERVAL, WEBHOOK_RETRY_MAX, WEBHOOK_RETRY_MIN,
    WEBHOOK_TIMEOUT,
};
use crate::webhooks::Pauses;

/// With longer pauses, an event would arrive after its receiver has given up.
const PAUSE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// How webhooks are delivered.
#[derive(Debug, Clone, Copy)]
pub struct Webhooks {
    /// `WEBHOOK_ALLOW_PRIVATE`
    pub allow_private: bool,
    /// `WEBHOOK_TIMEOUT`
    pub timeout: Duration,
    /// `WEBHOOK_RETRY_MIN`, `WEBHOOK_RETRY_MAX`
    pub pauses: Pauses,
    /// `WEBHOOK_POLL_INTERVAL`
    pub poll_interval: Duration,
}

impl Webhooks {
    pub(super) fn read(source: &Source<'_>) -> Self {
        Self {
            allow_private: source.read(&WEBHOOK_ALLOW_PRIVATE),
            timeout: source.read(&WEBHOOK_TIMEOUT),
            pauses: pauses(source),
            poll_interval: source.read(&WEBHOOK_POLL_INTERVAL),
        }
    }
}

fn pauses(source: &Source<'_>) -> Pauses {
    let min = source.read(&WEBHOOK_RETRY_MIN);
    let max = source.read(&WEBHOOK_RETRY_MAX);
    let are_good = source.are_good(&[WEBHOOK_RETRY_MIN.name, WEBHOOK_RETRY_MAX.name]);
    if are_good && (max > PAUSE_MAX || max / 2 < min) {
        let expected = "at least twice WEBHOOK_RETRY_MIN and at most 7d";
        source.bad(WEBHOOK_RETRY_MAX.name, expected);
    }
    Pauses { min, max }
}
