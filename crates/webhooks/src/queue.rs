//! The table `webhook_deliveries` as a queue: what its workers read and write.
//!
//! A pending delivery is ready, or it waits: for its next attempt, or for the end of an attempt.
//! The statements here cost what they return. None reads a backlog, and none waits for a row that
//! another replica holds, but for [`finish`].
//!
//! The size of a queue changes faster than PostgreSQL's statistics, and PostgreSQL assumes that a
//! LIMIT which it doesn't know takes a tenth of the rows. So each statement here is written for one
//! index. What is pending for an endpoint lies together in
//! `webhook_deliveries_pending_by_endpoint`, in the order of the events. Through any other index
//! PostgreSQL would read as many rows or more, and then sort them. Locked rows are changed by their
//! place in the table, and not by a join.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval, types::Json};
use uuid::Uuid;

use crate::{Attempt, DeliveryStatus, Event, Secret, Slice, events::text};

/// An endpoint that has something ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyEndpoint {
    /// The account that it belongs to.
    pub account_id: Uuid,
    /// Which it is.
    pub endpoint_id: Uuid,
    /// Whether it has been deleted, so that nothing is to be sent.
    pub is_deleted: bool,
}

/// At most `limit` endpoints that have something ready, in the order of account and endpoint, after
/// the one of `after`. Takes no lock.
///
/// It jumps from endpoint to endpoint along an index, so its cost is that of the endpoints that it
/// returns, and not that of what is ready for them.
pub async fn ready_endpoints(
    connection: &mut PgConnection,
    after: Option<(Uuid, Uuid)>,
    limit: i32,
) -> sqlx::Result<Vec<ReadyEndpoint>> {
    let (account, endpoint) = after.unwrap_or_default();
    sqlx::query_as!(
        ReadyEndpoint,
        r#"
        WITH RECURSIVE found AS (
            (SELECT account_id, endpoint_id, 1 AS number
               FROM webhook_deliveries
              WHERE status = 'pending' AND (ready, account_id, endpoint_id) > (true, $1, $2)
              ORDER BY ready, account_id, endpoint_id
              LIMIT 1)
            UNION ALL
            SELECT next.account_id, next.endpoint_id, found.number + 1
              FROM found CROSS JOIN LATERAL (
                   SELECT account_id, endpoint_id
                     FROM webhook_deliveries AS delivery
                    WHERE status = 'pending'
                      AND (ready, delivery.account_id, delivery.endpoint_id)
                          > (true, found.account_id, found.endpoint_id)
                    ORDER BY ready, delivery.account_id, delivery.endpoint_id
                    LIMIT 1) AS next
             WHERE found.number < $3
        )
        SELECT found.account_id AS "account_id!", found.endpoint_id AS "endpoint_id!",
               endpoint.deleted_at IS NOT NULL AS "is_deleted!"
          FROM found
          JOIN webhook_endpoints AS endpoint
            ON endpoint.account_id = found.account_id AND endpoint.id = found.endpoint_id
         ORDER BY found.number
        "#,
        account,
        endpoint,
        limit,
    )
    .fetch_all(connection)
    .await
}

/// How many deliveries are due, on all replicas together: counted up to `limit` of those that are
/// ready, and up to `limit` of those that are to be made ready. Takes no lock.
pub async fn count_due(connection: &mut PgConnection, limit: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"
        SELECT (SELECT count(*)
                  FROM (SELECT
                          FROM webhook_deliveries
                         WHERE status = 'pending'
                           AND (ready, account_id, endpoint_id) > (true, $2, $2)
                         ORDER BY ready, account_id, endpoint_id, event_id
                         LIMIT $1) AS ready)
             + (SELECT count(*)
                  FROM (SELECT
                          FROM webhook_deliveries
                         WHERE status = 'pending' AND NOT ready AND next_attempt_at <= now()
                         ORDER BY next_attempt_at
                         LIMIT $1) AS late) AS "due!"
        "#,
        limit,
        Uuid::nil(),
    )
    .fetch_one(connection)
    .await
}

