//! The console: pages on which people see what became of their requests.
//!
//! Promise: it exists only with `CONSOLE=true`. A page shows the account of its session and no other. No
//! secret, card number or body of a request is on any of them. It is made on the server, from files of
//! this folder only, and needs no script but for live updates.

mod error;
mod form;
mod layout;
mod requests;
mod session;
mod sign_in;
mod visitor;

use actix_web::web::{self, ServiceConfig};

use self::session::Sessions;
use crate::http::{allow, get};

/// What the pages work with, beside the API's own [`App`](crate::http::App).
#[derive(Debug, Default)]
pub struct Console {
    sessions: Sessions,
}

/// The pages. The server adds them only with `CONSOLE=true`.
pub fn routes(config: &mut ServiceConfig) {
    config
        .service(allow("/console", "GET, HEAD").route(get().to(requests::show)))
        .service(allow("/console/live", "GET, HEAD").route(get().to(requests::live)))
        .service(
            allow("/console/sign-in", "GET, HEAD, POST")
                .route(web::post().to(sign_in::sign_in))
                .route(get().to(sign_in::show)),
        )
        .service(allow("/console/sign-out", "POST").route(web::post().to(sign_in::sign_out)))
        .service(allow("/console/style.css", "GET, HEAD").route(get().to(layout::style)))
        .service(allow("/console/script.js", "GET, HEAD").route(get().to(layout::script)));
}
