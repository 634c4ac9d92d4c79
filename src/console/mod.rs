//! The console: pages on which people see what became of their requests.
//!
//! Promise: it exists only with `CONSOLE=true`. A page shows the account of its session and no other. No
//! secret, card number or body of a request is on any of them. It is made on the server, from files of
//! this folder only, and needs no script but for live updates.

mod deliveries;
mod error;
mod form;
mod in_flight;
mod keys;
mod layout;
mod masked;
mod objects;
mod playground;
mod requests;
mod session;
mod sign_in;
mod visitor;

use std::net::SocketAddr;

use actix_web::web::{self, ServiceConfig};

pub use self::playground::PlaygroundError;
use self::{playground::Playground, session::Sessions};
use crate::http::{allow, get};

/// What the pages work with, beside the API's own [`App`](crate::http::App).
#[derive(Debug)]
pub struct Console {
    sessions: Sessions,
    playground: Playground,
}

impl Console {
    /// For the server that listens on `address` and takes requests to `host`.
    pub fn new(address: SocketAddr, host: &str) -> Result<Self, PlaygroundError> {
        Ok(Self {
            sessions: Sessions::default(),
            playground: Playground::new(address, host)?,
        })
    }
}

/// The pages. The server adds them only with `CONSOLE=true`.
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(allow("/console", "GET, HEAD").route(get().to(requests::show)))
        .service(allow("/console/live", "GET, HEAD").route(get().to(requests::live)))
        .service(allow("/console/keys/{key}", "GET, HEAD").route(get().to(keys::show)))
        .service(allow("/console/charges", "GET, HEAD").route(get().to(objects::charges)))
        .service(allow("/console/charges/{id}", "GET, HEAD").route(get().to(objects::charge)))
        .service(allow("/console/orders", "GET, HEAD").route(get().to(objects::orders)))
        .service(allow("/console/orders/{id}", "GET, HEAD").route(get().to(objects::order)))
        .service(allow("/console/refunds", "GET, HEAD").route(get().to(objects::refunds)))
        .service(allow("/console/refunds/{id}", "GET, HEAD").route(get().to(objects::refund)))
        .service(allow("/console/checkouts", "GET, HEAD").route(get().to(objects::checkouts)))
        .service(allow("/console/checkouts/{id}", "GET, HEAD").route(get().to(objects::checkout)))
        .service(allow("/console/deliveries", "GET, HEAD").route(get().to(deliveries::show)))
        .service(
            allow("/console/deliveries/{id}/retry", "POST")
                .route(web::post().to(deliveries::retry)),
        )
        .service(allow("/console/in-flight", "GET, HEAD").route(get().to(in_flight::show)))
        .service(
            allow("/console/playground", "GET, HEAD, POST")
                .route(web::post().to(playground::act))
                .route(get().to(playground::show)),
        )
        .service(
            allow("/console/sign-in", "GET, HEAD, POST")
                .route(web::post().to(sign_in::sign_in))
                .route(get().to(sign_in::show)),
        )
        .service(allow("/console/sign-out", "POST").route(web::post().to(sign_in::sign_out)))
        .service(allow("/console/style.css", "GET, HEAD").route(get().to(layout::style)))
        .service(allow("/console/script.js", "GET, HEAD").route(get().to(layout::script)));
}
