//! The SQL of the table `request_log`. Rows may be missing, so decide nothing by it.

use std::{collections::HashMap, time::Duration};

use sqlx::{PgConnection, postgres::types::PgInterval};
use uuid::Uuid;

use crate::LoggedRequest;

/// Requests of one key that its replays are counted among, the last ones. The statement has the
/// number a second time.
pub const COUNTED_MAX: i64 = 100;

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
}

impl TryFrom<Row> for LoggedRequest {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.id,
            account: row.account_id,
            method: row.method,
            route: row.route,
            path: row.path,
            idempotency_key: row.idempotency_key,
            status: row.status.and_then(|status| u16::try_from(status).ok()),
            outcome: row.outcome.parse().map_err(|_| unknown_outcome())?,
            duration: Duration::from_micros(u64::try_from(row.duration_us).unwrap_or(0)),
            resource_id: row.resource_id,
        })
    }
}

/// A newer release may have written it.
fn unknown_outcome() -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: "outcome".to_owned(),
        source: "the row has a value that this release doesn't know".into(),
    }
}

/// One column of `rows`, in their order.
fn column<'a, T>(rows: &'a [LoggedRequest], value: impl Fn(&'a LoggedRequest) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// `query_as!` with the columns of [`Row`] before the rest of a statement.
macro_rules! rows {
    ($after:tt, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            "
            SELECT id, account_id, method, route, path, idempotency_key, status, outcome, duration_us,
                   resource_id
            " + $after,
            $($argument),+
        )
    };
}

/// Writes requests that ended. Locks nothing that exists.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    requests: &[LoggedRequest],
) -> Result<(), sqlx::Error> {
    let status = |request: &LoggedRequest| request.status.and_then(|s| i16::try_from(s).ok());
    let micros = |request: &LoggedRequest| request.duration.as_micros().try_into();
    sqlx::query!(
        "
        INSERT INTO request_log (account_id, id, method, route, path, idempotency_key, status, outcome,
               duration_us, resource_id)
        SELECT account_id, id, method, route, path, idempotency_key, status, outcome, duration_us,
               resource_id
          FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                      $7::smallint[], $8::text[], $9::bigint[], $10::text[])
               AS new (account_id, id, method, route, path, idempotency_key, status, outcome, duration_us,
                       resource_id)
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
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The account's requests before the one with the id `below`, at most `limit`, newest first. Takes
/// no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: Uuid,
    below: Uuid,
    limit: i64,
) -> Result<Vec<LoggedRequest>, sqlx::Error> {
    let rows = rows!(
        "FROM request_log WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        account_id,
        below,
        limit,
    );
    let rows = rows.fetch_all(connection).await?;
    rows.into_iter().map(LoggedRequest::try_from).collect()
}

/// The last requests with a key, at most `limit`, newest first. Takes no lock.
pub async fn list_of_key(
    connection: &mut PgConnection,
    account_id: Uuid,
    key: &str,
    limit: i64,
) -> Result<Vec<LoggedRequest>, sqlx::Error> {
    let rows = rows!(
        "
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
    rows.into_iter().map(LoggedRequest::try_from).collect()
}

/// How many of the last [`COUNTED_MAX`] requests with each of these keys were replays. Takes no
/// lock.
pub async fn count_replays(
    connection: &mut PgConnection,
    account_id: Uuid,
    keys: &[String],
) -> Result<HashMap<String, i64>, sqlx::Error> {
    let counted = sqlx::query!(
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
    )
    .fetch_all(connection)
    .await?;
    Ok(counted
        .into_iter()
        .map(|row| (row.key, row.count))
        .collect())
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
    sqlx::query_scalar!(
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
    )
    .fetch_all(tx)
    .await
}

/// Deletes requests of an account, and returns how many went. Locks them.
pub async fn delete_requests(
    tx: &mut PgConnection,
    account_id: Uuid,
    ids: &[Uuid],
) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query!(
        "DELETE FROM request_log WHERE account_id = $1 AND id = ANY ($2)",
        account_id,
        ids,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected())
}
