//! Logs, the span that every line of a request is written in, metrics, and traces.
//!
//! Promise: every line of a request carries its `req_…`, and its last one says how it ended. Never
//! logged, and never in a trace: bodies, idempotency keys (a short hash stands for them), names of
//! workflows, API keys, query strings, paths as sent (the route's pattern stands for them), methods
//! that HTTP doesn't define, and the URLs and secrets of webhooks. A successful probe of `/livez`
//! or `/readyz` is a line at DEBUG, every other request one at INFO.

pub mod catalog;
pub mod metrics;
pub mod observer;
pub mod requests;
pub mod scrape;
pub mod traces;

use actix_web::{
    HttpMessage,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
};
pub(crate) use charge_once_service::edge::known_method as known;
use charge_once_service::traces::{Export, Log, Shown, TraceSettings, TracesError};
use tokio::runtime::Handle;
use tracing::{Level, Metadata, Span};
use tracing_actix_web::RootSpanBuilder;

use self::requests::Observation;
use crate::domain::ids::RequestId;

/// Starts logging to standard error, and the export of traces if they are asked for. Call it once.
pub fn start(
    log: &Log,
    traces: Option<&TraceSettings>,
    runtime: &Handle,
) -> Result<Option<Export>, TracesError> {
    let shown = Shown {
        may_be_logged,
        is_shown_with_traces: traces::is_call,
    };
    let traces = traces.map(|settings| (settings, traces::SERVICE));
    charge_once_service::traces::start(log, shown, traces, runtime)
}

/// The crates that may write lines at DEBUG and TRACE, whatever `RUST_LOG` says. sqlx writes
/// statements, without the values bound to them.
const DETAILED: [&str; 2] = ["charge_once", "sqlx"];

/// Actix writes an error for each connection that fails, such as those of a scan of ports. They are
/// counted, and `charge_once_service::connections` logs those that are no client's fault.
const COUNTED: [&str; 2] = ["actix_http::h1::dispatcher", "actix_http::h1::decoder"];

/// The HTTP libraries write at DEBUG and TRACE what strangers send, and the hosts of webhooks.
/// Spans that are made for traces are in no line.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let is_detailed = |name: &&str| metadata.target().starts_with(name);
    let is_line = *metadata.level() <= Level::INFO || DETAILED.iter().any(is_detailed);
    is_line && !COUNTED.contains(&metadata.target()) && !traces::is_of_traces_only(metadata)
}

/// What load balancers and container engines ask every few seconds.
const PROBES: [&str; 2] = ["/livez", "/readyz"];

/// Opens the span of a request. [`Observation`] writes its line.
pub struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        let extensions = request.extensions();
        match (
            extensions.get::<Observation>(),
            extensions.get::<RequestId>(),
        ) {
            (Some(observation), Some(id)) => {
                let span = observation.open_span(*id);
                traces::continue_trace_of_caller(&span, request.headers());
                span
            }
            _ => Span::none(),
        }
    }

    fn on_request_end<B: MessageBody>(_: Span, _: &Result<ServiceResponse<B>, actix_web::Error>) {}
}
