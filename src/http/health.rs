//! Whether the process lives, whether it can serve, and where to begin.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::{App, error::EdgeError};
use crate::api::error::{ApiError, ErrorCode};

/// A probe that waits longer than this has its answer: not ready.
const READINESS_LIMIT: Duration = Duration::from_secs(2);

/// The process answers. Asks no database: a database that is down must not get every replica
/// restarted.
#[utoipa::path(
    get, path = "/livez", tag = "Health", operation_id = "livez", security(()),
    servers((url = "/")),
    responses((status = 200, description = "Alive.")),
)]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "alive"}))
}

/// This replica can serve: not stopping, the database in reach, the schema current.
#[utoipa::path(
    get, path = "/readyz", tag = "Health", operation_id = "readyz", security(()),
    servers((url = "/")),
    responses((status = 200, description = "Ready.")),
)]
pub async fn readyz(app: web::Data<App>) -> Result<HttpResponse, EdgeError> {
    let not_ready = |reason: &str| Err(ApiError::new(ErrorCode::ServiceUnavailable, reason).into());
    if *app.stopping.borrow() {
        return not_ready("This replica is stopping.");
    }
    match tokio::time::timeout(READINESS_LIMIT, app.database.schema_is_current()).await {
        Ok(Ok(true)) => Ok(HttpResponse::Ok().json(json!({"status": "ready"}))),
        Ok(Ok(false)) => not_ready("The database schema is not current."),
        Ok(Err(_)) | Err(_) => not_ready("The database can't be reached."),
    }
}

/// Where to begin.
pub async fn index() -> HttpResponse {
    HttpResponse::Ok().json(json!({
        "name": "charge-once",
        "documentation": "/swagger-ui/",
        "openapi": "/openapi.json",
        "errors": "/errors",
    }))
}
