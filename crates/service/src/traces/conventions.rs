//! Names of attributes as OpenTelemetry's conventions have them.
//!
//! Promise: the span of a request has one set of fields, those of its log lines. They are renamed
//! on the thread that exports, so that no request pays for it.

use std::time::Duration;

use opentelemetry::{
    Key, KeyValue, Value,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};

/// How the request ended, in the words of its last log line.
pub(super) const OUTCOME: &str = "outcome";

pub(super) const STATUS: &str = "http.response.status_code";

/// The name of the span of a request, as log lines have it.
const REQUEST: &str = "request";

/// An exporter whose spans have conventional names.
#[derive(Debug)]
pub(super) struct Conventional<E> {
    pub(super) exporter: E,
    /// What the fields of a request's span are called in traces.
    pub(super) request_fields: &'static [(&'static str, &'static str)],
}

impl<E: SpanExporter> SpanExporter for Conventional<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in batch.iter_mut().filter(|span| span.name == REQUEST) {
            rename(span, self.request_fields);
        }
        self.exporter.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn rename(span: &mut SpanData, names: &'static [(&'static str, &'static str)]) {
    for attribute in &mut span.attributes {
        let mut names = names.iter();
        let known = names.find(|(name, _)| attribute.key.as_str() == *name);
        if let Some((_, conventional)) = known {
            attribute.key = Key::from_static_str(conventional);
        }
    }
    let value = |name: &str| {
        let mut all = span.attributes.iter();
        let found = all.find(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| &attribute.value)
    };
    let name = match (value("http.request.method"), value("http.route")) {
        (Some(method), Some(route)) => format!("{} {}", method.as_str(), route.as_str()),
        _ => REQUEST.to_owned(),
    };
    let failed = match value(STATUS) {
        Some(Value::I64(status @ 500..)) => Some(status.to_string()),
        _ => None,
    };
    span.name = name.into();
    span.span_kind = SpanKind::Server;
    if let Some(status) = failed {
        span.status = Status::error("");
        span.attributes.push(KeyValue::new("error.type", status));
    }
}
