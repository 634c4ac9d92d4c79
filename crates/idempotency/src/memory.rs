//! Keys that are remembered when their records have expired.
//!
//! Promise: a request with a remembered key is refused, and executes nothing, whether the record of
//! its key has been swept or not.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval};
use uuid::Uuid;

use crate::{Fingerprint, Record, Reply, Request, Settings};

/// Which keys are remembered, and what a request with one of them is answered.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// How long after its record has expired. `None`: no longer than the record. Each sweep, in
    /// every process, must say the same in `SweepPace::memory`: one that doesn't forgets the keys
    /// that it removes, and can tell only when others are remembered already.
    pub keep: Option<Duration>,
    /// Whether a key that is a UUID of version 7 and older than [`Settings::retention`] is taken
    /// for one that has expired, where nothing else is known of it. Its time is the client's.
    pub by_time_in_key: bool,
    /// The answer, which is stored as that of any refusal: a 4xx.
    pub answer: fn(&Remembered) -> Reply,
}

/// What is known of a key whose record has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The id of what its request created, if that is known.
    pub resource_id: Option<String>,
    /// When its record died. `None`: the time in the key is all that is known.
    pub expired_at: Option<DateTime<Utc>>,
    /// Whether it belonged to the same request. `None`: not known.
    pub is_same_request: Option<bool>,
}

/// [`Memory`], as statements take it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recall {
    pub(crate) keep: Option<PgInterval>,
    /// How long keys live after the time in them, where that counts.
    life_by_key: Option<TimeDelta>,
}

impl Recall {
    pub(crate) fn of(settings: &Settings) -> Result<Self, BoxDynError> {
        let memory = settings.memory.as_ref();
        let keep = memory.and_then(|memory| memory.keep);
        let counts = memory.is_some_and(|memory| memory.by_time_in_key);
        let life = counts.then(|| TimeDelta::from_std(settings.retention));
        Ok(Self {
            keep: keep.map(PgInterval::try_from).transpose()?,
            life_by_key: life.transpose()?,
        })
    }

    pub(crate) fn is_on(self) -> bool {
        self.keep.is_some() || self.life_by_key.is_some()
    }

    /// A step's key is not known outside of its request, which is refused itself.
    pub(crate) fn for_request(self, request: &Request) -> Self {
        match request.is_step {
            true => Self::default(),
            false => self,
        }
    }

    /// When the key has expired by the time in it, where that counts.
    pub(crate) fn end_by_key(self, request: &Request) -> Option<DateTime<Utc>> {
        let life = self.life_by_key?;
        let key = Uuid::try_parse(request.key.as_str()).ok()?;
        let (seconds, nanoseconds) = key.get_timestamp()?.to_unix();
        let is_of_time = key.get_version_num() == 7;
        let seconds = i64::try_from(seconds).ok().filter(|_| is_of_time)?;
        let made = DateTime::from_timestamp(seconds, nanoseconds)?;
        made.checked_add_signed(life)
    }
}

/// Reads what a claim was told of.
pub(crate) async fn read(
    tx: &mut PgConnection,
    request: &Request,
) -> Result<Remembered, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT request, expired_at, resource_id
           FROM idempotency_tombstones
          WHERE id = idempotency_tombstone_id($1, $2)",
        request.account_id,
        request.key.as_str(),
    );
    let row = row.fetch_optional(tx).await?;
    let fingerprint = request.fingerprint.bytes();
    // A key that was given up has no fingerprint, and belonged to each request.
    let is_same = |known: i64| known == 0 || fingerprint.starts_with(&known.to_be_bytes());
    Ok(Remembered {
        is_same_request: row.as_ref().map(|row| is_same(row.request)),
        expired_at: row.as_ref().map(|row| row.expired_at),
        resource_id: row.and_then(|row| row.resource_id),
    })
}

impl Remembered {
    /// Of a record that has expired and is not swept.
    pub(crate) fn of(record: Record, fingerprint: &Fingerprint) -> Self {
        let same = fingerprint.matches(record.fingerprint_version, &record.fingerprint);
        Self {
            resource_id: record.reply.resource_id,
            expired_at: Some(record.expires_at),
            is_same_request: same.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::tests::request;

    /// A step of a request that takes long would be refused, and the request never end.
    #[test]
    fn the_key_of_a_step_is_not_remembered() {
        let recall = Recall {
            keep: Some(PgInterval::default()),
            life_by_key: Some(TimeDelta::days(1)),
        };
        let whole = request(1, "/");
        let step = Request {
            is_step: true,
            ..whole.clone()
        };
        assert!(recall.for_request(&whole).is_on() && !recall.for_request(&step).is_on());
    }
}
