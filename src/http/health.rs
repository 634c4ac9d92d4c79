//! Whether the process lives, and whether it can serve.

use actix_web::{HttpResponse, web::Data};
use serde_json::json;

use super::{app::App, error::HttpResult, error_responses::errors};
use crate::wire::error::{ApiError, ErrorCode};

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

errors! { ReadyzErrors: Open [ServiceUnavailable] }

/// This replica can serve: not stopping, the database in reach, the schema current.
/// `failing_workers` names those of its workers that have failed within the last minute or so. A
/// replica is ready without them: what one of them meets in the database is met by those of all
/// replicas.
#[utoipa::path(
    get, path = "/readyz", tag = "Health", operation_id = "readyz", security(()),
    servers((url = "/")),
    responses((status = 200, description = "Ready."), ReadyzErrors),
)]
pub async fn readyz(app: Data<App>) -> HttpResult {
    match not_ready(&app).await {
        None => Ok(
            HttpResponse::Ok().json(match &*app.failing_workers.names() {
                [] => json!({"status": "ready"}),
                failing => json!({"status": "ready", "failing_workers": failing}),
            }),
        ),
        Some(reason) => Err(ApiError::new(ErrorCode::ServiceUnavailable, reason).into()),
    }
}

/// Why this replica can't serve; `None` if it can.
pub(super) async fn not_ready(app: &App) -> Option<String> {
    if *app.stopping.borrow() {
        return Some("This replica is stopping.".to_owned());
    }
    let found = app.readiness.check().await;
    found.err().map(|unfit| unfit.to_string())
}
