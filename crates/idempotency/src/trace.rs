//! Spans: where the time of a request goes, for those who collect traces.
//!
//! Promise: no span holds an account, a key, a reply, or anything else that a client sent. Spans
//! have a target of their own, so a subscriber can take them and leave the log lines, or the other
//! way round. A span that no subscriber takes costs one atomic read, and allocates nothing.

use std::future::Future;

use tracing::Span;

pub(crate) use tracing::Instrument;

/// The target of all spans of this crate. Their level is DEBUG.
pub const TRACE_TARGET: &str = "charge_once_idempotency::trace";

/// Makes a span, which [`end`] ends. `trace_span!("claim", "rows" = 3)` is the
/// span `claim` with the field `rows`.
macro_rules! trace_span {
    ($name:literal $(, $field:literal = $value:expr)*) => {
        tracing::debug_span!(
            target: $crate::trace::TRACE_TARGET,
            $name,
            "idempotency.ended" = tracing::field::Empty,
            // The name that tracing-opentelemetry looks for.
            "otel.status_code" = tracing::field::Empty,
            $($field = $value,)*
        )
    };
}
pub(crate) use trace_span;

/// Takes a step inside its span, which then says how the step ended: `None` is a failure.
pub(crate) async fn step<T>(
    span: Span,
    step: impl Future<Output = T>,
    how: impl FnOnce(&T) -> Option<&'static str>,
) -> T {
    let ended = step.instrument(span.clone()).await;
    end(span, how(&ended));
    ended
}

/// Ends a span, and says how its step ended: `None` is a failure.
pub(crate) fn end(span: Span, how: Option<&'static str>) {
    match how {
        Some(how) => span.record("idempotency.ended", how),
        None => span.record("otel.status_code", "ERROR"),
    };
}
