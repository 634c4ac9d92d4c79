//! What a request leaves in the request log (`charge_once_service::request_log`).
//!
//! Promise: only authenticated requests are logged, an idempotency key only after its check for
//! card numbers, and never a body, a query, or a path that may hold a card number or an API key. A
//! client that leaves before its reply is logged as well.

use std::borrow::Cow;

use actix_web::{HttpMessage, HttpRequest, HttpResponse, dev::ServiceRequest, web};
use charge_once_service::request_log::{Entry, LoggedOutcome};
use charge_once_strict_params::card_numbers::holds_card_number;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::app::App;
use crate::{
    domain::{
        api_key::holds_secret,
        ids::{AccountId, RequestId},
    },
    idempotency::{Fingerprint, IdempotencyKey, sealed_key},
    telemetry::known,
    wire::error::ErrorCode,
};

/// The id of what a stored reply is about, in the reply's extensions.
pub(super) struct AboutResource(pub(super) String);

/// Begins the entry of a request, if there is a log.
pub(super) fn begin(request: &ServiceRequest, id: RequestId) -> Option<Entry> {
    let app = request.app_data::<web::Data<App>>()?;
    let entry = app.request_log.as_ref()?.begin(id.0);
    request.extensions_mut().insert(entry.clone());
    Some(entry)
}

pub(super) fn authenticated(request: &HttpRequest, account: AccountId) {
    if let Some(entry) = request.extensions().get::<Entry>() {
        let route = request.match_pattern().unwrap_or_default();
        let names_key = request
            .app_data::<web::Data<App>>()
            .is_some_and(|app| names_key(app, &route));
        let path = Some(request.uri().path()).filter(|path| is_loggable(path));
        let path = path.and_then(|path| match names_key {
            true => without_key(path, &route, account).map(Cow::Owned),
            false => Some(Cow::Borrowed(path)),
        });
        entry.authenticated(account.0, known(request.method()), route, path.as_deref());
    }
}

/// The request's key has passed its checks. It is kept as it is stored.
pub(super) fn has_key(request: &HttpRequest, stored_key: &str) {
    if let Some(entry) = request.extensions().get::<Entry>() {
        entry.has_key(stored_key);
    }
}

/// Whether a path of this route names a key that may be that of a sealed record. The key is not
/// kept.
pub(super) fn names_key(app: &App, route: &str) -> bool {
    app.seal.is_some() && route.contains("{key}")
}

/// The path, with the hash of the key in place of the key. `None`: it names none.
fn without_key(path: &str, route: &str, account: AccountId) -> Option<String> {
    let place = route.split('/').position(|segment| segment == "{key}")?;
    let key: Cow<'_, [u8]> = percent_decode_str(path.split('/').nth(place)?).into();
    let key = IdempotencyKey::parse(&key).ok()?;
    Some(route.replace("{key}", &sealed_key(account.0, key.as_str())))
}

/// The request is one of a test: the report on its client compares what requests ask for.
pub(super) fn is_tested(
    request: &HttpRequest,
    fingerprint: &Fingerprint,
    fault: Option<&'static str>,
) {
    if let Some(entry) = request.extensions().get::<Entry>() {
        entry.is_tested(fingerprint.bytes(), fault);
    }
}

/// A path is sent in ASCII, but for what some clients leave unencoded, so it holds no NUL.
fn is_loggable(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    !holds_card_number(path) && !holds_card_number(&decoded) && !holds_secret(&decoded)
}

/// The request has its reply, which says this outcome. `left_at`: its client left before.
pub(super) fn answered<B>(
    entry: &Entry,
    response: &HttpResponse<B>,
    outcome: LoggedOutcome,
    left_at: Option<Instant>,
) {
    let extensions = response.extensions();
    let about = extensions.get::<AboutResource>();
    let about = about.map(|about| about.0.clone());
    match left_at {
        Some(at) => entry.left(at, about),
        None => entry.end(response.status().as_u16(), outcome, about),
    }
}

/// How a request ended that has this reply. A declined card counts as executed: the failed charge
/// is kept.
pub(super) fn outcome_of<B>(method: &str, response: &HttpResponse<B>) -> LoggedOutcome {
    let code = response.extensions().get::<ErrorCode>().copied();
    match (code, response.status().as_u16()) {
        _ if response.headers().contains_key("idempotent-replayed") => LoggedOutcome::Replayed,
        (Some(ErrorCode::ResourceBusy), _) => LoggedOutcome::Failed,
        (Some(ErrorCode::IdempotencyKeyReused), _) => LoggedOutcome::Reused,
        (Some(ErrorCode::IdempotencyKeyInUse), _) => LoggedOutcome::InUse,
        (_, 402) => LoggedOutcome::Executed,
        (_, status) => LoggedOutcome::of(method, status),
    }
}
