//! Seats that are booked, and webhooks that tell of each booking: neither without the other.

use std::{collections::BTreeMap, env, sync::Arc};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use charge_once_webhooks::{
    EVERY_EVENT, Event, NewEndpoint, NewEvent, Secret, Settings, Worker, check_url, emit,
    endpoints, migrate,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool, error::BoxDynError, postgres::PgConnectOptions};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
};
use uuid::Uuid;

/// Replace it by the tenant that the request's credentials name: events go to its own endpoints.
const TENANT: Uuid = Uuid::nil();

#[derive(Clone)]
struct App {
    pool: PgPool,
    wake: Arc<Notify>,
    allow_private: bool,
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    tracing_subscriber::fmt::init();
    let options: PgConnectOptions = env::var("DATABASE_URL")?.parse()?;
    let mut connection = PgConnection::connect_with(&options).await?;
    let schema = migrate(&mut connection).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS bookings (seat integer PRIMARY KEY)")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    // A default of the role could otherwise lead to other tables one day.
    let pinned = options.options([("search_path", schema)]);
    let pool = PgPool::connect_with(pinned).await?;

    let settings = Settings {
        // Receivers on this machine, for development.
        allow_private: env::var("ALLOW_PRIVATE").is_ok(),
        ..Settings::default()
    };
    let app = App {
        wake: Arc::default(),
        allow_private: settings.allow_private,
        pool: pool.clone(),
    };
    let (stop, stopping) = watch::channel(false);
    let worker = Worker::new(pool.clone(), settings, body)?;
    let webhooks = tokio::spawn(worker.woken_by(Arc::clone(&app.wake)).run(stopping));

    let routes = Router::new()
        .route("/endpoints", post(create_endpoint))
        .route("/bookings", post(book))
        .with_state(app);
    let address = env::var("BIND_ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
        })
        .await?;
    // What is being sent ends. What is left is sent by the next process.
    stop.send_replace(true);
    Ok(webhooks.await?)
}

/// What is sent for an event.
fn body(event: &Event) -> serde_json::Result<Vec<u8>> {
    let object: Value = serde_json::from_str(&event.object)?;
    serde_json::to_vec(
        &json!({"id": event.id.to_string(), "type": event.event_type, "object": object}),
    )
}

#[derive(Deserialize)]
struct Receiver {
    url: String,
}

/// The secret is shown here only. A receiver verifies with it.
async fn create_endpoint(
    State(app): State<App>,
    Json(receiver): Json<Receiver>,
) -> Result<Json<Value>, StatusCode> {
    check_url(&receiver.url, app.allow_private).map_err(|_| StatusCode::BAD_REQUEST)?;
    let new = NewEndpoint {
        url: receiver.url,
        enabled_events: vec![EVERY_EVENT.to_owned()],
        api_version: None,
        standard_webhooks: false,
        description: None,
        metadata: BTreeMap::new(),
    };
    let secret = Secret::random();
    let inserting = async {
        let mut connection = app.pool.acquire().await?;
        endpoints::insert(&mut connection, TENANT, Uuid::now_v7(), &new, &secret).await
    };
    let inserted = inserting.await;
    inserted.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(json!({"secret": secret.reveal()})))
}

#[derive(Deserialize)]
struct Booking {
    seat: i32,
}

async fn book(State(app): State<App>, Json(new): Json<Booking>) -> StatusCode {
    match commit(&app.pool, new.seat).await {
        Ok(()) => {
            app.wake.notify_one();
            StatusCode::CREATED
        }
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => StatusCode::CONFLICT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The booking, its event and its webhooks: one transaction.
async fn commit(pool: &PgPool, seat: i32) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    let event = NewEvent {
        account_id: TENANT,
        id: Uuid::now_v7(),
        event_type: "booking.created",
        api_version: None,
        object: json!({"seat": seat}).to_string(),
        object_version: None,
        previous_attributes: None,
        request_id: String::new(),
        idempotency_key: String::new(),
        traceparent: None,
    };
    emit(&mut tx, &[event]).await?;
    sqlx::query("INSERT INTO bookings (seat) VALUES ($1)")
        .bind(seat)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}
