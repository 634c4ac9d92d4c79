//! The table `webhook_deliveries`, as it is looked at: the deliveries of events to endpoints.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::types::PgInterval, types::Json};
use uuid::Uuid;

use crate::{Attempt, DeliveryStatus, Slice, slice::in_order_of};

/// The delivery of an event to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which one.
    pub id: Uuid,
    /// Where it goes.
    pub endpoint_id: Uuid,
    /// What it carries.
    pub event_id: Uuid,
    /// What happened, as the event says.
    pub event_type: String,
    /// How far it is.
    pub status: DeliveryStatus,
    /// The oldest first.
    pub attempts: Vec<Attempt>,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When the endpoint took it.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When the next attempt is made at the earliest. `None` while one is made, and if there will
    /// be none.
    pub next_attempt_at: Option<DateTime<Utc>>,
}

struct DeliveryRow {
    id: Uuid,
    attempts: Json<Vec<Attempt>>,
    created_at: DateTime<Utc>,
    delivered_at: Option<DateTime<Utc>>,
    endpoint_id: Uuid,
    event_id: Uuid,
    event_type: String,
    next_attempt_at: Option<DateTime<Utc>>,
    status: String,
}

impl TryFrom<DeliveryRow> for Delivery {
    type Error = sqlx::Error;

    fn try_from(row: DeliveryRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.id,
            endpoint_id: row.endpoint_id,
            event_id: row.event_id,
            event_type: row.event_type,
            status: DeliveryStatus::parse(&row.status).ok_or_else(unknown_status)?,
            attempts: row.attempts.0,
            created_at: row.created_at,
            delivered_at: row.delivered_at,
            next_attempt_at: row.next_attempt_at,
        })
    }
}

/// A newer release may have written it.
fn unknown_status() -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: "status".to_owned(),
        source: "the row has a value that this release doesn't know".into(),
    }
}

/// The deliveries to one of the account's endpoints. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: Uuid,
    endpoint_id: Uuid,
    slice: &Slice,
) -> sqlx::Result<Vec<Delivery>> {
    let rows = in_order_of!(
        slice,
        connection,
        [sqlx::query_as, DeliveryRow],
        [
            r#"
                SELECT delivery.id, attempts AS "attempts: Json<Vec<Attempt>>",
                       delivery.created_at, delivered_at, endpoint_id, event_id,
                       event.type AS event_type,
                       CASE WHEN claim IS NULL THEN next_attempt_at END AS next_attempt_at, status
                  FROM webhook_deliveries AS delivery
                  JOIN events AS event
                    ON event.account_id = delivery.account_id AND event.id = delivery.event_id
                 WHERE delivery.account_id = $1
                   AND endpoint_id = $2
                   AND delivery.id < $3
                   AND delivery.id > $4
                   AND ($5::timestamptz IS NULL OR delivery.created_at >= $5)
                   AND ($6::timestamptz IS NULL OR delivery.created_at < $6)
                 ORDER BY delivery.id "#,
            " LIMIT $7"
        ],
        account_id,
        endpoint_id,
        slice.below,
        slice.above,
        slice.created_from,
        slice.created_before,
        slice.rows,
    )?;
    rows.into_iter().map(Delivery::try_from).collect()
}

/// One delivery of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
) -> sqlx::Result<Option<Delivery>> {
    let row = sqlx::query_as!(
        DeliveryRow,
        r#"
        SELECT delivery.id, attempts AS "attempts: Json<Vec<Attempt>>",
               delivery.created_at, delivered_at, endpoint_id, event_id, event.type AS event_type,
               CASE WHEN claim IS NULL THEN next_attempt_at END AS next_attempt_at, status
          FROM webhook_deliveries AS delivery
          JOIN events AS event
            ON event.account_id = delivery.account_id AND event.id = delivery.event_id
         WHERE delivery.account_id = $1 AND delivery.id = $2
        "#,
        account_id,
        id,
    )
    .fetch_optional(connection)
    .await?;
    row.map(Delivery::try_from).transpose()
}

/// Which deliveries of an account are looked for. What is `None` excludes none.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeliveryFilter {
    /// How far they are.
    pub status: Option<DeliveryStatus>,
    /// Where they go.
    pub endpoint_id: Option<Uuid>,
}

/// Deliveries that one search looks at.
pub const SEARCHED_MAX: i64 = 20_000;

