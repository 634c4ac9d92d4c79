//! `/`: where to begin, for people and for programs.

use actix_web::{HttpRequest, HttpResponse, http::header::VARY, web};
use charge_once_service::edge::accepts_html;
use maud::html;
use serde_json::json;

use super::layout::{LAYOUT, framed};
use crate::http::{app::App, health::readiness};

/// Test suites of Stripe's SDKs look for this header of stripe-mock, and for a version that is new
/// enough. `master` always is.
const MOCK: (&str, &str) = ("stripe-mock-version", "master");

/// HTML where the request accepts it, which browsers do; JSON for everything else.
pub(in crate::http) async fn show(app: web::Data<App>, request: HttpRequest) -> HttpResponse {
    if !accepts_html(request.headers()) {
        let mut reply = HttpResponse::Ok();
        reply.insert_header((VARY, "Accept"));
        if app.values.any_test_key {
            reply.insert_header(MOCK);
        }
        let mut reply = reply.json(json!({
            "name": "charge-once",
            "documentation": "/swagger-ui/",
            "openapi": "/openapi.json",
            "errors": "/errors",
        }));
        // stripe-php's suite compares the name's capitals too.
        let capitals = app.values.any_test_key;
        reply.head_mut().set_camel_case_headers(capitals);
        return reply;
    }
    let status = readiness(&app).await;
    let body = html! {
        h1 { "charge-once" }
        p .lead { "A payments API in which a retried request never charges twice." }
        ul .cards {
            @if app.values.console {
                li { a href="/console/playground" { "Playground" } p { "Charge a card, and try to charge it twice." } }
                li { a href="/console/protocol" { "Protocol" } p { "See why other designs charge twice, step by step." } }
                li { a href="/console" { "Console" } p { "What became of each request, and of each key." } }
            }
            li { a href="/swagger-ui/" { "Swagger UI" } p { "Try every endpoint from the browser." } }
            li { a href="/openapi.json" { "openapi.json" } p { "The OpenAPI document." } }
            li { a href="/errors" { "Errors" } p { "Every error code, and what to do." } }
            li { a href="/readyz" { "readyz" } p { "Whether this replica can serve, for probes." } }
        }
        p {
            "Every POST and PUT needs an " code { "Idempotency-Key" } ". Send a request twice with "
            "the same key, and it is answered twice and executed once."
        }
        p .quiet {
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
    };
    LAYOUT.page("charge-once", &framed(app.values.console, &body))
}
