//! How long events, finished operations and logged requests are kept.

use std::time::Duration;

use super::{source::Source, timeouts::at_most_400_days};

/// Shorter, and a client that lists events would miss some between two looks.
const KEPT_MIN: Duration = Duration::from_secs(3600);

/// What is removed after a time; `None` is kept for good.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// `EVENT_RETENTION`: events, and the deliveries of each.
    pub events: Option<Duration>,
    /// `OPERATION_RETENTION`: instructions to a card processor that have their answer.
    pub operations: Option<Duration>,
    /// `REQUEST_LOG_RETENTION`: what the console shows of requests.
    pub request_log: Option<Duration>,
}

impl Retention {
    pub(super) fn read(source: &Source<'_>) -> Option<Self> {
        let events = kept(source, "EVENT_RETENTION");
        let operations = kept(source, "OPERATION_RETENTION");
        let request_log = kept(source, "REQUEST_LOG_RETENTION");
        Some(Self {
            events: events?,
            operations: operations?,
            request_log: request_log?,
        })
    }
}

/// A duration of an hour or more; 0 is `Some(None)`.
#[allow(clippy::option_option, reason = "the outer one says that it is usable")]
fn kept(source: &Source<'_>, variable: &'static str) -> Option<Option<Duration>> {
    match humantime::parse_duration(source.value(variable).trim()) {
        Ok(Duration::ZERO) => Some(None),
        Ok(kept) if kept >= KEPT_MIN => at_most_400_days(source, variable, kept).map(Some),
        Ok(_) | Err(_) => source.bad(variable, "a duration from 1h to 400d, or 0s"),
    }
}
