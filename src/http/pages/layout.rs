//! What the pages have in common.

use actix_web::HttpResponse;
use charge_once_service::edge::{Layout, file};
use maud::{Markup, html};

/// The paths of their files.
pub(super) const LAYOUT: Layout = Layout {
    style: "/style.css",
    icon: "/favicon.svg",
};

/// The style of all pages, the console's too.
const STYLE: &str = include_str!("../../../crates/console/src/style.css");

/// A page below the name of the service and what else it has for people.
pub(super) fn framed(has_console: bool, body: &Markup) -> Markup {
    html! {
        header {
            a .home href="/" { "charge-once" }
            nav aria-label="Pages" {
                ul {
                    @if has_console { li { a href="/console" { "Console" } } }
                    li { a href="/swagger-ui/" { "Swagger UI" } }
                    li { a href="/errors" { "Errors" } }
                }
            }
        }
        main .text { (body) }
    }
}

pub(in crate::http) async fn style() -> HttpResponse {
    file("text/css; charset=utf-8", STYLE)
}

pub(in crate::http) async fn favicon() -> HttpResponse {
    file("image/svg+xml", include_str!("favicon.svg"))
}
