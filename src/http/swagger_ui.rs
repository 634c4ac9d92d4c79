//! Swagger UI, compiled in.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, ContentType},
    web::{self, Bytes},
};
use utoipa_swagger_ui::Config;

use super::{app::App, error::HttpError, pages::layout::AN_HOUR};
use crate::{
    idempotency::Failure,
    wire::error::{ApiError, ErrorCode},
};

/// Starts Swagger UI with this service's document and settings.
const INITIALIZER: &str = include_str!("swagger_ui/initializer.js");

/// Swagger UI sets styles on elements, and shows images that it holds itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                                       style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                                       base-uri 'none'; form-action 'none'; \
                                       frame-ancestors 'none'";

// The library wants one for its own initializer, which is not served.
static CONFIG: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::from("/openapi.json")));

/// A file of Swagger UI.
pub(super) async fn file(
    app: web::Data<App>,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let path = request.match_info().query("file");
    if path == "swagger-initializer.js" {
        return Ok(HttpResponse::Ok()
            .content_type("text/javascript")
            .body(format!(
                "const HAS_CONSOLE = {};\n{INITIALIZER}",
                app.has_console
            )));
    }
    let file = utoipa_swagger_ui::serve(path, Arc::clone(&CONFIG))
        .map_err(|error| HttpError::failed_without_key(Failure::internal(error)))?
        .ok_or_else(|| ApiError::explained(ErrorCode::RouteNotFound))?;
    let mut response = HttpResponse::Ok();
    response.content_type(file.content_type.as_str());
    if file.content_type == ContentType::html().essence_str() {
        response.insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY));
    } else {
        response.insert_header((header::CACHE_CONTROL, AN_HOUR));
    }
    // Compiled in, so that every reply sends the same bytes.
    let bytes = match file.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    Ok(response.body(bytes))
}

/// `/swagger-ui` without its slash would resolve the page's relative files wrongly.
pub(super) async fn redirect() -> HttpResponse {
    HttpResponse::PermanentRedirect()
        .insert_header((header::LOCATION, "/swagger-ui/"))
        .finish()
}
