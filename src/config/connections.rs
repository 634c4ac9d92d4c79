//! When connections end, and how many threads serve them.

use std::{thread::available_parallelism, time::Duration};

use charge_once_connections::ConnectionTimeouts;

use super::source::Source;

/// Longer, a limit would be none.
const MAX: Duration = Duration::from_secs(3600);

/// Most worker threads. Actix takes no more.
const WORKERS_MAX: usize = 512;

pub(super) fn timeouts(source: &Source<'_>) -> Option<ConnectionTimeouts> {
    let keep_alive = at_most_an_hour(source, "KEEP_ALIVE_TIMEOUT");
    let request_head = at_most_an_hour(source, "REQUEST_HEAD_TIMEOUT");
    let reply = at_most_an_hour(source, "REPLY_WRITE_TIMEOUT");
    Some(ConnectionTimeouts {
        keep_alive: keep_alive?,
        request_head: request_head?,
        reply: reply?,
    })
}

fn at_most_an_hour(source: &Source<'_>, variable: &'static str) -> Option<Duration> {
    let duration = source.duration(variable)?;
    if duration > MAX {
        return source.bad(variable, "at most 1h");
    }
    Some(duration)
}

/// As many worker threads as there are cores, unless the variable says how many.
pub(super) fn workers(source: &Source<'_>) -> Option<usize> {
    let asked = source.number("WORKERS", 0..=WORKERS_MAX, "a number from 0 to 512")?;
    if asked > 0 {
        return Some(asked);
    }
    let cores = available_parallelism().map_or(1, usize::from);
    Some(cores.min(WORKERS_MAX))
}
