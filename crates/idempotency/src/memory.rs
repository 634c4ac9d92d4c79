//! Add-on: keys that are remembered when their records have expired.
//!
//! Promise: a request with a remembered key is refused, and executes nothing, whether the record of
//! its key has been swept or not.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection, Row, error::BoxDynError, postgres::PgRow};
use uuid::Uuid;

use crate::{
    Expired, Idempotency, Record, Reply, Request,
    fingerprint::OF_ANY_REQUEST,
    recall::{Claimed, Looking, Recall},
};

/// Which keys are remembered, and what a request with one of them is answered.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// How long after its record has expired. `None`: no longer than the record. Each sweep, in
    /// every process, must say the same in `SweepPace::memory`: one that doesn't fails where
    /// another has said so before, and forgets the keys that it removes elsewhere.
    pub keep: Option<Duration>,
    /// Whether a key that is a UUID of version 7 and older than
    /// [`Settings::retention`](crate::Settings::retention) is taken for one that has expired, where
    /// nothing else is known of it. Its time is the client's.
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
    /// Whether it belonged to the same request. `None`: not known, or no matter, because the key is
    /// given up.
    pub is_same_request: Option<bool>,
}

impl Idempotency {
    /// Refuses each request whose key has expired and is remembered. Fails on a time that is too
    /// long to be counted.
    pub fn remembering(self, memory: Memory) -> Result<Self, BoxDynError> {
        let life = TimeDelta::from_std(self.settings.retention)?;
        let recall = TombstoneRecall {
            keep: memory.keep.map(TimeDelta::from_std).transpose()?,
            life_by_key: memory.by_time_in_key.then_some(life),
            answer: memory.answer,
        };
        Ok(Self {
            recall: Some(Arc::new(recall)),
            ..self
        })
    }
}

/// [`Memory`], in differences of time.
#[derive(Debug)]
struct TombstoneRecall {
    keep: Option<TimeDelta>,
    /// How long keys live after the time in them, where that counts.
    life_by_key: Option<TimeDelta>,
    answer: fn(&Remembered) -> Reply,
}

impl Recall for TombstoneRecall {
    fn look<'a>(
        &'a self,
        tx: &'a mut PgConnection,
        first: &'static str,
        claimed: Vec<Claimed<'a>>,
    ) -> Looking<'a> {
        Box::pin(async move {
            let ids = claimed.iter().map(|(request, _)| tombstone_id(request));
            let ids: Vec<Uuid> = ids.collect();
            let look = AssertSqlSafe(self.look(first, &claimed, &ids));
            let (mut now, mut tombstones) = (DateTime::<Utc>::MIN_UTC, HashMap::new());
            for row in sqlx::raw_sql(look).fetch_all(tx).await? {
                now = row.try_get("now")?;
                if let Some(id) = row.try_get::<Option<Uuid>, _>("id")? {
                    tombstones.insert(id, row);
                }
            }
            let found = claimed.into_iter().zip(ids).map(|(claimed, id)| {
                let remembered = self.judge(claimed, tombstones.get(&id), now)?;
                Ok(remembered.map(|remembered| Expired {
                    at: remembered.expired_at,
                    answer: Reply {
                        resource_id: remembered.resource_id.clone(),
                        ..(self.answer)(&remembered)
                    },
                }))
            });
            found.collect()
        })
    }
}

