//! 1 · The edge: knows HTTP, writes no SQL.
//!
//! Promise: this file shows every route; a handler reads the request, hands a command to
//! `idempotency::run`, and renders what comes back. Whatever happens, the client gets the envelope.

pub mod api_keys;
pub mod body;
pub mod charges;
pub mod checkouts;
pub mod error;
mod errors_page;
pub mod events;
pub mod health;
pub mod idempotency_keys;
pub mod inventory;
pub mod list;
pub mod openapi;
mod openapi_cards;
mod openapi_encoding;
mod openapi_headers;
pub mod orders;
pub mod outermost;
pub mod rate_limit;
pub mod refunds;
pub mod reply;
pub mod request;
pub mod webhook_endpoints;
pub mod workflows;

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpResponse, Resource, Route, guard,
    web::{self, ServiceConfig},
};
use tokio::sync::watch;

use self::{api_keys::ApiKeys, error::EdgeError, rate_limit::RateLimit};
use crate::{
    api::error::{ApiError, ErrorCode},
    commands::NetworkPhases,
    config::Timeouts,
    database::{Database, PgConnection, Reading, Writing},
    idempotency::{Failure, FailureKind, Idempotency},
    processor::SimulatedProcessor,
    sagas::CheckoutPhases,
};

/// What handlers work with. Cheap to clone; one for all worker threads.
#[derive(Clone)]
pub struct App {
    /// The one way to write, but for a DELETE.
    pub idempotency: Idempotency,
    /// The way to read, and to delete.
    pub database: Database,
    /// Who may call.
    pub api_keys: ApiKeys,
    /// How often.
    pub rate_limit: RateLimit,
    /// Where cards are authorised, if that takes no network.
    pub processor: Arc<SimulatedProcessor>,
    /// The way to write where it does.
    pub phases: Option<NetworkPhases>,
    /// The way to run several commands as one.
    pub checkouts: CheckoutPhases,
    /// The timeout ladder.
    pub timeouts: Timeouts,
    /// Largest body, in bytes.
    pub body_limit: usize,
    /// How long a duplicate under `/v1` waits unless it says otherwise.
    pub in_flight_wait_v1: Duration,
    /// Whether webhooks may go to addresses that are not public.
    pub webhooks_allow_private: bool,
    /// Becomes true when the process is asked to stop.
    pub stopping: watch::Receiver<bool>,
}

impl App {
    /// The same as [`App::read`] for a read of several statements, which all see one moment.
    pub async fn snapshot<T, F>(&self, read: F) -> Result<T, EdgeError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        self.database
            .snapshot(read)
            .await
            .map_err(EdgeError::failed_read)
    }

    /// Reads on a pooled connection; a failure is logged here and opaque to the client.
    pub async fn read<T, F>(&self, read: F) -> Result<T, EdgeError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, T> + Send + 'static,
    {
        self.database
            .read(read)
            .await
            .map_err(EdgeError::failed_read)
    }

    /// The same for a write that needs no idempotency key, because repeating it does nothing more.
    pub async fn write<T, F>(&self, write: F) -> Result<T, EdgeError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> Writing<'c, T> + Send + 'static,
    {
        // As in `reply::run`: a stopping replica takes no new work.
        if *self.stopping.borrow() {
            return Err(EdgeError::failed(FailureKind::Unavailable));
        }
        self.database.write(write).await.map_err(|error| {
            let Failure { kind, cause, .. } = error.into();
            tracing::error!(?kind, %cause, "a write failed");
            EdgeError::failed(kind)
        })
    }
}

/// Every route. The API is served twice, at the root and under `/v1`, by the same handlers.
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(allow("/", "GET, HEAD").route(get().to(health::index)))
        .service(allow("/livez", "GET, HEAD").route(get().to(health::livez)))
        .service(allow("/readyz", "GET, HEAD").route(get().to(health::readyz)))
        .service(allow("/errors", "GET, HEAD").route(get().to(errors_page::show)))
        .service(allow("/swagger-ui", "GET, HEAD").route(get().to(openapi::to_swagger_ui)))
        .service(allow("/swagger-ui/{file:.*}", "GET, HEAD").route(get().to(openapi::swagger_ui)))
        .service(allow("/openapi.json", "GET, HEAD").route(get().to(openapi::show)))
        .service(web::scope("/v1").configure(api))
        .configure(api)
        .default_service(web::to(route_not_found));
}