/// How long the next delivery of an endpoint has been due, for the one of `limit` endpoints where
/// that is longest, or the oldest retry that is to be made ready. Zero or `None`: nothing is due.
/// Takes no lock, and jumps along an index as [`ready_endpoints`] does.
pub async fn longest_due(
    connection: &mut PgConnection,
    limit: i32,
) -> sqlx::Result<Option<Duration>> {
    let longest = sqlx::query_scalar!(
        r#"
        WITH RECURSIVE found AS (
            (SELECT account_id, endpoint_id, next_attempt_at, 1 AS number
               FROM webhook_deliveries
              WHERE status = 'pending' AND (ready, account_id, endpoint_id) > (true, $2, $2)
              ORDER BY ready, account_id, endpoint_id, event_id
              LIMIT 1)
            UNION ALL
            SELECT next.account_id, next.endpoint_id, next.next_attempt_at, found.number + 1
              FROM found CROSS JOIN LATERAL (
                   SELECT account_id, endpoint_id, next_attempt_at
                     FROM webhook_deliveries AS delivery
                    WHERE status = 'pending'
                      AND (ready, delivery.account_id, delivery.endpoint_id)
                          > (true, found.account_id, found.endpoint_id)
                    ORDER BY ready, delivery.account_id, delivery.endpoint_id, delivery.event_id
                    LIMIT 1) AS next
             WHERE found.number < $1
        )
        SELECT extract(epoch FROM now() - least(
                   (SELECT min(next_attempt_at) FROM found),
                   (SELECT next_attempt_at
                      FROM webhook_deliveries
                     WHERE status = 'pending' AND NOT ready
                     ORDER BY next_attempt_at
                     LIMIT 1)))::float8 AS age
        "#,
        limit,
        Uuid::nil(),
    )
    .fetch_one(connection)
    .await?;
    Ok(longest.map(|age| Duration::try_from_secs_f64(age).unwrap_or_default()))
}

/// How many deliveries an endpoint may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The account that the endpoint belongs to.
    pub account_id: Uuid,
    /// Which it is.
    pub endpoint_id: Uuid,
    /// At most so many.
    pub places: usize,
}

/// A delivery that has had its turn, with everything that an attempt needs.
#[derive(Debug)]
pub struct Claimed {
    /// The account that it belongs to.
    pub account_id: Uuid,
    /// Which it is.
    pub id: Uuid,
    /// Where it goes.
    pub endpoint_id: Uuid,
    /// Whether it is due. If not, a replica of the release before is sending it, or has put it off,
    /// and it waits.
    pub is_due: bool,
    /// Whether no worker has claimed it before, and it was not made due by [`retry_now`].
    pub is_first: bool,
    /// Whether its endpoint is disabled. Then it fails, unsent.
    pub is_disabled: bool,
    /// When the claim was made, by the database's clock.
    pub at: DateTime<Utc>,
    /// How many attempts have ended.
    pub attempts: i32,
    /// What it carries, as it was when it was written, in the version of the API that its endpoint
    /// has: every attempt sends the same bytes.
    pub event: Event,
    /// The trace in which the event was written.
    pub traceparent: Option<String>,
    /// Where to send it.
    pub url: String,
    /// What to sign with.
    pub secret: Secret,
    /// Whether the headers of Standard Webhooks are sent too.
    pub standard_webhooks: bool,
}

impl Claimed {
    /// How long after its event it was claimed, if this is the first attempt.
    pub fn lag(&self) -> Option<Duration> {
        let lag = (self.at - self.event.created_at).to_std();
        (self.attempts == 0).then_some(lag.unwrap_or_default())
    }
}

