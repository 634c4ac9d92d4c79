//! `charge-once processor`: the card processor's simulator as a process of its own, on this
//! program's connections.

use std::{net::TcpListener, time::Duration};

use actix_web::{
    App, Error, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::{Next, from_fn},
    web::{self, Data},
};
use charge_once_processor::service::{Processor, Settings};
use charge_once_service::connections::{
    self as connections, ConnectionTimeouts, Files, Hosts, NoReply, connections_per_worker,
};
use serde_json::json;
use tracing_actix_web::TracingLogger;

use super::{BoxError, listen, print_document, reachable, session};
use crate::{
    config::Config,
    database::{Database, PROCESSOR_SCHEMA, WhenRefused},
    server::ServeError,
    telemetry::RequestSpan,
};

/// Longer than the idle time of the client's pool; see `crates/processor/src/http.rs`.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

pub(super) fn run() -> Result<(), BoxError> {
    let mut config = Config::from_env()?;
    // No other command brings this schema up to date.
    config.values.migrate_on_start = true;
    // The simulator takes the place of another company's system.
    config.traces = None;
    let address = config.values.processor_bind_address;
    let listener = listen("PROCESSOR_BIND_ADDRESS", address)?;
    let work = async |database, stop| {
        let url = reachable(listener.local_addr()?);
        print_document(&format!(
            "charge-once {} serves the simulated card processor at {url}\n  \
             Ledger      {url}/ledger\n  Faults      {url}/faults\n\n\
             Start the API with it: PROCESSOR_URL={url} charge-once\n",
            crate::VERSION,
        ))?;
        serve(listener, database, &config, stop).await
    };
    let database = config.database_settings(PROCESSOR_SCHEMA);
    let connect = async |url: &str| Database::connect(url, database, WhenRefused::TryAgain).await;
    session::serve(&config, &config.processor_database, connect, work)
}

/// Serves until `stop` resolves and what was in flight has finished.
async fn serve(
    listener: TcpListener,
    database: Database,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let settings = Settings {
        key_window: config.values.processor_key_window,
        database_deadline: config.values.database_deadline,
        withhold: |reply| {
            reply.extensions_mut().insert(NoReply);
        },
    };
    let processor = Processor::new(database.connections().clone(), settings)
        .map_err(|error| format!("PROCESSOR_KEY_WINDOW can't be used: {error}"))?;
    let served = processor.clone();
    let hosts = Data::new(Hosts::of(listener.local_addr()?, &config.allowed_hosts));
    let database = Data::new(database);
    let app = move || {
        App::new()
            .app_data(hosts.clone())
            .app_data(database.clone())
            .wrap(TracingLogger::<RequestSpan>::new())
            .wrap(from_fn(allowed_host))
            .configure(|routes| served.routes(routes))
            .route("/readyz", web::get().to(readyz))
    };
    let ended = |error| BoxError::from(ServeError::Io(error));
    let server = connections::server(listener, app, connection_settings(config), |_| {});
    let server = server.map_err(ended)?;
    let handle = server.handle();
    let mut server = tokio::spawn(server);
    let outcome = tokio::select! {
        outcome = &mut server => outcome,
        () = stop => {
            processor.end_delays();
            handle.stop(true).await;
            server.await
        }
    };
    let outcome = outcome.map_err(std::io::Error::other);
    outcome.flatten().map_err(ended)
}

/// Refuses what a page of another site can make a browser send under that site's name, because
/// there is no sign-in here.
async fn allowed_host<B: MessageBody + 'static>(
    hosts: Data<Hosts>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if hosts.take(request.head()) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let message = "The Host header names another host. ALLOWED_HOSTS of this server allows more.";
    let error = json!({"code": "host_not_allowed", "message": message});
    let refusal = HttpResponse::BadRequest().json(json!({"error": error}));
    Ok(request.into_response(refusal))
}

/// `GET /readyz`: whether an instruction could be executed.
async fn readyz(database: Data<Database>) -> HttpResponse {
    match database.check().await {
        Ok(()) => HttpResponse::Ok().json(json!({"status": "ready"})),
        Err(_) => HttpResponse::ServiceUnavailable().json(json!({"status": "not ready"})),
    }
}

fn connection_settings(config: &Config) -> connections::ServerSettings {
    connections::ServerSettings {
        timeouts: ConnectionTimeouts {
            keep_alive: KEEP_ALIVE,
            ..config.connections
        },
        workers: config.values.workers,
        connections_per_worker: connections_per_worker(&Files {
            workers: config.values.workers,
            shared: config.values.pool_connections,
            background: 0,
            per_request: 0,
        }),
        drain_timeout: config.values.drain_timeout,
    }
}
