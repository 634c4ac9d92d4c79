//! The consumer's half of webhooks: an event may be delivered several times, and has one effect.
//!
//! Promise: 200 means that the effect is committed. The event's id and its effect are written in
//! one transaction, so a crash leaves both or neither, and a later delivery can complete the work.
//! Events arrive in any order, so one that tells of an older version of its object than is known
//! changes nothing of it.

mod signature;

use std::time::{Duration, UNIX_EPOCH};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;
use sqlx::{
    Connection, PgConnection, PgPool,
    migrate::Migrate,
    postgres::{PgConnectOptions, PgPoolOptions},
};

pub use signature::{TOLERANCE_SECONDS, verify};

/// The part of an event that is used here.
#[derive(Deserialize)]
struct Event {
    id: String,
    r#type: String,
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    object: serde_json::Value,
    /// Greater with each change of the object. Events of the release before have none.
    object_version: Option<i64>,
}

/// A charge as an event shows it: as it was right after that change.
#[derive(Deserialize)]
struct ChangedCharge {
    id: String,
    amount_captured: i64,
    amount_refunded: i64,
    currency: String,
}

/// Connects, and brings the tables up to date.
pub async fn connect(database_url: &str) -> Result<PgPool, sqlx::Error> {
    let options: PgConnectOptions = database_url.parse()?;
    let mut connection = PgConnection::connect_with(&options).await?;
    connection.lock().await?;
    // In the schema that has the tables, or else in the current one: a role's defaults could lead
    // to a second set, which knows no event. Two names without a comma are no list, but an error.
    let find = "SELECT set_config('search_path', coalesce(
             (SELECT string_agg(quote_ident(nspname), ' and also ')
                FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
               WHERE relname = 'handled_events' AND relkind = 'r' AND relpersistence <> 't'),
             quote_ident(current_schema())), false)";
    let schema: String = sqlx::query_scalar(find).fetch_one(&mut connection).await?;
    sqlx::migrate!().run(&mut connection).await?;
    // This ends the lock, too.
    connection.close().await?;
    let pinned = options.options([
        ("search_path", &*schema),
        // 200 promises that the effect survives a crash, whatever the role's default is.
        ("synchronous_commit", "on"),
        // A sender that gives up meanwhile, after 10 seconds, delivers again, and all of it has
        // one effect.
        ("statement_timeout", "3s"),
    ]);
    PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(2))
        .connect_with(pinned)
        .await
}

/// `POST /webhooks`. `secret` is the endpoint's, with its `whsec_`.
pub fn app(pool: PgPool, secret: String) -> Router {
    Router::new()
        .route("/webhooks", post(receive))
        .with_state((pool, secret))
}

/// Takes the body as bytes: JSON that is parsed and written again has another signature.
async fn receive(
    State((pool, secret)): State<(PgPool, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, ReceiveError> {
    let now = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let header = headers.get("stripe-signature");
    let header = header.and_then(|value| value.to_str().ok()).unwrap_or("");
    verify(&secret, header, &body, now.cast_signed()).map_err(ReceiveError::Signature)?;
    let event: Event = serde_json::from_slice(&body)?;
    // A task of its own: a sender that hangs up cancels this function, and canceling sqlx's
    // `begin` halfway gives a connection back to the pool inside a transaction.
    tokio::spawn(async move { handle_once(&pool, &event).await }).await??;
    Ok(StatusCode::OK)
}

/// Commits the event's id and its effect. Where the id is known, it changes nothing.
async fn handle_once(pool: &PgPool, event: &Event) -> Result<(), ReceiveError> {
    let mut tx = pool.begin().await?;
    // While another transaction holds the same id, the INSERT waits for it to end. After a commit
    // it inserts nothing; after a rollback it inserts, and this delivery has the effect.
    let inserted =
        sqlx::query("INSERT INTO handled_events (id, type) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(&event.id)
            .bind(&event.r#type)
            .execute(&mut *tx)
            .await?;
    if inserted.rows_affected() == 1 {
        apply(&mut tx, event).await?;
    }
    Ok(tx.commit().await?)
}

/// The effect, in SQL only: an e-mail or a call to another service can't be rolled back. Write a
/// row here that says what to do, and let a job do it after the commit.
async fn apply(tx: &mut PgConnection, event: &Event) -> Result<(), ReceiveError> {
    let takes_money = match &*event.r#type {
        "charge.succeeded" | "charge.captured" => true,
        "charge.refunded" => false,
        // An event that isn't wanted is acknowledged all the same, or it would come back for days.
        _ => return Ok(()),
    };
    let charge = ChangedCharge::deserialize(&event.data.object)?;
    copy_charge(tx, &charge, event.data.object_version).await?;
    // A sum is the same in every order, so what the event tells of its own change may be added.
    if takes_money {
        sqlx::query(
            "INSERT INTO revenue (currency, amount) VALUES ($1, $2)
             ON CONFLICT (currency) DO UPDATE SET amount = revenue.amount + excluded.amount",
        )
        .bind(charge.currency)
        .bind(charge.amount_captured)
        .execute(tx)
        .await?;
    }
    Ok(())
}

/// Writes down what the charge is, unless a newer version of it is known. Neither `created` nor the
/// ids of two events say which one is newer.
async fn copy_charge(
    tx: &mut PgConnection,
    charge: &ChangedCharge,
    version: Option<i64>,
) -> Result<(), sqlx::Error> {
    // Where another transaction writes the same charge, this waits for it to end, and then compares
    // with what that one wrote.
    sqlx::query(
        "INSERT INTO charges (id, version, amount_captured, amount_refunded)
         VALUES ($1, $2, $3, $4)
         ON CONFLICT (id) DO UPDATE
            SET version = excluded.version, amount_captured = excluded.amount_captured,
                amount_refunded = excluded.amount_refunded
          WHERE charges.version < excluded.version",
    )
    .bind(&charge.id)
    // An event without a version counts as 0, which is less than any version: it is applied only
    // where nothing is known of the charge.
    .bind(version.unwrap_or(0))
    .bind(charge.amount_captured)
    .bind(charge.amount_refunded)
    .execute(tx)
    .await?;
    Ok(())
}

/// Why a delivery is not acknowledged. The sender delivers again after any answer but a 2xx.
#[derive(Debug, thiserror::Error)]
enum ReceiveError {
    #[error("the signature is refused: {0}")]
    Signature(&'static str),
    #[error("the event can't be read: {0}")]
    Event(#[from] serde_json::Error),
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl IntoResponse for ReceiveError {
    fn into_response(self) -> Response {
        tracing::warn!("webhook not acknowledged: {self}");
        match self {
            Self::Signature(_) | Self::Event(_) => StatusCode::BAD_REQUEST,
            Self::Database(_) | Self::Task(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
        .into_response()
    }
}
