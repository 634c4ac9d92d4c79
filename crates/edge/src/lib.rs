#![doc = include_str!("../README.md")]

mod body;
mod pages;
mod preferences;
mod protective_headers;
mod request_line;
mod routes;
#[cfg(feature = "swagger-ui")]
mod swagger_ui;

#[cfg(feature = "swagger-ui")]
pub use self::swagger_ui::{swagger_ui, swagger_ui_redirect};
pub use self::{
    body::{BodyError, media_type, read_body},
    pages::{Layout, file},
    preferences::{accepts_html, preferred_wait},
    protective_headers::protect,
    request_line::{decoded_path, encode_segment, known_method, last_segment, routed_path},
    routes::{KnownRoute, KnownRoutes},
};
