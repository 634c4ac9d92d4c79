//! This module writes the events of `tracing` as log lines to standard error, and sends its spans
//! to a collector of OpenTelemetry by OTLP over HTTP.
//!
//! ```rust
//! use charge_once_service::traces::{
//!     Export, Sampling, Service, TraceSettings, TracesError, request_ended,
//! };
//! use tokio::runtime::Handle;
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! async fn traced() -> Result<(), TracesError> {
//!     let settings = TraceSettings {
//!         url: "http://127.0.0.1:4318/v1/traces".to_owned(),
//!         headers: vec![],
//!         service_name: "shop".to_owned(),
//!         attributes: vec![("deployment.environment.name".to_owned(), "test".to_owned())],
//!         sampling: Sampling { share: 0.1, follows_caller: true },
//!     };
//!     let service = Service {
//!         tracer: "shop",
//!         version: "1.0",
//!         // Only these are sent.
//!         is_traced: |metadata| metadata.target() == "shop::trace",
//!         request_fields: &[("method", "http.request.method"), ("route", "http.route")],
//!     };
//!     let export = Export::prepare(&settings, service, &Handle::current())?;
//!     let subscriber = tracing_subscriber::registry().with(export.layer());
//!     let end_of_request = || {
//!         let span =
//!             tracing::info_span!(target: "shop::trace", "request", method = "GET", route = "/");
//!         request_ended(&span, Some(200), "executed");
//!     };
//!     tracing::subscriber::with_default(subscriber, end_of_request);
//!     export.end();
//!     Ok(())
//! }
//! ```
//!
//! - No request waits for the collector. Spans wait in a queue of 16,384 and are lost beyond it,
//!   with a log line a minute.
//! - At the end of the process, the last spans have 3 s to be sent.
//! - Of a caller, only `traceparent` is read.
//! - `start` installs log lines and the export for a whole program. `TraceSettings::read` and
//!   `Log::read` take the standard variables of OpenTelemetry, which you declare with `settings`.

mod collector;
mod conventions;
mod lines;
pub mod variables;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::{Context, KeyValue, propagation::TextMapPropagator, trace::TracerProvider};
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use tokio::runtime::Handle;
use tracing::{Metadata, Span, Subscriber, subscriber::Interest};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, dynamic_filter_fn},
    registry::LookupSpan,
};

pub use self::lines::{Log, Shown, start};
use self::{collector::Collector, conventions::Conventional};

/// The header that a trace is continued by, in the form of W3C Trace Context.
pub const TRACEPARENT: &str = "traceparent";

/// Spans that wait to be sent: some seconds' worth at a thousand requests a second, and about 10
/// MB.
const QUEUE_MAX: usize = 16_384;

const SENT_TOGETHER: usize = 512;

/// The longest that a span waits for others to be sent with.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest that the collector may take to answer an attempt. The library begins further
/// attempts within the same time, so sending can take almost twice as long.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that the end of the process waits for the last spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// A batch links to all of its requests.
const LINKS_MAX: u32 = 256;

/// Whether spans are exported.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Where traces go, and which.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// Where spans are posted, with the `/v1/traces` at its end.
    pub url: String,
    /// Headers for the collector, such as its API key.
    pub headers: Vec<(String, String)>,
    /// The `service.name`.
    pub service_name: String,
    /// What else is said of the process.
    pub attributes: Vec<(String, String)>,
    /// Which traces are recorded.
    pub sampling: Sampling,
}

/// Whose spans they are.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// The name of the tracer.
    pub tracer: &'static str,
    /// The `service.version`.
    pub version: &'static str,
    /// Whether a span is one of a trace.
    pub is_traced: fn(&Metadata<'_>) -> bool,
    /// What the fields of the span named `request` are called in traces.
    pub request_fields: &'static [(&'static str, &'static str)],
}

/// Which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The share of traces, from 0 to 1.
    pub share: f64,
    /// Whether a caller that sent its own decision is followed instead.
    pub follows_caller: bool,
}

