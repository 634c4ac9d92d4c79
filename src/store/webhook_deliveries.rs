//! The table `webhook_deliveries`: the outbox. Its rows are written with their event, in
//! `store/events.rs`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval, types::Json};
use uuid::Uuid;

use super::{
    page::{Listed, Page, in_order_of},
    unknown::unknown,
};
use crate::domain::{
    ids::{AccountId, EventId, WebhookDeliveryId, WebhookEndpointId},
    webhook_delivery::{self, DeliveryStatus, WebhookDelivery},
    webhook_endpoint::Secret,
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

/// One attempt as the column `attempts` holds it.
#[derive(Serialize, Deserialize)]
struct Attempt {
    at: i64,
    response_status: Option<u16>,
    error: Option<String>,
    duration_ms: i64,
}

impl From<&webhook_delivery::Attempt> for Attempt {
    fn from(attempt: &webhook_delivery::Attempt) -> Self {
        Self {
            at: attempt.at,
            response_status: attempt.response_status,
            error: attempt.error.clone(),
            duration_ms: attempt.duration_ms,
        }
    }
}

impl From<Attempt> for webhook_delivery::Attempt {
    fn from(stored: Attempt) -> Self {
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

/// A delivery that is this worker's to attempt.
#[derive(Debug)]
pub struct Claimed {
    /// The account that it belongs to.
    pub account_id: AccountId,
    /// Which it is.
    pub id: WebhookDeliveryId,
    /// Where it goes.
    pub endpoint_id: WebhookEndpointId,
    /// What it carries.
    pub event_id: EventId,
    /// To how many endpoints the event goes.
    pub event_deliveries: i64,
    /// How many attempts have ended.
    pub attempts: i32,
    /// When the claim was made, by the database's clock.
    pub at: DateTime<Utc>,
    /// Where to send it.
    pub url: String,
    /// Whether the endpoint is disabled, so that nothing may be sent there.
    pub disabled: bool,
    /// What to sign with; `None` if the endpoint has been deleted.
    pub secret: Option<Secret>,
}

/// Endpoints and accounts at their limit.
#[derive(Debug)]
pub struct Busy {
    /// With all of their endpoints.
    pub accounts: Vec<Uuid>,
    /// Of any account.
    pub endpoints: Vec<Uuid>,
}

/// Claims the delivery that has been due for the longest, except deliveries to `busy` endpoints and
/// accounts; `None` if nothing is due. No other worker gets it until `lease` expires.
///
/// It walks from endpoint to endpoint along an index, so its cost is that of the endpoints that
/// have something pending, deleted ones included, and not that of what is pending to them.
///
/// Locks its row and no other: endpoints are tried one by one, the one that has waited for the
/// longest first, until one has a row to lock. `SKIP LOCKED` leaves those alone that another
/// replica is just claiming.
pub async fn claim(
    tx: &mut PgConnection,
    claim: Uuid,
    lease: Duration,
    busy: &Busy,
) -> Result<Option<Claimed>, sqlx::Error> {
    let claimed = sqlx::query!(
        r#"
        WITH RECURSIVE oldest AS (
            (SELECT account_id, endpoint_id, next_attempt_at
               FROM webhook_deliveries
              WHERE status = 'pending'
              ORDER BY account_id, endpoint_id, next_attempt_at
              LIMIT 1)
            UNION ALL
            SELECT next.*
              FROM oldest CROSS JOIN LATERAL (
                   SELECT account_id, endpoint_id, next_attempt_at
                     FROM webhook_deliveries AS delivery
                    WHERE status = 'pending'
                      AND (delivery.account_id, delivery.endpoint_id)
                          > (oldest.account_id, oldest.endpoint_id)
                    ORDER BY account_id, endpoint_id, next_attempt_at
                    LIMIT 1) AS next
        ), candidate AS MATERIALIZED (
            SELECT account_id, endpoint_id
              FROM oldest
             WHERE next_attempt_at <= now()
               AND endpoint_id <> ALL ($3) AND account_id <> ALL ($4)
             ORDER BY next_attempt_at
        ), due AS MATERIALIZED (
            SELECT first.account_id, first.id
              FROM candidate CROSS JOIN LATERAL (
                   SELECT account_id, id
                     FROM webhook_deliveries AS delivery
                    WHERE status = 'pending' AND next_attempt_at <= now()
                      AND delivery.account_id = candidate.account_id
                      AND delivery.endpoint_id = candidate.endpoint_id
                    ORDER BY next_attempt_at
                    LIMIT 1
                      FOR UPDATE SKIP LOCKED) AS first
             LIMIT 1
        )
        UPDATE webhook_deliveries AS delivery
           SET claim = $1, next_attempt_at = now() + $2::interval
          FROM due, webhook_endpoints AS endpoint
         WHERE delivery.account_id = due.account_id AND delivery.id = due.id
           AND endpoint.account_id = due.account_id AND endpoint.id = delivery.endpoint_id
        RETURNING delivery.account_id, delivery.id, delivery.endpoint_id, delivery.event_id,
                  (SELECT count(*)
                     FROM webhook_deliveries AS sibling
                    WHERE sibling.account_id = delivery.account_id
                      AND sibling.event_id = delivery.event_id) AS "event_deliveries!",
                  jsonb_array_length(delivery.attempts) AS "attempts!",
                  now() AS "at!", endpoint.url, endpoint.disabled, endpoint.secret
        "#,
        claim,
        interval(lease)?,
        &busy.endpoints,
        &busy.accounts,
    )
    .fetch_optional(tx)
    .await?;
    Ok(claimed.map(|row| Claimed {
        account_id: AccountId(row.account_id),
        id: WebhookDeliveryId(row.id),
        endpoint_id: WebhookEndpointId(row.endpoint_id),
        event_id: EventId(row.event_id),
        event_deliveries: row.event_deliveries,
        attempts: row.attempts,
        at: row.at,
        url: row.url,
        disabled: row.disabled,
        secret: row.secret.map(Secret::of),
    }))
}

/// The state of a delivery after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The endpoint took it.
    Succeeded,
    /// Once more after this pause.
    Again(Duration),
    /// It was the last attempt, or the endpoint is gone.
    Failed,
}

/// Stores how the attempt of `claim` ended. `false` if the claim has expired and another worker has
/// made an attempt: then nothing is written. Locks the row.
pub async fn finish(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: WebhookDeliveryId,
    claim: Uuid,
    attempt: Option<&webhook_delivery::Attempt>,
    next: &Next,
) -> Result<bool, sqlx::Error> {
    let (status, pause) = match next {
        Next::Succeeded => (DeliveryStatus::Succeeded, None),
        Next::Again(pause) => (DeliveryStatus::Pending, Some(interval(*pause)?)),
        Next::Failed => (DeliveryStatus::Failed, None),
    };
    let attempts: Vec<Attempt> = attempt.map(Attempt::from).into_iter().collect();
    let finished = sqlx::query!(
        "
        UPDATE webhook_deliveries
           SET attempts = attempts || $4::jsonb,
               status = $5::text,
               next_attempt_at = now() + $6::interval,
               delivered_at = CASE WHEN $5::text = 'succeeded' THEN now() END,
               claim = NULL
         WHERE account_id = $1 AND id = $2 AND claim = $3
        ",
        account_id.0,
        id.0,
        claim,
        Json(attempts) as _,
        status.as_str(),
        pause,
    )
    .execute(tx)
    .await?;
    Ok(finished.rows_affected() == 1)
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

/// Whole microseconds: PostgreSQL knows no smaller unit.
fn interval(duration: Duration) -> Result<PgInterval, sqlx::Error> {
    let micros = u64::try_from(duration.as_micros()).map_err(unrepresentable)?;
    PgInterval::try_from(Duration::from_micros(micros)).map_err(unrepresentable)
}

fn unrepresentable(error: impl Into<BoxDynError>) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}
