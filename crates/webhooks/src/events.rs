//! The table `events`: what happened, written with its deliveries.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::types::PgInterval};
use uuid::Uuid;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which one.
    pub id: Uuid,
    /// What happened. Text, because a newer release may have written a type that this one doesn't
    /// know.
    pub event_type: String,
    /// The object right after the change, in the very text that was written: JSON.
    pub object: String,
    /// Deliveries that are still to be made. In a webhook: all of them, so that every attempt says
    /// the same.
    pub pending_webhooks: i64,
    /// The request that made it happen.
    pub request_id: String,
    /// The idempotency key of that request.
    pub idempotency_key: String,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// What an event is made of.
#[derive(Debug)]
pub struct NewEvent {
    /// The account that it happened in.
    pub account_id: Uuid,
    /// A UUIDv7: events are listed and sent in the order of their ids.
    pub id: Uuid,
    /// What happened: a noun and a verb, as in `booking.created`.
    pub event_type: &'static str,
    /// What it happened to, as clients see it: JSON.
    pub object: String,
    /// The request that made it happen.
    pub request_id: String,
    /// The idempotency key of that request.
    pub idempotency_key: String,
    /// The trace in which it is written, which deliveries continue.
    pub traceparent: Option<String>,
}

/// Writes events, and their deliveries to every endpoint of their account that subscribes to them
/// and is not disabled, in one statement, so that all commit or none does. Locks nothing that
/// exists.
///
/// A delivery's id is the event's millisecond with random bits of its own: a UUIDv7, which
/// PostgreSQL can't make by itself before version 18.
pub async fn emit(tx: &mut PgConnection, events: &[NewEvent]) -> Result<(), sqlx::Error> {
    macro_rules! column {
        ($name:ident $(. $as:ident ())?) => {
            &events.iter().map(|event| event.$name$(.$as())?).collect::<Vec<_>>()
        };
    }
    let written = sqlx::query_scalar!(
        r#"
        WITH event AS (
            INSERT INTO events
                   (account_id, id, type, object, request_id, idempotency_key, traceparent)
            SELECT account_id, id, type, object::json, request_id, idempotency_key, traceparent
              FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                          $7::text[])
                   AS new (account_id, id, type, object, request_id, idempotency_key, traceparent)
            RETURNING account_id, id, type, created_at
        ), delivery AS (
            INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id)
            SELECT event.account_id,
                   overlay(gen_random_uuid()::text PLACING left(event.id::text, 15) FROM 1)::uuid,
                   endpoint.id, event.id
              FROM event
              JOIN webhook_endpoints AS endpoint ON endpoint.account_id = event.account_id
             WHERE endpoint.deleted_at IS NULL
               AND NOT endpoint.disabled
               AND endpoint.enabled_events && ARRAY['*', event.type]
        )
        SELECT created_at FROM event
        "#,
        column!(account_id),
        column!(id),
        column!(event_type) as _,
        // As text: a parameter of sqlx's Json would pass through jsonb, which reorders members.
        column!(object.as_str()) as _,
        column!(request_id.as_str()) as _,
        column!(idempotency_key.as_str()) as _,
        column!(traceparent.as_deref()) as _,
    )
    .fetch_all(tx)
    .await?;
    // An error that was swallowed in the transaction.
    if written.len() == events.len() {
        Ok(())
    } else {
        Err(sqlx::Error::RowNotFound)
    }
}

/// The oldest 500 events of an account behind `after` and before `below` that are older than
/// `kept`, and whether they may go: none of their deliveries is pending. Locks what it returns, and
/// passes over what another replica has, or what a delivery is being made due again for. What was
/// made due between this look and the lock, [`delete_events`] finds.
///
/// It counts, because PostgreSQL may look for `NOT EXISTS` in all that is pending for the account.
pub async fn old_events(
    tx: &mut PgConnection,
    account_id: Uuid,
    after: Uuid,
    below: Uuid,
    kept: &PgInterval,
) -> Result<Vec<(Uuid, bool)>, sqlx::Error> {
    let found = sqlx::query!(
        r#"
        SELECT id,
               (SELECT count(*)
                  FROM webhook_deliveries AS delivery
                 WHERE delivery.account_id = events.account_id AND delivery.event_id = events.id
                   AND delivery.status = 'pending') = 0 AS "is_ready!"
          FROM events
         WHERE account_id = $1 AND id > $2 AND id < $3 AND created_at < now() - $4::interval
         ORDER BY id
         LIMIT 500
           FOR UPDATE OF events SKIP LOCKED
        "#,
        account_id,
        after,
        below,
        kept,
    )
    .fetch_all(tx)
    .await?;
    Ok(found
        .into_iter()
        .map(|row| (row.id, row.is_ready))
        .collect())
}

/// Deletes events, and before them their deliveries. An event with a pending delivery stays, with
/// all of its deliveries. Returns how many events went. The caller holds the events' locks, so that
/// no delivery becomes pending meanwhile. Locks the deliveries.
///
/// It counts, for the reason that [`old_events`] does.
pub async fn delete_events(
    tx: &mut PgConnection,
    account_id: Uuid,
    ids: &[Uuid],
) -> Result<u64, sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM webhook_deliveries AS delivery
         WHERE account_id = $1 AND event_id = ANY ($2)
           AND (SELECT count(*)
                  FROM webhook_deliveries AS sibling
                 WHERE sibling.account_id = delivery.account_id
                   AND sibling.event_id = delivery.event_id AND sibling.status = 'pending') = 0
        ",
        account_id,
        ids,
    )
    .execute(&mut *tx)
    .await?;
    let deleted = sqlx::query!(
        "
        DELETE FROM events
         WHERE account_id = $1 AND id = ANY ($2)
           AND (SELECT count(*)
                  FROM webhook_deliveries AS delivery
                 WHERE delivery.account_id = events.account_id AND delivery.event_id = events.id) = 0
        ",
        account_id,
        ids,
    )
    .execute(tx)
    .await?;
    Ok(deleted.rows_affected())
}
