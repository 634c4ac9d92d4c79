//! Whether to ask again, and when.
//!
//! Promise: what may have happened is asked again under the same key, never in step with other
//! clients, never beyond a deadline, and never so much that an outage gets worse by it.
//!
//! The libraries for this add jitter on top of a delay, and know neither a server's own wish nor a
//! budget that all calls share; what is left of them is shorter here.

use std::{
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use chrono::DateTime;

use super::error::Error;

/// The longest deadline: far inside the time that a service keeps its keys.
pub const DEADLINE_MAX: Duration = Duration::from_secs(60 * 60);

/// How far this machine's clock may have been set back since an operation was made.
const CLOCK_STEP_MAX: Duration = Duration::from_secs(5 * 60);

/// How long and how often a call is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// For the whole call, pauses included: 60 s; at most [`DEADLINE_MAX`].
    pub deadline: Duration,
    /// For one attempt: 20 s, longer than the service works on a request of one transaction. Others
    /// may take longer; they are cut off, and the next attempt is told that the first is in flight.
    pub attempt_timeout: Duration,
    /// The first pause is anything up to this: 250 ms. Each further one up to twice as long…
    pub backoff_min: Duration,
    /// …but not longer than this: 8 s.
    pub backoff_max: Duration,
    /// How old an operation may be to be sent again: 23 h. Shorter than the service keeps its keys
    /// (24 h by default); beyond it the same request would be a new one.
    pub resend_within: Duration,
    /// How many retries all calls of a client may make in a row while nothing succeeds: 20.
    pub budget: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            attempt_timeout: Duration::from_secs(20),
            backoff_min: Duration::from_millis(250),
            backoff_max: Duration::from_secs(8),
            resend_within: Duration::from_secs(23 * 60 * 60),
            budget: 20,
        }
    }
}

impl RetryPolicy {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = if self.deadline > DEADLINE_MAX {
            "the deadline is longer than an hour"
        } else if self.resend_within <= self.deadline {
            "an operation may be sent again for a time that is shorter than the deadline"
        } else if self.deadline.is_zero() || self.attempt_timeout.is_zero() {
            "a deadline and a timeout are longer than nothing"
        } else if self.backoff_max < self.backoff_min {
            "the longest pause is shorter than the first"
        } else {
            return Ok(());
        };
        Err(Error::Unusable(wrong.to_owned()))
    }

    /// Whether the service still has the record of an operation of this age until a call of this
    /// length ends. An operation from the future has no age that could be trusted.
    pub(super) fn may_send(&self, created_at: u64, now: Duration, longest: Duration) -> bool {
        let created_at = Duration::from_secs(created_at);
        let age = now.saturating_sub(created_at);
        let stepped_back = created_at.saturating_sub(now);
        age + longest < self.resend_within && stepped_back <= CLOCK_STEP_MAX
    }

    /// The pause after the attempt with this number, counted from 1: full jitter, so that clients
    /// that failed together don't come back together, on top of what the service asks for.
    pub(super) fn pause(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let doublings = attempt.saturating_sub(1).min(20);
        let doubled = self.backoff_min.saturating_mul(1 << doublings);
        let longest = doubled.min(self.backoff_max);
        let jitter = rand::random_range(Duration::ZERO..=longest);
        retry_after.unwrap_or_default().saturating_add(jitter)
    }
}

/// What a reply's head says about the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Done.
    Done,
    /// Not done by this attempt.
    Refused,
    /// Neither.
    Undecided {
        /// Whether to ask again.
        retry: bool,
    },
}

/// `Stripe-Should-Retry` is the service's own knowledge and decides about asking again; without it
/// the status does. It doesn't turn an unknown outcome into a known one.
pub(super) fn verdict(status: u16, should_retry: Option<bool>) -> Verdict {
    match status {
        200..=299 => Verdict::Done,
        408 | 409 | 429 | 500.. => Verdict::Undecided {
            retry: should_retry.unwrap_or(true),
        },
        _ if should_retry == Some(true) => Verdict::Undecided { retry: true },
        _ => Verdict::Refused,
    }
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
pub(super) fn retry_after(value: &str, now: Duration) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?.timestamp();
    let date = Duration::from_secs(u64::try_from(date).ok()?);
    Some(date.saturating_sub(now))
}

/// What a retry takes, and what a definite answer gives back: in the long run one retry for ten
/// calls, so that a service in trouble gets a tenth more load and not a multiple.
const RETRY_COST: u32 = 10;
const ANSWER_GAIN: u32 = 1;

/// A token bucket that all calls of a client share. It starts full.
#[derive(Debug)]
pub(super) struct Budget {
    tokens: Mutex<u32>,
    tokens_max: u32,
}

impl Budget {
    pub(super) fn of(retries: u32) -> Self {
        let tokens_max = retries.saturating_mul(RETRY_COST);
        Self {
            tokens: Mutex::new(tokens_max),
            tokens_max,
        }
    }

