//! How often an account may ask, or a client that is known by another key, such as its address.

use std::{
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{DefaultKeyedRateLimiter, Quota, clock::Clock};

/// After this many requests those who are back at their whole limit are forgotten. So no more than
/// these, and those that asked within the last second, are ever remembered: some tens of bytes
/// each.
const FORGET_EVERY: usize = 10_000;

/// Counts the requests of each `K`, such as an account, in this process. Cheap to clone; all clones
/// share the counts.
///
/// Promise: one account's flood is refused for the price of a look into memory, and no other
/// account meets its limit.
#[derive(Clone)]
pub struct RateLimit<K: Hash + Eq + Clone>(Option<Arc<Counts<K>>>);

struct Counts<K: Hash + Eq + Clone> {
    limiter: DefaultKeyedRateLimiter<K>,
    checked: AtomicUsize,
}

impl<K: Hash + Eq + Clone> RateLimit<K> {
    /// So many requests in a second, and as many in a burst; `None` limits nothing.
    pub fn new(per_second: Option<NonZeroU32>) -> Self {
        Self(per_second.map(|per_second| {
            Arc::new(Counts {
                limiter: DefaultKeyedRateLimiter::keyed(Quota::per_second(per_second)),
                checked: AtomicUsize::new(0),
            })
        }))
    }

    /// Counts a request of `key`, unless it is beyond the limit: then it says when there is room.
    /// Requests beyond the limit are not counted, so a client that keeps asking is served again as
    /// soon as one that waits.
    pub fn check(&self, key: K) -> Result<(), Duration> {
        let Some(counts) = &self.0 else {
            return Ok(());
        };
        if counts.checked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            counts.limiter.retain_recent();
        }
        let checked = counts.limiter.check_key(&key);
        checked.map_err(|beyond| beyond.wait_time_from(counts.limiter.clock().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_stopped_asking_are_forgotten() {
        let limit = RateLimit::new(NonZeroU32::new(1_000_000));
        for account in 0..5 * FORGET_EVERY {
            assert!(limit.check(account).is_ok());
        }
        let remembered = limit.0.map(|counts| counts.limiter.len());
        assert!(remembered < Some(2 * FORGET_EVERY), "{remembered:?}");
    }

    #[test]
    fn who_is_beyond_the_limit_is_told_when_there_is_room() {
        let limit = RateLimit::new(NonZeroU32::new(1));
        assert_eq!(limit.check("account"), Ok(()));
        let wait = limit.check("account").err();
        let told = Duration::from_millis(1)..=Duration::from_secs(1);
        assert!(wait.is_some_and(|wait| told.contains(&wait)), "{wait:?}");
        assert_eq!(limit.check("another account"), Ok(()));
    }
}
