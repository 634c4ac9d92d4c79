//! The table `events`: what happened, written with its deliveries.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::{PgConnection, postgres::types::PgInterval, types::Json};
use uuid::Uuid;

use crate::{Slice, slice::in_order_of};

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which one.
    pub id: Uuid,
    /// What happened. Text, because a newer release may have written a type that this one doesn't
    /// know.
    pub event_type: String,
    /// The version of the API that it is written in. In a webhook, that of the endpoint comes
    /// first.
    pub api_version: Option<String>,
    /// The object right after the change, in the very text that was written: JSON.
    pub object: String,
    /// The version of the object right after the change, greater with each.
    pub object_version: Option<i64>,
    /// Of a change: what the object was before, as
    /// [`previous_attributes`](crate::previous_attributes) tells it.
    pub previous_attributes: Option<String>,
    /// Deliveries that are still to be made, of the first hundred. In a webhook: all of them, so
    /// that every attempt says the same.
    pub pending_webhooks: i64,
    /// The request that made it happen.
    pub request_id: String,
    /// The idempotency key of that request; empty where a request needs none.
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
    /// The version of the API that it is written in, if there are several.
    pub api_version: Option<String>,
    /// What it happened to, as clients see it: JSON.
    pub object: String,
    /// The version of the object right after the change, greater with each, if it has one.
    pub object_version: Option<i64>,
    /// Of a change: what the object was before, as
    /// [`previous_attributes`](crate::previous_attributes) tells it.
    pub previous_attributes: Option<String>,
    /// The request that made it happen.
    pub request_id: String,
    /// The idempotency key of that request; empty where a request needs none.
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
pub async fn emit(tx: &mut PgConnection, events: &[NewEvent]) -> sqlx::Result<()> {
    /// `column!(object.as_str())` is `&events.iter().map(|event| event.object.as_str()).collect()`.
    macro_rules! column {
        ($name:ident $(. $as:ident ())?) => {
            &events.iter().map(|event| event.$name$(.$as())?).collect::<Vec<_>>()
        };
    }
    let written = sqlx::query_scalar!(
        r#"
        WITH event AS (
            INSERT INTO events
                   (account_id, id, type, object, request_id, idempotency_key, traceparent,
                    api_version, previous_attributes, object_version)
            SELECT account_id, id, type, object::json, request_id, idempotency_key, traceparent,
                   api_version, previous_attributes::json, object_version
              FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                          $7::text[], $8::text[], $9::text[], $10::int8[])
                   AS new (account_id, id, type, object, request_id, idempotency_key, traceparent,
                           api_version, previous_attributes, object_version)
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
        column!(api_version.as_deref()) as _,
        column!(previous_attributes.as_deref()) as _,
        column!(object_version) as _,
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

struct EventRow {
    id: Uuid,
    event_type: String,
    api_version: Option<String>,
    object: Json<Box<RawValue>>,
    object_version: Option<i64>,
    previous_attributes: Option<Json<Box<RawValue>>>,
    request_id: String,
    idempotency_key: String,
    created_at: DateTime<Utc>,
    pending_webhooks: i64,
}

impl From<EventRow> for Event {
    fn from(row: EventRow) -> Self {
        Self {
            id: row.id,
            event_type: row.event_type,
            api_version: row.api_version,
            object: text(&row.object),
            object_version: row.object_version,
            previous_attributes: row.previous_attributes.as_ref().map(text),
            pending_webhooks: row.pending_webhooks,
            request_id: row.request_id,
            idempotency_key: row.idempotency_key,
            created_at: row.created_at,
        }
    }
}

/// JSON as it is stored.
pub(crate) fn text(json: &Json<Box<RawValue>>) -> String {
    json.0.get().to_owned()
}

/// `query_as!` with the columns of [`EventRow`] before the rest of a statement:
/// `event_rows!("FROM events WHERE id = $1", id)` is
/// `query_as!(EventRow, "SELECT events.id AS \"id!\", …" + "FROM events WHERE id = $1", id)`.
///
/// Only the index by event has the order of the inner query, so PostgreSQL never looks for an event
/// among all that is pending, or all of the account, however few its statistics call them.
macro_rules! event_rows {
    ($after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            EventRow,
            r#"
            SELECT events.id AS "id!", events.type AS "event_type!", api_version,
                   object AS "object!: Json<Box<RawValue>>", object_version,
                   previous_attributes AS "previous_attributes: Json<Box<RawValue>>",
                   request_id AS "request_id!", idempotency_key AS "idempotency_key!",
                   created_at AS "created_at!",
                   (SELECT count(*)
                      FROM (SELECT endpoint_id, status
                              FROM webhook_deliveries
                             WHERE account_id = events.account_id
                               AND event_id BETWEEN events.id AND events.id
                             ORDER BY event_id
                             LIMIT 100) AS delivery
                      JOIN webhook_endpoints AS endpoint
                        ON endpoint.account_id = events.account_id
                       AND endpoint.id = delivery.endpoint_id
                     WHERE delivery.status = 'pending'
                       AND endpoint.deleted_at IS NULL) AS "pending_webhooks!"
            "# + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// One event of the account. Takes no lock.
pub async fn find(
    connection: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
) -> sqlx::Result<Option<Event>> {
    event_rows!(
        "FROM events WHERE account_id = $1 AND id = $2",
        account_id,
        id,
    )
    .fetch_optional(connection)
    .await
    .map(|row| row.map(Event::from))
}

/// The account's events, of these types or of all. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: Uuid,
    slice: &Slice,
    event_types: Option<&[&str]>,
) -> sqlx::Result<Vec<Event>> {
    // Statements that differ in their order and filter: each walks an index of its own and stops.
    // With a filter as a parameter that may be NULL, PostgreSQL's plan for any values would walk
    // the primary key through everything that doesn't match.
    let rows = match event_types {
        None => in_order_of!(
            slice,
            connection,
            [event_rows],
            [
                "
                  FROM events
                 WHERE account_id = $1
                   AND id < $2
                   AND id > $3
                   AND ($4::timestamptz IS NULL OR created_at >= $4)
                   AND ($5::timestamptz IS NULL OR created_at < $5)
                 ORDER BY id ",
                " LIMIT $6"
            ],
            account_id,
            slice.below,
            slice.above,
            slice.created_from,
            slice.created_before,
            slice.rows,
        ),
        // For each type the rows of a whole page, along the index, and then the first of them all.
        // With type = ANY (…) PostgreSQL would read and sort all events of these types.
        Some(types) => in_order_of!(
            slice,
            connection,
            [event_rows],
            [
                "
                  FROM unnest($6::text[]) AS wanted (type)
                 CROSS JOIN LATERAL (
                       SELECT *
                         FROM events AS one
                        WHERE account_id = $1
                          AND one.type = wanted.type
                          AND id < $2
                          AND id > $3
                          AND ($4::timestamptz IS NULL OR created_at >= $4)
                          AND ($5::timestamptz IS NULL OR created_at < $5)
                        ORDER BY id ",
                " LIMIT $7) AS events
                 ORDER BY events.id ",
                " LIMIT $7"
            ],
            account_id,
            slice.below,
            slice.above,
            slice.created_from,
            slice.created_before,
            types as _,
            slice.rows,
        ),
    };
    Ok(rows?.into_iter().map(Event::from).collect())
}

/// An event, without its object.
#[derive(Debug)]
pub struct Happened {
    /// Which one.
    pub id: Uuid,
    /// What happened.
    pub event_type: String,
    /// The id of what it happened to.
    pub object_id: Option<String>,
    /// The version of the object right after the change.
    pub object_version: Option<i64>,
    /// The key of the request that made it happen.
    pub idempotency_key: String,
    /// When, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// The events of one key among the thousand of the account that follow `after`, the oldest first,
/// at most a hundred. Takes no lock.
///
/// An index by key would cost each change a write, for a page that few look at. With UUIDv7s, the
/// id of the request that executed is less than those of its events, and not by much.
pub async fn list_of_key(
    connection: &mut PgConnection,
    account_id: Uuid,
    after: Uuid,
    key: &str,
) -> sqlx::Result<Vec<Happened>> {
    sqlx::query_as!(
        Happened,
        r#"
        SELECT id, type AS event_type, object ->> 'id' AS object_id, object_version,
               idempotency_key, created_at
          FROM (SELECT id, type, object, object_version, idempotency_key, created_at
                  FROM events
                 WHERE account_id = $1 AND id > $2
                 ORDER BY id
                 LIMIT 1000) AS next
         WHERE idempotency_key = $3
         ORDER BY id
         LIMIT 100
        "#,
        account_id,
        after,
        key,
    )
    .fetch_all(connection)
    .await
}

/// The events about one object, or about one that names it in its member `parent`, the oldest
/// first, at most a hundred: among the five hundred that follow its creation, and among the newest
/// five hundred. Those about the object itself are in the order of its versions. An object's own
/// member `id` is its id. Takes no lock.
pub async fn list_of_object(
    connection: &mut PgConnection,
    account_id: Uuid,
    created: Uuid,
    object_id: &str,
    parent: &str,
) -> sqlx::Result<Vec<Happened>> {
    let mut events = sqlx::query_as!(
        Happened,
        r#"
        WITH near AS (
            (SELECT id, type, object ->> 'id' AS object_id, object ->> $4::text AS parent_id,
                    object_version, idempotency_key, created_at
               FROM events
              WHERE account_id = $1 AND id > $2
              ORDER BY id
              LIMIT 500)
            UNION
            (SELECT id, type, object ->> 'id', object ->> $4::text, object_version,
                    idempotency_key, created_at
               FROM events
              WHERE account_id = $1 AND id > $2
              ORDER BY id DESC
              LIMIT 500)
        )
        SELECT id AS "id!", type AS "event_type!", object_id, object_version,
               idempotency_key AS "idempotency_key!", created_at AS "created_at!"
          FROM near
         WHERE object_id = $3 OR parent_id = $3
         ORDER BY id
         LIMIT 100
        "#,
        account_id,
        created,
        object_id,
        parent,
    )
    .fetch_all(connection)
    .await?;
    in_order_of_versions(&mut events, object_id);
    Ok(events)
}

/// Two processes may write their events in an order that their clocks don't have. An event without
/// a version keeps its place.
fn in_order_of_versions(events: &mut Vec<Happened>, object_id: &str) {
    let is_own = |event: &Happened| {
        event.object_id.as_deref() == Some(object_id) && event.object_version.is_some()
    };
    let places = events.iter().enumerate();
    let places: Vec<usize> = places
        .filter_map(|(place, event)| is_own(event).then_some(place))
        .collect();
    let mut own: Vec<Happened> = events.extract_if(.., |event| is_own(event)).collect();
    own.sort_by_key(|event| event.object_version);
    for (place, event) in places.into_iter().zip(own) {
        events.insert(place, event);
    }
}

/// The oldest 500 events of an account behind `after` and before `below` that are older than
/// `kept`, and whether they may go: none of their deliveries is pending. Locks what it returns, and
/// passes over what another replica has, or what a delivery is being made due again for. What was
/// made due between this look and the lock, [`delete_events`] finds.
///
/// It counts, and counts them all, because PostgreSQL may look for those of a `WHERE` or of a
/// `NOT EXISTS` in all that is pending for the account.
pub async fn old_events(
    tx: &mut PgConnection,
    account_id: Uuid,
    after: Uuid,
    below: Uuid,
    kept: &PgInterval,
) -> sqlx::Result<Vec<(Uuid, bool)>> {
    let found = sqlx::query!(
        r#"
        SELECT id,
               (SELECT count(*) FILTER (WHERE delivery.status = 'pending')
                  FROM webhook_deliveries AS delivery
                 WHERE delivery.account_id = events.account_id
                   AND delivery.event_id = events.id) = 0 AS "is_ready!"
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
) -> sqlx::Result<u64> {
    sqlx::query!(
        "
        DELETE FROM webhook_deliveries AS delivery
         WHERE account_id = $1 AND event_id = ANY ($2)
           AND (SELECT count(*) FILTER (WHERE sibling.status = 'pending')
                  FROM webhook_deliveries AS sibling
                 WHERE sibling.account_id = delivery.account_id
                   AND sibling.event_id = delivery.event_id) = 0
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
