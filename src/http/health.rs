//! Whether the process lives, and whether it can serve.

use actix_web::{HttpResponse, web::Data};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

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

/// This replica can serve: not stopping, the database in reach, the schema current. Of several
/// databases one is enough: `unfit_shards` names the others, whose accounts get 503.
/// `failing_workers` names those of its workers that have failed within the last minute or so. A
/// replica is ready without them: what one of them meets in the database is met by those of all
/// replicas.
#[utoipa::path(
    get, path = "/readyz", tag = "Health", operation_id = "readyz", security(()),
    servers((url = "/")),
    responses((status = 200, description = "Ready."), ReadyzErrors),
)]
pub async fn readyz(app: Data<App>) -> HttpResult {
    match readiness(&app).await {
        Ok(unfit) => {
            let mut status = Map::from_iter([("status".to_owned(), "ready".into())]);
            let failing = app.failing_workers.names();
            if !failing.is_empty() {
                status.insert("failing_workers".to_owned(), failing.into());
            }
            if !unfit.is_empty() {
                let unfit = unfit.into_iter().collect::<Value>();
                status.insert("unfit_shards".to_owned(), unfit);
            }
            Ok(HttpResponse::Ok().json(status))
        }
        Err(reason) => Err(ApiError::new(ErrorCode::ServiceUnavailable, reason).into()),
    }
}

/// Why this replica can't serve, or the shards that it can't serve from, each with the reason.
pub(super) async fn readiness(app: &App) -> Result<Vec<(String, String)>, String> {
    if *app.stopping.borrow() {
        return Err("This replica is stopping.".to_owned());
    }
    let looks = app.readiness.iter().map(async |(name, readiness)| {
        let unfit = readiness.check().await.err()?;
        Some((name.to_string(), unfit.to_string()))
    });
    let found = join_all(looks).await;
    let databases = found.len();
    let unfit: Vec<_> = found.into_iter().flatten().collect();
    match &*unfit {
        [(_, reason), ..] if unfit.len() == databases => Err(reason.clone()),
        _ => Ok(unfit),
    }
}
