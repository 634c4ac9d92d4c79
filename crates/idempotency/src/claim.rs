//! Takes a key for one transaction, or finds out what has it.
//!
//! Promise: of any number of transactions, on any number of replicas, at most one holds an
//! unexpired key. The unique index decides, never a check made before acting.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sqlx::{PgConnection, Postgres, Transaction, postgres::types::PgInterval};
use uuid::Uuid;

use crate::{
    Failure, GuardedConnection, Record, Reply, Request,
    acknowledged::commit,
    connection::begin,
    memory::{self, Recall, Remembered},
    reply::sqlstate,
};

/// How long a claim waits for another replica's transaction on the same key: what finishes inside
/// it is replayed instead of refused.
pub const CLAIM_WAIT: Duration = Duration::from_millis(250);

/// Opens the transaction and bounds the claim's lock wait by [`CLAIM_WAIT`], in one round trip. It
/// states what the promise rests on, as [`begin!`](crate::connection::begin) does.
pub(crate) const BEGIN: &str = begin!("; SET LOCAL lock_timeout = '250ms'");

/// Opens the transaction for a claim that found half the pool waiting already: it tells a free key
/// from a held one, but hardly waits, so that keys held elsewhere can't use up every connection.
pub(crate) const BEGIN_BRIEFLY: &str = begin!("; SET LOCAL lock_timeout = '25ms'");

/// The point that a refusal returns to: the claim is older than the savepoint and survives it. A
/// transaction waits 100 ms for a row that the work itself needs. Then it gives its connection back
/// and begins again: requests that wait for one locked row must not have all connections.
///
/// No work has a savepoint of that name: the refusal would return to it, and keep what was before.
pub(crate) const START_WORK: &str = "SAVEPOINT idempotency_work; SET LOCAL lock_timeout = '100ms'";

/// The longest that a request waits for business rows, in transactions that wait for a tenth of it.
pub const ROW_LOCK_WAIT: Duration = Duration::from_secs(1);

/// Pause between two such transactions, jittered: long enough for others to have the connection.
pub(crate) const ROW_LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Undoes what the work wrote and keeps the claim.
pub(crate) const UNDO_WORK: &str = "ROLLBACK TO SAVEPOINT idempotency_work";

pub(crate) enum Claim {
    /// The key was free or expired, and now belongs to this transaction.
    Mine,
    /// It belongs to this transaction, and the record of an earlier request has expired: to be
    /// refused.
    Remembered(Remembered),
    /// The outcome of an earlier request, unexpired.
    Completed(Arc<Record>),
    /// Another transaction holds the key, or the whole table, for too long: [`Claim::release`].
    HeldElsewhere,
    /// A committed row without an outcome, which only an add-on can judge. Its reply says nothing.
    Unfinished(Box<Record>),
    /// The record vanished between two statements (swept, or taken over): begin afresh.
    Vanished,
}

impl Claim {
    /// Its name, in the span of a claim.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Remembered(_) => "remembered",
            Self::Completed(_) => "completed",
            Self::HeldElsewhere => "held_elsewhere",
            Self::Unfinished(_) => "unfinished",
            Self::Vanished => "vanished",
        }
    }

    /// Whether the key belongs to this transaction.
    pub(crate) fn is_mine(&self) -> bool {
        matches!(self, Self::Mine | Self::Remembered(_))
    }

    /// Whether it is what a committed row says. If the session of its COMMIT ended while it waited
    /// for a standby, only this server may have it. Nothing is answered before [`Claim::end`].
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Unfinished(_))
    }

    /// Ends the transaction of a claim that keeps nothing. Its COMMIT waits for what it has read.
    pub(crate) async fn end(&self, tx: Transaction<'_, Postgres>) -> Result<(), Failure> {
        match self.is_read() {
            true => commit(tx).await,
            false => Ok(tx.rollback().await?),
        }
    }

    /// Gives the connection back. Fails where another session has locked the whole table, or waits
    /// to: a claim whose wait is over then says nothing about its key.
    pub(crate) async fn release(self, mut connection: GuardedConnection) -> Result<Self, Failure> {
        if matches!(self, Self::HeldElsewhere) {
            // One message is one transaction, which PostgreSQL ends by itself.
            let lock = "LOCK TABLE idempotency_keys IN ROW EXCLUSIVE MODE NOWAIT; \
                        LOCK TABLE idempotency_tombstones IN ACCESS SHARE MODE NOWAIT; SELECT 1";
            if let Err(error) = sqlx::raw_sql(lock).execute(&mut *connection).await {
                if sqlstate(&error).is_none_or(|code| code != "55P03") {
                    return Err(error.into());
                }
                connection.release();
                let cause = "another session locks the whole table idempotency_keys or \
                             idempotency_tombstones, as a migration does";
                return Err(Failure::unavailable(cause));
            }
        }
        connection.release();
        Ok(self)
    }
}

