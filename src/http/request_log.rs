//! What a request leaves in the request log.
//!
//! Promise: only authenticated requests are logged, an idempotency key only after its check for
//! card numbers, and never a body, a query, or a path that may hold a card number or an API key. A
//! client that leaves before its reply is logged as well.

use std::{cell::RefCell, rc::Rc};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    body::MessageBody,
    dev::ServiceRequest,
    http::{Method, StatusCode},
    web,
};
use charge_once_strict_params::card_numbers::holds_card_number;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::app::App;
use crate::{
    domain::{
        api_key::holds_secret,
        ids::{AccountId, RequestId},
        logged_request::{LoggedOutcome, LoggedRequest},
    },
    idempotency::IdempotencyKey,
    telemetry::known,
    wire::error::ErrorCode,
    workers::request_log::RequestLog,
};

/// Longest path that is kept, in bytes.
const PATH_MAX_BYTES: usize = 512;

/// The id of what a stored reply is about, in the reply's extensions.
pub(super) struct About(pub(super) String);

/// The entry of one request, which is written when the request ends. Clones are the same entry.
#[derive(Clone)]
pub(super) struct Entry(Rc<RefCell<Unwritten>>);

struct Unwritten {
    log: RequestLog,
    began: Instant,
    id: RequestId,
    /// `None` until the request is authenticated.
    request: Option<LoggedRequest>,
}

/// Begins the entry of a request, if there is a log.
pub(super) fn begin(request: &ServiceRequest, id: RequestId) -> Option<Entry> {
    let log = request.app_data::<web::Data<App>>()?.request_log.clone()?;
    let entry = Entry(Rc::new(RefCell::new(Unwritten {
        log,
        began: Instant::now(),
        id,
        request: None,
    })));
    request.extensions_mut().insert(entry.clone());
    Some(entry)
}

/// The request is `account`'s.
pub(super) fn authenticated(request: &HttpRequest, account: AccountId) {
    let Some(entry) = request.extensions().get::<Entry>().cloned() else {
        return;
    };
    let mut unwritten = entry.0.borrow_mut();
    unwritten.request = Some(LoggedRequest {
        id: unwritten.id,
        account,
        method: known(request.method()).to_owned(),
        route: request.match_pattern().unwrap_or_default(),
        path: loggable(request.uri().path()),
        idempotency_key: None,
        status: None,
        outcome: LoggedOutcome::Unanswered,
        duration: unwritten.began.elapsed(),
        resource_id: None,
    });
}

/// The request's key has passed its checks.
pub(super) fn has_key(request: &HttpRequest, key: &IdempotencyKey) {
    if let Some(entry) = request.extensions().get::<Entry>()
        && let Some(logged) = &mut entry.0.borrow_mut().request
    {
        logged.idempotency_key = Some(key.as_str().to_owned());
    }
}

/// A path is sent in ASCII, but for what some clients leave unencoded, so it holds no NUL.
fn loggable(path: &str) -> Option<String> {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    if holds_card_number(path) || holds_card_number(&decoded) || holds_secret(&decoded) {
        return None;
    }
    let end = path.floor_char_boundary(PATH_MAX_BYTES);
    path.get(..end).map(str::to_owned)
}

impl Entry {
    /// The request has its reply, which says this outcome.
    pub(super) fn answered<B: MessageBody>(
        &self,
        response: &HttpResponse<B>,
        outcome: LoggedOutcome,
    ) {
        let extensions = response.extensions();
        let about = extensions.get::<About>().map(|about| about.0.clone());
        self.end(response.status(), about, outcome);
    }

    /// A handler panicked.
    pub(super) fn panicked(&self) {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        self.end(status, None, LoggedOutcome::Failed);
    }

    fn end(&self, status: StatusCode, resource_id: Option<String>, outcome: LoggedOutcome) {
        let mut unwritten = self.0.borrow_mut();
        if let Some(mut request) = unwritten.request.take() {
            request.outcome = outcome;
            request.status = Some(status.as_u16());
            request.resource_id = resource_id;
            request.duration = unwritten.began.elapsed();
            unwritten.log.add(request);
        }
    }
}

/// A request that is dropped without a reply: its client reset the connection.
impl Drop for Unwritten {
    fn drop(&mut self) {
        if let Some(mut request) = self.request.take() {
            request.duration = self.began.elapsed();
            self.log.add(request);
        }
    }
}

/// How a request ended that has this reply.
pub(super) fn outcome_of<B>(method: &str, response: &HttpResponse<B>) -> LoggedOutcome {
    let is_replay = response.headers().contains_key("idempotent-replayed");
    let code = response.extensions().get::<ErrorCode>().copied();
    outcome(method, response.status(), is_replay, code)
}

/// How a request ended that was answered so.
pub(super) fn outcome(
    method: &str,
    status: StatusCode,
    is_replay: bool,
    code: Option<ErrorCode>,
) -> LoggedOutcome {
    let is_read = [Method::GET, Method::HEAD]
        .iter()
        .any(|read| read == method);
    if is_replay {
        return LoggedOutcome::Replayed;
    }
    if status.is_server_error() || code == Some(ErrorCode::ResourceBusy) {
        return LoggedOutcome::Failed;
    }
    if is_read {
        return LoggedOutcome::Read;
    }
    match code {
        Some(ErrorCode::IdempotencyKeyReused) => LoggedOutcome::Reused,
        Some(ErrorCode::IdempotencyKeyInUse) => LoggedOutcome::InUse,
        _ if status.is_success() || status == StatusCode::PAYMENT_REQUIRED => {
            LoggedOutcome::Executed
        }
        _ => LoggedOutcome::Refused,
    }
}
