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
pub(crate) use charge_once_edge::known_method as known;
use tokio::runtime::Handle;
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_actix_web::RootSpanBuilder;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, LevelFilter, filter_fn},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use self::{
    requests::Observation,
    traces::{Export, TracesError},
};
use crate::{
    config::{Log, Traces},
    domain::ids::RequestId,
};

/// Starts logging to standard error, and the export of traces if they are asked for. Call it once.
pub fn start(
    log: &Log,
    traces: Option<&Traces>,
    runtime: &Handle,
) -> Result<Option<Export>, TracesError> {
    let chosen = EnvFilter::new(&log.filter);
    let Some(traces) = traces else {
        // For both at once, so that what is in no line costs nothing.
        tracing_subscriber::registry()
            .with(chosen)
            .with(filter_fn(may_be_logged))
            .with(lines(log))
            .init();
        return Ok(None);
    };
    let export = Export::prepare(traces, traces::SERVICE, runtime)?;
    let logged = chosen.and(filter_fn(may_be_logged));
    let calls = filter_fn(traces::is_call).with_max_level_hint(LevelFilter::DEBUG);
    tracing_subscriber::registry()
        .with(lines(log).with_filter(logged.or(calls)))
        .with(export.layer())
        .init();
    Ok(Some(export))
}

fn lines<S>(log: &Log) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if log.json {
        Box::new(lines.json().flatten_event(true).with_current_span(false))
    } else {
        Box::new(lines)
    }
}

/// The crates that may write lines at DEBUG and TRACE, whatever `RUST_LOG` says. sqlx writes
/// statements, without the values bound to them.
const DETAILED: [&str; 2] = ["charge_once", "sqlx"];

/// The HTTP libraries write at DEBUG and TRACE what strangers send, and the hosts of webhooks.
/// Spans that are made for traces are in no line.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let is_detailed = |name: &&str| metadata.target().starts_with(name);
    let is_line = *metadata.level() <= Level::INFO || DETAILED.iter().any(is_detailed);
    is_line && !traces::is_of_traces_only(metadata)
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
