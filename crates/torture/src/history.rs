//! What the clients asked for and what they were told: the evidence that the checks judge.
//!
//! Promise: every attempt is recorded with the bytes that were sent and a digest of the reply, and
//! an answer is never taken for definite that the contract does not store.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::replica::Usage;

/// The name of the metadata in which an object carries the tag of the request that asked for it.
pub(crate) const TAG: &str = "torture";

/// One request, as bytes. Every retry sends the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: reqwest::Method,
    /// With its prefix, which is the dialect.
    pub(crate) path: String,
    pub(crate) media_type: &'static str,
    pub(crate) body: String,
    /// Unique for this request. What the request creates carries it in its metadata.
    pub(crate) tag: String,
    /// Whether the reply's object shows the tag.
    pub(crate) is_tagged: bool,
    /// Whether a second execution, once the key has expired, changes nothing.
    pub(crate) is_repeatable: bool,
    /// `Prefer: wait=`, in seconds.
    pub(crate) wait: Option<u8>,
}

impl Request {
    /// The level that it sets, if it sets one: in JSON, or as a form.
    pub(crate) fn quantity(&self) -> Option<i64> {
        let (_, text) = self.body.split_once("quantity")?;
        let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits.get(..end.unwrap_or(digits.len()))?.parse().ok()
    }
}

/// A reply that the service stores: equal for every retry.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) status: u16,
    /// SHA-256 of the status, the end-to-end headers and the body.
    pub(crate) digest: [u8; 32],
    /// `Original-Request`: the execution that the reply is from.
    pub(crate) execution: String,
    /// `Idempotency-Expires`.
    pub(crate) expires: DateTime<Utc>,
    pub(crate) body: Value,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Stored(Stored),
    /// The key belongs to another request.
    Reused,
    /// Retry with the same key and the same bytes.
    Unknown(String),
    /// A whole reply that the contract doesn't have.
    Malformed(String),
}

/// One attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Which of the key's requests was sent.
    pub(crate) variant: usize,
    pub(crate) replica: usize,
    pub(crate) began: DateTime<Utc>,
    pub(crate) ended: DateTime<Utc>,
    pub(crate) verdict: Verdict,
}

/// Everything about one key of one account.
#[derive(Debug)]
pub(crate) struct KeyHistory {
    pub(crate) account: usize,
    pub(crate) key: String,
    /// The requests that were sent with the key: usually one, and several for a key that clients
    /// fight over.
    pub(crate) variants: Vec<Request>,
    pub(crate) attempts: Vec<Attempt>,
}

impl KeyHistory {
    /// The stored answers, each with the request that it answered.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (usize, &Attempt, &Stored)> {
        self.attempts
            .iter()
            .filter_map(|attempt| match &attempt.verdict {
                Verdict::Stored(stored) => Some((attempt.variant, attempt, stored)),
                Verdict::Reused | Verdict::Unknown(_) | Verdict::Malformed(_) => None,
            })
    }

    /// Requests without an answer so far.
    pub(crate) fn open_variants(&self) -> Vec<usize> {
        let is_open = |variant: &usize| {
            let mut of_variant = self.attempts.iter().filter(|one| one.variant == *variant);
            of_variant.all(|one| matches!(one.verdict, Verdict::Unknown(_)))
        };
        (0..self.variants.len()).filter(is_open).collect()
    }

    /// Whether an answer shows this object, or a request carries this tag.
    pub(crate) fn is_about(&self, id: &str) -> bool {
        self.variants.iter().any(|request| request.tag == id)
            || self.answers().any(|(_, _, stored)| {
                let members = stored.body.as_object().into_iter().flatten();
                members.into_iter().any(|(_, member)| member == id)
            })
    }

    /// The history as text, for a report.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("account {}, key {}\n", self.account, self.key);
        for (number, request) in self.variants.iter().enumerate() {
            let Request {
                method, path, body, ..
            } = request;
            let _ = writeln!(text, "  request {number}: {method} {path} {body}");
        }
        let (shown, length) = (DESCRIBED_ATTEMPTS, self.attempts.len());
        for (number, attempt) in self.attempts.iter().enumerate() {
            if number == shown && length > 2 * shown {
                let _ = writeln!(text, "  … {} attempts …", length - 2 * shown);
            }
            if number >= shown && number + shown < length {
                continue;
            }
            let verdict = match &attempt.verdict {
                Verdict::Stored(stored) => format!(
                    "{} from {}, until {}: {}",
                    stored.status, stored.execution, stored.expires, stored.body
                ),
                Verdict::Reused => "the key belongs to another request".to_owned(),
                Verdict::Unknown(why) => format!("unknown: {why}"),
                Verdict::Malformed(what) => what.clone(),
            };
            let _ = writeln!(
                text,
                "  {} +{:>5} ms  request {} at replica {}: {verdict}",
                attempt.began.format("%H:%M:%S%.3f"),
                (attempt.ended - attempt.began).num_milliseconds(),
                attempt.variant,
                attempt.replica,
            );
        }
        text
    }
}

