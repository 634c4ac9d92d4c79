//! `/errors`: every error code, for people. `doc_url` and `Link` point here.

use actix_web::{HttpResponse, web};
use maud::html;

use super::layout::{LAYOUT, framed};
use crate::{
    http::app::App,
    wire::{dialect::Dialect, error::ErrorCode},
};

/// The page, made from the one table of codes.
pub(in crate::http) async fn show(app: web::Data<App>) -> HttpResponse {
    let body = html! {
        h1 { "Errors" }
        p {
            "Every error reply is "
            code {
                "{\"error\":{\"type\",\"code\",\"message\",\"param\"?,\"decline_code\"?,"
                "\"charge\"?,\"doc_url\"}}"
            }
            "."
        }
        @for code in ErrorCode::ALL {
            h2 .code id=(code.as_str()) { (code.as_str()) }
            p .quiet {
                (code.status())
                @if *code == ErrorCode::IdempotencyKeyReused {
                    ", under /v1 " (Dialect::Stripe.key_reused_status())
                }
                @if *code == ErrorCode::ResourceMissing {
                    ", under /v1 400 where a parameter names it"
                }
                " · " (code.error_type().as_str())
            }
            p { (code.explanation()) }
        }
    };
    LAYOUT.page("Errors · charge-once", &framed(app.values.console, &body))
}
