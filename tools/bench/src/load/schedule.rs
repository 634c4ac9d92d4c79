//! Load that is sent by the clock, whether or not earlier replies have arrived.
//!
//! Promise: a service that stalls is not asked less. The time that requests wait for a free
//! connection counts as latency, because the users of a busy service would wait as well.

use std::time::Duration;

const SECOND_NANOS: u128 = 1_000_000_000;

/// Timers wake up late by so much at most. That is not the service's time.
const TIMER_LATENESS: Duration = Duration::from_millis(1);

/// Requests at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) per_second: u64,
    /// How long requests become due.
    pub(crate) length: Duration,
}

impl Schedule {
    pub(super) fn requests(&self) -> u64 {
        let requests = self.length.as_nanos() * u128::from(self.per_second) / SECOND_NANOS;
        u64::try_from(requests).unwrap_or(u64::MAX)
    }

    /// When request `n` is due, after the beginning.
    pub(super) fn due(&self, n: u64) -> Duration {
        let nanos = u128::from(n) * SECOND_NANOS / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// From when on the latency of a request counts: from when it was due if every connection was busy
/// then, else from when it was sent.
pub(super) fn counts_from(due: Duration, free: Duration, sent: Duration) -> Duration {
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