/// How many attempts a description shows of the first ones, and of the last ones.
const DESCRIBED_ATTEMPTS: usize = 20;

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Headers about a delivery or a connection, not about the outcome. The contract names them.
const DELIVERY_HEADERS: [&str; 9] = [
    "request-id",
    "idempotent-replayed",
    "preference-applied",
    "idempotency-key",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "date",
    "server",
];

/// Errors that are about an attempt and never stored.
const NOT_STORED: [&str; 5] = [
    "idempotency_key_in_use",
    "resource_busy",
    "rate_limited",
    "request_timeout",
    "internal_error",
];

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(header, _)| header == name)
            .map(|(_, value)| &**value)
    }

    /// What the reply means to a client.
    pub(crate) fn judge(&self) -> Verdict {
        if self.status == 408 && self.body.is_empty() {
            // The HTTP server's own word for a request that it could not read in time.
            return Verdict::Unknown("408 before the request was read".to_owned());
        }
        let Ok(body) = serde_json::from_slice::<Value>(&self.body) else {
            return Verdict::Malformed(format!("{} without JSON", self.status));
        };
        let code = body.pointer("/error/code").and_then(Value::as_str);
        let code = code.unwrap_or_default();
        if code == "idempotency_key_reused" {
            return Verdict::Reused;
        }
        if self.status >= 500 || NOT_STORED.contains(&code) {
            return Verdict::Unknown(format!("{} {code}", self.status));
        }
        let execution = self.header("original-request").map(str::to_owned);
        let expires = self.header("idempotency-expires");
        let expires = expires.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
        match (execution, expires) {
            (Some(execution), Some(expires)) => Verdict::Stored(Stored {
                status: self.status,
                digest: self.digest(),
                execution,
                expires: expires.to_utc(),
                body,
            }),
            (_, _) => Verdict::Malformed(format!(
                "{} {code}, which no headers of a stored outcome came with",
                self.status
            )),
        }
    }

    fn digest(&self) -> [u8; 32] {
        let mut lasting: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, _)| !DELIVERY_HEADERS.contains(&&**name))
            .collect();
        lasting.sort();
        let mut digest = Sha256::new();
        digest.update(self.status.to_be_bytes());
        for (name, value) in lasting {
            digest.update(name.as_bytes());
            digest.update([0]);
            digest.update(value.as_bytes());
            digest.update([0]);
        }
        digest.update(&self.body);
        digest.finalize().into()
    }
}

/// A rule that did not hold.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// G1 to G9, or check; `crates/torture/README.md` says what each is.
    pub(crate) rule: &'static str,
    pub(crate) what: String,
    /// The keys that it is about, as far as they are known.
    pub(crate) keys: Vec<SharedKey>,
}

/// One key's history, shared by the clients that use the key.
pub(crate) type SharedKey = Arc<Mutex<KeyHistory>>;

/// All keys, and what was counted. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    keys: Vec<SharedKey>,
    outcomes: HashMap<String, u64>,
    violations: Vec<Violation>,
    worst_stall: Duration,
    most_used: Usage,
    attempts: u64,
}

