//! The delivery of one event to one endpoint: its signature, its attempts, and the pauses between
//! them.

use std::{ops::RangeInclusive, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::webhook_endpoint::Secret;

/// How often an event is sent to an endpoint that doesn't take it: with the default pauses, over
/// three days or so, a long weekend's outage.
pub const ATTEMPTS_MAX: usize = 24;

/// The value of `Stripe-Signature` for a body that is sent at `t`, in unix seconds:
/// `t=…,v1=` and the HMAC-SHA256 of `t`, a dot and the body, in hexadecimal.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
pub fn signature(secret: &Secret, t: i64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).expect("a key of any length");
    mac.update(format!("{t}.").as_bytes());
    mac.update(body);
    format!("t={t},v1={}", hex::encode(mac.finalize().into_bytes()))
}

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
}

/// One attempt that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = WebhookAttempt)]
pub struct Attempt {
    /// When it began, in unix seconds: the `t` of its signature.
    #[schema(example = 1_795_000_000)]
    pub at: i64,
    /// What the endpoint answered; null if it didn't.
    #[schema(required = true, example = 200)]
    pub response_status: Option<u16>,
    /// Why there is no answer that counts; null if the status says enough.
    #[schema(required = true, example = "timed out")]
    pub error: Option<String>,
    /// Milliseconds.
    #[schema(example = 84)]
    pub duration_ms: i64,
}

impl Attempt {
    /// Only a 2xx is a receipt.
    pub fn succeeded(&self) -> bool {
        self.response_status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// The delivery of an event to an endpoint, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct WebhookDelivery {
    /// `whd_…`
    #[schema(example = "whd_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `webhook_delivery`.
    #[schema(example = "webhook_delivery")]
    pub object: &'static str,
    /// The oldest first.
    pub attempts: Vec<Attempt>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// When the endpoint took it, in unix seconds.
    #[schema(required = true, example = 1_795_000_001)]
    pub delivered: Option<i64>,
    /// `we_…`
    #[schema(example = "we_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub endpoint: String,
    /// `evt_…`
    #[schema(example = "evt_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub event: String,
    /// What happened.
    #[schema(example = "charge.succeeded")]
    pub event_type: String,
    /// Unix seconds, at the earliest; null while an attempt is made, and if there will be none.
    #[schema(required = true)]
    pub next_attempt: Option<i64>,
    /// `pending`, `succeeded` or `failed`.
    #[schema(example = "succeeded")]
    pub status: String,
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
    fn a_signature_is_the_one_that_openssl_computes() {
        // printf '1795000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test
        let secret = Secret::of("whsec_test".to_owned());
        assert_eq!(
            signature(&secret, 1_795_000_000, br#"{"id":"evt_1"}"#),
            "t=1795000000,v1=9768205fbb644a6a645cdd13f225c6791ed91580e4d16c14b9a8e73cd4ba4393"
        );
    }

    #[test]
    fn pauses_grow_from_five_seconds_to_eight_hours_and_never_shrink() {
        let pauses: Vec<_> = (1..ATTEMPTS_MAX)
            .map(|attempts| DEFAULT.after(attempts).unwrap())
            .collect();
        let seconds = Duration::from_secs;
        assert_eq!(pauses.first(), Some(&(seconds(5)..=seconds(10))));
        assert_eq!(pauses.get(1), Some(&(seconds(10)..=seconds(20))));
        assert_eq!(
            pauses.last(),
            Some(&(seconds(4 * 3600)..=seconds(8 * 3600)))
        );
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
    fn only_an_answer_of_two_hundred_and_something_is_a_receipt() {
        let answered = |response_status| Attempt {
            at: 0,
            response_status,
            error: None,
            duration_ms: 0,
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
