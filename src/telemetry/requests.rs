//! What is known of a request at its end: for its line in the log, and for the metrics.
//!
//! Promise: each request is counted once, and has one line: when it is answered, when its handler
//! panicked, or when its client left before that. A route is named by its pattern, a key by a short
//! hash.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use actix_web::{HttpMessage, HttpRequest, dev::ServiceRequest};
use chrono::Utc;
use metrics::{Counter, Histogram, SharedString};
use sha2::{Digest, Sha256};
use strum::VariantArray;
use tokio::time::Instant;
use tracing::{Span, field::Empty};

use super::{PROBES, catalog, known, metrics::Metrics, traces};
use crate::{
    domain::ids::{AccountId, RequestId},
    idempotency::{IdempotencyKey, Outcome},
};

/// The route of a path without one.
const NO_ROUTE: &str = "not_found";

/// In place of a status, where there was no reply.
const UNANSWERED: &str = "unanswered";

/// The bytes of a hash that a log shows: two keys of a day's log hardly ever share them.
const KEY_HASH_BYTES: usize = 4;

/// How a request with an idempotency key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum OutcomeLabel {
    /// It did what it asked for, a declined card included.
    Executed,
    /// It got the stored reply of another request.
    Replayed,
    /// It got a 4xx of its own, which is stored.
    Refused,
    /// Its key belongs to another request.
    Reused,
    /// The first request with its key had not ended.
    InUse,
    /// It was not executed.
    Failed,
    /// It has no outcome, and may have been executed.
    Unknown,
    /// It ended what an earlier request had begun.
    TakenOver,
}

impl OutcomeLabel {
    /// Its name, in the log and in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// What it was by the word of the idempotency crate.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Stored {
                taken_over: true, ..
            } => Self::TakenOver,
            Outcome::Stored { replayed: true, .. } => Self::Replayed,
            Outcome::Stored { record, .. } => {
                match (record.reply.status, &record.reply.resource_id) {
                    // A decline names its charge. A card that can't be right has none.
                    (..=399, _) | (402, Some(_)) => Self::Executed,
                    (_, _) => Self::Refused,
                }
            }
            Outcome::Reused => Self::Reused,
            Outcome::InUse { .. } => Self::InUse,
            Outcome::Failed(failure) if !failure.is_unknown => Self::Failed,
            // A processor across a network may have been asked before this process was started
            // without it.
            Outcome::Failed(_) | Outcome::Unfinished => Self::Unknown,
        }
    }
}

/// The routes that a worker thread has met, with their metrics.
#[derive(Clone)]
pub struct Routes {
    metrics: Metrics,
    /// By pattern, and then by method. Patterns are those of the route table.
    known: Rc<RefCell<ByPattern>>,
}

type ByPattern = HashMap<Rc<str>, Vec<Rc<Endpoint>>>;

impl Routes {
    /// None yet.
    pub fn new(metrics: Metrics) -> Self {
        let known = Rc::default();
        Self { metrics, known }
    }

    fn endpoint(&self, method: &'static str, route: Option<String>) -> Rc<Endpoint> {
        let route = route.as_deref().unwrap_or(NO_ROUTE);
        let mut known = self.known.borrow_mut();
        let of_route = match known.get_mut(route) {
            Some(of_route) => of_route,
            None => known.entry(route.into()).or_default(),
        };
        let found = of_route.iter().find(|endpoint| endpoint.method == method);
        if let Some(endpoint) = found {
            return Rc::clone(endpoint);
        }
        let endpoint = Rc::new(Endpoint::new(self.metrics.clone(), method, route));
        of_route.push(Rc::clone(&endpoint));
        endpoint
    }
}

/// A method of a route, and its metrics.
struct Endpoint {
    metrics: Metrics,
    method: &'static str,
    route: SharedString,
    duration: Histogram,
    /// By status; `None` is no reply.
    statuses: RefCell<Vec<(Option<u16>, Counter)>>,
    outcomes: OnceCell<Vec<(OutcomeLabel, Counter)>>,
}

impl Endpoint {
    fn new(metrics: Metrics, method: &'static str, route: &str) -> Self {
        let route: SharedString = route.to_owned().into();
        let labels = [("method", label(method)), ("route", route.clone())];
        Self {
            duration: metrics.registry.histogram(&catalog::HTTP_SECONDS, &labels),
            metrics,
            method,
            route,
            statuses: RefCell::default(),
            outcomes: OnceCell::new(),
        }
    }

    fn is_probe(&self) -> bool {
        PROBES.iter().any(|probe| *self.route == **probe)
    }

    fn count(&self, status: Option<u16>) {
        let mut statuses = self.statuses.borrow_mut();
        if let Some((_, counter)) = statuses.iter().find(|(known, _)| *known == status) {
            counter.increment(1);
            return;
        }
        let text = status.map_or(UNANSWERED.into(), |status| status.to_string().into());
        let labels = [
            ("method", label(self.method)),
            ("route", self.route.clone()),
            ("status", text),
        ];
        let registry = &self.metrics.registry;
        let counter = registry.counter(&catalog::HTTP_REQUESTS, &labels);
        counter.increment(1);
        statuses.push((status, counter));
    }

