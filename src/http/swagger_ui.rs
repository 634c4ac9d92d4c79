//! Swagger UI, compiled in.

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_service::edge::{swagger_ui, swagger_ui_redirect};

use super::{
    app::App,
    error::{HttpError, HttpResult},
};
use crate::{
    idempotency::Failure,
    wire::error::{ApiError, ErrorCode},
};

/// Starts Swagger UI with this service's document and settings.
const INITIALIZER: &str = include_str!("swagger_ui/initializer.js");

pub(super) async fn file(app: Data<App>, request: HttpRequest) -> HttpResult {
    let initializer = || format!("const HAS_CONSOLE = {};\n{INITIALIZER}", app.values.console);
    swagger_ui(request.match_info().query("file"), initializer)
        .map_err(|error| HttpError::failed_without_key(Failure::internal(error)))?
        .ok_or_else(|| ApiError::explained(ErrorCode::RouteNotFound).into())
}

pub(super) async fn redirect() -> HttpResponse {
    swagger_ui_redirect("/swagger-ui/")
}
