//! `/idempotency-keys`: what is known about a key.

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_strict_params::parameters;
use serde::Serialize;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    parameters::KeyText,
    request::{Caller, last_segment, no_query, query_params},
};
use crate::{
    idempotency::{IdempotencyKey, Inspected, KnownRequest, Record, Step},
    wire::error::{ApiError, ErrorCode},
};

/// The message of a 404.
const NOTHING_FINISHED: &str = "There is no finished record under this key now. That does not mean \
                                that the operation may be sent under a new key: the first request \
                                may still arrive. The safe question is to retry it with this key.";

/// An idempotency key, as clients see it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = IdempotencyKey)]
pub struct KeyObject {
    /// Always `idempotency_key`.
    #[schema(example = "idempotency_key")]
    object: &'static str,
    /// The key, without quotes.
    #[schema(example = "8e03978e-40d5-43dd-bc93-6894a57f9324")]
    key: String,
    /// `completed` or `in_flight`.
    #[schema(example = "completed")]
    status: &'static str,
    /// Of the first request; null while another replica works on it.
    #[schema(required = true, example = "POST")]
    method: Option<String>,
    /// Of the first request; null while another replica works on it.
    #[schema(required = true, example = "/charges")]
    path: Option<String>,
    /// SHA-256 of the first request, in hexadecimal.
    #[schema(required = true)]
    fingerprint: Option<String>,
    /// The status that every retry gets.
    #[schema(required = true, example = 201)]
    response_status: Option<u16>,
    /// The id of what was made or changed; of what is being made where that takes several
    /// transactions.
    #[schema(required = true, example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd")]
    resource: Option<String>,
    /// The `req_…` that executed.
    #[schema(required = true)]
    request: Option<String>,
    /// What the first request named in Idempotency-Workflow; null if it named nothing.
    #[schema(required = true, example = "checkout-6735")]
    workflow: Option<String>,
    /// Unix seconds; null while nothing of the first request is committed.
    #[schema(required = true, example = 1_795_000_000)]
    created: Option<i64>,
    /// Unix seconds; null while it is in flight.
    #[schema(required = true, example = 1_795_086_400)]
    expires: Option<i64>,
}

impl KeyObject {
    fn completed(key: String, record: &Record) -> Self {
        Self {
            object: "idempotency_key",
            key,
            status: "completed",
            method: Some(record.method.clone()),
            path: Some(record.path.clone()),
            fingerprint: Some(hex::encode(&record.fingerprint)),
            response_status: Some(record.reply.status),
            resource: record.reply.resource_id.clone(),
            request: Some(record.request_id.clone()),
            workflow: record.label.clone(),
            created: Some(record.created_at.timestamp()),
            expires: Some(record.expires_at.timestamp()),
        }
    }

    fn in_flight(key: String, request: Option<KnownRequest>) -> Self {
        let unknown = Self {
            object: "idempotency_key",
            key,
            status: "in_flight",
            method: None,
            path: None,
            fingerprint: None,
            response_status: None,
            resource: None,
            request: None,
            workflow: None,
            created: None,
            expires: None,
        };
        let Some(request) = request else {
            return unknown;
        };
        Self {
            method: Some(request.method),
            path: Some(request.path),
            fingerprint: Some(hex::encode(request.fingerprint)),
            resource: request.resource_id,
            request: Some(request.request_id),
            workflow: request.label,
            created: request.created_at.map(|at| at.timestamp()),
            ..unknown
        }
    }

    /// The key of one request of a workflow.
    pub(super) fn of_step(step: Step) -> Self {
        let in_flight = Self::in_flight(step.key, Some(step.request));
        let Some(outcome) = step.outcome else {
            return in_flight;
        };
        Self {
            status: "completed",
            response_status: Some(outcome.status),
            expires: Some(outcome.expires_at.timestamp()),
            ..in_flight
        }
    }
}

errors! {
    RetrieveIdempotencyKeyErrors: Reading [ResourceMissing]
}

/// Look an idempotency key up, by path
#[utoipa::path(
    get, path = "/idempotency-keys/{key}", tag = "Idempotency keys",
    operation_id = "retrieveIdempotencyKey",
    params((
        "key" = String, Path, description = "The key, percent-encoded, without quotes.",
        pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$",
    )),
    responses(
        (status = 200, description = "What is known about the key.", body = KeyObject),
        RetrieveIdempotencyKeyErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    no_query(&request)?;
    inspect(&app, caller, &last_segment(&request), "key").await
}

parameters! {
    /// Which key.
    struct KeyQuery {
        /// The key, without quotes.
        key: KeyText,
    }
}

errors! {
    LookUpIdempotencyKeyErrors: Reading [ParameterMissing, ResourceMissing]
}

/// Look an idempotency key up, by query
///
/// For keys that hold `/` or `?`.
#[utoipa::path(
    get, path = "/idempotency-keys", tag = "Idempotency keys",
    operation_id = "lookUpIdempotencyKey",
    params(KeyQuery),
    responses(
        (status = 200, description = "What is known about the key.", body = KeyObject),
        LookUpIdempotencyKeyErrors,
    ),
)]
pub async fn look_up(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let KeyQuery { key } = query_params(&request)?;
    inspect(&app, caller, key.as_bytes(), "key").await
}

async fn inspect(
    app: &App,
    caller: Caller,
    key: &[u8],
    param: &str,
) -> Result<HttpResponse, HttpError> {
    let key = IdempotencyKey::parse(key).map_err(|error| {
        ApiError::new(ErrorCode::ParameterInvalid, error.to_string()).with_param(param.to_owned())
    })?;
    let text = key.as_str().to_owned();
    let inspected = app.idempotency.inspect(caller.account.0, key).await;
    match inspected.map_err(HttpError::failed_without_key)? {
        Inspected::Completed(record) => {
            Ok(HttpResponse::Ok().json(KeyObject::completed(text, &record)))
        }
        Inspected::InFlight(here) => Ok(HttpResponse::Ok().json(KeyObject::in_flight(text, here))),
        Inspected::Nothing => Err(ApiError::new(ErrorCode::ResourceMissing, NOTHING_FINISHED)
            .with_param(param.to_owned())
            .into()),
    }
}
