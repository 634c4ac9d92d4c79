//! Seats that are booked at most once per `Idempotency-Key`. This file is what an application does
//! once; `bookings.rs` is what it does for each endpoint.

mod bookings;

use std::{env, time::Duration};

use axum::{Router, routing::post};
use charge_once_idempotency::{
    Idempotency, SessionLimits, Settings, SweepPace, migrate, pin_session, sweep,
};
use sqlx::{
    Connection, PgConnection,
    error::BoxDynError,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use uuid::Uuid;

/// The tenant whose keys they are. With several tenants, the request's credentials name it.
const TENANT: Uuid = Uuid::nil();

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    tracing_subscriber::fmt::init();
    let options: PgConnectOptions = env::var("DATABASE_URL")
        .map_err(|_| "DATABASE_URL is not set")?
        .parse()?;

    // The crate's tables, then the application's, in the same schema. Without the session's time
    // limits: a migration may take longer than a request.
    let mut connection = PgConnection::connect_with(&options).await?;
    let schema = migrate(&mut connection).await?;
    sqlx::migrate!().run(&mut connection).await?;
    connection.close().await?;

    let options = pin_session(options, &schema, SessionLimits::default());
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_secs(1))
        .connect_with(options.clone())
        .await?;
    let idempotency = Idempotency::new(pool, Settings::default())?;
    tokio::spawn(sweep_every_hour(options));

    let app = Router::new()
        .route("/bookings", post(bookings::create))
        .route_layer(idempotency.layer(|_| Ok(TENANT)));
    let address = env::var("BIND_ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    // A request whose client has gone is still executing: let it end.
    idempotency.drained().await;
    Ok(())
}

/// Deletes expired keys, on a connection of its own: a long sweep takes none from requests. An
/// expired key counts as absent whether it is swept or not, so a failed sweep is made up for later.
async fn sweep_every_hour(options: PgConnectOptions) {
    let mut hours = tokio::time::interval(Duration::from_secs(3600));
    loop {
        hours.tick().await;
        let swept = async {
            let mut connection = PgConnection::connect_with(&options).await?;
            sweep(&mut connection, SweepPace::default()).await
        };
        if let Err(error) = swept.await {
            tracing::warn!(%error, "the sweep failed");
        }
    }
}
