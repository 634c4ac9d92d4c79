//! The SQL of the table `request_log`. Rows may be missing, so decide nothing by it.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgConnection, postgres::types::PgInterval};
use uuid::Uuid;

use crate::request_log::{LoggedOutcome, LoggedRequest};

/// Requests of one key that its replays are counted among, the last ones. The statement has the
/// number a second time.
pub const COUNTED_MAX: i64 = 100;

/// Requests that one search of the log looks at. The statements have the number themselves.
pub const SEARCHED_MAX: i64 = 20_000;

struct Row {
    id: Uuid,
    account_id: Uuid,
    method: String,
    route: String,
    path: Option<String>,
    idempotency_key: Option<String>,
    status: Option<i16>,
    outcome: String,
    duration_us: i64,
    resource_id: Option<String>,
    fingerprint: Option<Vec<u8>>,
    fault: Option<String>,
}

fn logged(row: Row) -> Result<LoggedRequest, sqlx::Error> {
    Ok(LoggedRequest {
        id: row.id,
        account: row.account_id,
        method: row.method,
        route: row.route,
        path: row.path,
        idempotency_key: row.idempotency_key,
        status: row.status.and_then(|status| u16::try_from(status).ok()),
        // A newer release may have written one that is unknown here.
        outcome: row.outcome.parse().map_err(|_| sqlx::Error::ColumnDecode {
            index: "outcome".to_owned(),
            source: "the row has a value that this release doesn't know".into(),
        })?,
        duration: Duration::from_micros(u64::try_from(row.duration_us).unwrap_or(0)),
        resource_id: row.resource_id,
        fingerprint: row.fingerprint,
        fault: row.fault,
    })
}

/// One column of `rows`, in their order.
fn column<'a, T>(rows: &'a [LoggedRequest], value: impl Fn(&'a LoggedRequest) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// Writes requests that ended. Locks nothing that exists.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    requests: &[LoggedRequest],
) -> Result<(), sqlx::Error> {
    let status = |request: &LoggedRequest| request.status.and_then(|s| i16::try_from(s).ok());
    let micros = |request: &LoggedRequest| request.duration.as_micros().try_into();
    let query = sqlx::query!(
        "
        INSERT INTO request_log (account_id, id, method, route, path, idempotency_key, status, outcome,
               duration_us, resource_id, fingerprint, fault)
        SELECT account_id, id, method, route, path, idempotency_key, status, outcome, duration_us,
               resource_id, fingerprint, fault
          FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                      $7::smallint[], $8::text[], $9::bigint[], $10::text[], $11::bytea[],
                      $12::text[])
               AS new (account_id, id, method, route, path, idempotency_key, status, outcome, duration_us,
                       resource_id, fingerprint, fault)
        ",
        &column(requests, |request| request.account),
        &column(requests, |request| request.id),
        &column(requests, |request| request.method.as_str()) as _,
        &column(requests, |request| request.route.as_str()) as _,
        &column(requests, |request| request.path.as_deref()) as _,
        &column(requests, |request| request.idempotency_key.as_deref()) as _,
        &column(requests, status) as _,
        &column(requests, |request| request.outcome.as_str()) as _,
        &column(requests, |request| micros(request).unwrap_or(i64::MAX)),
        &column(requests, |request| request.resource_id.as_deref()) as _,
        &column(requests, |request| request.fingerprint.as_deref()) as _,
        &column(requests, |request| request.fault.as_deref()) as _,
    );
    query.execute(tx).await?;
    Ok(())
}

/// Which requests are looked for. What is `None` excludes none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// How they ended: one of these.
    pub outcomes: Option<Vec<LoggedOutcome>>,
    /// The status of the reply lies between these two.
    pub status: Option<(u16, u16)>,
    /// A part of the path.
    pub path: Option<String>,
    /// A part of the key.
    pub idempotency_key: Option<String>,
    /// The id of what the reply is about.
    pub resource_id: Option<String>,
}

