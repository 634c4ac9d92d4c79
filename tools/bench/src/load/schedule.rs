//! Load that is sent by the clock, whether or not earlier replies have arrived.
//!
//! Promise: a service that stalls is not asked less. The time that requests wait for a free
//! connection counts as latency, because the users of a busy service would wait as well.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{Answered, Call, Connection, micros, on_connections};

/// Nanoseconds of a second.
const SECOND_NANOS: u128 = 1_000_000_000;

/// Timers wake up late by so much at most. That is not the service's time.
const TIMER_LATENESS: Duration = Duration::from_millis(1);

/// Requests at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Requests that are due in a second.
    pub(crate) per_second: u64,
    /// How long requests become due.
    pub(crate) length: Duration,
}

impl Schedule {
    /// All of them.
    fn requests(&self) -> u64 {
        let requests = self.length.as_nanos() * u128::from(self.per_second) / SECOND_NANOS;
        u64::try_from(requests).unwrap_or(u64::MAX)
    }

    /// When request `n` is due, after the beginning.
    fn due(&self, n: u64) -> Duration {
        let nanos = u128::from(n) * SECOND_NANOS / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Sends what is due on so many connections, as soon as one of them is free. The latency of a
/// request counts from when it was due if every connection was busy then, else from when it was
/// sent. It took until the last request was sent, and one distance more: a schedule that is kept
/// takes its length.
pub(crate) async fn run_by<F>(
    addresses: &[SocketAddr],
    connections: usize,
    schedule: Schedule,
    call: F,
) -> anyhow::Result<Answered>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let (call, next) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    on_connections(addresses, connections, move |connection, began| {
        let (call, next) = (Arc::clone(&call), Arc::clone(&next));
        async move { send_due(connection, &*call, &next, schedule, began).await }
    })
    .await
}

/// Sends until the schedule ends. Returns the latencies in microseconds, and a distance after the
/// last request was sent.
async fn send_due(
    mut connection: Connection,
    call: &impl Fn(u64) -> Call,
    next: &AtomicU64,
    schedule: Schedule,
    began: Instant,
) -> anyhow::Result<(Vec<u32>, Duration)> {
    let mut latencies = Vec::new();
    let mut last = Duration::ZERO;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= schedule.requests() {
            return Ok((latencies, last + schedule.due(1)));
        }
        let call = call(number);
        let due = schedule.due(number);
        let free = began.elapsed();
        if free < due {
            tokio::time::sleep_until((began + due).into()).await;
        }
        last = began.elapsed();
        connection.send(&call).await?;
        let from = counts_from(due, free, last);
        latencies.push(micros(began.elapsed().saturating_sub(from)));
    }
}

/// From when on the latency counts, of a request that was due at a time, whose connection was free
/// at another, and that was sent at a third.
fn counts_from(due: Duration, free: Duration, sent: Duration) -> Duration {
    if free >= due {
        return due;
    }
    sent.min(due + TIMER_LATENESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_distances_for_the_whole_length() {
        let schedule = Schedule {
            per_second: 400,
            length: Duration::from_millis(1_500),
        };
        assert_eq!(schedule.requests(), 600);
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1), Duration::from_micros(2_500));
        assert_eq!(schedule.due(400), Duration::from_secs(1));
        assert!(schedule.due(schedule.requests() - 1) < schedule.length);
    }

    #[test]
    fn a_rate_of_zero_is_no_division_by_zero() {
        let schedule = Schedule {
            per_second: 0,
            length: Duration::from_secs(1),
        };
        assert_eq!(schedule.requests(), 0);
        assert_eq!(schedule.due(1), Duration::from_secs(1));
    }

    #[test]
    fn waiting_for_a_connection_counts_and_a_late_timer_does_not() {
        let micros = Duration::from_micros;
        let due = micros(10_000);
        for (free, sent, expected) in [
            // Every connection was busy: the request waited.
            (14_000, 14_001, 10_000),
            (10_000, 10_001, 10_000),
            // The timer was late.
            (9_000, 10_700, 10_700),
            // More than a timer is late: something else held the request up.
            (9_000, 13_000, 11_000),
        ] {
            let from = counts_from(due, micros(free), micros(sent));
            assert_eq!(from, micros(expected), "{free} {sent}");
        }
    }
}
