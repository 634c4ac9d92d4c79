//! How long events, finished operations and logged requests are kept.

use std::time::Duration;

use charge_once_service::settings::Source;

use super::variables::{EVENT_RETENTION, OPERATION_RETENTION, REQUEST_LOG_RETENTION};

/// What is removed after a time; `None` is kept for good.
#[derive(Debug, Clone, Copy)]
pub struct RetentionTimes {
    /// `EVENT_RETENTION`: events, and the deliveries of each.
    pub events: Option<Duration>,
    /// `OPERATION_RETENTION`: instructions to a card processor that have their answer.
    pub operations: Option<Duration>,
    /// `REQUEST_LOG_RETENTION`: what the console shows of requests.
    pub request_log: Option<Duration>,
}

impl RetentionTimes {
    pub(super) fn read(source: &Source<'_>) -> Self {
        Self {
            events: source.read(&EVENT_RETENTION),
            operations: source.read(&OPERATION_RETENTION),
            request_log: source.read(&REQUEST_LOG_RETENTION),
        }
    }
}