    /// Counts how a key was used, by method and route without a dialect's prefix. All outcomes
    /// begin with 0.
    fn count_outcome(&self, outcome: OutcomeLabel) {
        let outcomes = self.outcomes.get_or_init(|| {
            let route = self.route.strip_prefix("/v1").unwrap_or(&self.route);
            let operation: SharedString = format!("{} {route}", self.method).into();
            let counters = OutcomeLabel::VARIANTS.iter().map(|&outcome| {
                let outcome_label = ("outcome", outcome.as_str().into());
                let labels = [("operation", operation.clone()), outcome_label];
                let registry = &self.metrics.registry;
                (outcome, registry.counter(&catalog::KEY_REQUESTS, &labels))
            });
            counters.collect()
        });
        if let Some((_, counter)) = outcomes.iter().find(|(one, _)| *one == outcome) {
            counter.increment(1);
        }
    }
}

/// A method that HTTP doesn't define is `other`.
fn label(method: &'static str) -> SharedString {
    match method {
        "unknown" => "other".into(),
        method => method.into(),
    }
}

/// One request on its way. Clones are the same request.
#[derive(Clone)]
pub struct Observation(Rc<Inner>);

struct Inner {
    began: Instant,
    endpoint: Rc<Endpoint>,
    span: OnceCell<Span>,
    outcome: Cell<Option<OutcomeLabel>>,
    has_ended: Cell<bool>,
}

impl Observation {
    /// Begins to observe a request, before it is routed.
    pub fn begin(request: &ServiceRequest) -> Option<Self> {
        let routes = request.app_data::<Routes>()?;
        let endpoint = routes.endpoint(known(request.method()), request.match_pattern());
        let observation = Self(Rc::new(Inner {
            began: Instant::now(),
            endpoint,
            span: OnceCell::new(),
            outcome: Cell::new(None),
            has_ended: Cell::new(false),
        }));
        request.extensions_mut().insert(observation.clone());
        Some(observation)
    }

    /// That of a request.
    pub fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// Opens the span that all lines of the request are written in.
    pub(super) fn open_span(&self, id: RequestId) -> Span {
        let Endpoint { method, route, .. } = &*self.0.endpoint;
        let route = &**route;
        // A span's target is a constant. Probes would be most of all traces.
        let span = if self.0.endpoint.is_probe() {
            tracing::info_span!(
                target: "charge_once::probe",
                "request", request_id = %id, method, route, account = Empty, key = Empty,
            )
        } else {
            tracing::info_span!(
                target: traces::REQUEST_TARGET,
                "request", request_id = %id, method, route, account = Empty, key = Empty,
            )
        };
        self.0.span.get_or_init(|| span).clone()
    }

    /// The request is `account`'s, and names this key.
    pub fn has_key(&self, account: AccountId, key: &IdempotencyKey) {
        if let Some(span) = self.0.span.get().filter(|span| !span.is_disabled()) {
            span.record("key", short_hash(account, key));
        }
    }

    /// The request had no key, and the server made one.
    pub fn key_assigned(&self) {
        self.0.endpoint.metrics.assigned_keys.increment(1);
    }

    /// The idempotency crate has answered.
    pub fn key_ended(&self, outcome: &Outcome) {
        let how = OutcomeLabel::of(outcome);
        self.0.outcome.set(Some(how));
        self.0.endpoint.count_outcome(how);
        if let (OutcomeLabel::Replayed, Outcome::Stored { record, .. }) = (how, outcome) {
            // A replay of what was stored a moment ago by a clock that runs ahead is as old as now.
            let age = (Utc::now() - record.created_at).to_std();
            let ages = &self.0.endpoint.metrics.replay_age;
            ages.record(age.unwrap_or_default());
        }
    }

    /// The request has its reply. `outcome` is used where there was no key, or where it was not
    /// claimed.
    pub fn answered(&self, status: u16, outcome: &'static str) {
        self.0.end(Some(status), outcome);
    }
}

impl Inner {
    fn end(&self, status: Option<u16>, outcome: &'static str) {
        if self.has_ended.replace(true) {
            return;
        }
        let duration = self.began.elapsed();
        self.endpoint.count(status);
        self.endpoint.duration.record(duration);
        let _entered = self.span.get().map(Span::enter);
        let outcome = self.outcome.get().map_or(outcome, OutcomeLabel::as_str);
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let replayed = outcome == OutcomeLabel::Replayed.as_str();
        if let Some(span) = self.span.get() {
            traces::request_ended(span, status, outcome);
        }
        let Some(status) = status else {
            tracing::info!(
                outcome,
                replayed,
                duration_us,
                "the client left before its reply"
            );
            return;
        };
        // A probe that fails is worth a line, one that succeeds is not.
        if self.endpoint.is_probe() && status < 300 {
            tracing::debug!(status, outcome, replayed, duration_us, "answered");
        } else {
            tracing::info!(status, outcome, replayed, duration_us, "answered");
        }
    }
}

/// A request that is dropped without a reply: its client reset the connection.
impl Drop for Inner {
    fn drop(&mut self) {
        self.end(None, UNANSWERED);
    }
}

/// The same key of the same account has the same hash. No key can be found from it.
pub fn short_hash(account: AccountId, key: &IdempotencyKey) -> String {
    let hash = Sha256::new()
        .chain_update(account.0.as_bytes())
        .chain_update(key.as_str())
        .finalize();
    let mut text = hex::encode(hash);
    text.truncate(2 * KEY_HASH_BYTES);
    text
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_short_hash_of_a_key_is_its_account_s() {
        let key = IdempotencyKey::parse(b"order-1042").unwrap_or_else(|_| unreachable!());
        let hash = |account| short_hash(AccountId(Uuid::from_u128(account)), &key);
        assert_eq!(hash(1).len(), 8);
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
