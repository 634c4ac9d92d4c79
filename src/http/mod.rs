//! 1 · The edge: knows HTTP, writes no SQL.
//!
//! Promise: this file shows every route; a handler reads the request, hands a command to
//! `idempotency::run`, and renders what comes back. Whatever happens, the client gets the envelope.

pub mod api_keys;
mod app;
pub mod body;
pub mod charges;
pub mod checkouts;
pub mod customers;
pub mod error;
mod error_responses;
pub mod events;
pub mod faults;
pub mod health;
pub mod idempotency_keys;
pub mod inventory;
pub mod list;
pub mod middleware;
mod not_found;
pub mod openapi;
pub mod orders;
mod pages;
mod parameters;
pub mod payment_intents;
pub mod payment_methods;
pub mod refunds;
pub mod reply;
mod reply_headers;
pub mod request;
mod request_log;
pub mod setup_intents;
mod swagger_ui;
pub mod test_accounts;
pub mod webhook_endpoints;
pub mod workflows;

use actix_web::{
    HttpResponse, Resource, Route, guard,
    web::{self, ServiceConfig},
};
use charge_once_openapi::served::show;

pub use self::app::App;
use self::error::HttpError;

/// Every route but the console's. The API is served twice, at the root and under `/v1`, by the same
/// handlers. The routes for tests of retries exist `with_faults` only.
pub fn routes(config: &mut ServiceConfig, with_faults: bool) {
    let api = |config: &mut ServiceConfig| api(config, with_faults);
    config
        .service(allow("/", "GET, HEAD").route(get().to(pages::home::show)))
        .service(allow("/livez", "GET, HEAD").route(get().to(health::livez)))
        .service(allow("/readyz", "GET, HEAD").route(get().to(health::readyz)))
        .service(allow("/errors", "GET, HEAD").route(get().to(pages::errors::show)))
        .service(
            allow(
                "/authenticate/{account}/{intent}/{token}",
                "GET, HEAD, POST",
            )
            .route(web::post().to(pages::authenticate::end))
            .route(get().to(pages::authenticate::show)),
        )
        .service(allow("/style.css", "GET, HEAD").route(get().to(pages::layout::style)))
        .service(allow("/favicon.svg", "GET, HEAD").route(get().to(pages::layout::favicon)))
        .service(allow("/favicon.ico", "GET, HEAD").route(get().to(pages::layout::favicon)))
        .service(allow("/swagger-ui", "GET, HEAD").route(get().to(swagger_ui::redirect)))
        .service(allow("/swagger-ui/{file:.*}", "GET, HEAD").route(get().to(swagger_ui::file)))
        .service(allow("/openapi.json", "GET, HEAD").route(get().to(show)))
        .service(web::scope("/v1").configure(api))
        .configure(api)
        .default_service(web::to(not_found::route_not_found));
}

/// The API itself.
fn api(config: &mut ServiceConfig, with_faults: bool) {
    if with_faults {
        config.configure(tests);
    }
    config
        .configure(payments)
        .configure(intents)
        .configure(people)
        .configure(setups)
        .configure(records)
        .default_service(web::to(not_found::route_not_found));
}

/// What is sold, charged and given back.
fn payments(config: &mut ServiceConfig) {
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
        .service(allow("/inventory", "GET, HEAD").route(get().to(inventory::list)))
        .service(
            allow("/inventory/{sku}", "GET, HEAD, PUT")
                .route(web::put().to(inventory::set))
                .route(get().to(inventory::retrieve)),
        );
}

/// Payments through as many cards as they take.
fn intents(config: &mut ServiceConfig) {
    config
        .service(
            allow("/payment_intents", "GET, HEAD, POST")
                .route(web::post().to(payment_intents::create))
                .route(get().to(payment_intents::list)),
        )
        .service(
            allow("/payment_intents/{id}", "GET, HEAD, POST")
                .route(web::post().to(payment_intents::update))
                .route(get().to(payment_intents::retrieve)),
        )
        .service(
            allow("/payment_intents/{id}/confirm", "POST")
                .route(web::post().to(payment_intents::confirm)),
        )
        .service(
            allow("/payment_intents/{id}/capture", "POST")
                .route(web::post().to(payment_intents::capture)),
        )
        .service(
            allow("/payment_intents/{id}/cancel", "POST")
                .route(web::post().to(payment_intents::cancel)),
        );
}

