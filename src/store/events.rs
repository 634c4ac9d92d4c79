//! The table `events`, which `crates/webhooks` writes.

use charge_once_pages::{Listed, Page, in_order_of};
use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::old_rows::{Age, OldRows};
use crate::{
    domain::{
        event::EventType,
        ids::{AccountId, EventId},
    },
    webhooks::{self, Event},
};

struct Row {
    id: Uuid,
    event_type: String,
    object: Json<Box<RawValue>>,
    request_id: String,
    idempotency_key: String,
    created_at: DateTime<Utc>,
    pending_webhooks: i64,
}

impl From<Row> for Event {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            event_type: row.event_type,
            object: row.object.0.get().to_owned(),
            pending_webhooks: row.pending_webhooks,
            request_id: row.request_id,
            idempotency_key: row.idempotency_key,
            created_at: row.created_at,
        }
    }
}

/// `query_as!` with the columns of [`Row`] before the rest of a statement.
macro_rules! event_rows {
    ($after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"
            SELECT id, type AS event_type, object AS "object: Json<Box<RawValue>>", request_id,
                   idempotency_key, created_at,
                   (SELECT count(*)
                      FROM webhook_deliveries AS delivery
                      JOIN webhook_endpoints AS endpoint
                        ON endpoint.account_id = delivery.account_id
                       AND endpoint.id = delivery.endpoint_id
                     WHERE delivery.account_id = events.account_id
                       AND delivery.event_id = events.id
                       AND delivery.status = 'pending'
                       AND endpoint.deleted_at IS NULL) AS "pending_webhooks!"
            "# + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// One event of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: AccountId,
    id: EventId,
) -> Result<Option<Event>, sqlx::Error> {
    event_rows!(
        "FROM events WHERE account_id = $1 AND id = $2",
        account_id.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Event::from))
}

/// What a list of events is narrowed down to.
#[derive(Debug, Default)]
pub struct Filter {
    /// What happened.
    pub event_type: Option<EventType>,
}

/// One page of the account's events; `None` if its cursor names none of them. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: &Filter,
) -> Result<Option<Listed<Event>>, sqlx::Error> {
    if let Some(&cursor) = page.cursor.key()
        && find(&mut *connection, account_id, EventId(cursor))
            .await?
            .is_none()
    {
        return Ok(None);
    }
    // Statements that differ in their order and filter: each walks an index of its own and stops.
    // With a filter as a parameter that may be NULL, PostgreSQL's plan for any values would walk
    // the primary key through everything that doesn't match.
    macro_rules! rows {
        ($order:tt, $filter:tt) => {
            event_rows!(
                "
                  FROM events
                 WHERE account_id = $1
                   AND id < $2
                   AND id > $3
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                   "
                    + $filter
                    + " ORDER BY id "
                    + $order
                    + " LIMIT $7",
                account_id.0,
                page.below(),
                page.above(),
                page.created_from,
                page.created_before,
                filter.event_type.map(EventType::as_str),
                page.rows(),
            )
            .fetch_all(connection)
            .await?
        };
    }
    let rows = match filter.event_type {
        None => in_order_of!(page, rows, "AND $6::text IS NULL"),
        Some(_) => in_order_of!(page, rows, "AND type = $6"),
    };
    Ok(Some(page.cut(rows.into_iter().map(Event::from).collect())))
}

/// An event, without its object.
#[derive(Debug)]
pub struct Happened {
    /// Which one.
    pub id: EventId,
    /// What happened.
    pub event_type: String,
    /// The id of what it happened to.
    pub object_id: Option<String>,
    /// The key of the request that made it happen.
    pub idempotency_key: String,
    /// When, by the database's clock.
    pub created_at: DateTime<Utc>,
}

struct HappenedRow {
    id: Uuid,
    event_type: String,
    object_id: Option<String>,
    idempotency_key: String,
    created_at: DateTime<Utc>,
}

impl From<HappenedRow> for Happened {
    fn from(row: HappenedRow) -> Self {
        Self {
            id: EventId(row.id),
            event_type: row.event_type,
            object_id: row.object_id,
            idempotency_key: row.idempotency_key,
            created_at: row.created_at,
        }
    }
}

/// The events of one key among the thousand of the account that follow `after`, the oldest first,
/// at most a hundred. Takes no lock.
///
/// An index by key would cost each charge a write, for a page that few look at. The id of the
/// request that executed is less than those of its events, and not by much.
pub async fn list_of_key(
    connection: &mut PgConnection,
    account_id: AccountId,
    after: Uuid,
    key: &str,
) -> Result<Vec<Happened>, sqlx::Error> {
    let rows = sqlx::query_as!(
        HappenedRow,
        r#"
        SELECT id, type AS event_type, object ->> 'id' AS object_id, idempotency_key, created_at
          FROM (SELECT id, type, object, idempotency_key, created_at
                  FROM events
                 WHERE account_id = $1 AND id > $2
                 ORDER BY id
                 LIMIT 1000) AS next
         WHERE idempotency_key = $3
         ORDER BY id
         LIMIT 100
        "#,
        account_id.0,
        after,
        key,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Happened::from).collect())
}

/// The events about one object, or about a refund of it, the oldest first, at most a hundred: among
/// the five hundred that follow its creation, and among the newest five hundred. Takes no lock.
pub async fn list_of_object(
    connection: &mut PgConnection,
    account_id: AccountId,
    created: Uuid,
    object_id: &str,
) -> Result<Vec<Happened>, sqlx::Error> {
    let rows = sqlx::query_as!(
        HappenedRow,
        r#"
        WITH near AS (
            (SELECT id, type, object ->> 'id' AS object_id, object ->> 'charge' AS charge_id,
                    idempotency_key, created_at
               FROM events
              WHERE account_id = $1 AND id > $2
              ORDER BY id
              LIMIT 500)
            UNION
            (SELECT id, type, object ->> 'id', object ->> 'charge', idempotency_key, created_at
               FROM events
              WHERE account_id = $1 AND id > $2
              ORDER BY id DESC
              LIMIT 500)
        )
        SELECT id AS "id!", type AS "event_type!", object_id, idempotency_key AS "idempotency_key!",
               created_at AS "created_at!"
          FROM near
         WHERE object_id = $3 OR charge_id = $3
         ORDER BY id
         LIMIT 100
        "#,
        account_id.0,
        created,
        object_id,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Happened::from).collect())
}

/// The oldest events of an account behind `after`, as [`webhooks::old_events`] finds and locks
/// them.
pub async fn find_old(
    tx: &mut PgConnection,
    account_id: AccountId,
    after: Uuid,
    age: &Age,
) -> Result<OldRows, sqlx::Error> {
    let found = webhooks::old_events(tx, account_id.0, after, age.below, &age.kept);
    Ok(OldRows::of(found.await?))
}
