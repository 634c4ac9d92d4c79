//! The statements of a batch: claims that are written together with their outcomes.
//!
//! Promise: every key is claimed by the unique index, as a request alone claims it.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row as _, postgres::types::PgInterval, types::Json};
use uuid::Uuid;

use super::member::Pending;
use crate::{
    Reply, Request, Verdict, acknowledged, claim::column, connection::begin, recall::Recall,
    reply::status,
};

/// Opens the transaction, and asks for its time. A claim waits 20 ms for another replica's
/// transaction, since the whole batch waits with it. A request that is then alone waits for longer.
///
/// Statements are planned once: whatever their arrays hold, the plan is the same. It may be made
/// while a table is young, and must hold when the table has grown. One that reads all rows is the
/// best for a young table, and the worst for a grown one, so look-ups go along indexes. Compiling
/// would cost more than any of these statements.
const BEGIN: &str = begin!(
    ", now() AS now,
           set_config('plan_cache_mode', 'force_generic_plan', true),
           set_config('enable_seqscan', 'off', true),
           set_config('enable_hashjoin', 'off', true),
           set_config('enable_mergejoin', 'off', true),
           set_config('jit', 'off', true); SET LOCAL lock_timeout = '20ms'; SAVEPOINT batch"
);

/// Commits the transaction that began, and no other. A swallowed error has aborted it: its COMMIT
/// would answer "ok" and roll back. A COMMIT or ROLLBACK in between has ended it. The savepoint is
/// gone then, and releasing it fails.
const COMMIT: &str = "RELEASE SAVEPOINT batch; COMMIT";

/// An account, and a key as it is stored.
pub(super) type Id = (Uuid, String);

/// When a record was made, and when it dies.
pub(super) type Lifetime = (DateTime<Utc>, DateTime<Utc>);

pub(super) fn id(request: &Request) -> Id {
    (request.account_id, request.stored_key())
}

/// Makes a connection that of batches, for as long as it lives. No statement on it may take longer
/// than `statement_max`, which is at least a millisecond.
pub(super) async fn set_up(
    connection: &mut PgConnection,
    statement_max: Duration,
) -> Result<(), sqlx::Error> {
    let statement_timeout = format!("{}ms", statement_max.as_millis().max(1));
    let session = sqlx::query("SELECT set_config('statement_timeout', $1, false)");
    let session = session.bind(statement_timeout).execute(connection);
    session.await.map(drop)
}

/// Begins a transaction. Its time is what `now()` says in it.
pub(super) async fn begin(connection: &mut PgConnection) -> Result<DateTime<Utc>, sqlx::Error> {
    let rows = sqlx::raw_sql(BEGIN).fetch_all(connection).await?;
    rows.last().ok_or(sqlx::Error::RowNotFound)?.try_get("now")
}

/// Commits what [`begin`] began.
pub(super) async fn commit(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let committing = sqlx::raw_sql(COMMIT).execute(connection);
    acknowledged(committing).await.map(drop)
}

/// Ends what [`begin`] began, without a trace.
pub(super) async fn rollback(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("ROLLBACK")
        .execute(connection)
        .await
        .map(drop)
}

/// Claims keys for their requests, and saves what their records say with them. Returns the keys
/// that were free, with the lifetimes of their records, `retention` where a request names none. The
/// others have rows already, or have expired: a request by itself finds out.
///
/// Callers sort: two replicas that claim the same keys must do it in the same order.
pub(super) async fn insert(
    tx: &mut PgConnection,
    decided: &[(&Request, &Verdict<Reply, Pending>)],
    retention: &PgInterval,
    recall: Option<&dyn Recall>,
) -> Result<HashMap<Id, Lifetime>, sqlx::Error> {
    let replies = column(decided, |(_, recorded)| match recorded {
        Verdict::Answered(reply) => Some(reply),
        Verdict::Pending(_) => None,
    });
    let sealed = sealed(decided)?;
    let bodies = replies.iter().zip(&sealed).map(|(reply, sealed)| {
        let body = reply.map(|reply| reply.body.as_slice());
        sealed.as_deref().or(body)
    });
    let resources = column(decided, |(_, recorded)| match recorded {
        Verdict::Answered(reply) => reply.resource_id.as_deref(),
        Verdict::Pending(pending) => pending.resource_id.as_deref(),
    });
    let rows = sqlx::query!(
        r#"
        INSERT INTO idempotency_keys
               (account_id, key, fingerprint_version, fingerprint, method, path, request_id,
                label, created_at, expires_at, status, headers, body, resource_id)
        SELECT account_id, key, fingerprint_version, fingerprint, method, path, request_id,
               label, now(), now() + retention, status, headers, body, resource_id
          FROM UNNEST($1::uuid[], $2::text[], $3::int2[], $4::bytea[], $5::text[], $6::text[],
                      $7::text[], $8::text[], $9::int2[], $10::jsonb[], $11::bytea[], $12::text[],
                      $13::interval[])
               AS decided (account_id, key, fingerprint_version, fingerprint, method, path,
                           request_id, label, status, headers, body, resource_id, retention)
        ON CONFLICT DO NOTHING
        RETURNING account_id, key, created_at, expires_at
        "#,
        &column(decided, |(request, _)| request.account_id),
        &column(decided, |(request, _)| request.stored_key()) as _,
        &column(decided, |(request, _)| request.fingerprint.version()),
        &column(decided, |(request, _)| request.fingerprint.bytes()) as _,
        &column(decided, |(request, _)| request.method.as_str()) as _,
        &column(decided, |(request, _)| request.path.as_str()) as _,
        &column(decided, |(request, _)| request.request_id.as_str()) as _,
        &column(decided, |(request, _)| request.label.as_deref()) as _,
        &column(&replies, |reply| reply.map(status)) as _,
        &column(&replies, |reply| reply.map(|reply| Json(&reply.headers))) as _,
        &bodies.collect::<Vec<_>>() as _,
        &resources as _,
        &column(decided, |(request, _)| request.retention(*retention)),
    )
    .fetch_all(&mut *tx)
    .await?;
    let rows = rows.into_iter();
    let lifetimes = rows.map(|row| ((row.account_id, row.key), (row.created_at, row.expires_at)));
    let lifetimes: HashMap<Id, Lifetime> = lifetimes.collect();
    match recall {
        Some(recall) if !lifetimes.is_empty() => {
            let requests = decided.iter().map(|(request, _)| *request);
            without_expired(tx, recall, requests, lifetimes).await
        }
        Some(_) | None => Ok(lifetimes),
    }
}

