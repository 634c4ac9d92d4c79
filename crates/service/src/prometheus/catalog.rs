//! Metrics, described once: what is registered, and the table for the documentation, come from
//! there.

use std::fmt::Write;

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, which ends with its unit.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub about: &'static str,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy)]
pub enum MetricKind {
    /// Grows from 0, from the start of the process on.
    Counter,
    /// A value of this moment.
    Gauge,
    /// A distribution, counted in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// Declares metrics: `CONSTANT = "name", kind, [labels], "what it tells";`. This line,
/// `STOCK = "shop_stock", MetricKind::Gauge, [], "Articles that are left.";`, makes
/// `pub const STOCK: Metric = Metric { name: "shop_stock", kind: MetricKind::Gauge, … };`
/// and the member `&STOCK` of `METRICS`, which has all of them in the order of the table.
#[macro_export]
macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:expr, $labels:expr, $about:expr;)+) => {
        $(#[doc = $about] pub const $constant: $crate::prometheus::Metric = $crate::prometheus::Metric {
            name: $name,
            kind: $kind,
            labels: &$labels,
            about: $about,
        };)+

        /// All of them, in the order of the table.
        pub const METRICS: &[&$crate::prometheus::Metric] = &[$(&$constant),+];
    };
}

/// What the crate `metrics-process` reads of the operating system, as far as that tells it.
pub const PROCESS_METRICS: &[(&str, &str, &str)] = &[
    (
        "process_cpu_seconds_total",
        "counter",
        "Time on a core, of user and system together.",
    ),
    ("process_open_fds", "gauge", "Open files, sockets included."),
    ("process_max_fds", "gauge", "Most files that may be open."),
    ("process_virtual_memory_bytes", "gauge", "Virtual memory."),
    (
        "process_virtual_memory_max_bytes",
        "gauge",
        "Most virtual memory that may be used.",
    ),
    (
        "process_resident_memory_bytes",
        "gauge",
        "Memory that is in use.",
    ),
    (
        "process_start_time_seconds",
        "gauge",
        "When the process began, in unix time.",
    ),
    ("process_threads", "gauge", "Threads."),
];

impl Metric {
    /// Its type, as Prometheus names it.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        }
    }
}

/// A name says its unit: that is Prometheus's convention.
fn unit(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total");
    if name.ends_with("_seconds") {
        "seconds"
    } else if name.ends_with("_bytes") {
        "bytes"
    } else {
        "count"
    }
}

/// The table for the documentation, in Markdown: these, and [`PROCESS_METRICS`].
pub fn markdown_table(metrics: &[&Metric]) -> String {
    let mut table =
        String::from("| metric | type | labels | unit | what it tells |\n|---|---|---|---|---|\n");
    let mut row = |name: &str, kind: &str, labels: &[&str], about: &str| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, unit) = (labels.join(", "), unit(name));
        // Writing to a String can't fail.
        let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {unit} | {about} |");
    };
    for metric in metrics {
        row(metric.name, metric.type_name(), metric.labels, metric.about);
    }
    for (name, kind, about) in PROCESS_METRICS {
        row(name, kind, &[], about);
    }
    table
}
