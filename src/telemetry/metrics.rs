//! The metrics of this process: every handle is made once, and a hot path only adds to it.
//!
//! Promise: where no one asks for metrics, nothing is counted, and no memory grows. No registry is
//! global, so several servers in one process count apart.

use std::{fmt, sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};

use super::catalog::{self, Kind, METRICS, Metric};
use crate::idempotency::{CallAnswer, RanAlone};

/// All metrics. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl std::ops::Deref for Metrics {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        &self.0
    }
}

impl Metrics {
    /// Counts nothing.
    pub fn off() -> Self {
        Self(Arc::new(Handles::of(Registry(None), &[])))
    }

    /// Counts, and tells requests in phases apart by these kinds. Call [`Metrics::tidy_up`] now and
    /// then. Fails on a histogram without buckets.
    pub fn on(phase_kinds: &[&'static str]) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for metric in METRICS {
            if let Kind::Histogram(buckets) = metric.kind {
                let name = Matcher::Full(metric.name.to_owned());
                builder = builder.set_buckets_for_metric(name, buckets)?;
            }
        }
        let recorder = builder.build_recorder();
        for metric in METRICS {
            let (name, about) = (metric.name.into(), plain(metric.about).into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, about),
                Kind::Gauge => recorder.describe_gauge(name, None, about),
                Kind::Histogram(_) => recorder.describe_histogram(name, None, about),
            }
        }
        let metrics = Self(Arc::new(Handles::of(Registry(Some(recorder)), phase_kinds)));
        metrics.info.set(1);
        let process = metrics_process::Collector::default();
        if let Some(recorder) = &metrics.registry.0 {
            metrics::with_local_recorder(recorder, || process.describe());
        }
        Ok(metrics)
    }

    /// All metrics as Prometheus reads them, those of the process included. Empty where nothing is
    /// counted.
    pub fn render(&self) -> String {
        let Some(recorder) = &self.registry.0 else {
            return String::new();
        };
        let process = metrics_process::Collector::default();
        metrics::with_local_recorder(recorder, || process.collect());
        recorder.handle().render()
    }

    /// Counts what was recorded into buckets. Without it, memory grows until the next scrape.
    pub fn tidy_up(&self) {
        if let Some(recorder) = &self.registry.0 {
            recorder.handle().run_upkeep();
        }
    }
}

/// A description without the marks of Markdown.
fn plain(about: &str) -> String {
    about.replace('`', "")
}

/// Where handles come from; `None` makes handles that count nothing.
pub(super) struct Registry(Option<PrometheusRecorder>);

