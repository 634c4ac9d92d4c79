//! The middleware around all others: what holds for every reply, the framework's own included.
//!
//! Promise: every reply carries a fresh `Request-Id` and the protective headers, every error is in
//! the form that the client prefers, a panic included, and mutating requests get their key and
//! preferences echoed.

use std::{panic::AssertUnwindSafe, time::Duration};

use actix_web::{
    Error, HttpMessage,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web,
};
use charge_once_service::connections::{NoReply, left_at};
use charge_once_service::edge::{self, RETAIN, WAIT};
use charge_once_service::request_log::LoggedOutcome;
use charge_once_strict_params::card_numbers::holds_card_number;
use futures_util::FutureExt;
use uuid::Uuid;

use super::{
    app::App,
    error::HttpError,
    problems::Accepted,
    reply_headers::{EXPIRES, REPLAYED},
    request_log,
};
use crate::{
    config::Values,
    domain::{api_key::is_secret, ids::RequestId},
    idempotency::{FailureKind, IdempotencyKey},
    telemetry::{known, requests::Observation},
    wire::{
        dialect::Dialect,
        error::{ApiError, ErrorCode},
    },
};

/// The request header that this service exists for.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The key of a request without one, noted in the request for its reply.
pub struct AssignedKey(pub IdempotencyKey);

/// How long a client wants its key kept, noted in the request for its reply.
pub struct KeptFor(pub Duration);

/// Longest wait that a client can ask for: proxies commonly give up after 60 s.
pub const PREFER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Refuses a request to another host, before anything looks at it.
pub async fn allowed_host<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let app = request.app_data::<web::Data<App>>();
    if app.is_some_and(|app| !app.hosts.take(request.head())) {
        return Err(HttpError::from(ApiError::explained(ErrorCode::HostNotAllowed)).into());
    }
    next.call(request).await
}

/// Wraps everything, routing included.
pub async fn outermost<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let request_id = RequestId(Uuid::now_v7());
    request.extensions_mut().insert(request_id);
    let observation = Observation::begin(&request);
    let entry = request_log::begin(&request, request_id);
    let method = known(request.method());
    let mut echoes = echoes(request.method(), request.headers());
    let accepted = Accepted::of(&request);

    // The request moves on and is gone if something panics, so the reply to a panic is an error,
    // which the server renders by itself.
    let outcome = AssertUnwindSafe(next.call(request)).catch_unwind().await;
    let response = match outcome {
        Ok(Ok(response)) => response.map_into_boxed_body(),
        Ok(Err(error)) => {
            if let Some(observation) = observation {
                let status = error.as_response_error().status_code().as_u16();
                observation.answered(status, LoggedOutcome::of(method, status).as_str());
            }
            return Err(stamped(error, &accepted, request_id, echoes).await);
        }
        Err(_) => {
            if let Some(entry) = entry {
                entry.end(500, LoggedOutcome::Failed, None);
            }
            tracing::error!(%request_id, "a handler panicked");
            if let Some(observation) = observation {
                observation.answered(500, LoggedOutcome::Failed.as_str());
            }
            let error = HttpError::failed(FailureKind::Internal).into();
            return Err(stamped(error, &accepted, request_id, echoes).await);
        }
    };
    let outcome = request_log::outcome_of(method, response.response());
    if let Some(observation) = observation {
        observation.answered(response.status().as_u16(), outcome.as_str());
    }
    // The entry of a request that gets no reply is dropped with the request, and says so.
    let is_sent = !response.response().extensions().contains::<NoReply>();
    if let Some(entry) = entry.filter(|_| is_sent) {
        let left_at = left_at(response.request());
        request_log::answered(&entry, response.response(), outcome, left_at);
    }
    if let Some(AssignedKey(key)) = response.request().extensions().get()
        && let Ok(value) = HeaderValue::try_from(key.as_str())
    {
        echoes.push((HeaderName::from_static(IDEMPOTENCY_KEY), value));
    }
    // An earlier request's record lives as long as that one wanted.
    let is_first =
        response.headers().contains_key(EXPIRES) && !response.headers().contains_key(REPLAYED);
    if let Some(KeptFor(retention)) = response.request().extensions().get()
        && is_first
    {
        honored(&mut echoes, &format!("{RETAIN}={}", retention.as_secs()));
    }
    let (request, response) = response.into_parts();
    let mut response = accepted.form(response).await;
    stamp(response.headers_mut(), request_id, echoes);
    Ok(ServiceResponse::new(request, response))
}

async fn stamped(
    error: Error,
    accepted: &Accepted,
    request_id: RequestId,
    echoes: Vec<(HeaderName, HeaderValue)>,
) -> Error {
    let mut response = accepted.form(error.error_response()).await;
    stamp(response.headers_mut(), request_id, echoes);
    actix_web::error::InternalError::from_response(error, response).into()
}

fn stamp(headers: &mut HeaderMap, request_id: RequestId, echoes: Vec<(HeaderName, HeaderValue)>) {
    if let Ok(value) = HeaderValue::try_from(request_id.to_string()) {
        headers.insert(HeaderName::from_static("request-id"), value);
    }
    for (name, value) in echoes {
        headers.insert(name, value);
    }
    edge::protect(headers);
}

/// What a reply to a mutating request repeats of it: the key in the form it was sent, if it is one
/// key, and the wait that is honored (RFC 7240, section 3).
fn echoes(method: &Method, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let mut echoes = Vec::new();
    if !is_mutating(method, headers) {
        return echoes;
    }
    if let Some(key) = headers.get(IDEMPOTENCY_KEY)
        && IdempotencyKey::of_headers(headers.get_all(IDEMPOTENCY_KEY))
            .is_ok_and(|key| !holds_card_number(key.as_str()) && !is_secret(key.as_str()))
    {
        echoes.push((HeaderName::from_static(IDEMPOTENCY_KEY), key.clone()));
    }
    if let Some(wait) = preferred_wait(headers) {
        honored(&mut echoes, &format!("{WAIT}={}", wait.as_secs()));
    }
    echoes
}

/// Adds a preference to those that the reply says are honored.
fn honored(echoes: &mut Vec<(HeaderName, HeaderValue)>, preference: &str) {
    let name = HeaderName::from_static("preference-applied");
    let before = echoes.iter().position(|(known, _)| *known == name);
    let before = before.map(|at| echoes.swap_remove(at).1);
    let all = before.as_ref().and_then(|value| value.to_str().ok());
    let all = all.map_or(preference.to_owned(), |all| format!("{all}, {preference}"));
    if let Ok(value) = HeaderValue::try_from(all) {
        echoes.push((name, value));
    }
}

/// Whether a request changes something under a key. A DELETE does so only where it has one.
fn is_mutating(method: &Method, headers: &HeaderMap) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
        || ([Method::DELETE].contains(method) && headers.contains_key(IDEMPOTENCY_KEY))
}

/// How long a duplicate waits that doesn't say for how long.
pub fn usual_wait(values: &Values, dialect: Dialect) -> Duration {
    match dialect {
        Dialect::Ietf => Duration::ZERO,
        Dialect::Stripe => values.in_flight_wait_v1,
    }
}

/// `Prefer: wait=N`, at most [`PREFER_WAIT_MAX`].
pub fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    edge::preferred_wait(headers).map(|wait| wait.min(PREFER_WAIT_MAX))
}
