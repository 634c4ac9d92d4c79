//! Webhook deliveries: what a claim takes while many others are pending.

use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::{Router, body::Bytes, http::StatusCode};
use sqlx::PgConnection;
use tokio::net::TcpListener;

use super::statements::Watched;
use crate::{
    data::{FAR_FUTURE, Shape},
    postgres::execute,
};

/// Deliveries that are due together, the same number in every database: fewer than are pending in
/// the smallest one.
const DUE: i64 = 1_000;

/// Time until they are due: enough to clear away what making them due left behind.
const DUE_IN: Duration = Duration::from_secs(8);

/// How long it may take after that until all are delivered.
const DELIVERY_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks: some claims.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Makes the newest pending deliveries due, and watches the claims of the worker that sends them.
/// Makes the deliveries what they were, once all are delivered.
pub(crate) async fn measure(
    shape: &Shape,
    watched: &mut Watched,
    connection: &mut PgConnection,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    // It takes everything.
    let endpoint = Router::new().fallback(|_: Bytes| async { StatusCode::OK });
    let receiver = tokio::spawn(async move { axum::serve(listener, endpoint).await });
    sqlx::query("UPDATE webhook_endpoints SET url = $1")
        .bind(url)
        .execute(&mut *connection)
        .await?;
    let due = Instant::now() + DUE_IN;
    let made_due = sqlx::query(
        "UPDATE webhook_deliveries
            SET ready = false, next_attempt_at = now() + $1 * interval '1 second'
          WHERE (account_id, id) IN (SELECT account_id, id FROM webhook_deliveries
                                      WHERE status = 'pending'
                                      ORDER BY event_id DESC
                                      LIMIT $2)",
    )
    .bind(i64::try_from(DUE_IN.as_secs())?)
    .bind(DUE)
    .execute(&mut *connection)
    .await?
    .rows_affected();
    ensure!(
        made_due == DUE.unsigned_abs(),
        "only {made_due} deliveries are pending"
    );
    execute("VACUUM (ANALYZE) webhook_deliveries", connection).await?;
    ensure!(
        Instant::now() < due,
        "the deliveries were due before they could be vacuumed"
    );
    watched.begin(connection).await?;
    tokio::time::sleep_until(due.into()).await;
    let until = Instant::now() + DELIVERY_LIMIT;
    while watched.counted.rows < DUE || is_any_due(connection).await? {
        ensure!(
            Instant::now() < until,
            "{} deliveries were claimed in {DELIVERY_LIMIT:?}, and not all of them were made",
            watched.counted.rows
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
        watched.look(connection).await?;
    }
    receiver.abort();
    restore(shape, connection).await
}

/// Whether a delivery is due, or under way.
async fn is_any_due(connection: &mut PgConnection) -> anyhow::Result<bool> {
    let due = sqlx::query_scalar(
        "SELECT EXISTS (
            SELECT FROM webhook_deliveries
             WHERE status = 'pending' AND next_attempt_at < to_timestamp($1::bigint / 1000000))",
    )
    .bind(FAR_FUTURE.cast_signed());
    Ok(due.fetch_one(connection).await?)
}

/// Makes the deliveries what they were. Only while none of them is under way.
pub(crate) async fn restore(shape: &Shape, connection: &mut PgConnection) -> anyhow::Result<()> {
    sqlx::query(
        "UPDATE webhook_deliveries
            SET status = 'pending', attempts = '[]', claim = NULL, delivered_at = NULL, ready = false,
                next_attempt_at = to_timestamp($1::bigint / 1000000)
          WHERE (status = 'pending' AND next_attempt_at < to_timestamp($1::bigint / 1000000))
             OR delivered_at > to_timestamp($2::bigint / 1000000) + interval '2 seconds'",
    )
    .bind(FAR_FUTURE.cast_signed())
    // The newest stored delivery was made a second after the newest row.
    .bind(shape.until_micros.cast_signed())
    .execute(connection)
    .await?;
    Ok(())
}