/// Claims for each turn what is ready, the oldest events first, and returns it in the order of the
/// turns and of the events. No other worker gets it until `lease` expires. A deleted endpoint gets
/// nothing. For a disabled one up to `unsent_max` are claimed, because nothing is sent there.
///
/// Locks the rows that it returns. `SKIP LOCKED` leaves those alone that another replica is just
/// claiming.
pub async fn claim(
    tx: &mut PgConnection,
    claim: Uuid,
    lease: Duration,
    turns: &[Turn],
    unsent_max: i64,
) -> sqlx::Result<Vec<Claimed>> {
    let places: Result<Vec<_>, _> = turns.iter().map(|t| i64::try_from(t.places)).collect();
    let claimed = sqlx::query!(
        r#"
        WITH turn AS MATERIALIZED (
            SELECT *
              FROM unnest($3::uuid[], $4::uuid[], $5::bigint[])
                   WITH ORDINALITY AS turn (account_id, endpoint_id, places, number)
        ), found AS MATERIALIZED (
            SELECT oldest.*, turn.number, endpoint.url, endpoint.secret, endpoint.disabled,
                   endpoint.standard_webhooks, endpoint.api_version
              FROM turn
              JOIN webhook_endpoints AS endpoint
                ON endpoint.account_id = turn.account_id AND endpoint.id = turn.endpoint_id
               AND endpoint.deleted_at IS NULL
             CROSS JOIN LATERAL (
                   SELECT ctid, account_id, id, endpoint_id, event_id,
                          jsonb_array_length(attempts) AS attempts,
                          next_attempt_at <= now() AS is_due,
                          next_attempt_at <= created_at AS is_first
                     FROM webhook_deliveries AS delivery
                    -- BETWEEN with rows of columns would read on until the first column changes,
                    -- through what is ready for all other endpoints (PostgreSQL 15).
                    WHERE status = 'pending' AND ready
                      AND delivery.account_id = turn.account_id
                      AND delivery.endpoint_id = turn.endpoint_id
                    ORDER BY event_id
                    LIMIT CASE WHEN endpoint.disabled THEN greatest(turn.places, $6::bigint)
                               ELSE turn.places END
                      FOR UPDATE SKIP LOCKED) AS oldest
        ), claimed AS (
            UPDATE webhook_deliveries
               SET ready = false,
                   claim = CASE WHEN next_attempt_at <= now() THEN $1 ELSE claim END,
                   next_attempt_at = CASE WHEN next_attempt_at <= now() THEN now() + $2::interval
                                          ELSE next_attempt_at END
             WHERE ctid = ANY (ARRAY(SELECT ctid FROM found))
            RETURNING account_id, id
        )
        SELECT found.account_id AS "account_id!", found.id AS "id!", endpoint_id AS "endpoint_id!",
               is_due AS "is_due!", is_first AS "is_first!", disabled, attempts AS "attempts!",
               url, secret AS "secret!", standard_webhooks, now() AS "at!",
               event.id AS "event_id!", event.type AS "event_type!",
               coalesce(found.api_version, event.api_version) AS api_version,
               event.object AS "object!: Json<Box<RawValue>>", event.object_version,
               event.previous_attributes AS "previous_attributes: Json<Box<RawValue>>",
               event.request_id AS "request_id!", event.idempotency_key AS "idempotency_key!",
               event.created_at AS "created_at!", event.traceparent AS "traceparent?",
               (SELECT count(*)
                  FROM webhook_deliveries AS sibling
                 WHERE sibling.account_id = found.account_id
                   AND sibling.event_id = found.event_id) AS "event_deliveries!"
          FROM found
          JOIN claimed ON claimed.account_id = found.account_id AND claimed.id = found.id
         CROSS JOIN LATERAL (
               SELECT *
                 FROM events
                WHERE events.account_id = found.account_id AND events.id = found.event_id
                LIMIT 1) AS event
         ORDER BY number, event.id
        "#,
        claim,
        interval(lease)?,
        &column(turns, |turn| turn.account_id),
        &column(turns, |turn| turn.endpoint_id),
        &places.map_err(unrepresentable)?,
        unsent_max,
    )
    .fetch_all(tx)
    .await?;
    Ok(claimed
        .into_iter()
        .map(|row| Claimed {
            account_id: row.account_id,
            id: row.id,
            endpoint_id: row.endpoint_id,
            is_due: row.is_due,
            is_first: row.is_first,
            is_disabled: row.disabled,
            at: row.at,
            attempts: row.attempts,
            event: Event {
                id: row.event_id,
                event_type: row.event_type,
                api_version: row.api_version,
                object: text(&row.object),
                object_version: row.object_version,
                previous_attributes: row.previous_attributes.as_ref().map(text),
                pending_webhooks: row.event_deliveries,
                request_id: row.request_id,
                idempotency_key: row.idempotency_key,
                created_at: row.created_at,
            },
            traceparent: row.traceparent,
            url: row.url,
            secret: Secret::of(row.secret),
            standard_webhooks: row.standard_webhooks,
        })
        .collect())
}

/// An attempt that has ended, and what that means for its delivery.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) account_id: Uuid,
    pub(crate) id: Uuid,
    /// The endpoint, with the URL that the attempt went to.
    pub(crate) endpoint: (Uuid, String),
    pub(crate) claim: Uuid,
    /// `None` if the first one was put off.
    pub(crate) attempt: Option<Attempt>,
    /// The pause before the next one, unless it was the last, or the endpoint has been deleted.
    pub(crate) again: Option<Duration>,
}

