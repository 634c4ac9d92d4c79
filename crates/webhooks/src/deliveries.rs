//! The table `webhook_deliveries`, as it is looked at: the deliveries of events to endpoints.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
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

/// The account's deliveries before the one with the id `below`, at most `limit`, newest first.
/// Takes no lock.
pub async fn list_of_account(
    connection: &mut PgConnection,
    account_id: Uuid,
    below: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<Delivery>> {
    let rows = sqlx::query_as!(
        DeliveryRow,
        r#"
        SELECT delivery.id, attempts AS "attempts: Json<Vec<Attempt>>",
               delivery.created_at, delivered_at, endpoint_id, event_id,
               event.type AS "event_type!",
               CASE WHEN claim IS NULL THEN next_attempt_at END AS next_attempt_at, status
          FROM (SELECT *
                  FROM webhook_deliveries
                 WHERE account_id = $1 AND id < $2
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
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Delivery::try_from).collect()
}
