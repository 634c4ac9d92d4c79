//! Pages for people, and files that are compiled in.

use actix_web::{
    HttpResponse,
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ContentType, VARY},
    web::Bytes,
};
use maud::{DOCTYPE, Markup, html};

/// Nothing but the service's own style and icon. Where forms may be sent follows.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; form-action";

/// For files that change with a release only.
const AN_HOUR: &str = "public, max-age=3600";

/// What the pages of a service have in common.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The path of the style sheet.
    pub style: &'static str,
    /// The path of the icon, an SVG.
    pub icon: &'static str,
}

impl Layout {
    /// A whole page, which runs no script. A program may get another form of it at the same path
    /// ([`accepts_html`](crate::edge::accepts_html)), so caches keep the two apart.
    pub fn page(self, title: &str, body: &Markup) -> HttpResponse {
        self.page_with_forms(title, body, "'none'")
    }

    /// As [`page`](Self::page), with forms, which may be sent to `targets`: sources of a
    /// Content-Security-Policy. Chromium also asks them where the reply to a form redirects to.
    pub fn page_with_forms(self, title: &str, body: &Markup, targets: &str) -> HttpResponse {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    link rel="icon" href=(self.icon) type="image/svg+xml";
                    link rel="stylesheet" href=(self.style);
                }
                body { (body) }
            }
        };
        HttpResponse::Ok()
            .content_type(ContentType::html())
            .insert_header((CONTENT_SECURITY_POLICY, format!("{POLICY} {targets}")))
            .insert_header((VARY, "Accept"))
            .body(page.into_string())
    }
}

/// A file that changes with a release only, which caches may keep for an hour.
pub fn file(content_type: &str, bytes: impl Into<Bytes>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(content_type)
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(bytes.into())
}
