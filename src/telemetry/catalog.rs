//! Every metric, described once: what is registered, and the table in docs/operations.md, come from
//! here.
//!
//! Promise: a label's values are few and known before the first request. No account, key, id or
//! path is one.

use charge_once_service::prometheus::{MetricKind, metrics};

/// From half a millisecond to what a request may take with a wait for another one.
const REQUEST_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// What happens inside a request, from a tenth of a millisecond on.
const STEP_SECONDS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// From a retry at once to one on the next day.
const AGE_SECONDS: &[f64] = &[
    0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0,
];

/// Requests in one transaction.
const BATCH_REQUESTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

metrics! {
    INFO = "charge_once_info", MetricKind::Gauge, ["version"],
        "Always 1; the label says which version runs.";
    HTTP_REQUESTS = "charge_once_http_requests_total", MetricKind::Counter, ["method", "route", "status"],
        "Requests, by the pattern of their route. `not_found` is a path without a route, `other` a method \
         that HTTP doesn't define, and `unanswered` in place of a status a client that left before its reply.";
    HTTP_SECONDS = "charge_once_http_request_duration_seconds", MetricKind::Histogram(REQUEST_SECONDS),
        ["method", "route"],
        "From the head of a request to its reply, the wait for another request with the same key included.";
    CONNECTION_FAILURES = "charge_once_connection_failures_total", MetricKind::Counter, ["reason"],
        "Connections of clients that failed: what came is no request, as in a scan of ports (`malformed`), the \
         client left or was too slow (`lost`), or a defect of the server (`internal`). Only the last is an error \
         in the log.";
    KEY_REQUESTS = "charge_once_idempotency_requests_total", MetricKind::Counter, ["operation", "outcome"],
        "Requests with an idempotency key that reached the claim: `executed`, `replayed`, `refused` (a stored \
         4xx), `reused` (the key is another request's), `in_use`, `failed` (not executed), `unknown` (503, and \
         perhaps executed), and `taken_over` (ended what an earlier request had begun).";
    ASSIGNED_KEYS = "charge_once_idempotency_assigned_keys_total", MetricKind::Counter, [],
        "Requests that brought no key and got one from the server, as `KEYS` allows.";
    CLAIM_SECONDS = "charge_once_idempotency_claim_duration_seconds", MetricKind::Histogram(STEP_SECONDS), [],
        "How long the statement took that claims a key. Each request counts, also where many share a \
         transaction. The wait for another process that holds the key is part of it.";
    CLAIM_TIMEOUTS = "charge_once_idempotency_claim_timeouts_total", MetricKind::Counter, [],
        "Claims that gave up waiting for another process that holds the key.";
    ROW_TIMEOUTS = "charge_once_row_lock_timeouts_total", MetricKind::Counter, [],
        "Transactions that gave their connection back because a row stayed locked. Each is repeated for up to \
         a second.";
    REPLAY_AGE = "charge_once_idempotency_replay_age_seconds", MetricKind::Histogram(AGE_SECONDS), [],
        "How long after the first use of its key a request was replayed.";
    KEYS_IN_FLIGHT = "charge_once_idempotency_keys_in_flight", MetricKind::Gauge, [],
        "Keys that this process works on now. The key of a refused request counts while its record is looked up.";
    WAITERS = "charge_once_idempotency_waiters", MetricKind::Gauge, [],
        "Duplicates that wait in this process for the first request with their key.";
    SHED = "charge_once_shed_requests_total", MetricKind::Counter, ["scope"],
        "Requests that were not begun, and answered with 503 at once, because too many were in progress: of \
         their account (`account`), or in all (`all`). They count as `failed` as well, and so do duplicates \
         that share the answer.";
    BATCH_SIZE = "charge_once_batch_requests", MetricKind::Histogram(BATCH_REQUESTS), [],
        "Requests that shared a transaction; 1 with `BATCH=off`.";
    BATCH_SECONDS = "charge_once_batch_duration_seconds", MetricKind::Histogram(STEP_SECONDS), [],
        "From the moment that a batch was gathered to its COMMIT.";
    BATCH_FAILURES = "charge_once_batch_failures_total", MetricKind::Counter, [],
        "Batches that did not commit. Their requests ran alone, or have an unknown outcome.";
    BATCH_FALLBACKS = "charge_once_batch_fallbacks_total", MetricKind::Counter, ["reason"],
        "Requests that ran alone instead: their batch could not decide about them (`undecided`), it failed \
         (`batch_failed`), or their account holds up batches for the moment (`account_held_up`).";
    BATCH_WAITING = "charge_once_batch_waiting", MetricKind::Gauge, [],
        "Requests that wait for a batch now.";
    CACHE_LOOKUPS = "charge_once_replay_cache_lookups_total", MetricKind::Counter, ["result"],
        "Searches for a stored reply in memory: `hit` or `miss`. Each new key is a miss.";
    CACHE_BYTES = "charge_once_replay_cache_bytes", MetricKind::Gauge, [],
        "Memory that stored replies take, approximately.";
    SWEEP_ROWS = "charge_once_sweep_rows_total", MetricKind::Counter, ["kind"],
        "Rows that the sweep removed: `idempotency_keys`, rows of `test_accounts`, `events`, `operations` and \
         rows of the `request_log`.";
    SWEEP_SECONDS = "charge_once_sweep_duration_seconds", MetricKind::Histogram(REQUEST_SECONDS), [],
        "How long a sweep of expired keys took, its rests included.";
    SWEEP_FAILURES = "charge_once_sweep_failures_total", MetricKind::Counter, ["part"],
        "Parts of a sweep that failed: `idempotency_keys`, `test_accounts`, or `old_rows`, which are events, \
         operations and logged requests. They are repeated.";
    SWEEP_SUCCESS = "charge_once_sweep_last_success_timestamp_seconds", MetricKind::Gauge, ["part"],
        "When that part of a sweep last ended in this process without an error, in unix time. 0 until then. \
         In the hour after a whole round, `old_rows` has nothing to do, and counts as ended.";
    OLDEST_EXPIRED = "charge_once_idempotency_oldest_expired_seconds", MetricKind::Gauge, [],
        "How long the oldest expired key has waited to be swept; 0 if there is none. From the database.";
    POOL_MAX = "charge_once_pool_connections_max", MetricKind::Gauge, [],
        "Most connections of the pool: POOL_CONNECTIONS.";
    POOL_OPEN = "charge_once_pool_connections", MetricKind::Gauge, [],
        "Open connections of the pool.";
    POOL_IDLE = "charge_once_pool_connections_idle", MetricKind::Gauge, [],
        "Open connections of the pool that no request has.";
    POOL_WAIT = "charge_once_pool_wait_seconds", MetricKind::Histogram(STEP_SECONDS), [],
        "How long a request or a worker waited for a connection.";
    POOL_TIMEOUTS = "charge_once_pool_timeouts_total", MetricKind::Counter, [],
        "Waits that ended without a connection, after POOL_WAIT.";
    POOL_DISCARDED = "charge_once_pool_discarded_total", MetricKind::Counter, [],
        "Connections that were closed because their state was in doubt.";
    PHASES = "charge_once_phases", MetricKind::Gauge, ["kind", "state"],
        "Requests in phases whose key is in flight, on all replicas, counted up to 1000 of each kind: \
         `running` under a lease, or `waiting` for a retry or the reconciler. The kind is `processor` or \
         `checkout`. From the database.";
    PHASES_IN_DOUBT = "charge_once_phases_in_doubt", MetricKind::Gauge, ["kind"],
        "Requests in phases whose call may have been executed, without a known answer. From the database.";
    PHASES_OLDEST = "charge_once_phases_oldest_seconds", MetricKind::Gauge, ["kind"],
        "How long ago the oldest request in phases began; 0 if there is none. From the database.";
    PHASE_CALLS = "charge_once_phases_calls_total", MetricKind::Counter, ["kind", "result"],
        "Calls between the two transactions of a request in phases, the reconciler's too: `answered`, \
         `not_executed`, or `unknown`.";
    PHASE_SECONDS = "charge_once_phases_call_duration_seconds", MetricKind::Histogram(REQUEST_SECONDS), ["kind"],
        "How long such a call took: a call of the processor, or all steps of a checkout.";
    CHECKOUTS_ENDED = "charge_once_checkouts_ended_total", MetricKind::Counter, ["state"],
        "Checkouts that this process ended: `completed` or `canceled`.";
    CHECKOUTS = "charge_once_checkouts", MetricKind::Gauge, ["state"],
        "Checkouts that have not ended, on all replicas, counted up to 1000: `in_progress`, and those of them \
         whose refund the processor refused (`refund_refused`), which need a person. From the database.";
    WEBHOOKS_DUE = "charge_once_webhooks_due", MetricKind::Gauge, [],
        "Deliveries that are due and not being sent, on all replicas, counted up to 10000. From the database.";
    WEBHOOKS_OLDEST_DUE = "charge_once_webhooks_oldest_due_seconds", MetricKind::Gauge, [],
        "How long the next delivery of an endpoint has been due, where that is longest of 1000 endpoints, or the \
         oldest retry that no worker has taken up; 0 if nothing is due. From the database.";
    WEBHOOK_ATTEMPTS = "charge_once_webhook_attempts_total", MetricKind::Counter, ["result"],
        "Attempts to deliver a webhook that ended in this process: `succeeded`, `retried` (another follows), or \
         `failed` (the last one).";
    WEBHOOK_SECONDS = "charge_once_webhook_attempt_duration_seconds", MetricKind::Histogram(REQUEST_SECONDS), [],
        "How long an attempt took.";
    WEBHOOK_LAG = "charge_once_webhook_lag_seconds", MetricKind::Histogram(AGE_SECONDS), [],
        "From an event to the first attempt to deliver it.";
    WORKER_FAILURES = "charge_once_worker_failures_total", MetricKind::Counter, ["worker"],
        "How often a worker of this process panicked, or ended too early: `checkout_reconciler`, \
         `database_metrics`, `expiry_sweep`, `processor_reconciler`, `request_log` or `webhooks`. It begins again \
         after a pause of up to two minutes.";
    MOVES = "charge_once_moves", MetricKind::Gauge, ["state"],
        "Accounts that move from one of several databases to another, by how far they are. Those that are `frozen` \
         or `leaving` are closed. From the databases, as each one told last.";
    MOVES_OLDEST = "charge_once_moves_oldest_seconds", MetricKind::Gauge, ["state"],
        "How long the longest of them has been in that state; 0 if there is none. It grows while a database doesn't \
         answer.";
    CHECK_VIOLATIONS = "charge_once_check_violations", MetricKind::Gauge, [],
        "Violations that the last `charge-once check` found, up to 100 of each invariant. Absent until a check \
         has come to its end. From the database.";
    CHECK_LAST_RUN = "charge_once_check_last_run_timestamp_seconds", MetricKind::Gauge, [],
        "When the last `charge-once check` ended, in unix time. From the database.";
    READ_SUCCESS = "charge_once_database_metrics_last_success_timestamp_seconds", MetricKind::Gauge, [],
        "When the metrics from the database were last read, in unix time. They keep their values while it \
         doesn't answer. 0 until the first time.";
}
