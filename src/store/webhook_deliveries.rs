//! The table `webhook_deliveries`: the outbox. Its rows are written with their event, in
//! `store/events.rs`, and changed by workers, in `store/webhook_queue.rs`.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    page::{Listed, Page, in_order_of},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, EventId, WebhookDeliveryId, WebhookEndpointId},
    webhook_delivery::{Attempt, DeliveryStatus, WebhookDelivery},
};

struct Row {
    id: Uuid,
    attempts: Json<Vec<StoredAttempt>>,
    created_at: DateTime<Utc>,
    delivered_at: Option<DateTime<Utc>>,
    endpoint_id: Uuid,
    event_id: Uuid,
    event_type: String,
    next_attempt_at: Option<DateTime<Utc>>,
    status: String,
}

/// One attempt as the column `attempts` holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredAttempt {
    at: i64,
    response_status: Option<u16>,
    error: Option<String>,
    duration_ms: i64,
}

impl From<&Attempt> for StoredAttempt {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at,
            response_status: attempt.response_status,
            error: attempt.error.clone(),
            duration_ms: attempt.duration_ms,
        }
    }
}

impl From<StoredAttempt> for Attempt {
    fn from(stored: StoredAttempt) -> Self {
        Self {
            at: stored.at,
            response_status: stored.response_status,
            error: stored.error,
            duration_ms: stored.duration_ms,
        }
    }
}

impl TryFrom<Row> for WebhookDelivery {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: WebhookDeliveryId(row.id),
            endpoint: WebhookEndpointId(row.endpoint_id),
            event: EventId(row.event_id),
            event_type: row.event_type,
            status: DeliveryStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            attempts: row.attempts.0.into_iter().map(Into::into).collect(),
            created_at: row.created_at,
            delivered_at: row.delivered_at,
            next_attempt_at: row.next_attempt_at,
        })
    }
}

/// One page of the deliveries to one of the account's endpoints; `None` if its cursor names none of
/// them. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    endpoint_id: WebhookEndpointId,
    page: &Page,
) -> Result<Option<Listed<WebhookDelivery>>, sqlx::Error> {
    if let Some(&cursor) = page.cursor.key()
        && !exists(&mut *connection, account_id, endpoint_id, cursor).await?
    {
        return Ok(None);
    }
    // Two statements that differ in their order: each walks the index and stops.
    macro_rules! rows {
        ($order:tt) => {
            sqlx::query_as!(
                Row,
                r#"
                SELECT delivery.id, attempts AS "attempts: Json<Vec<StoredAttempt>>",
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
                 ORDER BY delivery.id "#
                    + $order
                    + " LIMIT $7",
                account_id.0,
                endpoint_id.0,
                page.below(),
                page.above(),
                page.created_from,
                page.created_before,
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        };
    }
    let rows = in_order_of!(page, rows);
    let deliveries: Result<_, _> = rows.into_iter().map(WebhookDelivery::try_from).collect();
    Ok(Some(page.cut(deliveries?)))
}

/// The account's deliveries before the one with the id `below`, at most `limit`, newest first. Takes no
/// lock.
pub async fn list_of_account(
    connection: &mut PgConnection,
    account_id: AccountId,
    below: Uuid,
    limit: i64,
) -> Result<Vec<WebhookDelivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        SELECT delivery.id, attempts AS "attempts: Json<Vec<StoredAttempt>>",
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
        account_id.0,
        below,
        limit,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(WebhookDelivery::try_from).collect()
}

async fn exists(
    connection: &mut PgConnection,
    account_id: AccountId,
    endpoint_id: WebhookEndpointId,
    id: Uuid,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        SELECT EXISTS (
            SELECT FROM webhook_deliveries
             WHERE account_id = $1 AND endpoint_id = $2 AND id = $3) AS "exists!"
        "#,
        account_id.0,
        endpoint_id.0,
        id,
    )
    .fetch_one(connection)
    .await
}