impl Ended {
    fn is(&self, is: fn(&Attempt) -> bool) -> bool {
        self.attempt.as_ref().is_some_and(is)
    }
}

/// Stores how attempts ended, and returns how many it stored. An attempt whose claim has expired is
/// left out if another worker has claimed the delivery since. What a reply said is stored under the
/// attempt's number. Locks the deliveries, and waits for them.
pub(crate) async fn finish(tx: &mut PgConnection, ended: &[Ended]) -> sqlx::Result<u64> {
    let (mut statuses, mut pauses) = (Vec::new(), Vec::new());
    for one in ended {
        let (status, pause) = match one.again {
            Some(pause) => (DeliveryStatus::Pending, Some(interval(pause)?)),
            None if one.is(Attempt::succeeded) => (DeliveryStatus::Succeeded, None),
            None => (DeliveryStatus::Failed, None),
        };
        statuses.push(status.as_str().to_owned());
        pauses.push(pause);
    }
    let finished = sqlx::query_scalar!(
        r#"
        WITH finished AS (
            UPDATE webhook_deliveries AS delivery
               SET attempts = delivery.attempts || ended.attempt,
                   status = CASE WHEN ended.status = 'pending' AND endpoint.deleted_at IS NOT NULL
                                 THEN 'failed' ELSE ended.status END,
                   ready = false,
                   next_attempt_at = CASE WHEN endpoint.deleted_at IS NULL
                                          THEN now() + ended.pause END,
                   delivered_at = CASE WHEN ended.status = 'succeeded' THEN now() END,
                   claim = NULL
              FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::jsonb[], $5::text[],
                          $6::interval[], $7::text[])
                   AS ended (account_id, id, claim, attempt, status, pause, reply),
                   webhook_endpoints AS endpoint
             WHERE delivery.account_id = ended.account_id AND delivery.id = ended.id
               AND delivery.claim = ended.claim
               AND endpoint.account_id = delivery.account_id AND endpoint.id = delivery.endpoint_id
            RETURNING delivery.account_id, delivery.id,
                      jsonb_array_length(delivery.attempts) AS number, ended.reply
        ), replied AS (
            INSERT INTO webhook_replies (account_id, delivery_id, number, reply)
            SELECT account_id, id, number, reply FROM finished WHERE reply IS NOT NULL
            ON CONFLICT DO NOTHING
        )
        SELECT count(*) AS "finished!" FROM finished
        "#,
        &column(ended, |one| one.account_id),
        &column(ended, |one| one.id),
        &column(ended, |one| one.claim),
        &column(ended, |one| Json(one.attempt.as_slice())) as _,
        &statuses,
        &pauses as _,
        &column(ended, |one| one.attempt.as_ref()?.reply.as_deref()) as _,
    )
    .fetch_one(tx)
    .await?;
    Ok(finished.unsigned_abs())
}

