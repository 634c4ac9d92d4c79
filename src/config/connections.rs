//! When connections end.

use std::time::Duration;

use super::source::Source;

/// Longer, a limit would be none.
const MAX: Duration = Duration::from_secs(3600);

/// When a connection ends whose client does nothing.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionTimeouts {
    /// `KEEP_ALIVE_TIMEOUT`
    pub keep_alive: Duration,
    /// `REQUEST_HEAD_TIMEOUT`
    pub request_head: Duration,
    /// `REPLY_WRITE_TIMEOUT`
    pub reply: Duration,
}

impl ConnectionTimeouts {
    pub(super) fn read(source: &Source<'_>) -> Option<Self> {
        let keep_alive = at_most_an_hour(source, "KEEP_ALIVE_TIMEOUT");
        let request_head = at_most_an_hour(source, "REQUEST_HEAD_TIMEOUT");
        let reply = at_most_an_hour(source, "REPLY_WRITE_TIMEOUT");
        Some(Self {
            keep_alive: keep_alive?,
            request_head: request_head?,
            reply: reply?,
        })
    }
}

fn at_most_an_hour(source: &Source<'_>, variable: &'static str) -> Option<Duration> {
    let duration = source.duration(variable)?;
    if duration > MAX {
        return source.bad(variable, "at most 1h");
    }
    Some(duration)
}
