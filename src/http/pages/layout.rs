//! What the pages have in common.

use actix_web::HttpResponse;
use charge_once_edge::{Layout, file};

/// The paths of their files.
pub(super) const LAYOUT: Layout = Layout {
    style: "/style.css",
    icon: "/favicon.svg",
};

/// The style of the pages.
pub(in crate::http) async fn style() -> HttpResponse {
    file("text/css; charset=utf-8", include_str!("style.css"))
}

/// The icon of the pages.
pub(in crate::http) async fn favicon() -> HttpResponse {
    file("image/svg+xml", include_str!("favicon.svg"))
}
