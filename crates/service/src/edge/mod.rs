//! This module has what an Actix service needs around its handlers. Your code writes each error.
//!
//! - `read_body` has a limit in bytes and a deadline.
//! - `media_type` is a body's one type. It refuses a compressed body.
//! - `protect` keeps browsers from guessing a reply's type, running it or caching it.
//! - `KnownRoutes` finds the route nearest to a mistyped path.
//! - `encode_segment`, `last_segment`, `segment_from_the_end` and `decoded_path` are for names in
//!   paths.
//! - `known_method` keeps unknown methods out of logs and metrics.
//! - `preferred_wait` reads `Prefer: wait=N`, and `preferred_retention` `retain=N`.
//! - `accepts_html` and `Layout` show people a page without scripts.
//! - `swagger_ui`, with the feature `swagger-ui`, is compiled in.
//!
//! ```rust
//! use std::{sync::LazyLock, time::Duration};
//!
//! use actix_web::{
//!     App, Error, HttpRequest, HttpResponse,
//!     body::BoxBody,
//!     dev::{ServiceRequest, ServiceResponse},
//!     middleware::{Next, from_fn},
//!     rt::System,
//!     test::{TestRequest, call_service, init_service},
//!     web::{self, Payload},
//! };
//! use charge_once_service::edge::{
//!     BodyError, KnownRoute, KnownRoutes, media_type, protect, read_body,
//! };
//! use tokio::time::Instant;
//!
//! static ROUTES: LazyLock<KnownRoutes> = LazyLock::new(|| {
//!     let notes = KnownRoute { pattern: "/notes/{id}".to_owned(), methods: "POST".to_owned() };
//!     KnownRoutes::from_iter([notes])
//! });
//!
//! async fn write(request: HttpRequest, payload: Payload) -> Result<HttpResponse, BodyError> {
//!     if media_type(request.headers())? != Some("text/plain") {
//!         return Err(BodyError::UnsupportedType);
//!     }
//!     let until = Instant::now() + Duration::from_secs(10);
//!     let note = read_body(request.headers(), payload, 1_000, until).await?;
//!     Ok(HttpResponse::Created().body(note))
//! }
//!
//! async fn not_found(request: HttpRequest) -> HttpResponse {
//!     let nearest = ROUTES.nearest(request.path());
//!     HttpResponse::NotFound().body(nearest.map_or("Nothing is here.", |route| &route.pattern))
//! }
//!
//! async fn protected(
//!     request: ServiceRequest,
//!     next: Next<BoxBody>,
//! ) -> Result<ServiceResponse<BoxBody>, Error> {
//!     let mut response = next.call(request).await?;
//!     protect(response.headers_mut());
//!     Ok(response)
//! }
//!
//! System::new().block_on(async {
//!     let app = App::new()
//!         .wrap(from_fn(protected))
//!         .route("/notes/{id}", web::post().to(write))
//!         .default_service(web::to(not_found));
//!     let app = init_service(app).await;
//!     let post = |path: &str, media_type: &str| {
//!         let request = TestRequest::post().uri(path).insert_header(("content-type", media_type));
//!         request.set_payload("milk").to_request()
//!     };
//!     let reply = call_service(&app, post("/notes/1", "text/plain")).await;
//!     assert_eq!(reply.status(), 201);
//!     assert_eq!(reply.headers().get("cache-control").unwrap(), "no-store");
//!     assert_eq!(call_service(&app, post("/notes/1", "text/html")).await.status(), 415);
//!     let reply = call_service(&app, post("/note/1", "text/plain")).await;
//!     assert_eq!(reply.status(), 404);
//!     assert_eq!(actix_web::test::read_body(reply).await, "/notes/{id}");
//! });
//! ```

mod body;
mod headers;
mod pages;
mod request_line;
mod routes;
#[cfg(feature = "swagger-ui")]
mod swagger_ui;

#[cfg(feature = "swagger-ui")]
pub use self::swagger_ui::{swagger_ui, swagger_ui_redirect};
pub use self::{
    body::{BodyError, media_type, read_body},
    headers::{RETAIN, WAIT, accepts_html, preferred_retention, preferred_wait, protect},
    pages::{Layout, file},
    request_line::{
        decoded_path, encode_segment, known_method, last_segment, routed_path, segment_from_the_end,
    },
    routes::{KnownRoute, KnownRoutes},
};
