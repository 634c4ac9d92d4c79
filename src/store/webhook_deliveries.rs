//! The table `webhook_deliveries`: the outbox, which `crates/webhooks` writes.

use charge_once_pages::{Listed, Page, in_order_of};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::unknown::unknown;
use crate::domain::{
    ids::{AccountId, EventId, WebhookDeliveryId, WebhookEndpointId},
    webhook_delivery::{Attempt, DeliveryStatus, WebhookDelivery},
};

struct Row {
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

impl TryFrom<Row> for WebhookDelivery {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: WebhookDeliveryId(row.id),
            endpoint: WebhookEndpointId(row.endpoint_id),
            event: EventId(row.event_id),
            event_type: row.event_type,
            status: DeliveryStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            attempts: row.attempts.0,
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

/// The account's deliveries before the one with the id `below`, at most `limit`, newest first.
/// Takes no lock.
pub async fn list_of_account(
    connection: &mut PgConnection,
    account_id: AccountId,
    below: Uuid,
    limit: i64,
) -> Result<Vec<WebhookDelivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
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
