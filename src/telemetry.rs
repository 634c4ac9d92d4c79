//! Logs, and the span that every line of a request is written in.
//!
//! Promise: every line of a request carries its `req_…`. Never logged: bodies, idempotency keys,
//! names of workflows, API keys, query strings, paths as sent (the route's pattern stands for them),
//! and the URLs and secrets of webhooks.

use std::io::IsTerminal;

use actix_web::{
    HttpMessage,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
};
use tracing::Span;
use tracing_actix_web::RootSpanBuilder;
use tracing_subscriber::EnvFilter;

use crate::{config::ConfigError, domain::ids::RequestId};

/// Starts logging to standard error. Call it once.
pub fn start() -> Result<(), ConfigError> {
    let bad = |variable, expected: &str| ConfigError {
        variable,
        expected: expected.to_owned(),
    };
    let directives = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = match directives.trim() {
        "" => EnvFilter::new("info"),
        given => EnvFilter::try_new(given)
            .map_err(|_| bad("RUST_LOG", "a filter such as info or charge_once=debug"))?,
    };
    let json = match std::env::var("LOG_FORMAT").unwrap_or_default().as_str() {
        "json" => true,
        "pretty" => false,
        "" => !std::io::stderr().is_terminal(),
        _ => return Err(bad("LOG_FORMAT", "pretty or json")),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if json {
        subscriber
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .init();
    } else {
        subscriber.init();
    }
    Ok(())
}

/// Opens the span of a request and closes it with one line.
pub struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        let request_id = request
            .extensions()
            .get::<RequestId>()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::info_span!(
            "request",
            request_id,
            method = %request.method(),
            route = request.match_pattern().unwrap_or_else(|| "unknown".to_owned()),
            account = tracing::field::Empty,
        )
    }

    fn on_request_end<B: MessageBody>(
        _span: Span,
        outcome: &Result<ServiceResponse<B>, actix_web::Error>,
    ) {
        let status = match outcome {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        tracing::info!(status = status.as_u16(), "answered");
    }
}