type Labels<'a> = &'a [(&'static str, SharedString)];

/// The exporter doesn't filter by it.
const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

impl Registry {
    pub(super) fn counter(&self, metric: &Metric, labels: Labels<'_>) -> Counter {
        let register =
            |one: &PrometheusRecorder| one.register_counter(&key(metric, labels), &METADATA);
        self.0.as_ref().map_or_else(Counter::noop, register)
    }

    pub(super) fn gauge(&self, metric: &Metric, labels: Labels<'_>) -> Gauge {
        let register =
            |one: &PrometheusRecorder| one.register_gauge(&key(metric, labels), &METADATA);
        self.0.as_ref().map_or_else(Gauge::noop, register)
    }

    pub(super) fn histogram(&self, metric: &Metric, labels: Labels<'_>) -> Histogram {
        let register =
            |one: &PrometheusRecorder| one.register_histogram(&key(metric, labels), &METADATA);
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

/// A count as a gauge's value. More than four thousand million of anything are as many.
pub fn value(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The workers of a process, which `crates/supervisor` keeps at work.
pub const WORKERS: [&str; 6] = [
    "checkout_reconciler",
    "database_metrics",
    "expiry_sweep",
    "processor_reconciler",
    "request_log",
    "webhooks",
];

/// The metrics of requests in phases of one kind.
pub struct PhaseHandles {
    /// As [`ExternalEffect::KIND`](crate::idempotency::ExternalEffect::KIND) names it.
    pub kind: &'static str,
    pub(super) answered: Counter,
    pub(super) not_executed: Counter,
    pub(super) unknown: Counter,
    pub(super) seconds: Histogram,
    /// `charge_once_phases`
    pub running: Gauge,
    /// `charge_once_phases`
    pub waiting: Gauge,
    /// `charge_once_phases_in_doubt`
    pub in_doubt: Gauge,
    /// `charge_once_phases_oldest_seconds`
    pub oldest: Gauge,
}

impl PhaseHandles {
    fn of(registry: &Registry, kind: &'static str) -> Self {
        let kind_of = || ("kind", kind.into());
        let calls = |result: &'static str| {
            registry.counter(
                &catalog::PHASE_CALLS,
                &[kind_of(), ("result", result.into())],
            )
        };
        let state = |state: &'static str| {
            registry.gauge(&catalog::PHASES, &[kind_of(), ("state", state.into())])
        };
        Self {
            kind,
            answered: calls("answered"),
            not_executed: calls("not_executed"),
            unknown: calls("unknown"),
            seconds: registry.histogram(&catalog::PHASE_SECONDS, &[kind_of()]),
            running: state("running"),
            waiting: state("waiting"),
            in_doubt: registry.gauge(&catalog::PHASES_IN_DOUBT, &[kind_of()]),
            oldest: registry.gauge(&catalog::PHASES_OLDEST, &[kind_of()]),
        }
    }

    pub(super) fn calls(&self, answer: CallAnswer) -> &Counter {
        match answer {
            CallAnswer::Answered => &self.answered,
            CallAnswer::NotExecuted => &self.not_executed,
            CallAnswer::Unknown => &self.unknown,
        }
    }
}

/// What the sweep removes.
pub struct SweptRows {
    /// Expired idempotency keys.
    pub keys: Counter,
    /// Rows of test accounts.
    pub test_accounts: Counter,
    /// Events.
    pub events: Counter,
    /// Operations.
    pub operations: Counter,
    /// Rows of the request log.
    pub request_log: Counter,
}

/// The parts of a sweep. One may fail while the others go on.
pub struct SweepParts {
    /// Expired idempotency keys.
    pub keys: SweepPart,
    /// What test accounts that have ended leave behind.
    pub test_accounts: SweepPart,
    /// Events, operations and logged requests that are older than they are kept.
    pub old_rows: SweepPart,
}

/// A part of a sweep.
pub struct SweepPart {
    failures: Counter,
    success: Gauge,
}

impl SweepPart {
    /// Counts how it ended. Success may be that there was nothing to do.
    pub fn ended<T, E>(&self, result: &Result<T, E>) {
        match result {
            Ok(_) => set_to_now(&self.success),
            Err(_) => self.failures.increment(1),
        }
    }
}

/// Every metric but those of single routes, which [`super::requests`] makes. [`super::catalog`]
/// says what each one tells.
#[expect(missing_docs, reason = "each is described once, in the catalog")]
pub struct Handles {
    pub(super) registry: Registry,
    info: Gauge,
    pub(super) claim_seconds: Histogram,
    pub(super) claim_timeouts: Counter,
    pub(super) row_timeouts: Counter,
    pub(super) replay_age: Histogram,
    pub keys_in_flight: Gauge,
    pub waiters: Gauge,
    pub(super) shed_of_account: Counter,
    pub(super) shed_in_all: Counter,
    pub(super) batch_size: Histogram,
    pub(super) batch_seconds: Histogram,
    pub(super) batch_failures: Counter,
    batch_undecided: Counter,
    batch_failed: Counter,
    account_held_up: Counter,
    pub batch_waiting: Gauge,
    pub(super) cache_hits: Counter,
    pub(super) cache_misses: Counter,
    pub cache_bytes: Gauge,
    pub swept: SweptRows,
    pub sweep_seconds: Histogram,
    pub sweep_parts: SweepParts,
    pub oldest_expired: Gauge,
    pub pool_max: Gauge,
    pub pool_open: Gauge,
    pub pool_idle: Gauge,
    pub(super) pool_wait: Histogram,
    pub(super) pool_timeouts: Counter,
    pub(super) pool_discarded: Counter,
    pub phases: Vec<PhaseHandles>,
    pub(super) checkouts_completed: Counter,
    pub(super) checkouts_canceled: Counter,
    pub checkouts_in_progress: Gauge,
    pub checkouts_refund_refused: Gauge,
    pub webhooks_due: Gauge,
    pub webhooks_oldest_due: Gauge,
    pub webhook_succeeded: Counter,
    pub webhook_retried: Counter,
    pub webhook_failed: Counter,
    pub webhook_seconds: Histogram,
    pub webhook_lag: Histogram,
    worker_failures: [Counter; WORKERS.len()],
    pub read_success: Gauge,
}

impl Handles {
    fn of(registry: Registry, phase_kinds: &[&'static str]) -> Self {
        use catalog as c;
        let counter = |metric| registry.counter(metric, &[]);
        let gauge = |metric| registry.gauge(metric, &[]);
        let histogram = |metric| registry.histogram(metric, &[]);
        let counted =
            |metric, label, value: &'static str| registry.counter(metric, &[(label, value.into())]);
        let swept = |kind| counted(&c::SWEEP_ROWS, "kind", kind);
        let part = |part: &'static str| SweepPart {
            failures: counted(&c::SWEEP_FAILURES, "part", part),
            success: registry.gauge(&c::SWEEP_SUCCESS, &[("part", part.into())]),
        };
        let attempts = |result| counted(&c::WEBHOOK_ATTEMPTS, "result", result);
        let fallbacks = |reason| counted(&c::BATCH_FALLBACKS, "reason", reason);
        let ended = |state| counted(&c::CHECKOUTS_ENDED, "state", state);
        let checkouts =
            |state: &'static str| registry.gauge(&c::CHECKOUTS, &[("state", state.into())]);
        Self {
            info: registry.gauge(&c::INFO, &[("version", crate::VERSION.into())]),
            claim_seconds: histogram(&c::CLAIM_SECONDS),
            claim_timeouts: counter(&c::CLAIM_TIMEOUTS),
            row_timeouts: counter(&c::ROW_TIMEOUTS),
            replay_age: histogram(&c::REPLAY_AGE),
            keys_in_flight: gauge(&c::KEYS_IN_FLIGHT),
            waiters: gauge(&c::WAITERS),
            shed_of_account: counted(&c::SHED, "scope", "account"),
            shed_in_all: counted(&c::SHED, "scope", "all"),
            batch_size: histogram(&c::BATCH_SIZE),
            batch_seconds: histogram(&c::BATCH_SECONDS),
            batch_failures: counter(&c::BATCH_FAILURES),
            batch_undecided: fallbacks("undecided"),
            batch_failed: fallbacks("batch_failed"),
            account_held_up: fallbacks("account_held_up"),
            batch_waiting: gauge(&c::BATCH_WAITING),
            cache_hits: counted(&c::CACHE_LOOKUPS, "result", "hit"),
            cache_misses: counted(&c::CACHE_LOOKUPS, "result", "miss"),
            cache_bytes: gauge(&c::CACHE_BYTES),
            swept: SweptRows {
                keys: swept("idempotency_keys"),
                test_accounts: swept("test_accounts"),
                events: swept("events"),
                operations: swept("operations"),
                request_log: swept("request_log"),
            },
            sweep_seconds: histogram(&c::SWEEP_SECONDS),
            sweep_parts: SweepParts {
                keys: part("idempotency_keys"),
                test_accounts: part("test_accounts"),
                old_rows: part("old_rows"),
            },
            oldest_expired: gauge(&c::OLDEST_EXPIRED),
            pool_max: gauge(&c::POOL_MAX),
            pool_open: gauge(&c::POOL_OPEN),
            pool_idle: gauge(&c::POOL_IDLE),
            pool_wait: histogram(&c::POOL_WAIT),
            pool_timeouts: counter(&c::POOL_TIMEOUTS),
            pool_discarded: counter(&c::POOL_DISCARDED),
            phases: phase_kinds
                .iter()
                .map(|kind| PhaseHandles::of(&registry, kind))
                .collect(),
            checkouts_completed: ended("completed"),
            checkouts_canceled: ended("canceled"),
            checkouts_in_progress: checkouts("in_progress"),
            checkouts_refund_refused: checkouts("refund_refused"),
            webhooks_due: gauge(&c::WEBHOOKS_DUE),
            webhooks_oldest_due: gauge(&c::WEBHOOKS_OLDEST_DUE),
            webhook_succeeded: attempts("succeeded"),
            webhook_retried: attempts("retried"),
            webhook_failed: attempts("failed"),
            webhook_seconds: histogram(&c::WEBHOOK_SECONDS),
            webhook_lag: histogram(&c::WEBHOOK_LAG),
            worker_failures: WORKERS.map(|worker| counted(&c::WORKER_FAILURES, "worker", worker)),
            read_success: gauge(&c::READ_SUCCESS),
            registry,
        }
    }

    /// Shows what the last check found, and when, in unix seconds. The two series are made here, so
    /// that there are none before it.
    pub fn show_last_check(&self, violations: i32, finished_at: f64) {
        let gauge = |metric| self.registry.gauge(metric, &[]);
        gauge(&catalog::CHECK_VIOLATIONS).set(violations);
        gauge(&catalog::CHECK_LAST_RUN).set(finished_at);
    }

    /// Counts a failure of one of [`WORKERS`].
    pub fn worker_failed(&self, name: &str) {
        let of_workers = WORKERS.iter().zip(&self.worker_failures);
        for (_, failures) in of_workers.filter(|(worker, _)| **worker == name) {
            failures.increment(1);
        }
    }

    pub(super) fn fallbacks(&self, because: RanAlone) -> &Counter {
        match because {
            RanAlone::Undecided => &self.batch_undecided,
            RanAlone::BatchFailed => &self.batch_failed,
            RanAlone::AccountHeldUp => &self.account_held_up,
        }
    }

    pub(super) fn phases_of(&self, kind: &str) -> Option<&PhaseHandles> {
        self.phases.iter().find(|phases| phases.kind == kind)
    }
}

/// Sets a gauge to the present, in unix time.
pub fn set_to_now(gauge: &Gauge) {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    gauge.set(since.unwrap_or(Duration::ZERO));
}
