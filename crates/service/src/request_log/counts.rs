//! Counts of the requests of each minute, made while the log is written.
//!
//! Promise: a request is counted in the transaction that writes its row, so both are there or
//! neither is. A day of an account is at most 1,440 rows, however many requests it had.

use std::collections::BTreeMap;

use sqlx::{PgConnection, postgres::types::PgInterval};
use uuid::Uuid;

use crate::request_log::{LoggedOutcome, LoggedRequest};

/// Upper bounds of the histogram of durations, in microseconds. A new bound must be the greatest:
/// rows have counts without names.
pub const DURATION_BOUNDS: [u64; 16] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000,
];

/// Minutes that are read at once: a day, and the one that has begun. The statement has the number
/// itself.
pub const MINUTES_MAX: i64 = 1_441;

/// An account's requests that came in one minute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Minute {
    /// Minutes since the Unix epoch.
    pub minute: i64,
    /// Requests by their outcome, in the order of [`LoggedOutcome::ALL`].
    pub outcomes: Vec<i64>,
    /// The histogram: requests below each of [`DURATION_BOUNDS`], and at last those above all.
    /// Reads are left out.
    pub durations: Vec<i64>,
    /// Replays of 2xx replies: each retry would have been a second effect.
    pub second_effects: i64,
}

impl Minute {
    /// Requests with this outcome.
    pub fn ended(&self, outcome: LoggedOutcome) -> i64 {
        let count = self.outcomes.get(outcome as usize);
        count.copied().unwrap_or(0)
    }

    fn add(&mut self, request: &LoggedRequest) {
        let (outcome, status) = (request.outcome, request.status);
        self.outcomes.resize(LoggedOutcome::ALL.len(), 0);
        if let Some(count) = self.outcomes.get_mut(outcome as usize) {
            *count += 1;
        }
        self.durations.resize(DURATION_BOUNDS.len() + 1, 0);
        let took = u64::try_from(request.duration.as_micros()).unwrap_or(u64::MAX);
        let place = DURATION_BOUNDS.partition_point(|bound| *bound <= took);
        let is_counted = status.is_some() && outcome != LoggedOutcome::Read;
        if let Some(count) = self.durations.get_mut(place).filter(|_| is_counted) {
            *count += 1;
        }
        if outcome == LoggedOutcome::Replayed && matches!(status, Some(200..=299)) {
            self.second_effects += 1;
        }
    }
}

/// Adds requests to the counts of their minutes. Locks these, in the order of their accounts: a
/// replica that writes requests of the same minute waits.
pub(crate) async fn add(
    tx: &mut PgConnection,
    requests: &[LoggedRequest],
) -> Result<(), sqlx::Error> {
    let mut minutes: BTreeMap<(Uuid, i64), Minute> = BTreeMap::new();
    for request in requests {
        // A UUIDv7 begins with milliseconds.
        let minute = i64::try_from((request.id.as_u128() >> 80) / 60_000).unwrap_or(0);
        let counts = minutes.entry((request.account, minute)).or_default();
        counts.add(request);
    }
    // PostgreSQL has no arrays of arrays whose lengths differ, so each is a text.
    let texts = |counts: fn(&Minute) -> &[i64]| -> Vec<String> {
        let text = |minute| {
            format!("{:?}", counts(minute))
                .replace('[', "{")
                .replace(']', "}")
        };
        minutes.values().map(text).collect()
    };
    let query = sqlx::query!(
        "
        INSERT INTO request_counts AS known (account_id, minute, outcomes, durations, second_effects)
        SELECT account_id, to_timestamp(minute * 60), outcomes::bigint[], durations::bigint[],
               second_effects
          FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
               AS new (account_id, minute, outcomes, durations, second_effects)
         ORDER BY account_id, minute
            ON CONFLICT (account_id, minute) DO UPDATE
           SET outcomes = ARRAY(SELECT coalesce(one, 0) + coalesce(other, 0)
                                  FROM UNNEST(known.outcomes, excluded.outcomes)
                                       WITH ORDINALITY AS pair (one, other, place)
                                 ORDER BY place),
               durations = ARRAY(SELECT coalesce(one, 0) + coalesce(other, 0)
                                   FROM UNNEST(known.durations, excluded.durations)
                                        WITH ORDINALITY AS pair (one, other, place)
                                  ORDER BY place),
               second_effects = known.second_effects + excluded.second_effects
        ",
        &minutes.keys().map(|(account, _)| *account).collect::<Vec<_>>(),
        &minutes.keys().map(|(_, minute)| *minute).collect::<Vec<_>>(),
        &texts(|minute| &minute.outcomes),
        &texts(|minute| &minute.durations),
        &minutes.values().map(|minute| minute.second_effects).collect::<Vec<_>>(),
    );
    query.execute(tx).await?;
    Ok(())
}

/// The account's minutes from this one on in which a request came, the newest first, at most
/// [`MINUTES_MAX`]. Takes no lock.
pub async fn minutes_since(
    connection: &mut PgConnection,
    account_id: Uuid,
    minute: i64,
) -> Result<Vec<Minute>, sqlx::Error> {
    let query = sqlx::query_as!(
        Minute,
        r#"
        SELECT (extract(epoch FROM minute) / 60)::bigint AS "minute!", outcomes, durations,
               second_effects
          FROM request_counts
         WHERE account_id = $1 AND minute >= to_timestamp($2::bigint * 60)
         ORDER BY minute DESC
         LIMIT 1441
        "#,
        account_id,
        minute,
    );
    query.fetch_all(connection).await
}

/// Deletes at most 500 of the account's oldest minutes that began longer ago than `kept`, by the
/// database's clock. Locks them.
pub async fn delete_minutes(
    tx: &mut PgConnection,
    account_id: Uuid,
    kept: &PgInterval,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query!(
        "
        DELETE FROM request_counts
         WHERE account_id = $1
           AND minute = ANY(ARRAY(
               SELECT minute
                 FROM request_counts
                WHERE account_id = $1 AND minute < now() - $2::interval
                ORDER BY minute
                LIMIT 500))
        ",
        account_id,
        kept,
    );
    query.execute(tx).await?;
    Ok(())
}