/// The account's requests before the one with the id `below` that are looked for, at most `limit`,
/// newest first. Looks at the next [`SEARCHED_MAX`] only: [`searched_to`] says where the search
/// goes on. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: Uuid,
    filter: &RequestFilter,
    below: Uuid,
    limit: i64,
) -> Result<Vec<LoggedRequest>, sqlx::Error> {
    let names = |outcomes: &Vec<LoggedOutcome>| -> Vec<String> {
        outcomes.iter().map(|one| one.as_str().to_owned()).collect()
    };
    let outcomes = filter.outcomes.as_ref().map(names);
    let (from, to) = filter.status.unzip();
    let status = |status: Option<u16>| status.and_then(|status| i16::try_from(status).ok());
    let rows = sqlx::query_as!(
        Row,
        "
            SELECT id, account_id, method, route, path, idempotency_key, status, outcome, duration_us,
                   resource_id, fingerprint, fault
            " + "
          FROM (SELECT *
                  FROM request_log
                 WHERE account_id = $1 AND id < $2
                 ORDER BY id DESC
                 LIMIT 20000) AS searched
         WHERE ($4::text[] IS NULL OR outcome = ANY($4))
           AND ($5::smallint IS NULL OR status BETWEEN $5 AND $6::smallint)
           AND ($7::text IS NULL OR strpos(coalesce(path, route), $7) > 0)
           AND ($8::text IS NULL OR strpos(idempotency_key, $8) > 0)
           AND ($9::text IS NULL OR resource_id = $9)
         ORDER BY id DESC
         LIMIT $3
        ",
        account_id,
        below,
        limit,
        outcomes.as_deref() as _,
        status(from),
        status(to),
        filter.path.as_deref(),
        filter.idempotency_key.as_deref(),
        filter.resource_id.as_deref(),
    );
    let rows = rows.fetch_all(connection).await?;
    rows.into_iter().map(logged).collect()
}

/// Where [`list`] ended its search of what is before the one with the id `below`; `None` if it came
/// to the end. Takes no lock.
pub async fn searched_to(
    connection: &mut PgConnection,
    account_id: Uuid,
    below: Uuid,
) -> Result<Option<Uuid>, sqlx::Error> {
    let query = sqlx::query_scalar!(
        "
        SELECT id
          FROM request_log
         WHERE account_id = $1 AND id < $2
         ORDER BY id DESC
        OFFSET 19999
         LIMIT 1
        ",
        account_id,
        below,
    );
    query.fetch_optional(connection).await
}

/// The last requests with a key, at most `limit`, newest first. Takes no lock.
pub async fn list_of_key(
    connection: &mut PgConnection,
    account_id: Uuid,
    key: &str,
    limit: i64,
) -> Result<Vec<LoggedRequest>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "
            SELECT id, account_id, method, route, path, idempotency_key, status, outcome, duration_us,
                   resource_id, fingerprint, fault
            " + "
          FROM request_log
         WHERE account_id = $1 AND idempotency_key = $2
         ORDER BY id DESC
         LIMIT $3
        ",
        account_id,
        key,
        limit,
    );
    let rows = rows.fetch_all(connection).await?;
    rows.into_iter().map(logged).collect()
}

/// How many of the last [`COUNTED_MAX`] requests with each of these keys were replays. Takes no
/// lock.
pub async fn count_replays(
    connection: &mut PgConnection,
    account_id: Uuid,
    keys: &[String],
) -> Result<HashMap<String, i64>, sqlx::Error> {
    let query = sqlx::query!(
        r#"
        SELECT wanted.key AS "key!", replays.count AS "count!"
          FROM UNNEST($2::text[]) AS wanted (key)
         CROSS JOIN LATERAL (
               SELECT count(*) FILTER (WHERE outcome = 'replayed')
                 FROM (SELECT outcome
                         FROM request_log
                        WHERE account_id = $1 AND idempotency_key = wanted.key
                        ORDER BY id DESC
                        LIMIT 100) AS last) AS replays
        "#,
        account_id,
        keys,
    );
    let counted = query.fetch_all(connection).await?;
    let counted = counted.into_iter().map(|row| (row.key, row.count));
    Ok(counted.collect())
}

/// At most 500 of the account's oldest requests behind the one with the id `after`, in the order of
/// their ids: those that were written longer ago than `kept`, by the database's clock. The search
/// ends at `below`, which must be greater than the id of each request that is so old. Locks them,
/// and passes over what another replica has locked.
pub async fn old_requests(
    tx: &mut PgConnection,
    account_id: Uuid,
    after: Uuid,
    below: Uuid,
    kept: &PgInterval,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query_scalar!(
        r#"
        SELECT id
          FROM request_log
         WHERE account_id = $1 AND id > $2 AND id < $3 AND created_at < now() - $4::interval
         ORDER BY id
         LIMIT 500
           FOR UPDATE SKIP LOCKED
        "#,
        account_id,
        after,
        below,
        kept,
    );
    query.fetch_all(tx).await
}

/// Deletes requests of an account, and returns how many went. Locks them.
pub async fn delete_requests(
    tx: &mut PgConnection,
    account_id: Uuid,
    ids: &[Uuid],
) -> Result<u64, sqlx::Error> {
    let query = sqlx::query!(
        "DELETE FROM request_log WHERE account_id = $1 AND id = ANY ($2)",
        account_id,
        ids,
    );
    let deleted = query.execute(tx).await?;
    Ok(deleted.rows_affected())
}
