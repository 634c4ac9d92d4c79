//! How webhooks are delivered.

use std::time::Duration;

use super::source::Source;
use crate::webhooks::Pauses;

/// A receiver that takes longer should answer first and work afterwards.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
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
    pub(super) fn read(source: &Source<'_>) -> Option<Self> {
        let allow_private = source.truth("WEBHOOK_ALLOW_PRIVATE");
        let timeout = source.duration("WEBHOOK_TIMEOUT").and_then(|timeout| {
            if timeout <= TIMEOUT_MAX {
                Some(timeout)
            } else {
                source.bad("WEBHOOK_TIMEOUT", "at most 60s")
            }
        });
        let pauses = pauses(source);
        let poll_interval = source.duration("WEBHOOK_POLL_INTERVAL");
        Some(Self {
            allow_private: allow_private?,
            timeout: timeout?,
            pauses: pauses?,
            poll_interval: poll_interval?,
        })
    }
}

fn pauses(source: &Source<'_>) -> Option<Pauses> {
    let min = source.duration("WEBHOOK_RETRY_MIN");
    let max = source.duration("WEBHOOK_RETRY_MAX");
    let (min, max) = (min?, max?);
    if max > PAUSE_MAX || max / 2 < min {
        let expected = "at least twice WEBHOOK_RETRY_MIN and at most 7d";
        return source.bad("WEBHOOK_RETRY_MAX", expected);
    }
    Some(Pauses { min, max })
}