/// Gives those of the claimed keys back that have expired: a request by itself is refused.
async fn without_expired(
    tx: &mut PgConnection,
    recall: &dyn Recall,
    requests: impl Iterator<Item = &Request>,
    mut lifetimes: HashMap<Id, Lifetime>,
) -> Result<HashMap<Id, Lifetime>, sqlx::Error> {
    let is_claimed = |request: &&Request| lifetimes.contains_key(&id(request));
    let requests: Vec<&Request> = requests.filter(is_claimed).collect();
    let claimed = requests.iter().map(|request| (*request, None));
    let found = recall.look(tx, "", claimed.collect()).await?;
    let expired = requests.iter().zip(found);
    let expired = expired.filter_map(|(request, found)| found.map(|_| id(request)));
    let expired: Vec<Id> = expired.collect();
    if !expired.is_empty() {
        lifetimes.retain(|id, _| !expired.contains(id));
        give_back(tx, &expired).await?;
    }
    Ok(lifetimes)
}

/// The bodies that are stored sealed.
fn sealed(
    decided: &[(&Request, &Verdict<Reply, Pending>)],
) -> Result<Vec<Option<Vec<u8>>>, sqlx::Error> {
    let sealed = decided.iter().map(|(request, recorded)| match recorded {
        Verdict::Answered(reply) => request.sealed(reply),
        Verdict::Pending(_) => Ok(None),
    });
    sealed.collect()
}

/// Gives keys back that this transaction has claimed.
async fn give_back(tx: &mut PgConnection, keys: &[Id]) -> Result<(), sqlx::Error> {
    let given_back = sqlx::query!(
        "
        DELETE FROM idempotency_keys AS record
         USING UNNEST($1::uuid[], $2::text[]) AS given (account_id, key)
         WHERE record.account_id = given.account_id AND record.key = given.key
        ",
        &column(keys, |(account, _)| *account),
        &column(keys, |(_, key)| key.as_str()) as _,
    );
    given_back.execute(tx).await.map(drop)
}

/// Saves the outcomes of keys that are in flight, as [`reply::save`] does for one, and returns the
/// lifetimes of their records. Fails if one of them isn't in flight. The caller has their leases.
///
/// [`reply::save`]: crate::reply::save
pub(super) async fn save(
    tx: &mut PgConnection,
    completed: &[(Id, &Reply)],
) -> Result<HashMap<Id, Lifetime>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        UPDATE idempotency_keys AS record
           SET status = completed.status, headers = completed.headers, body = completed.body,
               resource_id = completed.resource_id,
               expires_at = greatest(expires_at, expires_at + (now() - created_at))
          FROM UNNEST($1::uuid[], $2::text[], $3::int2[], $4::jsonb[], $5::bytea[], $6::text[])
               AS completed (account_id, key, status, headers, body, resource_id)
         WHERE record.account_id = completed.account_id AND record.key = completed.key
           AND record.status IS NULL
        RETURNING record.account_id, record.key, created_at, expires_at
        "#,
        &column(completed, |((account, _), _)| *account),
        &column(completed, |((_, key), _)| key.as_str()) as _,
        &column(completed, |(_, reply)| status(reply)),
        &column(completed, |(_, reply)| Json(&reply.headers)) as _,
        &column(completed, |(_, reply)| reply.body.as_slice()) as _,
        &column(completed, |(_, reply)| reply.resource_id.as_deref()) as _,
    )
    .fetch_all(tx)
    .await?;
    if rows.len() < completed.len() {
        return Err(sqlx::Error::RowNotFound);
    }
    let rows = rows.into_iter();
    let lifetimes = rows.map(|row| ((row.account_id, row.key), (row.created_at, row.expires_at)));
    Ok(lifetimes.collect())
}
