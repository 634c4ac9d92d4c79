//! Attempts to deliver an event, and the pauses between them.

use std::{fmt, ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};

/// How often an event is sent to an endpoint that doesn't take it: with the default pauses, over
/// three days or so, a long weekend's outage.
pub const ATTEMPTS_MAX: usize = 24;

/// The pauses between attempts.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// The shortest: the least before the second attempt.
    pub min: Duration,
    /// The longest; at least twice the shortest.
    pub max: Duration,
}

impl Pauses {
    /// From how long to how long to pause after `attempts` attempts that failed; `None` where that
    /// was the last. The caller picks at random within the range, so that receivers which come back
    /// are not met by everything at once.
    ///
    /// Each range begins where the one before it ended, up to the longest.
    pub fn after(&self, attempts: usize) -> Option<RangeInclusive<Duration>> {
        if attempts >= ATTEMPTS_MAX {
            return None;
        }
        let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 2_u32.saturating_pow(doublings);
        let least = self.min.saturating_mul(factor).min(self.max / 2);
        Some(least..=least * 2)
    }

    /// The pause before the next attempt of a delivery that is `age` old, where the plan is a pause
    /// of `planned`, and the receiver has asked for one of `asked`. It gets no shorter than
    /// planned, and no longer than the longest of the plan, and the attempt is not put off beyond
    /// the plan's end.
    pub fn as_asked(&self, planned: Duration, asked: Option<Duration>, age: Duration) -> Duration {
        let all = (1..ATTEMPTS_MAX).filter_map(|attempts| self.after(attempts));
        let left = all
            .map(|range| *range.end())
            .sum::<Duration>()
            .saturating_sub(age);
        planned.max(asked.unwrap_or_default().min(self.max).min(left))
    }
}

/// One attempt that ended, as the column `attempts` holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it began, in unix seconds: the `t` of its signature.
    pub at: i64,
    /// The status that the endpoint answered with, if it answered.
    pub response_status: Option<u16>,
    /// Why there is no answer that counts, where the status doesn't say enough.
    pub error: Option<String>,
    /// Milliseconds.
    pub duration_ms: i64,
    /// Whether nothing was sent, because the host has an address that is not public. Not stored: an
    /// account must not learn which names the network of the sender knows.
    #[serde(skip)]
    pub is_refused: bool,
    /// How long the endpoint asks to be left alone, with 429 or 503 and `Retry-After`. Not stored:
    /// the time of the next attempt is.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// The beginning of what the reply said, harmless to show. Stored in a table of its own, and
    /// for less long.
    #[serde(skip)]
    pub reply: Option<String>,
}

impl Attempt {
    /// Not made at `at`, in unix seconds, for this reason.
    pub(crate) fn not_sent(at: i64, why: &str) -> Self {
        Self {
            at,
            response_status: None,
            error: Some(format!("not sent: {why}")),
            duration_ms: 0,
            is_refused: false,
            retry_after: None,
            reply: None,
        }
    }

    /// Not made: a fault lost it at `at`. It counts as received.
    pub(crate) fn lost(at: i64) -> Self {
        Self {
            response_status: Some(200),
            ..Self::not_sent(at, "a planned fault lost it")
        }
    }

    /// Whether the endpoint says that it is gone for good: 410.
    pub fn is_gone(&self) -> bool {
        self.response_status == Some(410)
    }

    /// Only a 2xx is a receipt.
    pub fn succeeded(&self) -> bool {
        self.response_status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// `200`, or `500, …`, or what happened in place of an answer.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.response_status, self.error.as_deref()) {
            (Some(status), None) => write!(f, "{status}"),
            (Some(status), Some(error)) => write!(f, "{status}, {error}"),
            (None, error) => f.write_str(error.unwrap_or("no answer")),
        }
    }
}

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryStatus {
    /// The endpoint has not taken it, and is asked again.
    Pending,
    /// The endpoint took it.
    Succeeded,
    /// There will be no more attempts.
    Failed,
}

impl DeliveryStatus {
    /// Its name, in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// The status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pending, Self::Succeeded, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    const DEFAULT: Pauses = Pauses {
        min: Duration::from_secs(5),
        max: Duration::from_secs(8 * 3600),
    };

    #[test]
    fn pauses_grow_from_five_seconds_to_eight_hours_and_never_shrink() {
        let pauses: Vec<_> = (1..ATTEMPTS_MAX)
            .map(|attempts| DEFAULT.after(attempts).unwrap())
            .collect();
        let seconds = Duration::from_secs;
        let pause = |least, most| seconds(least)..=seconds(most);
        assert_eq!(pauses.first(), Some(&pause(5, 10)));
        assert_eq!(pauses.get(1), Some(&pause(10, 20)));
        assert_eq!(pauses.last(), Some(&pause(4 * 3600, 8 * 3600)));
        for pair in pauses.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(earlier.start() <= later.start() && earlier.end() <= later.end());
            assert!(later.end() <= &DEFAULT.max);
        }
        assert_eq!(DEFAULT.after(ATTEMPTS_MAX), None);
        assert_eq!(DEFAULT.after(usize::MAX), None);
    }

    #[test]
    fn all_attempts_take_about_three_days() {
        let pauses = || (1..ATTEMPTS_MAX).map(|attempts| DEFAULT.after(attempts).unwrap());
        let day = Duration::from_secs(24 * 3600);
        let shortest: Duration = pauses().map(|pause| *pause.start()).sum();
        let longest: Duration = pauses().map(|pause| *pause.end()).sum();
        assert!(shortest >= 2 * day, "{shortest:?}");
        assert!(longest <= day * 9 / 2, "{longest:?}");
        assert!((shortest + longest) / 2 >= 3 * day);
    }

    #[test]
    fn a_receiver_may_put_an_attempt_off_but_not_beyond_the_plan() {
        let seconds = Duration::from_secs;
        let day = 24 * 3600;
        for (planned, asked, age, pause) in [
            (7, None, 0, 7),
            (7, Some(3), 0, 7),
            (7, Some(60), 0, 60),
            // The longest pause of the plan is eight hours.
            (7, Some(3 * day), 0, 8 * 3600),
            (7, Some(u64::MAX), 0, 8 * 3600),
            // The plan ends after 350,000 seconds or so: four days.
            (7, Some(8 * 3600), 5 * day, 7),
            (20_000, Some(8 * 3600), 5 * day, 20_000),
        ] {
            let asked = asked.map(seconds);
            let is = DEFAULT.as_asked(seconds(planned), asked, seconds(age));
            assert_eq!(is, seconds(pause), "{planned} {asked:?} {age}");
        }
        let whole = DEFAULT.as_asked(Duration::ZERO, Some(Duration::MAX), seconds(4 * day));
        assert!(whole < seconds(8 * 3600) && !whole.is_zero(), "{whole:?}");
    }

    #[test]
    fn only_an_answer_of_two_hundred_and_something_is_a_receipt() {
        let answered = |response_status| Attempt {
            response_status,
            error: None,
            ..Attempt::not_sent(0, "")
        };
        for status in [200, 201, 204, 299] {
            assert!(answered(Some(status)).succeeded(), "{status}");
        }
        for status in [100, 199, 300, 302, 400, 410, 500] {
            assert!(!answered(Some(status)).succeeded(), "{status}");
        }
        assert!(!answered(None).succeeded());
    }
}
