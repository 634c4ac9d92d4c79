//! Whether the process lives, and whether it can serve.

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::{app::App, error::HttpError, error_responses::errors};
use crate::{
    api::error::{ApiError, ErrorCode},
    database::Database,
};

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

errors! {
    ReadyzErrors: Open [ServiceUnavailable]
}

/// This replica can serve: not stopping, the database in reach, the schema current.
#[utoipa::path(
    get, path = "/readyz", tag = "Health", operation_id = "readyz", security(()),
    servers((url = "/")),
    responses((status = 200, description = "Ready."), ReadyzErrors),
)]
pub async fn readyz(app: web::Data<App>) -> Result<HttpResponse, HttpError> {
    match not_ready(&app).await {
        None => Ok(HttpResponse::Ok().json(json!({"status": "ready"}))),
        Some(reason) => Err(ApiError::new(ErrorCode::ServiceUnavailable, reason).into()),
    }
}

/// Why this replica can't serve; `None` if it can.
pub(super) async fn not_ready(app: &App) -> Option<&'static str> {
    if *app.stopping.borrow() {
        return Some("This replica is stopping.");
    }
    let looking = tokio::time::timeout(READINESS_LIMIT, fault_of(&app.database));
    looking.await.unwrap_or(Some(UNREACHABLE))
}

const UNREACHABLE: &str = "The database can't be reached.";

async fn fault_of(database: &Database) -> Option<&'static str> {
    match database.schema_is_current().await {
        Ok(true) => {}
        Ok(false) => return Some("The database schema is not current."),
        Err(_) => return Some(UNREACHABLE),
    }
    match database.clocks_agree().await {
        Ok(true) => None,
        Ok(false) => Some("This machine's clock and the database's are too far apart."),
        Err(_) => Some(UNREACHABLE),
    }
}