/// Locks whatever a panic left: the history is evidence even then.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was counted until now.
#[derive(Debug, Default, Clone)]
pub(crate) struct Totals {
    pub(crate) keys: usize,
    pub(crate) attempts: u64,
    pub(crate) outcomes: Vec<(String, u64)>,
    /// The longest that a client waited from its first attempt to an answer.
    pub(crate) worst_stall: Duration,
    /// The most that a replica used, of each.
    pub(crate) most_used: Usage,
    pub(crate) violations: Vec<Violation>,
}

impl History {
    /// Adds a key that no client has used before.
    pub(crate) fn add(&self, account: usize, key: String, request: Request) -> SharedKey {
        let history = Arc::new(Mutex::new(KeyHistory {
            account,
            key,
            variants: vec![request],
            attempts: Vec::new(),
        }));
        lock(&self.inner).keys.push(Arc::clone(&history));
        history
    }

    pub(crate) fn keys(&self) -> Vec<SharedKey> {
        lock(&self.inner).keys.clone()
    }

    /// Records an attempt, and a violation if it contradicts an earlier one.
    pub(crate) fn record(&self, key: &SharedKey, attempt: Attempt) {
        let outcome = match &attempt.verdict {
            Verdict::Stored(stored) => stored.status.to_string(),
            Verdict::Reused => "reused".to_owned(),
            Verdict::Unknown(why) | Verdict::Malformed(why) => why.chars().take(60).collect(),
        };
        let contradiction = {
            let mut history = lock(key);
            let contradiction = crate::checks::contradiction(&history, &attempt);
            history.attempts.push(attempt);
            contradiction
        };
        if let Some((rule, what)) = contradiction {
            self.violate_at(rule, what, vec![Arc::clone(key)]);
        }
        let mut inner = lock(&self.inner);
        inner.attempts += 1;
        *inner.outcomes.entry(outcome).or_default() += 1;
    }

    /// Records a violation that is about no key.
    pub(crate) fn violate(&self, rule: &'static str, what: String) {
        self.violate_at(rule, what, Vec::new());
    }

    /// Records a violation about the keys whose answers show an object, or that a request with this
    /// tag was sent with.
    pub(crate) fn violate_about(&self, rule: &'static str, what: String, id: &str) {
        let keys = self.keys().into_iter();
        let keys = keys.filter(|key| lock(key).is_about(id)).collect();
        self.violate_at(rule, what, keys);
    }

    /// Records a violation about these keys. Checks run again and again, so a violation that is known is
    /// not recorded twice.
    pub(crate) fn violate_at(&self, rule: &'static str, what: String, keys: Vec<SharedKey>) {
        let mut inner = lock(&self.inner);
        let is_known = |known: &Violation| known.rule == rule && known.what == what;
        if !inner.violations.iter().any(is_known) {
            inner.violations.push(Violation { rule, what, keys });
        }
    }

    /// Notes how long a client waited for an answer.
    pub(crate) fn stalled(&self, long: Duration) {
        let mut inner = lock(&self.inner);
        inner.worst_stall = inner.worst_stall.max(long);
    }

    /// Notes what a replica uses now.
    pub(crate) fn uses(&self, usage: Usage) {
        let most = &mut lock(&self.inner).most_used;
        most.resident_mib = most.resident_mib.max(usage.resident_mib);
        most.descriptors = most.descriptors.max(usage.descriptors);
    }

    pub(crate) fn has_violations(&self) -> bool {
        !lock(&self.inner).violations.is_empty()
    }

    pub(crate) fn totals(&self) -> Totals {
        let inner = lock(&self.inner);
        let mut outcomes: Vec<_> = inner
            .outcomes
            .iter()
            .map(|(outcome, count)| (outcome.clone(), *count))
            .collect();
        outcomes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        // The first of each rule, and then the others: only a few of them are shown whole.
        let mut rules = HashSet::new();
        let (mut violations, others): (Vec<_>, Vec<_>) = inner
            .violations
            .iter()
            .cloned()
            .partition(|violation| rules.insert(violation.rule));
        violations.extend(others);
        Totals {
            keys: inner.keys.len(),
            attempts: inner.attempts,
            outcomes,
            worst_stall: inner.worst_stall,
            most_used: inner.most_used,
            violations,
        }
    }
}
