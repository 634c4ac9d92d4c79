//! `/`: where to begin, for people and for programs.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{ACCEPT, VARY},
    web,
};
use maud::html;
use serde_json::json;

use super::layout::page;
use crate::http::{app::App, health::not_ready};

/// HTML where the request accepts it, which browsers do; JSON for everything else.
pub(in crate::http) async fn show(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    let mut accepted = request.headers().get_all(ACCEPT);
    let is_browser = accepted.any(|types| {
        let types = types.to_str();
        types.is_ok_and(|types| types.contains("text/html"))
    });
    if !is_browser {
        return HttpResponse::Ok()
            .insert_header((VARY, "Accept"))
            .json(json!({
                "name": "charge-once",
                "documentation": "/swagger-ui/",
                "openapi": "/openapi.json",
                "errors": "/errors",
            }));
    }
    let status = not_ready(&app).await;
    let body = html! {
        h1 { "charge-once" }
        p { "A payments API in which a retried request never charges twice." }
        p {
            "Version " (env!("CARGO_PKG_VERSION")) ". "
            @match status {
                None => "Ready to serve.",
                Some(reason) => { "Not ready: " (reason) }
            }
        }
        ul {
            @if app.has_console {
                li { a href="/console" { "Console" } ": what became of each request, and a playground" }
            }
            li { a href="/swagger-ui/" { "Swagger UI" } ": try every endpoint from the browser" }
            li { a href="/openapi.json" { "openapi.json" } ": the OpenAPI document" }
            li { a href="/errors" { "Errors" } ": every error code, and what to do" }
            li { a href="/readyz" { "readyz" } ": whether this replica can serve, for probes" }
        }
        p {
            "Every POST and PUT needs an " code { "Idempotency-Key" } ". Send a request twice with "
            "the same key, and it is answered twice and executed once."
        }
    };
    page("charge-once", &body)
}
