//! `/`: where to begin, for people and for programs.

use actix_web::{HttpRequest, HttpResponse, http::header::VARY, web};
use charge_once_edge::accepts_html;
use maud::html;
use serde_json::json;

use super::layout::LAYOUT;
use crate::http::{app::App, health::readiness};

/// HTML where the request accepts it, which browsers do; JSON for everything else.
pub(in crate::http) async fn show(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    if !accepts_html(request.headers()) {
        return HttpResponse::Ok()
            .insert_header((VARY, "Accept"))
            .json(json!({
                "name": "charge-once",
                "documentation": "/swagger-ui/",
                "openapi": "/openapi.json",
                "errors": "/errors",
            }));
    }
    let status = readiness(&app).await;
    let body = html! {
        h1 { "charge-once" }
        p { "A payments API in which a retried request never charges twice." }
        p {
            "Version " (env!("CARGO_PKG_VERSION")) ". "
            @match status {
                Ok(unfit) if unfit.is_empty() => "Ready to serve.",
                Ok(unfit) => {
                    "Ready to serve, but for the accounts of these shards: "
                    @for (name, reason) in unfit { (name) " (" (reason.to_string()) ") " }
                }
                Err(reason) => { "Not ready: " (reason) }
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
    LAYOUT.page("charge-once", &body)
}
