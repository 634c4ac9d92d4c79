//! `/metrics` for Prometheus, on an address of its own.
//!
//! Promise: it is never served where clients send requests. A scrape asks no database, and runs on
//! a thread of its own: however many there are, no request waits for one.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use actix_web::{App, HttpRequest, HttpResponse, Route, dev::Server, guard, web};
use charge_once_connections::{
    self as connections, ConnectionTimeouts, Host, Hosts, is_loopback_address,
};

use super::metrics::{Metrics, value};
use crate::{
    database::Database,
    idempotency::{Idempotency, ReplayCache},
};

/// Connections at a time: some scrapers, and a person who looks.
const CONNECTIONS_MAX: usize = 16;

/// The version of the text that Prometheus reads.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is looked at when it is asked for.
#[derive(Clone)]
pub struct Scrape {
    /// What is counted all the time.
    pub metrics: Metrics,
    /// Knows what is in flight.
    pub idempotency: Idempotency,
    /// How many requests wait for a batch now.
    pub batch_waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Knows its size.
    pub replay_cache: Option<ReplayCache>,
    /// Knows its pool.
    pub database: Database,
}

impl Scrape {
    fn render(&self) -> String {
        let Self {
            metrics,
            idempotency,
            batch_waiting,
            replay_cache,
            database,
        } = self;
        let in_flight = idempotency.in_flight_counts();
        metrics.keys_in_flight.set(value(in_flight.keys));
        metrics.waiters.set(value(in_flight.waiters));
        metrics.batch_waiting.set(value(batch_waiting()));
        if let Some(replay_cache) = replay_cache {
            let bytes = usize::try_from(replay_cache.bytes()).unwrap_or(usize::MAX);
            metrics.cache_bytes.set(value(bytes));
        }
        let pool = database.pool();
        metrics.pool_max.set(pool.options().get_max_connections());
        metrics.pool_open.set(pool.size());
        metrics.pool_idle.set(value(pool.num_idle()));
        metrics.render()
    }
}

/// Serves scrapes until it is told to stop.
pub fn server(
    listener: TcpListener,
    scrape: Scrape,
    allowed_hosts: &[Host],
    timeouts: ConnectionTimeouts,
    drain_timeout: Duration,
) -> io::Result<Server> {
    // Elsewhere, scrapers call by names that are not listed, such as the address of a pod.
    let address = listener.local_addr()?;
    let listed = if is_loopback_address(address) {
        allowed_hosts
    } else {
        &[]
    };
    let hosts = Hosts::of(address, listed);
    let settings = connections::Settings {
        timeouts,
        workers: 1,
        connections_per_worker: CONNECTIONS_MAX,
        drain_timeout,
    };
    let scrape = web::Data::new(scrape);
    let app = move || {
        let route = Route::new().guard(guard::Any(guard::Get()).or(guard::Head()));
        App::new()
            .app_data(scrape.clone())
            .app_data(web::Data::new(hosts.clone()))
            .service(web::resource("/metrics").route(route.to(show)))
    };
    connections::server(listener, app, settings)
}

async fn show(
    request: HttpRequest,
    hosts: web::Data<Hosts>,
    scrape: web::Data<Scrape>,
) -> HttpResponse {
    if !hosts.take(request.head()) {
        return HttpResponse::BadRequest()
            .content_type("text/plain; charset=utf-8")
            .body("Host must be a name of this machine's loopback address, or one of ALLOWED_HOSTS.\n");
    }
    HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header(("cache-control", "no-store"))
        .body(scrape.render())
}
