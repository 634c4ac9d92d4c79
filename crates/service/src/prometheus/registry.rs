//! Where handles come from. Each is made once, and a hot path only adds to it.

use std::{fmt, sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};

use super::{Metric, MetricKind};

/// The metrics of a server. Cheap to clone; all clones are the same. None is global, so several
/// servers in one process count apart.
#[derive(Clone)]
pub struct Registry(Option<Arc<PrometheusRecorder>>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// The names of labels with their values, in the order of [`Metric::labels`].
pub type Labels<'a> = &'a [(&'static str, SharedString)];

/// The exporter doesn't filter by it.
const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

impl Registry {
    /// Makes handles that count nothing, so that no memory grows where no one asks for metrics.
    pub fn off() -> Self {
        Self(None)
    }

    /// Counts these. Call [`Registry::tidy_up`] now and then. Fails if a histogram has no buckets.
    pub fn on(described: &[&Metric]) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for metric in described {
            if let MetricKind::Histogram(buckets) = metric.kind {
                let name = Matcher::Full(metric.name.to_owned());
                builder = builder.set_buckets_for_metric(name, buckets)?;
            }
        }
        let recorder = builder.build_recorder();
        for metric in described {
            // Without the marks of Markdown.
            let (name, about) = (metric.name.into(), metric.about.replace('`', "").into());
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, None, about),
                MetricKind::Gauge => recorder.describe_gauge(name, None, about),
                MetricKind::Histogram(_) => recorder.describe_histogram(name, None, about),
            }
        }
        let process = metrics_process::Collector::default();
        metrics::with_local_recorder(&recorder, || process.describe());
        Ok(Self(Some(Arc::new(recorder))))
    }

    /// All metrics as Prometheus reads them, those of the process included. Empty where nothing is
    /// counted.
    pub fn render(&self) -> String {
        let Some(recorder) = &self.0 else {
            return String::new();
        };
        let process = metrics_process::Collector::default();
        metrics::with_local_recorder(&**recorder, || process.collect());
        recorder.handle().render()
    }

    /// Counts what was recorded into buckets. Without it, memory grows until the next scrape.
    pub fn tidy_up(&self) {
        if let Some(recorder) = &self.0 {
            recorder.handle().run_upkeep();
        }
    }

    /// A handle of a counter.
    pub fn counter(&self, metric: &Metric, labels: Labels<'_>) -> Counter {
        let register =
            |one: &Arc<PrometheusRecorder>| one.register_counter(&key(metric, labels), &METADATA);
        self.0.as_ref().map_or_else(Counter::noop, register)
    }

    /// A handle of a gauge.
    pub fn gauge(&self, metric: &Metric, labels: Labels<'_>) -> Gauge {
        let register =
            |one: &Arc<PrometheusRecorder>| one.register_gauge(&key(metric, labels), &METADATA);
        self.0.as_ref().map_or_else(Gauge::noop, register)
    }

    /// A handle of a histogram.
    pub fn histogram(&self, metric: &Metric, labels: Labels<'_>) -> Histogram {
        let register =
            |one: &Arc<PrometheusRecorder>| one.register_histogram(&key(metric, labels), &METADATA);
        self.0.as_ref().map_or_else(Histogram::noop, register)
    }
}

fn key(metric: &Metric, labels: Labels<'_>) -> Key {
    debug_assert!(
        labels.iter().map(|(name, _)| name).eq(metric.labels),
        "{} has other labels",
        metric.name
    );
    let labels = labels.iter().cloned();
    let labels = labels.map(|(name, value)| Label::new(name, value));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

/// Structs of handles: `field: counter METRIC [label = value],`, with `gauge` and `histogram`
/// alike. After a `;` come fields that are something else.
/// `struct Sales(registry) { socks: counter SOLD [article = "socks"], }` makes
/// `struct Sales { socks: Counter }` and its function `fn of(registry: &Registry) -> Self` with
/// `socks: registry.counter(&SOLD, &[("article", "socks".into())])`.
#[macro_export]
macro_rules! handles {
    (@type counter) => { $crate::prometheus::Counter };
    (@type gauge) => { $crate::prometheus::Gauge };
    (@type histogram) => { $crate::prometheus::Histogram };
    ($(
        $(#[$about:meta])*
        $seen:vis struct $name:ident($registry:ident $(, $given:ident: $type:ty)*) {
            $($field_seen:vis $field:ident: $kind:ident $metric:path
                $([$($label:ident = $value:expr),+])?,)*
            $(; $($other_seen:vis $other:ident: $other_type:ty = $made:expr,)*)?
        }
    )+) => {$(
        $(#[$about])*
        #[derive(Debug)]
        #[allow(missing_docs, reason = "each is described once, in the catalog")]
        $seen struct $name {
            $($field_seen $field: $crate::prometheus::handles!(@type $kind),)*
            $($($other_seen $other: $other_type,)*)?
        }

        impl $name {
            fn of($registry: &$crate::prometheus::Registry $(, $given: $type)*) -> Self {
                Self {
                    $($field: $registry.$kind(
                        &$metric,
                        &[$($((stringify!($label), $value.into())),+)?],
                    ),)*
                    $($($other: $made,)*)?
                }
            }
        }
    )+};
}

/// A count as a gauge's value. More than four thousand million of anything are as many.
pub fn value(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Sets a gauge to the present, in unix time.
pub fn set_to_now(gauge: &Gauge) {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    gauge.set(since.unwrap_or(Duration::ZERO));
}