/// The API itself.
fn api(config: &mut ServiceConfig) {
    config
        .service(
            allow("/charges", "GET, HEAD, POST")
                .route(web::post().to(charges::create))
                .route(get().to(charges::list)),
        )
        .service(
            allow("/charges/{id}", "GET, HEAD, POST")
                .route(web::post().to(charges::update))
                .route(get().to(charges::retrieve)),
        )
        .service(allow("/charges/{id}/capture", "POST").route(web::post().to(charges::capture)))
        .service(
            allow("/charges/{id}/refunds", "GET, HEAD").route(get().to(refunds::list_of_charge)),
        )
        .service(
            allow("/refunds", "GET, HEAD, POST")
                .route(web::post().to(refunds::create))
                .route(get().to(refunds::list)),
        )
        .service(
            allow("/refunds/{id}", "GET, HEAD, POST")
                .route(web::post().to(refunds::update))
                .route(get().to(refunds::retrieve)),
        )
        .service(
            allow("/orders", "GET, HEAD, POST")
                .route(web::post().to(orders::create))
                .route(get().to(orders::list)),
        )
        .service(
            allow("/orders/{id}", "GET, HEAD, POST")
                .route(web::post().to(orders::update))
                .route(get().to(orders::retrieve)),
        )
        .service(allow("/orders/{id}/pay", "POST").route(web::post().to(orders::pay)))
        .service(allow("/orders/{id}/cancel", "POST").route(web::post().to(orders::cancel)))
        .service(
            allow("/checkouts", "GET, HEAD, POST")
                .route(web::post().to(checkouts::create))
                .route(get().to(checkouts::list)),
        )
        .service(allow("/checkouts/{id}", "GET, HEAD").route(get().to(checkouts::retrieve)))
        .service(
            allow("/inventory/{sku}", "GET, HEAD, PUT")
                .route(web::put().to(inventory::set))
                .route(get().to(inventory::retrieve)),
        )
        .service(allow("/events", "GET, HEAD").route(get().to(events::list)))
        .service(allow("/events/{id}", "GET, HEAD").route(get().to(events::retrieve)))
        .service(
            allow("/webhook_endpoints", "GET, HEAD, POST")
                .route(web::post().to(webhook_endpoints::create))
                .route(get().to(webhook_endpoints::list)),
        )
        .service(
            allow("/webhook_endpoints/{id}", "GET, HEAD, DELETE")
                .route(web::delete().to(webhook_endpoints::delete))
                .route(get().to(webhook_endpoints::retrieve)),
        )
        .service(
            allow("/webhook_endpoints/{id}/deliveries", "GET, HEAD")
                .route(get().to(webhook_endpoints::list_deliveries)),
        )
        .service(allow("/idempotency-keys", "GET, HEAD").route(get().to(idempotency_keys::look_up)))
        .service(
            allow("/idempotency-keys/{key}", "GET, HEAD")
                .route(get().to(idempotency_keys::retrieve)),
        )
        .service(allow("/workflows", "GET, HEAD").route(get().to(workflows::look_up)))
        .service(allow("/workflows/{name}", "GET, HEAD").route(get().to(workflows::list)))
        .default_service(web::to(route_not_found));
}

/// A resource that answers methods it doesn't have with 405 and `Allow` (RFC 9110, 15.5.6).
fn allow(path: &'static str, methods: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<HttpResponse, _>(EdgeError::method_not_allowed(methods))
    }))
}

/// GET, and HEAD with it: the server leaves the body out.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

async fn route_not_found() -> Result<HttpResponse, EdgeError> {
    Err(ApiError::explained(ErrorCode::RouteNotFound).into())
}