/// Claims the key of `request` in the transaction `tx`.
///
/// Every statement judges expiry by the transaction's `now()`: with a clock that moves on, a record
/// could be alive for one statement and dead for the next.
pub(crate) async fn claim(
    tx: &mut PgConnection,
    request: &Request,
    retention: PgInterval,
    recall: Recall,
) -> Result<Claim, sqlx::Error> {
    let recall = recall.for_request(request);
    // Insert first. With a look before it, two transactions would both find nothing, and both work.
    let outcome = match insert(tx, request, &retention, recall).await {
        Ok(Inserted::New) => return Ok(Claim::Mine),
        Ok(Inserted::Remembered) => {
            return Ok(Claim::Remembered(memory::read(tx, request).await?));
        }
        // A new statement has a new snapshot, which sees the row that the insert ran into.
        Ok(Inserted::Not) => match read(tx, request).await? {
            // The row was deleted in between: by the sweep, or by a process that released the key.
            None => Ok(Claim::Vanished),
            Some(Found::Unfinished(record)) => return Ok(Claim::Unfinished(record)),
            Some(Found::Completed(record)) => return Ok(Claim::Completed(record)),
            // Others find the same expired row. The UPDATE lets one of them through.
            Some(Found::Expired(record)) => match take_over(tx, request, &retention).await {
                Ok(true) => recalled(tx, request, *record, recall).await,
                Ok(false) => Ok(Claim::Vanished),
                Err(error) => Err(error),
            },
        },
        Err(error) => Err(error),
    };
    match outcome {
        Err(error) if is_lock_wait_over(&error) => Ok(Claim::HeldElsewhere),
        other => other,
    }
}

/// 55P03 is `lock_timeout`. 57014 is `statement_timeout` or a cancel while waiting for the same
/// lock. Only a claim reads them as "held elsewhere": during the work they mean something else.
fn is_lock_wait_over(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| code == "55P03" || code == "57014")
}

enum Inserted {
    New,
    /// But the record of an earlier request has expired, and is remembered.
    Remembered,
    /// A committed row has the key, or the hash that stands for it in a sealed record.
    Not,
}

/// Inserts the record. Waits while an uncommitted one has the key.
///
/// Whether the key is remembered is asked when it is claimed. Asked before, a sweep that is about
/// to commit would go unnoticed: the insert waits for it, and then finds the key free.
async fn insert(
    tx: &mut PgConnection,
    request: &Request,
    retention: &PgInterval,
    recall: Recall,
) -> Result<Inserted, sqlx::Error> {
    let is_remembered = sqlx::query_scalar!(
        r#"
        INSERT INTO idempotency_keys
               (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
                label, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now(), now() + $9::interval)
        ON CONFLICT DO NOTHING
        RETURNING CASE WHEN $10::timestamptz <= now() THEN true
                       WHEN $11::interval IS NULL THEN false
                       ELSE idempotency_key_is_remembered(idempotency_tombstone_id($1, $2), $11)
                       END AS "is_remembered!"
        "#,
        request.account_id,
        &request.stored_key(),
        request.fingerprint.version(),
        request.fingerprint.bytes(),
        request.method,
        request.path,
        request.request_id,
        request.label,
        retention,
        recall.end_by_key(request),
        recall.keep,
    );
    Ok(match is_remembered.fetch_optional(tx).await? {
        Some(false) => Inserted::New,
        Some(true) => Inserted::Remembered,
        None => Inserted::Not,
    })
}

/// A claim that has taken `expired` over.
async fn recalled(
    tx: &mut PgConnection,
    request: &Request,
    expired: Record,
    recall: Recall,
) -> Result<Claim, sqlx::Error> {
    let is_remembered = sqlx::query_scalar!(
        r#"
        SELECT coalesce($1::timestamptz > now() - $2::interval, false)
            OR coalesce($3::timestamptz <= now(), false) AS "is_remembered!"
        "#,
        expired.expires_at,
        recall.keep,
        recall.end_by_key(request),
    );
    Ok(match recall.is_on() && is_remembered.fetch_one(tx).await? {
        true => Claim::Remembered(Remembered::of(expired, &request.fingerprint)),
        false => Claim::Mine,
    })
}