/// Deliveries of the account that fit, at most `limit`, newest first: among the
/// [`SEARCHED_MAX`] before the one with the id `below`. Takes no lock.
pub async fn search(
    connection: &mut PgConnection,
    account_id: Uuid,
    filter: DeliveryFilter,
    below: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<Delivery>> {
    let rows = sqlx::query_as!(
        DeliveryRow,
        r#"
        SELECT delivery.id AS "id!", attempts AS "attempts!: Json<Vec<Attempt>>",
               delivery.created_at AS "created_at!", delivered_at, endpoint_id AS "endpoint_id!",
               event_id AS "event_id!", event.type AS "event_type!",
               CASE WHEN claim IS NULL THEN next_attempt_at END AS next_attempt_at,
               status AS "status!"
          FROM (SELECT *
                  FROM (SELECT *
                          FROM webhook_deliveries
                         WHERE account_id = $1 AND id < $2
                         ORDER BY id DESC
                         LIMIT 20000) AS newest
                 WHERE ($4::text IS NULL OR status = $4)
                   AND ($5::uuid IS NULL OR endpoint_id = $5)
                 ORDER BY id DESC
                 LIMIT $3) AS delivery
         CROSS JOIN LATERAL (
               SELECT type
                 FROM events
                WHERE account_id = $1 AND id = delivery.event_id
                LIMIT 1) AS event
         ORDER BY delivery.id DESC
        "#,
        account_id,
        below,
        limit,
        filter.status.map(DeliveryStatus::as_str) as _,
        filter.endpoint_id as _,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Delivery::try_from).collect()
}

/// The last delivery that a search below `below` looks at, if it looks at as many as it may.
pub async fn searched_to(
    connection: &mut PgConnection,
    account_id: Uuid,
    below: Uuid,
) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        "
        SELECT id
          FROM webhook_deliveries
         WHERE account_id = $1 AND id < $2
         ORDER BY id DESC
        OFFSET 19999 LIMIT 1
        ",
        account_id,
        below,
    )
    .fetch_optional(connection)
    .await
}

/// How attempts at an endpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The endpoint.
    pub endpoint_id: Uuid,
    /// Attempts that ended.
    pub attempts: i64,
    /// Those that were answered with a 2xx.
    pub succeeded: i64,
}

/// How the attempts of the newest 50 deliveries to each of these endpoints ended. An endpoint
/// without an attempt is left out. Takes no lock.
pub async fn tallies(
    connection: &mut PgConnection,
    account_id: Uuid,
    endpoints: &[Uuid],
) -> sqlx::Result<Vec<Tally>> {
    sqlx::query_as!(
        Tally,
        r#"
        SELECT endpoint_id AS "endpoint_id!", count(*) AS "attempts!",
               count(*) FILTER (WHERE (attempt ->> 'response_status')::int BETWEEN 200 AND 299)
                   AS "succeeded!"
          FROM unnest($2::uuid[]) AS wanted (endpoint_id)
         CROSS JOIN LATERAL (
               SELECT attempts
                 FROM webhook_deliveries AS delivery
                WHERE account_id = $1 AND delivery.endpoint_id = wanted.endpoint_id
                ORDER BY id DESC
                LIMIT 50) AS newest
         CROSS JOIN LATERAL jsonb_array_elements(attempts) AS ended (attempt)
         GROUP BY endpoint_id
        "#,
        account_id,
        endpoints,
    )
    .fetch_all(connection)
    .await
}

/// What the receiver's replies to a delivery said, by the numbers of the attempts, which begin with
/// 1. At most a hundred, the newest. Takes no lock.
pub async fn replies(
    connection: &mut PgConnection,
    account_id: Uuid,
    delivery_id: Uuid,
) -> sqlx::Result<Vec<(i32, String)>> {
    let rows = sqlx::query!(
        "
        SELECT number, reply
          FROM webhook_replies
         WHERE account_id = $1 AND delivery_id = $2
         ORDER BY number DESC
         LIMIT 100
        ",
        account_id,
        delivery_id,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.number, row.reply))
        .collect())
}

/// The deliveries of the account's oldest 500 replies, behind `after` and before `below`, and
/// whether each reply is older than `kept`. Takes no lock.
pub async fn old_replies(
    connection: &mut PgConnection,
    account_id: Uuid,
    after: Uuid,
    below: Uuid,
    kept: &PgInterval,
) -> sqlx::Result<Vec<(Uuid, bool)>> {
    let replies = sqlx::query!(
        r#"
        SELECT delivery_id, created_at < now() - $4::interval AS "is_old!"
          FROM webhook_replies
         WHERE account_id = $1 AND delivery_id > $2 AND delivery_id < $3
         ORDER BY delivery_id
         LIMIT 500
        "#,
        account_id,
        after,
        below,
        kept,
    )
    .fetch_all(connection)
    .await?;
    let replies = replies.into_iter().map(|row| (row.delivery_id, row.is_old));
    Ok(replies.collect())
}

/// Deletes the replies of these deliveries that are older than `kept`, and returns how many went.
/// Locks them.
pub async fn delete_replies(
    tx: &mut PgConnection,
    account_id: Uuid,
    deliveries: &[Uuid],
    kept: &PgInterval,
) -> sqlx::Result<u64> {
    let deleted = sqlx::query!(
        "
        DELETE FROM webhook_replies
         WHERE account_id = $1 AND delivery_id = ANY ($2) AND created_at < now() - $3::interval
        ",
        account_id,
        deliveries,
        kept,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected())
}