    pub(super) fn take(&self) -> bool {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let left = tokens.checked_sub(RETRY_COST);
        *tokens = left.unwrap_or(*tokens);
        left.is_some()
    }

    /// Gives back a part of a retry's tokens, after a definite answer.
    pub(super) fn answered(&self) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens = tokens.saturating_add(ANSWER_GAIN).min(self.tokens_max);
    }
}

/// Time, as a client sees it. Tests bring their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time of day, since 1970: what decides an operation's age, also after a restart.
    fn unix_time(&self) -> Duration;
    /// Time since some moment, never set back: what decides a deadline.
    fn monotonic(&self) -> Duration;
    /// Waits.
    fn sleep(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn unix_time(&self) -> Duration {
        // A clock before 1970 knows no age; `may_send` then sends nothing that was kept.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[test]
    fn what_is_neither_done_nor_refused_is_asked_again_unless_the_service_says_not_to() {
        let undecided = |retry| Verdict::Undecided { retry };
        let refused = [Verdict::Refused, undecided(true), Verdict::Refused];
        let unknown = [undecided(true), undecided(true), undecided(false)];
        for (statuses, said_nothing_yes_or_no) in [
            (&[200, 201][..], [Verdict::Done; 3]),
            (&[302, 400, 401, 402, 422], refused),
            (&[408, 409, 429, 500, 503, 599], unknown),
        ] {
            for status in statuses {
                let verdicts = [None, Some(true), Some(false)].map(|said| verdict(*status, said));
                assert_eq!(verdicts, said_nothing_yes_or_no, "{status}");
            }
        }
    }

    #[test]
    fn pauses_double_up_to_their_cap_are_spread_over_all_of_it_and_come_on_top_of_retry_after() {
        let policy = RetryPolicy::default();
        for (attempt, longest_ms) in [(1, 250), (2, 500), (3, 1000), (6, 8000), (4_000_000, 8000)] {
            let longest = Duration::from_millis(longest_ms);
            let pauses: Vec<_> = (0..200).map(|_| policy.pause(attempt, None)).collect();
            assert!(pauses.iter().all(|pause| *pause <= longest), "{attempt}");
            // Full jitter: two hundred of them miss the lower or the upper quarter once in 10^24.
            assert!(pauses.iter().any(|pause| *pause < longest / 4), "{attempt}");
            let upper = longest / 4 * 3;
            assert!(pauses.iter().any(|pause| *pause > upper), "{attempt}");
            let asked_for = Duration::from_secs(7);
            let pauses = asked_for..=asked_for + longest;
            let pause = policy.pause(attempt, Some(asked_for));
            assert!(pauses.contains(&pause), "{attempt}");
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let now = Duration::from_secs(784_111_770);
        for (value, seconds) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(value, now), expected, "{value}");
        }
    }

    #[test]
    fn a_budget_allows_a_burst_and_then_one_retry_for_ten_answers() {
        let budget = Budget::of(3);
        let burst = (0..10).filter(|_| budget.take()).count();
        assert_eq!(burst, 3);
        for _ in 0..9 {
            budget.answered();
        }
        assert!(!budget.take());
        budget.answered();
        assert!(budget.take() && !budget.take());
        for _ in 0..1000 {
            budget.answered();
        }
        assert_eq!((0..10).filter(|_| budget.take()).count(), 3, "it overflows");
    }

    #[test]
    fn an_operation_is_sent_while_all_of_a_call_fits_into_its_window_and_not_from_the_future() {
        let policy = RetryPolicy::default();
        let made = 1_800_000_000;
        let at = Duration::from_secs(made);
        let window = 23 * HOUR - policy.deadline;
        let second = Duration::from_secs(1);
        for (now, may) in [
            (at, true),
            (at + window - second, true),
            (at + window, false),
            (at + 1000 * HOUR, false),
            (at - CLOCK_STEP_MAX, true),
            (at - CLOCK_STEP_MAX - second, false),
            (Duration::ZERO, false),
        ] {
            assert_eq!(policy.may_send(made, now, policy.deadline), may, "{now:?}");
        }
    }

    #[test]
    fn limits_that_break_the_promise_are_refused() {
        let default = RetryPolicy::default();
        assert!(default.check().is_ok());
        let break_by: [fn(&mut RetryPolicy); 5] = [
            |policy| policy.deadline = HOUR + Duration::from_secs(1),
            |policy| policy.deadline = Duration::ZERO,
            |policy| policy.attempt_timeout = Duration::ZERO,
            |policy| policy.resend_within = policy.deadline,
            |policy| policy.backoff_max = Duration::ZERO,
        ];
        for break_it in break_by {
            let mut broken = default;
            break_it(&mut broken);
            assert!(broken.check().is_err(), "{broken:?}");
        }
    }
}
