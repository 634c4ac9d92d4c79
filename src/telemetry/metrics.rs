//! The metrics of this process: every handle is made once, and a hot path only adds to it.
//!
//! Promise: where no one asks for metrics, nothing is counted, and no memory grows.

use std::sync::Arc;

use charge_once_service::connections::Failure;
use charge_once_service::prometheus::{BuildError, Counter, Registry, handles, set_to_now};

use super::catalog as c;
use crate::database::move_account::MOVE_STATES;

/// All metrics. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Handles>);

impl std::ops::Deref for Metrics {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        &self.0
    }
}

impl Metrics {
    /// Counts nothing.
    pub fn off() -> Self {
        Self(Arc::new(Handles::of(&Registry::off(), &[])))
    }

    /// Counts, and tells requests in phases apart by these kinds. Call [`Registry::tidy_up`] now
    /// and then. Fails on a histogram without buckets.
    pub fn on(phase_kinds: &[&'static str]) -> Result<Self, BuildError> {
        let handles = Handles::of(&Registry::on(c::METRICS)?, phase_kinds);
        handles.info.set(1);
        Ok(Self(Arc::new(handles)))
    }
}

/// The workers of a process, which `charge_once_service::supervisor` keeps at work.
pub const WORKERS: [&str; 6] = [
    "checkout_reconciler",
    "database_metrics",
    "expiry_sweep",
    "processor_reconciler",
    "request_log",
    "webhooks",
];

handles! {
    /// The metrics of requests in phases of one kind, which is the `KIND` of an
    /// [`ExternalEffect`](crate::idempotency::ExternalEffect).
    pub struct PhaseHandles(registry, kind: &'static str) {
        pub(super) answered: counter c::PHASE_CALLS [kind = kind, result = "answered"],
        pub(super) not_executed: counter c::PHASE_CALLS [kind = kind, result = "not_executed"],
        pub(super) unknown: counter c::PHASE_CALLS [kind = kind, result = "unknown"],
        pub(super) seconds: histogram c::PHASE_SECONDS [kind = kind],
        pub running: gauge c::PHASES [kind = kind, state = "running"],
        pub waiting: gauge c::PHASES [kind = kind, state = "waiting"],
        pub in_doubt: gauge c::PHASES_IN_DOUBT [kind = kind],
        pub oldest: gauge c::PHASES_OLDEST [kind = kind],
    }

    /// Accounts on the move, in one of [`MOVE_STATES`].
    pub struct MoveHandles(registry, state: &'static str) {
        pub moves: gauge c::MOVES [state = state],
        pub oldest: gauge c::MOVES_OLDEST [state = state],
    }

    /// What the sweep removes.
    pub struct SweptRows(registry) {
        pub keys: counter c::SWEEP_ROWS [kind = "idempotency_keys"],
        pub test_accounts: counter c::SWEEP_ROWS [kind = "test_accounts"],
        pub events: counter c::SWEEP_ROWS [kind = "events"],
        pub operations: counter c::SWEEP_ROWS [kind = "operations"],
        pub request_log: counter c::SWEEP_ROWS [kind = "request_log"],
    }

    /// A part of a sweep.
    pub struct SweepPart(registry, part: &'static str) {
        failures: counter c::SWEEP_FAILURES [part = part],
        success: gauge c::SWEEP_SUCCESS [part = part],
    }

    /// The parts of a sweep. One may fail while the others go on.
    pub struct SweepParts(registry) {
        ;
        pub keys: SweepPart = SweepPart::of(registry, "idempotency_keys"),
        pub test_accounts: SweepPart = SweepPart::of(registry, "test_accounts"),
        pub old_rows: SweepPart = SweepPart::of(registry, "old_rows"),
    }

    /// Every metric but those of single routes, which [`super::requests`] makes.
    /// [`super::catalog`] says what each one tells.
    pub struct Handles(registry, phase_kinds: &[&'static str]) {
        info: gauge c::INFO [version = crate::VERSION],
        malformed: counter c::CONNECTION_FAILURES [reason = "malformed"],
        lost: counter c::CONNECTION_FAILURES [reason = "lost"],
        internal: counter c::CONNECTION_FAILURES [reason = "internal"],
        pub(super) assigned_keys: counter c::ASSIGNED_KEYS,
        pub(super) claim_seconds: histogram c::CLAIM_SECONDS,
        pub(super) claim_timeouts: counter c::CLAIM_TIMEOUTS,
        pub(super) row_timeouts: counter c::ROW_TIMEOUTS,
        pub(super) replay_age: histogram c::REPLAY_AGE,
        pub(super) keys_in_flight: gauge c::KEYS_IN_FLIGHT,
        pub(super) waiters: gauge c::WAITERS,
        pub(super) shed_of_account: counter c::SHED [scope = "account"],
        pub(super) shed_in_all: counter c::SHED [scope = "all"],
        pub(super) batch_size: histogram c::BATCH_SIZE,
        pub(super) batch_seconds: histogram c::BATCH_SECONDS,
        pub(super) batch_failures: counter c::BATCH_FAILURES,
        pub(super) batch_undecided: counter c::BATCH_FALLBACKS [reason = "undecided"],
        pub(super) batch_failed: counter c::BATCH_FALLBACKS [reason = "batch_failed"],
        pub(super) account_held_up: counter c::BATCH_FALLBACKS [reason = "account_held_up"],
        pub(super) batch_waiting: gauge c::BATCH_WAITING,
        pub(super) cache_hits: counter c::CACHE_LOOKUPS [result = "hit"],
        pub(super) cache_misses: counter c::CACHE_LOOKUPS [result = "miss"],
        pub(super) cache_bytes: gauge c::CACHE_BYTES,
        pub sweep_seconds: histogram c::SWEEP_SECONDS,
        pub oldest_expired: gauge c::OLDEST_EXPIRED,
        pub(super) pool_max: gauge c::POOL_MAX,
        pub(super) pool_open: gauge c::POOL_OPEN,
        pub(super) pool_idle: gauge c::POOL_IDLE,
        pub(super) pool_wait: histogram c::POOL_WAIT,
        pub(super) pool_timeouts: counter c::POOL_TIMEOUTS,
        pub(super) pool_discarded: counter c::POOL_DISCARDED,
        pub(super) checkouts_completed: counter c::CHECKOUTS_ENDED [state = "completed"],
        pub(super) checkouts_canceled: counter c::CHECKOUTS_ENDED [state = "canceled"],
        pub checkouts_in_progress: gauge c::CHECKOUTS [state = "in_progress"],
        pub checkouts_refund_refused: gauge c::CHECKOUTS [state = "refund_refused"],
        pub webhooks_due: gauge c::WEBHOOKS_DUE,
        pub webhooks_oldest_due: gauge c::WEBHOOKS_OLDEST_DUE,
        pub webhook_succeeded: counter c::WEBHOOK_ATTEMPTS [result = "succeeded"],
        pub webhook_retried: counter c::WEBHOOK_ATTEMPTS [result = "retried"],
        pub webhook_failed: counter c::WEBHOOK_ATTEMPTS [result = "failed"],
        pub webhook_seconds: histogram c::WEBHOOK_SECONDS,
        pub webhook_lag: histogram c::WEBHOOK_LAG,
        pub read_success: gauge c::READ_SUCCESS,
        ;
        pub registry: Registry = registry.clone(),
        pub swept: SweptRows = SweptRows::of(registry),
        pub sweep_parts: SweepParts = SweepParts::of(registry),
        pub phases: Vec<(&'static str, PhaseHandles)> = phase_kinds
            .iter()
            .map(|kind| (*kind, PhaseHandles::of(registry, kind)))
            .collect(),
        pub moves: [(&'static str, MoveHandles); MOVE_STATES.len()] = MOVE_STATES
            .map(|state| (state, MoveHandles::of(registry, state))),
        worker_failures: [Counter; WORKERS.len()] = WORKERS
            .map(|worker| registry.counter(&c::WORKER_FAILURES, &[("worker", worker.into())])),
    }
}

impl SweepPart {
    /// Counts how it ended. Success may be that there was nothing to do.
    pub fn ended(&self, has_succeeded: bool) {
        match has_succeeded {
            true => set_to_now(&self.success),
            false => self.failures.increment(1),
        }
    }
}

impl Handles {
    /// Counts a connection that failed.
    pub fn connection_failed(&self, why: Failure) {
        let counter = match why {
            Failure::Malformed => &self.malformed,
            Failure::Lost => &self.lost,
            Failure::Internal => &self.internal,
        };
        counter.increment(1);
    }

    /// Shows what the last check found, and when, in unix seconds. The two series are made here, so
    /// that there are none before it.
    pub fn show_last_check(&self, violations: i32, finished_at: f64) {
        let gauge = |metric| self.registry.gauge(metric, &[]);
        gauge(&c::CHECK_VIOLATIONS).set(violations);
        gauge(&c::CHECK_LAST_RUN).set(finished_at);
    }

    /// Counts a failure of one of [`WORKERS`].
    pub fn worker_failed(&self, name: &str) {
        let mut of_workers = WORKERS.iter().zip(&self.worker_failures);
        if let Some((_, failures)) = of_workers.find(|(worker, _)| **worker == name) {
            failures.increment(1);
        }
    }
}