/// Who pays, and with what.
fn people(config: &mut ServiceConfig) {
    config
        .service(
            allow("/customers", "GET, HEAD, POST")
                .route(web::post().to(customers::create))
                .route(get().to(customers::list)),
        )
        .service(
            allow("/customers/{id}", "GET, HEAD, POST, DELETE")
                .route(web::post().to(customers::update))
                .route(web::delete().to(customers::delete))
                .route(get().to(customers::retrieve)),
        )
        .service(
            allow("/customers/{id}/payment_methods", "GET, HEAD")
                .route(get().to(payment_methods::list_of_customer)),
        )
        .service(
            allow(
                "/customers/{id}/payment_methods/{payment_method}",
                "GET, HEAD",
            )
            .route(get().to(payment_methods::retrieve_of_customer)),
        )
        .service(
            allow("/payment_methods", "GET, HEAD, POST")
                .route(web::post().to(payment_methods::create))
                .route(get().to(payment_methods::list)),
        )
        .service(
            allow("/payment_methods/{id}", "GET, HEAD, POST")
                .route(web::post().to(payment_methods::update))
                .route(get().to(payment_methods::retrieve)),
        )
        .service(
            allow("/payment_methods/{id}/attach", "POST")
                .route(web::post().to(payment_methods::attach)),
        )
        .service(
            allow("/payment_methods/{id}/detach", "POST")
                .route(web::post().to(payment_methods::detach)),
        );
}

/// What makes a card ready for later payments.
fn setups(config: &mut ServiceConfig) {
    config
        .service(
            allow("/setup_intents", "GET, HEAD, POST")
                .route(web::post().to(setup_intents::create))
                .route(get().to(setup_intents::list)),
        )
        .service(
            allow("/setup_intents/{id}", "GET, HEAD, POST")
                .route(web::post().to(setup_intents::update))
                .route(get().to(setup_intents::retrieve)),
        )
        .service(
            allow("/setup_intents/{id}/confirm", "POST")
                .route(web::post().to(setup_intents::confirm)),
        )
        .service(
            allow("/setup_intents/{id}/cancel", "POST")
                .route(web::post().to(setup_intents::cancel)),
        );
}

/// Events and their webhooks, idempotency keys, and workflows.
fn records(config: &mut ServiceConfig) {
    config
        .service(allow("/events", "GET, HEAD").route(get().to(events::list)))
        .service(allow("/events/{id}", "GET, HEAD").route(get().to(events::retrieve)))
        .service(
            allow("/webhook_endpoints", "GET, HEAD, POST")
                .route(web::post().to(webhook_endpoints::create))
                .route(get().to(webhook_endpoints::list)),
        )
        .service(
            allow("/webhook_endpoints/{id}", "GET, HEAD, POST, DELETE")
                .route(web::post().to(webhook_endpoints::update))
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
        .service(allow("/workflows/{name}", "GET, HEAD").route(get().to(workflows::list)));
}

/// For tests of retries.
fn tests(config: &mut ServiceConfig) {
    config
        .service(allow("/test/accounts", "POST").route(web::post().to(test_accounts::create)))
        .service(
            allow("/test/expire_keys", "POST").route(web::post().to(test_accounts::expire_keys)),
        );
}

/// A resource that answers methods it doesn't have with 405 and `Allow` (RFC 9110, 15.5.6).
pub(crate) fn allow(path: &'static str, methods: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move || async move {
        Err::<HttpResponse, _>(HttpError::method_not_allowed(methods))
    }))
}

/// GET, and HEAD with it: the server leaves the body out.
pub(crate) fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}
