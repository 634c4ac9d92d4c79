//! 1 · The edge: knows HTTP, writes no SQL.
//!
//! Promise: this file shows every route; a handler reads the request, hands a command to
//! `idempotency::run`, and renders what comes back. Whatever happens, the client gets the envelope.

pub mod account;
pub mod api_keys;
mod app;
pub mod body;
pub mod charges;
pub mod checkouts;
pub mod customers;
mod endpoints;
pub mod error;
mod error_responses;
pub mod events;
pub mod fault_plans;
pub mod faults;
pub mod health;
pub mod idempotency_keys;
pub mod inventory;
pub mod invoice_payments;
mod keyed_operations;
pub mod middleware;
mod not_found;
pub mod openapi;
pub mod orders;
mod pages;
mod parameters;
pub mod payment_intents;
pub mod payment_methods;
pub mod policy;
mod prelude;
mod problems;
pub mod reads;
pub mod refunds;
pub mod reply;
mod reply_headers;
pub mod report;
pub mod request;
mod request_log;
pub mod retention;
pub mod setup_intents;
pub mod shards;
mod swagger_ui;
pub mod test_accounts;
pub mod webhook_endpoints;
pub mod workflows;

use actix_web::{
    HttpResponse, Resource, Route, guard,
    web::{self, ServiceConfig, delete, post, put},
};
use charge_once_service::{edge::KnownRoutes, openapi::served::show};

pub use self::app::{App, Apps, Shared};
use self::error::HttpError;
use crate::wire::not_offered;

/// Serves resources: `"/path": method handler, method handler;`. So `"/refunds": get refunds::list,
/// post refunds::create;` makes
///
/// ```text
/// config.service(
///     allow("/refunds", "GET, HEAD, POST")
///         .route(get().to(refunds::list))
///         .route(post().to(refunds::create)),
/// );
/// ```
#[rustfmt::skip]
macro_rules! resources {
    // What the header `Allow` calls a method.
    (@get) => { "GET, HEAD" };
    (@post) => { "POST" };
    (@put) => { "PUT" };
    (@delete) => { "DELETE" };
    ($to:ident: $($path:literal: $verb:ident $handler:path $(, $verbs:ident $more:path)*;)+) => {
        $($to.service(
            allow($path, concat!(resources!(@$verb) $(, ", ", resources!(@$verbs))*))
                .route($verb().to($handler))
                $(.route($verbs().to($more)))*
        );)+
    };
}

/// The routes of the API, without those for tests, as the OpenAPI document has them.
pub fn known_routes() -> &'static KnownRoutes {
    &not_found::KNOWN_ROUTES
}

/// Every route but the console's. The API is served twice, at the root and under `/v1`, by the same
/// handlers. The routes for tests of retries exist `with_faults` only.
pub fn routes(config: &mut ServiceConfig, with_faults: bool) {
    let api = |config: &mut ServiceConfig| api(config, with_faults);
    resources! { config:
        "/": get pages::home::show;
        "/livez": get health::livez;
        "/readyz": get health::readyz;
        "/errors": get pages::errors::show;
        "/authenticate/{account}/{intent}/{token}":
            get pages::authenticate::show, post pages::authenticate::end;
        "/style.css": get pages::layout::style;
        "/favicon.svg": get pages::layout::favicon;
        "/favicon.ico": get pages::layout::favicon;
        "/swagger-ui": get swagger_ui::redirect;
        "/swagger-ui/{file:.*}": get swagger_ui::file;
        "/openapi.json": get show;
        "/.well-known/idempotency": get policy::retrieve;
    }
    config
        .service(web::scope("/v1").configure(api))
        .configure(api)
        .default_service(web::to(not_found::route_not_found));
}

fn api(config: &mut ServiceConfig, with_faults: bool) {
    if with_faults {
        resources! { config:
            "/test/accounts": post test_accounts::create;
            "/test/expire_keys": post test_accounts::expire_keys;
            "/test/faults": get fault_plans::list, post fault_plans::create;
            "/test/faults/{id}": delete fault_plans::delete;
            "/test/report": get report::retrieve;
        }
    }
    // Before the routes of single objects: "search" is no id.
    for resource in not_offered::searched() {
        let search = web::resource(format!("/{resource}/search"));
        let search = search.guard(guard::Any(guard::Get()).or(guard::Head()));
        config.service(search.default_service(web::to(not_found::route_not_found)));
    }
    resources! { config:
        // What is sold, charged and given back.
        "/charges": get charges::list, post charges::create;
        "/charges/{id}": get charges::retrieve, post charges::update;
        "/charges/{id}/capture": post charges::capture;
        "/charges/{id}/refunds": get refunds::list_of_charge;
        "/refunds": get refunds::list, post refunds::create;
        "/refunds/{id}": get refunds::retrieve, post refunds::update;
        "/orders": get orders::list, post orders::create;
        "/orders/{id}": get orders::retrieve, post orders::update;
        "/orders/{id}/pay": post orders::pay;
        "/orders/{id}/cancel": post orders::cancel;
        "/checkouts": get checkouts::list, post checkouts::create;
        "/checkouts/{id}": get checkouts::retrieve;
        "/inventory": get inventory::list;
        "/inventory/{sku}": get inventory::retrieve, put inventory::set;

        // Payments through as many cards as they take.
        "/payment_intents": get payment_intents::list, post payment_intents::create;
        "/payment_intents/{id}": get payment_intents::retrieve, post payment_intents::update;
        "/payment_intents/{id}/confirm": post payment_intents::confirm;
        "/payment_intents/{id}/capture": post payment_intents::capture;
        "/payment_intents/{id}/cancel": post payment_intents::cancel;

        // Who pays, and with what.
        "/customers": get customers::list, post customers::create;
        "/customers/search": get customers::search;
        "/customers/{id}":
            get customers::retrieve, post customers::update, delete customers::delete;
        "/customers/{id}/payment_methods": get payment_methods::list_of_customer;
        "/customers/{id}/payment_methods/{payment_method}":
            get payment_methods::retrieve_of_customer;
        "/payment_methods": get payment_methods::list, post payment_methods::create;
        "/payment_methods/{id}":
            get payment_methods::retrieve_any, post payment_methods::update;
        "/payment_methods/{id}/attach": post payment_methods::attach;
        "/payment_methods/{id}/detach": post payment_methods::detach;

        // What makes a card ready for later payments.
        "/setup_intents": get setup_intents::list, post setup_intents::create;
        "/setup_intents/{id}": get setup_intents::retrieve, post setup_intents::update;
        "/setup_intents/{id}/confirm": post setup_intents::confirm;
        "/setup_intents/{id}/cancel": post setup_intents::cancel;

        // Events and their webhooks, idempotency keys, and workflows.
        "/account": get account::retrieve;
        "/invoice_payments": get invoice_payments::list;
        "/events": get events::list;
        "/events/{id}": get events::retrieve;
        "/webhook_endpoints": get webhook_endpoints::list, post webhook_endpoints::create;
        "/webhook_endpoints/{id}":
            get webhook_endpoints::retrieve, post webhook_endpoints::update,
            delete webhook_endpoints::delete;
        "/webhook_endpoints/{id}/deliveries": get webhook_endpoints::list_deliveries;
        "/idempotency-keys": get idempotency_keys::look_up;
        "/idempotency-keys/{key}": get idempotency_keys::retrieve;
        "/idempotency-keys/{key}/abandon": post idempotency_keys::abandon;
        "/workflows": get workflows::look_up;
        "/workflows/{name}": get workflows::list;
    }
    config.default_service(web::to(not_found::route_not_found));
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