/// Disables the endpoints that are gone, by the word of these attempts. One whose URL has changed
/// meanwhile stays as it is. Locks their rows, in the order of their keys, and waits for them.
pub(crate) async fn disable_gone(tx: &mut PgConnection, ended: &[Ended]) -> sqlx::Result<()> {
    let gone: Vec<_> = ended
        .iter()
        .filter(|one| one.is(Attempt::is_gone))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "
        WITH locked AS MATERIALIZED (
            SELECT endpoint.account_id, endpoint.id
              FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS gone (account_id, id, url)
              JOIN webhook_endpoints AS endpoint
                ON endpoint.account_id = gone.account_id AND endpoint.id = gone.id
             WHERE endpoint.url = gone.url
             ORDER BY endpoint.account_id, endpoint.id
               FOR NO KEY UPDATE OF endpoint
        )
        UPDATE webhook_endpoints AS endpoint
           SET disabled = true
          FROM locked
         WHERE endpoint.account_id = locked.account_id AND endpoint.id = locked.id
        ",
        &column(&gone, |one| one.account_id),
        &column(&gone, |one| one.endpoint.0),
        &column(&gone, |one| one.endpoint.1.clone()),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Makes at most `limit` deliveries ready whose next attempt is due, or whose claim has expired,
/// and returns how many. Locks those that no other replica has locked.
pub async fn make_ready(tx: &mut PgConnection, limit: i64) -> sqlx::Result<u64> {
    let made_ready = sqlx::query!(
        "
        UPDATE webhook_deliveries
           SET ready = true
         WHERE ctid = ANY (ARRAY(
               SELECT ctid
                 FROM webhook_deliveries
                WHERE status = 'pending' AND NOT ready AND next_attempt_at <= now()
                ORDER BY next_attempt_at
                LIMIT $1
                  FOR UPDATE SKIP LOCKED))
        ",
        limit,
    )
    .execute(tx)
    .await?;
    Ok(made_ready.rows_affected())
}

/// Cancels at most `limit` deliveries that are pending for these endpoints, and returns how many.
/// Those that an attempt is being made for are left to its end. Locks those that no other replica
/// has locked.
pub(crate) async fn cancel(
    tx: &mut PgConnection,
    endpoints: &[(Uuid, Uuid)],
    limit: i64,
) -> sqlx::Result<u64> {
    let (accounts, endpoints): (Vec<_>, Vec<_>) = endpoints.iter().copied().unzip();
    let canceled = sqlx::query!(
        "
        UPDATE webhook_deliveries
           SET status = 'failed', ready = false, next_attempt_at = NULL, claim = NULL
         WHERE ctid = ANY (ARRAY(
               SELECT pending.ctid
                 FROM unnest($1::uuid[], $2::uuid[]) AS gone (account_id, endpoint_id)
                CROSS JOIN (VALUES (true), (false)) AS state (ready)
                CROSS JOIN LATERAL (
                      SELECT ctid
                        FROM webhook_deliveries AS one
                       WHERE status = 'pending' AND one.ready = state.ready
                         AND one.account_id = gone.account_id
                         AND one.endpoint_id = gone.endpoint_id
                         AND (claim IS NULL OR next_attempt_at <= now())
                       ORDER BY event_id
                       LIMIT $3
                         FOR UPDATE SKIP LOCKED) AS pending
                LIMIT $3))
        ",
        &accounts,
        &endpoints,
        limit,
    )
    .execute(tx)
    .await?;
    Ok(canceled.rows_affected())
}

/// At most `limit` deleted endpoints whose pending deliveries have not all been canceled. Locks
/// those that no other replica has locked.
pub(crate) async fn lock_uncanceled(
    tx: &mut PgConnection,
    limit: i64,
) -> sqlx::Result<Vec<(Uuid, Uuid)>> {
    let endpoints = sqlx::query!(
        "
        SELECT account_id, id
          FROM webhook_endpoints
         WHERE deleted_at IS NOT NULL AND canceled_at IS NULL
         ORDER BY account_id, id
         LIMIT $1
           FOR NO KEY UPDATE SKIP LOCKED
        ",
        limit,
    )
    .fetch_all(tx)
    .await?;
    let endpoints = endpoints.into_iter();
    Ok(endpoints.map(|row| (row.account_id, row.id)).collect())
}

/// Says of deleted endpoints whether everything that was pending for them has been canceled. Locks
/// their rows.
pub(crate) async fn mark_canceled(
    tx: &mut PgConnection,
    endpoints: &[(Uuid, Uuid)],
    is_canceled: bool,
) -> sqlx::Result<()> {
    let (accounts, ids): (Vec<_>, Vec<_>) = endpoints.iter().copied().unzip();
    sqlx::query!(
        "
        UPDATE webhook_endpoints AS endpoint
           SET canceled_at = CASE WHEN $3 THEN now() END
          FROM unnest($1::uuid[], $2::uuid[]) AS deleted (account_id, id)
         WHERE endpoint.account_id = deleted.account_id AND endpoint.id = deleted.id
           AND deleted_at IS NOT NULL
        ",
        &accounts,
        &ids,
        is_canceled,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Makes a delivery due now that waits or has failed, with the attempts that it had. `Some(false)`:
/// it was left as it is, because it succeeded, an attempt is being made, or its endpoint is
/// deleted. `None`: the account has none with this id. Locks the event against its removal, then
/// the row, and waits for both.
///
/// A failed one gets one attempt more, unless attempts are left. The event is locked first, as the
/// removal of old events does: a delivery that is due again must not lose its event.
pub async fn retry_now(
    tx: &mut PgConnection,
    account_id: Uuid,
    id: Uuid,
) -> sqlx::Result<Option<bool>> {
    sqlx::query_scalar!(
        r#"
        WITH kept AS MATERIALIZED (
            SELECT event.account_id, event.id
              FROM webhook_deliveries AS delivery
              JOIN events AS event
                ON event.account_id = delivery.account_id AND event.id = delivery.event_id
             WHERE delivery.account_id = $1 AND delivery.id = $2
               FOR KEY SHARE OF event
        ), found AS MATERIALIZED (
            SELECT delivery.account_id, delivery.id,
                   delivery.status <> 'succeeded' AND delivery.claim IS NULL
                   AND endpoint.deleted_at IS NULL AS may_be_sent
              FROM kept
              JOIN webhook_deliveries AS delivery
                ON delivery.account_id = kept.account_id AND delivery.event_id = kept.id
              JOIN webhook_endpoints AS endpoint
                ON endpoint.account_id = delivery.account_id AND endpoint.id = delivery.endpoint_id
             WHERE delivery.account_id = $1 AND delivery.id = $2
               FOR UPDATE OF delivery
        ), due AS (
            UPDATE webhook_deliveries AS delivery
               SET status = 'pending', ready = true, next_attempt_at = now()
              FROM found
             WHERE delivery.account_id = found.account_id AND delivery.id = found.id
               AND found.may_be_sent
        )
        SELECT may_be_sent AS "may_be_sent!" FROM found
        "#,
        account_id,
        id,
    )
    .fetch_optional(tx)
    .await
}

/// Makes deliveries to an endpoint due now that have failed, with the attempts that they had, and
/// returns how many: up to the slice's rows of its newest 20,000 deliveries there, the newest ones.
/// 0 if the endpoint is deleted. What another call has made due is no longer failed. Locks as
/// [`retry_now`] does, in the order of the deliveries.
pub async fn retry_failed(
    tx: &mut PgConnection,
    account_id: Uuid,
    endpoint_id: Uuid,
    slice: &Slice,
) -> sqlx::Result<u64> {
    let due = sqlx::query_scalar!(
        r#"
        WITH failed AS MATERIALIZED (
            SELECT id, event_id
              FROM (SELECT id, event_id, status, created_at
                      FROM webhook_deliveries
                     WHERE account_id = $1 AND endpoint_id = $2 AND id < $3 AND id > $4
                     ORDER BY id DESC
                     LIMIT 20000) AS newest
             WHERE status = 'failed'
               AND ($5::timestamptz IS NULL OR created_at >= $5)
               AND ($6::timestamptz IS NULL OR created_at < $6)
             ORDER BY id DESC
             LIMIT $7
        ), kept AS MATERIALIZED (
            SELECT failed.id
              FROM failed
             CROSS JOIN LATERAL (
                   SELECT
                     FROM events
                    WHERE account_id = $1 AND id = failed.event_id
                    LIMIT 1
                      FOR KEY SHARE) AS event
        ), found AS MATERIALIZED (
            SELECT delivery.id
              FROM kept
             CROSS JOIN LATERAL (
                   SELECT id
                     FROM webhook_deliveries
                    WHERE account_id = $1 AND id = kept.id AND status = 'failed'
                    LIMIT 1
                      FOR UPDATE) AS delivery
        ), due AS (
            UPDATE webhook_deliveries AS delivery
               SET status = 'pending', ready = true, next_attempt_at = now()
              FROM found, webhook_endpoints AS endpoint
             WHERE delivery.account_id = $1 AND delivery.id = found.id
               AND endpoint.account_id = $1 AND endpoint.id = $2 AND endpoint.deleted_at IS NULL
            RETURNING delivery.id
        )
        SELECT count(*) AS "due!" FROM due
        "#,
        account_id,
        endpoint_id,
        slice.below,
        slice.above,
        slice.created_from,
        slice.created_before,
        slice.rows,
    )
    .fetch_one(tx)
    .await?;
    Ok(due.unsigned_abs())
}

/// What `unnest` makes a column of again.
fn column<'r, R, C>(rows: &'r [R], of: impl FnMut(&'r R) -> C) -> Vec<C> {
    rows.iter().map(of).collect()
}

/// Whole microseconds: PostgreSQL knows no smaller unit.
fn interval(duration: Duration) -> sqlx::Result<PgInterval> {
    let micros = u64::try_from(duration.as_micros()).map_err(unrepresentable)?;
    PgInterval::try_from(Duration::from_micros(micros)).map_err(unrepresentable)
}

fn unrepresentable(error: impl Into<BoxDynError>) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}
