//! How often an account may ask, or a client that is known by another key, such as its address.

use std::{
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use governor::{DefaultKeyedRateLimiter, Quota};

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

    /// Counts a request of `key`, unless it is beyond the limit. Requests beyond the limit are not
    /// counted, so a client that keeps asking is served again as soon as one that waits.
    pub fn has_room(&self, key: K) -> bool {
        let Some(counts) = &self.0 else {
            return true;
        };
        if counts.checked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            counts.limiter.retain_recent();
        }
        counts.limiter.check_key(&key).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_stopped_asking_are_forgotten() {
        let limit = RateLimit::new(NonZeroU32::new(1_000_000));
        for account in 0..5 * FORGET_EVERY {
            assert!(limit.has_room(account));
        }
        let remembered = limit.0.map(|counts| counts.limiter.len());
        assert!(remembered < Some(2 * FORGET_EVERY), "{remembered:?}");
    }
}
