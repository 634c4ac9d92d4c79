//! A collector of OpenTelemetry: takes spans by OTLP, as protobuf over HTTP.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;

use crate::support::prelude::*;

#[derive(Debug, Clone)]
pub struct Exported {
    pub trace: String,
    pub id: String,
    /// Empty: it begins its trace, as far as this service knows.
    pub parent: String,
    pub name: String,
    pub kind: SpanKind,
    pub failed: bool,
    pub attributes: BTreeMap<String, String>,
    /// The traces and spans that it links to.
    pub links: Vec<(String, String)>,
    /// In nanoseconds.
    pub began: u64,
    pub ended: u64,
    pub events: usize,
}

impl Exported {
    fn of(span: Span) -> Self {
        let links = span.links.iter();
        let links = links.map(|link| (hex::encode(&link.trace_id), hex::encode(&link.span_id)));
        let status = span.status.as_ref();
        Self {
            links: links.collect(),
            kind: span.kind(),
            failed: status.is_some_and(|status| status.code() == StatusCode::Error),
            trace: hex::encode(span.trace_id),
            id: hex::encode(span.span_id),
            parent: hex::encode(span.parent_span_id),
            name: span.name,
            attributes: words(span.attributes),
            began: span.start_time_unix_nano,
            ended: span.end_time_unix_nano,
            events: span.events.len(),
        }
    }

    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// What an outgoing request of this span says.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

fn words(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let pairs = attributes.into_iter();
    pairs
        .map(|KeyValue { key, value, .. }| (key, value.map(word).unwrap_or_default()))
        .collect()
}

fn word(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

pub struct Collector {
    pub url: String,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    spans: Vec<Exported>,
    /// What the process says of itself.
    resource: BTreeMap<String, String>,
    /// The requests as they were sent.
    bodies: Vec<u8>,
    /// Those of the last one.
    headers: BTreeMap<String, String>,
}

impl Collector {
    pub async fn start() -> Self {
        let mut receiver = Receiver::start().await;
        let taken = Arc::<Mutex<Taken>>::default();
        let collector = Self {
            url: format!("http://{}", receiver.address),
            taken: Arc::clone(&taken),
        };
        tokio::spawn(async move {
            while let Some(received) = receiver.wait().await {
                taken.lock().unwrap().take(&received);
                received.answer_with(200, "Connection: close\r\n").await;
            }
        });
        collector
    }

    /// For a server that exports to it.
    pub fn variable(&self) -> (&'static str, &str) {
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)
    }

    pub fn spans(&self) -> Vec<Exported> {
        self.taken.lock().unwrap().spans.clone()
    }

    pub fn resource(&self) -> BTreeMap<String, String> {
        self.taken.lock().unwrap().resource.clone()
    }

    pub fn headers(&self) -> BTreeMap<String, String> {
        self.taken.lock().unwrap().headers.clone()
    }

    pub fn everything(&self) -> Vec<u8> {
        self.taken.lock().unwrap().bodies.clone()
    }

    pub fn named(&self, name: &str) -> Vec<Exported> {
        let spans = self.spans().into_iter();
        spans.filter(|span| span.name == name).collect()
    }

    pub async fn has(&self, what: &str, is_it: impl Fn(&Exported) -> bool) -> Exported {
        let mut found = None;
        eventually(what, || {
            found = self.spans().into_iter().find(&is_it);
            std::future::ready(found.is_some())
        })
        .await;
        found.unwrap()
    }

    pub async fn request(&self, id: &str) -> Exported {
        let has_id = |span: &Exported| {
            span.kind == SpanKind::Server && span.attribute("charge_once.request_id") == id
        };
        self.has("the span of the request", has_id).await
    }

    pub async fn child(&self, parent: &Exported, name: &str) -> Exported {
        let is_it = |span: &Exported| span.parent == parent.id && span.name == name;
        let child = self
            .has(&format!("{name} below {}", parent.name), is_it)
            .await;
        assert_eq!(child.trace, parent.trace);
        assert!(parent.began <= child.began && child.began <= child.ended);
        child
    }
}

impl Taken {
    fn take(&mut self, received: &Received) {
        assert_eq!(received.line, "POST /v1/traces HTTP/1.1");
        assert_eq!(received.headers["content-type"], "application/x-protobuf");
        self.headers = received.headers.clone().into_iter().collect();
        self.bodies.extend(&received.body);
        let export = ExportTraceServiceRequest::decode(received.body.as_slice()).unwrap();
        for of_resource in export.resource_spans {
            self.resource = words(of_resource.resource.unwrap().attributes);
            let scopes = of_resource.scope_spans.into_iter();
            let spans = scopes.flat_map(|scope| scope.spans);
            self.spans.extend(spans.map(Exported::of));
        }
    }
}