/// Traces can't be exported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The client of the collector can't be made.
    #[error("the client of the collector at OTEL_EXPORTER_OTLP_ENDPOINT can't be made: {0}")]
    Client(Box<dyn std::error::Error + Send + Sync>),
    /// The library refuses the settings.
    #[error("traces can't be sent to OTEL_EXPORTER_OTLP_ENDPOINT: {0}")]
    Exporter(#[from] ExporterBuildError),
}

/// The export of traces, which is to be ended.
#[derive(Debug)]
pub struct Export {
    provider: SdkTracerProvider,
    service: Service,
}

impl Export {
    /// Prepares the export. `runtime` is where requests to the collector run.
    pub fn prepare(
        traces: &TraceSettings,
        service: Service,
        runtime: &Handle,
    ) -> Result<Self, TracesError> {
        let collector = Collector::new(COLLECTOR_TIMEOUT, runtime.clone())?;
        let headers: HashMap<_, _> = traces.headers.iter().cloned().collect();
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&traces.url)
            .with_headers(headers)
            .with_timeout(COLLECTOR_TIMEOUT)
            .build()?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(SENT_TOGETHER)
            .with_scheduled_delay(PAUSE)
            .build();
        let processor = BatchSpanProcessor::builder(Conventional {
            exporter,
            request_fields: service.request_fields,
        })
        .with_batch_config(config)
        .build();
        let attributes = traces.attributes.iter();
        let attributes = attributes
            .map(|(name, value)| KeyValue::new(name.clone(), value.clone()))
            .chain([KeyValue::new("service.version", service.version)]);
        let resource = Resource::builder_empty()
            .with_attributes(attributes)
            .with_service_name(traces.service_name.clone())
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(sampler(traces.sampling))
            .with_max_links_per_span(LINKS_MAX)
            .with_resource(resource)
            .build();
        Ok(Self { provider, service })
    }

    /// Takes spans from the subscriber. Log lines are no part of traces.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let is_of_trace = self.service.is_traced;
        let is_traced = move |metadata: &Metadata<'_>| metadata.is_span() && is_of_trace(metadata);
        IS_ON.store(true, Ordering::Relaxed);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(self.service.tracer))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(
                // "Always" would be cached where log lines say the same. The registry then takes
                // what was decided about whatever was asked for before: a span would be lost now
                // and then.
                dynamic_filter_fn(move |metadata, _| is_traced(metadata))
                    .with_callsite_filter(move |metadata| match is_traced(metadata) {
                        true => Interest::sometimes(),
                        false => Interest::never(),
                    })
                    .with_max_level_hint(LevelFilter::DEBUG),
            )
    }

    /// Sends what has not been sent. Blocks, for some seconds at most.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_MAX) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

fn sampler(sampling: Sampling) -> Sampler {
    let own = Sampler::TraceIdRatioBased(sampling.share);
    match sampling.follows_caller {
        true => Sampler::ParentBased(Box::new(own)),
        false => own,
    }
}

/// Makes a span, which has not been entered, part of the trace that a `traceparent` names, below
/// the span that it names. One that is not valid is passed over.
pub fn continue_trace(span: &Span, traceparent: &str) {
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    // No other header is read.
    let headers = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    // Fails only where the span isn't traced.
    let _ = span.set_parent(context);
}

/// Notes in the span of a request how it ended. The outcome is the field `outcome`.
pub fn request_ended(span: &Span, status: Option<u16>, outcome: &'static str) {
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    span.set_attribute(conventions::OUTCOME, outcome);
    if let Some(status) = status {
        span.set_attribute(conventions::STATUS, i64::from(status));
    }
}

/// What a request that is sent now says of the trace that it belongs to: the value of
/// [`TRACEPARENT`].
pub fn traceparent() -> Option<String> {
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    let mut headers = HashMap::<String, String>::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    headers.remove(TRACEPARENT)
}
