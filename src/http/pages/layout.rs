//! What the pages have in common.

use actix_web::{
    HttpResponse,
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ContentType, VARY},
};
use maud::{DOCTYPE, Markup, html};

/// Nothing but this service's own style and icon.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// For files that change with a release only.
pub(in crate::http) const AN_HOUR: &str = "public, max-age=3600";

/// A whole page.
pub(super) fn page(title: &str, body: &Markup) -> HttpResponse {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                link rel="icon" href="/favicon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/style.css";
            }
            body { (body) }
        }
    };
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((VARY, "Accept"))
        .body(page.into_string())
}

/// The style of the pages.
pub(in crate::http) async fn style() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/css; charset=utf-8")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("style.css"))
}

/// The icon of the pages.
pub(in crate::http) async fn favicon() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("image/svg+xml")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("favicon.svg"))
}
