//! What goes into [`Idempotency::run`](crate::Idempotency::run), and what comes out.

use std::{sync::Arc, time::Duration};

use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use crate::{
    Failure, Fingerprint, FingerprintInput, IdempotencyKey, Record, Seal, in_flight::EntryId,
};

/// One request that carries an idempotency key.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tenant that the key belongs to. Never the API key: rotation must not split a key in two.
    /// A tenant whose id is a text or a number gets a UUID that is made of it: `Uuid::new_v5`.
    pub account_id: Uuid,
    /// The key.
    pub key: IdempotencyKey,
    /// What tells this request from another one under the same key.
    pub fingerprint: Fingerprint,
    /// The method, for the record.
    pub method: String,
    /// The path, for the record.
    pub path: String,
    /// 1 to 255 bytes that mean nothing to the core, for the record. No part of what tells one
    /// request from another: a record keeps the label that the first use of its key had.
    pub label: Option<String>,
    /// The `req_…` of this request; if it executes, every replay will name it.
    pub request_id: String,
    /// How long a duplicate waits for the one in flight before it is told that the key is in use.
    pub wait: Duration,
    /// How long its record lives, if not as long as [`Settings::retention`] says. It is counted
    /// from the beginning of the transaction that claims the key, so it must be longer than
    /// [`Settings::database_deadline`]: a record that is dead when it is committed is none.
    pub retention: Option<Duration>,
    /// Whether it belongs to a larger request, which has begun. Then it is neither counted nor
    /// refused where requests are, and the larger request tells why it failed.
    pub is_step: bool,
    /// How its record is sealed, and a sealed one is opened. `None`: a sealed record fails it.
    pub seal: Option<Seal>,
}

impl Request {
    /// The request that `input` describes, with a new id, no label, and no wait as a duplicate.
    pub fn new(account_id: Uuid, key: IdempotencyKey, input: &FingerprintInput<'_>) -> Self {
        Self {
            account_id,
            key,
            fingerprint: Fingerprint::of(input),
            method: input.method.to_owned(),
            path: input.path.to_owned(),
            label: None,
            request_id: format!("req_{}", Uuid::now_v7().simple()),
            wait: Duration::ZERO,
            retention: None,
            is_step: false,
            seal: None,
        }
    }

    /// How long its record lives, where others live for `usual`.
    pub(crate) fn retention(&self, usual: PgInterval) -> PgInterval {
        let microseconds = |own: Duration| i64::try_from(own.as_micros()).unwrap_or(i64::MAX);
        self.retention.map_or(usual, |own| PgInterval {
            microseconds: microseconds(own),
            ..PgInterval::default()
        })
    }

    /// What it is kept under in memory.
    pub(crate) fn entry_id(&self) -> EntryId {
        (self.account_id, self.key.clone())
    }
}

/// How a request ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A definite, committed answer.
    Stored {
        /// What to render, the first time as every time.
        record: Arc<Record>,
        /// Whether an earlier request executed it, or began to.
        replayed: bool,
        /// Whether this request ended what an earlier one had begun. Then it is `replayed` too.
        taken_over: bool,
    },
    /// The key belongs to another request.
    Reused,
    /// The first request with this key hasn't finished.
    InUse {
        /// What is left of its lease, where that was read, and 2 seconds at most.
        retry_after: Option<Duration>,
    },
    /// The key's record is this request's, and is committed without an outcome. An add-on left it
    /// that way and has to complete it. With the core alone there are no such records: answer as
    /// for [`Outcome::IN_USE`].
    Unfinished,
    /// Not executed, or not known to be: the same key is the only safe retry.
    Failed(Failure),
}

impl Outcome {
    /// In use, and it isn't known for how long.
    pub const IN_USE: Self = Self::InUse { retry_after: None };

    pub(crate) fn replay(record: Arc<Record>) -> Self {
        Self::Stored {
            record,
            replayed: true,
            taken_over: false,
        }
    }
}

/// The longest that a client is told to wait, in seconds: what it waits for may end sooner.
const RETRY_AFTER_MAX: u64 = 60;

/// The value of `Retry-After` for what is waited for: whole seconds, rounded up, from 1 to 60. What
/// it isn't known of, such as a transaction at work, mostly ends within one.
#[must_use]
pub fn retry_after_seconds(wait: Option<Duration>) -> u64 {
    let wait = wait.unwrap_or_default();
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs()
        .saturating_add(begun)
        .clamp(1, RETRY_AFTER_MAX)
}

/// What an application may choose. How long a request waits for a connection follows from the pool,
/// and with the feature `admission` how many may wait for keys that other replicas hold.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a completed record lives: 24 hours from the first use of its key, or from its
    /// completion where that is a later transaction.
    pub retention: Duration,
    /// The longest a transaction may take from BEGIN to COMMIT, further attempts included: 5
    /// seconds. Longer than a statement may take, shorter than a session may idle in a transaction
    /// ([`SessionLimits`](crate::SessionLimits)).
    pub database_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(24 * 3600),
            database_deadline: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_in_whole_seconds_that_are_not_too_few() {
        for (milliseconds, seconds) in [
            (0, 1),
            (1, 1),
            (1_000, 1),
            (1_001, 2),
            (59_000, 59),
            (u64::MAX, RETRY_AFTER_MAX),
        ] {
            let wait = Duration::from_millis(milliseconds);
            assert_eq!(retry_after_seconds(Some(wait)), seconds, "{wait:?}");
        }
        assert_eq!(retry_after_seconds(None), 1);
        assert_eq!(retry_after_seconds(Some(Duration::MAX)), RETRY_AFTER_MAX);
    }
}
