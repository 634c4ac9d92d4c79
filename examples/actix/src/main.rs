//! Transfers that move money at most once per `Idempotency-Key`. This file is what an application
//! does once; `deposits.rs` and `transfers.rs` are what it does for each endpoint.

mod deposits;
mod transfers;

use std::{env, net::TcpListener, time::Duration};

use actix_web::{
    App, Error, HttpServer,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::ConnectionType,
    middleware::{Next, from_fn},
    web,
};
use charge_once_idempotency::{
    Idempotency, SessionLimits, Settings, SweepPace, migrate, pin_session, sweep,
};
use sqlx::{
    Connection, PgConnection,
    error::BoxDynError,
    postgres::{PgConnectOptions, PgPoolOptions},
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

    let shared = web::Data::new(idempotency.clone());
    let app = move || {
        App::new()
            .app_data(shared.clone())
            .wrap(from_fn(tell_of_the_end))
            .service(transfers::create)
            .service(
                web::resource("/deposits")
                    .wrap(shared.middleware(|_| Ok(TENANT)))
                    .route(web::post().to(deposits::create)),
            )
    };
    let address = env::var("BIND_ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on http://{}", listener.local_addr()?);
    // Until SIGINT or SIGTERM, and then until the requests in progress are answered.
    HttpServer::new(app).listen(listener)?.run().await?;
    // A request whose client has gone is still executing: let it end.
    idempotency.drained().await;
    Ok(())
}

/// Actix ends the connection of a client that asks for another protocol (`Connection: Upgrade`) and
/// does not say so. The client's next request on it would get no answer, and the client would not
/// know its outcome.
async fn tell_of_the_end<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let ends = request.head().connection_type() == ConnectionType::Upgrade;
    let mut response = next.call(request).await?;
    if ends {
        let head = response.response_mut().head_mut();
        head.set_connection_type(ConnectionType::Close);
    }
    Ok(response)
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