impl TombstoneRecall {
    /// `first`, and then what is to be known of the keys. Its ids need no quoting. Each time it is
    /// parsed, which is cheaper than a round trip for a statement as simple as this.
    fn look(&self, first: &str, claimed: &[Claimed<'_>], ids: &[Uuid]) -> String {
        let mut look = first.to_owned();
        // A step's key is not known outside of its request, which is refused itself.
        let asked = claimed.iter().zip(ids);
        let asked = asked.filter(|((request, _), _)| !request.is_step);
        if self.keep.is_some() {
            let ids: Vec<_> = asked.clone().map(|(_, id)| format!("'{id}'")).collect();
            if !ids.is_empty() {
                look += "; SELECT id, request, expired_at, resource_id, now() AS now \
                           FROM idempotency_tombstones WHERE id IN (";
                look += &ids.join(", ");
                look += ")";
            }
        }
        // What has a time of its own is compared with that of the transaction.
        let has_time = |((request, expired), _): (&Claimed<'_>, _)| {
            let by_key = self.life_by_key.and_then(|_| time_in(request));
            by_key.is_some() || expired.is_some()
        };
        if asked.clone().any(has_time) {
            look += "; SELECT NULL::uuid AS id, now() AS now";
        }
        look
    }

    /// What is known of a key: by its tombstone, the record that it had, or the time in it.
    fn judge(
        &self,
        (request, expired): Claimed<'_>,
        tombstone: Option<&PgRow>,
        now: DateTime<Utc>,
    ) -> Result<Option<Remembered>, sqlx::Error> {
        if request.is_step {
            return Ok(None);
        }
        let lasts = |from: DateTime<Utc>, time| {
            let end = from.checked_add_signed(time);
            end.is_none_or(|end| end > now)
        };
        let known = match (expired, tombstone) {
            (Some(record), _) => Some(Remembered::of(*record, request)),
            (None, Some(row)) => Some(Remembered::of_tombstone(row, request)?),
            (None, None) => None,
        };
        let is_kept = |at: DateTime<Utc>| self.keep.is_some_and(|keep| lasts(at, keep));
        let kept = known.filter(|known| known.expired_at.is_some_and(is_kept));
        let by_time = || {
            let (life, made) = self.life_by_key.zip(time_in(request))?;
            (!lasts(made, life)).then_some(Remembered {
                resource_id: None,
                expired_at: None,
                is_same_request: None,
            })
        };
        Ok(kept.or_else(by_time))
    }
}

impl Remembered {
    /// Of a record that has expired and is not swept.
    fn of(record: Record, request: &Request) -> Self {
        let fingerprint = &request.fingerprint;
        let same = fingerprint.matches(record.fingerprint_version, &record.fingerprint);
        Self {
            resource_id: record.reply.resource_id,
            expired_at: Some(record.expires_at),
            is_same_request: same.ok().filter(|_| !gives_up(request)),
        }
    }

    fn of_tombstone(row: &PgRow, request: &Request) -> Result<Self, sqlx::Error> {
        let start: i64 = row.try_get("request")?;
        let fingerprint = &request.fingerprint;
        // A key that was given up has no fingerprint, and belonged to each request.
        let same = start == 0 || fingerprint.bytes().starts_with(&start.to_be_bytes());
        Ok(Self {
            resource_id: row.try_get("resource_id")?,
            expired_at: row.try_get("expired_at")?,
            is_same_request: (!gives_up(request)).then_some(same),
        })
    }
}

fn gives_up(request: &Request) -> bool {
    request.fingerprint.version() == OF_ANY_REQUEST
}

/// As the SQL function of that name, by which a sweep buries what it deletes.
fn tombstone_id(request: &Request) -> Uuid {
    let account = request.account_id;
    let of_account = Sha256::digest(account.as_bytes());
    let of_key = Sha256::digest(format!("{account}:{}", request.key.as_str()));
    let mut id = [0; 16];
    for (byte, hashed) in id.iter_mut().zip(of_account.iter().take(8).chain(&of_key)) {
        *byte = *hashed;
    }
    Uuid::from_bytes(id)
}

/// The time in a key that is a UUID of version 7.
fn time_in(request: &Request) -> Option<DateTime<Utc>> {
    let key = Uuid::try_parse(request.key.as_str()).ok()?;
    let (seconds, nanoseconds) = key.get_timestamp()?.to_unix();
    let seconds = i64::try_from(seconds).ok();
    let seconds = seconds.filter(|_| key.get_version_num() == 7)?;
    DateTime::from_timestamp(seconds, nanoseconds)
}
