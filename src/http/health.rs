//! Whether the process lives, and whether it can serve.

use std::{collections::BTreeMap, time::Duration};

use actix_web::{HttpResponse, web::Data};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, json};
use tokio::time::{Instant, timeout_at};

use super::{app::App, error::HttpResult, error_responses::errors};
use crate::{
    database::Unfit,
    wire::error::{ApiError, ErrorCode},
};

/// How long a probe waits for a database that says nothing, once another one is fit: probes give up
/// after a second or more.
const SILENT_SHARD_LIMIT: Duration = Duration::from_millis(500);

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
                let unfit = unfit.into_iter();
                let unfit = unfit.map(|(name, reason)| (name, reason.to_string()));
                status.insert("unfit_shards".to_owned(), unfit.collect());
            }
            Ok(HttpResponse::Ok().json(status))
        }
        Err(reason) => Err(ApiError::new(ErrorCode::ServiceUnavailable, reason).into()),
    }
}

/// Why this replica can't serve, or the shards that it can't serve from, each with the reason.
pub(super) async fn readiness(app: &App) -> Result<BTreeMap<String, Unfit>, String> {
    if *app.stopping.borrow() {
        return Err("This replica is stopping.".to_owned());
    }
    let looks = app.readiness.iter();
    let mut looks: FuturesUnordered<_> = looks
        .map(async |(name, readiness)| (name.to_string(), readiness.check().await))
        .collect();
    // Until it has answered.
    let silent = |(name, _): &(_, _)| (ToString::to_string(name), Unfit::Unreachable);
    let mut unfit: BTreeMap<_, _> = app.readiness.iter().map(silent).collect();
    let until = Instant::now() + SILENT_SHARD_LIMIT;
    loop {
        let is_one_fit = unfit.len() < app.readiness.len();
        let look = match is_one_fit {
            true => timeout_at(until, looks.next()).await.ok().flatten(),
            false => looks.next().await,
        };
        match look {
            Some((name, Ok(()))) => _ = unfit.remove(&name),
            Some((name, Err(reason))) => _ = unfit.insert(name, reason),
            None if is_one_fit => return Ok(unfit),
            None => break,
        }
    }
    let reason = unfit.into_values().next().unwrap_or(Unfit::Unreachable);
    Err(reason.to_string())
}
