//! Traces: a span for each request and each step of it, which `charge_once_service::traces` sends
//! to a collector of OpenTelemetry.
//!
//! Promise: without `OTEL_EXPORTER_OTLP_ENDPOINT`, no span of a trace is made, no header of a
//! caller is read, and none is sent. Spans hold what log lines hold, and nothing else of what
//! strangers send.

use actix_web::http::header::HeaderMap;
pub use charge_once_service::traces::{
    Export, Service, TRACEPARENT, TracesError, continue_trace, request_ended, traceparent,
};
use tracing::{Metadata, Span};

use crate::idempotency::TRACE_TARGET;

/// The target of spans that are made for traces only.
pub const TARGET: &str = "charge_once::trace";

/// The target of the span of a request, which log lines show and traces begin with.
pub(super) const REQUEST_TARGET: &str = "charge_once::request";

/// What is sent, and what its fields are called.
pub(super) const SERVICE: Service = Service {
    tracer: "charge-once",
    version: crate::VERSION,
    is_traced: |metadata| metadata.target() == REQUEST_TARGET || is_of_traces_only(metadata),
    request_fields: &[
        ("request_id", "charge_once.request_id"),
        ("method", "http.request.method"),
        ("route", "http.route"),
        ("account", "charge_once.account"),
        ("key", "charge_once.key_hash"),
        ("outcome", "charge_once.outcome"),
    ],
};

/// Whether log lines must not show it. This program and its crates name such targets alike.
pub(super) fn is_of_traces_only(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    target.starts_with("charge_once") && target.ends_with("::trace")
}

/// What runs inside a call can begin tasks, in which the span of the call is all that is known of
/// the request. Lines show it while traces are exported, and with it the request's.
pub(super) fn is_call(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TRACE_TARGET && metadata.name() == "call"
}

/// Continues the trace of a caller that sent a valid `traceparent`, and one only. `tracestate` and
/// `baggage` are left out: what a stranger writes there would be in every span, and be sent on.
pub(super) fn continue_trace_of_caller(span: &Span, headers: &HeaderMap) {
    let mut given = headers.get_all(TRACEPARENT);
    if let (Some(traceparent), None) = (given.next(), given.next())
        && let Ok(traceparent) = traceparent.to_str()
    {
        continue_trace(span, traceparent);
    }
}