/// The state of a committed row.
pub(crate) enum Found {
    Completed(Arc<Record>),
    Expired(Box<Record>),
    Unfinished(Box<Record>),
}

/// Reads the row without a lock: a completed record is immutable, and no other one expires.
pub(crate) async fn read(
    tx: &mut PgConnection,
    request: &Request,
) -> Result<Option<Found>, sqlx::Error> {
    let found = read_all(tx, &[request]).await?;
    Ok(found.into_values().next())
}

/// Reads the rows of several requests, as [`read`] does, by account and key. Each key is
/// looked for as it is, and as a hash.
pub(crate) async fn read_all(
    tx: &mut PgConnection,
    requests: &[&Request],
) -> Result<HashMap<(Uuid, String), Found>, sqlx::Error> {
    let wanted = requests.iter();
    let wanted = wanted.flat_map(|request| request.stored_keys().map(|stored| (*request, stored)));
    let wanted: Vec<_> = wanted.collect();
    let rows = sqlx::query!(
        r#"
        SELECT record.account_id, wanted.key AS "key!", record.key AS stored_key, request_id,
               method, path, fingerprint_version, fingerprint, created_at, expires_at, status,
               headers AS "headers: sqlx::types::Json<Vec<(String, String)>>", body, resource_id,
               label, (status IS NOT NULL AND expires_at <= now()) AS "expired!"
          FROM UNNEST($1::uuid[], $2::text[], $3::text[]) AS wanted (account_id, key, stored_key)
          JOIN idempotency_keys AS record
            ON record.account_id = wanted.account_id AND record.key = wanted.stored_key
        "#,
        &column(&wanted, |(request, _)| request.account_id),
        &column(&wanted, |(request, _)| request.key.as_str()) as _,
        &column(&wanted, |(_, stored)| stored.as_str()) as _,
    )
    .fetch_all(tx)
    .await?;
    let found = rows.into_iter().map(|row| {
        let id = (row.account_id, row.key);
        let record = Record {
            reply: Reply {
                status: row.status.map_or(0, i16::unsigned_abs),
                headers: row.headers.unwrap_or_default().0,
                body: row.body.unwrap_or_default(),
                resource_id: row.resource_id,
            },
            request_id: row.request_id,
            method: row.method,
            path: row.path,
            label: row.label,
            is_sealed: row.stored_key.starts_with(crate::seal::SEALED),
            fingerprint_version: row.fingerprint_version,
            fingerprint: row.fingerprint,
            created_at: row.created_at,
            expires_at: row.expires_at,
        };
        let found = match row.status {
            _ if row.expired => Found::Expired(Box::new(record)),
            None => Found::Unfinished(Box::new(record)),
            // The constraints leave no third kind of row: headers and body are there.
            Some(_) => Found::Completed(Arc::new(record)),
        };
        (id, found)
    });
    Ok(found.collect())
}

/// One value of each row, for an array that a statement takes.
pub(crate) fn column<'a, T, V>(rows: &'a [T], value: impl Fn(&'a T) -> V) -> Vec<V> {
    rows.iter().map(value).collect()
}

/// Makes an expired record this transaction's claim. Exactly one of many racers succeeds: the
/// others wait for its row lock and then see a record that is no longer expired. The sweep deletes
/// by the same predicate.
async fn take_over(
    tx: &mut PgConnection,
    request: &Request,
    retention: &PgInterval,
) -> Result<bool, sqlx::Error> {
    let taken = sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET key = $2, fingerprint_version = $3, fingerprint = $4, method = $5, path = $6,
               request_id = $7, label = $8, created_at = now(), expires_at = now() + $9::interval,
               status = NULL, headers = NULL, body = NULL, resource_id = NULL
         WHERE account_id = $1 AND key = ANY ($10) AND status IS NOT NULL AND expires_at <= now()
        "#,
        request.account_id,
        &request.stored_key(),
        request.fingerprint.version(),
        request.fingerprint.bytes(),
        request.method,
        request.path,
        request.request_id,
        request.label,
        retention,
        &request.stored_keys(),
    )
    .execute(tx)
    .await?;
    Ok(taken.rows_affected() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_say_what_the_constants_promise() {
        let milliseconds = format!("'{}ms'", CLAIM_WAIT.as_millis());
        assert!(BEGIN.ends_with(&milliseconds));
        assert!(START_WORK.ends_with("'100ms'") && CLAIM_WAIT < ROW_LOCK_WAIT);
    }
}
