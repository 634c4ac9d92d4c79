//! Errors of the edge: those that are no stored outcome.
//!
//! Promise: every one is the envelope with the headers that tell a client what to do next.

use std::time::Duration;

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};

use crate::{
    domain::ids::ObjectId,
    idempotency::{Failure, FailureKind, retry_after_seconds},
    wire::{
        dialect::Dialect,
        error::{ApiError, ErrorCode},
    },
};

/// The header by which a client asks for a fault, and which marks the reply that it gets.
pub(super) const FAULT: &str = "fault";

/// What a client is told where the process is not set up for the work.
const ANOTHER_PROCESSOR: &str = "This server is not set up for the card processor that the request \
     is about, so retrying does not help until its operator has changed that. No outcome was stored \
     for the key. After that, retry with the same key, and only with the same key.";

/// Stripe's words for a key of another request, without the key.
const STRIPE_KEY_REUSED: &str = "Keys for idempotent requests can only be used with the same parameters they were first used \
     with. Try using another key if you meant to execute a different request.";

/// What a handler answers.
pub type HttpResult = Result<HttpResponse, HttpError>;

/// An error to answer with, not stored under any key.
#[derive(Debug, thiserror::Error)]
#[error("{}", .error.code.as_str())]
pub struct HttpError {
    // Boxed, so that the path without an error stays small.
    error: Box<ApiError>,
    allow: Option<&'static str>,
    should_retry: bool,
    /// How long what is in the way lasts, if it is known.
    pub(super) retry_after: Option<Duration>,
    /// Where a client asked for the error.
    fault: Option<&'static str>,
}

impl HttpError {
    /// 405 with the methods that the path has.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..ApiError::explained(ErrorCode::MethodNotAllowed).into()
        }
    }

    /// The key belongs to another request; the dialect decides the status.
    pub fn key_reused(dialect: Dialect) -> Self {
        let mut error = match dialect {
            Dialect::Ietf => ApiError::explained(ErrorCode::IdempotencyKeyReused),
            // Programs that were written for Stripe look for its words.
            Dialect::Stripe => ApiError::new(ErrorCode::IdempotencyKeyReused, STRIPE_KEY_REUSED),
        };
        error.about.status = Some(dialect.key_reused_status());
        error.into()
    }

    /// The first request with the key hasn't finished.
    pub fn key_in_use() -> Self {
        ApiError::explained(ErrorCode::IdempotencyKeyInUse).into()
    }

    /// Whether the same request may have another answer later.
    pub fn is_worth_a_retry(&self) -> bool {
        self.should_retry
    }

    /// Rows, or a key, that another request holds.
    pub fn is_busy(&self) -> bool {
        self.error.code == ErrorCode::ResourceBusy
    }

    /// The same error, which says when a retry makes sense, if that is known.
    #[must_use]
    pub fn after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The same error, marked as one that the client asked for.
    #[must_use]
    pub fn asked_for(mut self, fault: &'static str) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Not executed, or not known to be. Opaque: the cause is in the log.
    pub fn failed(kind: FailureKind) -> Self {
        let explained = |code| ApiError::explained(code).into();
        match kind {
            FailureKind::Busy => explained(ErrorCode::ResourceBusy),
            FailureKind::Unavailable => explained(ErrorCode::ServiceUnavailable),
            FailureKind::Internal => explained(ErrorCode::InternalError),
            // The same process would answer the same, however long a client waits.
            FailureKind::Unsupported => Self {
                should_retry: false,
                ..ApiError::new(ErrorCode::ServiceUnavailable, ANOTHER_PROCESSOR).into()
            },
        }
    }

    /// A read or a write without a key that failed. Its cause is logged here, and opaque to the
    /// client.
    pub fn failed_without_key(failure: impl Into<Failure>) -> Self {
        let Failure { kind, cause, .. } = failure.into();
        match kind {
            FailureKind::Busy | FailureKind::Unavailable => {
                tracing::warn!(%cause, "the request failed");
            }
            FailureKind::Unsupported | FailureKind::Internal => {
                tracing::error!(?kind, %cause, "the request failed");
            }
        }
        Self::failed(kind)
    }

    /// The account has no object with the id in the path.
    pub fn missing_id<Id: ObjectId>(dialect: Dialect, id: &str) -> Self {
        ApiError::missing::<Id>(dialect, "id", id).into()
    }

    /// The account has no such object.
    pub fn missing(param: &str) -> Self {
        let error = ApiError::explained(ErrorCode::ResourceMissing);
        error.with_param(param.to_owned()).into()
    }
}

impl From<charge_once_strict_params::Error> for HttpError {
    fn from(error: charge_once_strict_params::Error) -> Self {
        ApiError::from(error).into()
    }
}

impl From<ApiError> for HttpError {
    fn from(error: ApiError) -> Self {
        Self {
            should_retry: error.code.should_retry(),
            error: Box::new(error),
            allow: None,
            retry_after: None,
            fault: None,
        }
    }
}

impl ResponseError for HttpError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let code = self.error.code;
        let mut response = HttpResponse::build(self.status_code());
        let link = format!("<{}>; rel=\"describedby\"", code.doc_url());
        response
            .insert_header((header::LINK, link))
            .insert_header(("stripe-should-retry", self.should_retry.to_string()));
        if matches!(
            code,
            ErrorCode::IdempotencyKeyInUse | ErrorCode::RateLimited | ErrorCode::ServiceUnavailable
        ) {
            let seconds = retry_after_seconds(self.retry_after);
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if let Some(fault) = self.fault {
            response.insert_header((FAULT, fault));
        }
        if let Some(methods) = self.allow {
            response.insert_header((header::ALLOW, methods));
        }
        if self.error.status() == 401 {
            // RFC 9110, section 11.6.1: a 401 says how to authenticate.
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"charge-once\""));
        }
        // For the request log.
        response.extensions_mut().insert(code);
        response.json(self.error.envelope())
    }
}
