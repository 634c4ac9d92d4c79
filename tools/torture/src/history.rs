//! What the clients asked for and what they were told: the evidence that the checks judge.
//!
//! Promise: every attempt is recorded with the bytes that were sent and digests of the reply, and
//! an answer is never taken for definite that the contract does not store.

use std::{
    collections::{HashMap, HashSet},
    fmt::{Display, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    ids,
    replica::Usage,
    requests::{Expected, Verb},
};

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
    pub(crate) verb: Verb,
    /// What the body says: the checks compare rows with it.
    pub(crate) parameters: Value,
    /// The object that it is about, if it is about one.
    pub(crate) about: Option<String>,
    pub(crate) expected: Expected,
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
    /// Whether the service takes the other request for this one: a retry of it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.method.clone(), one.path.clone(), one.media_type);
        of(self) == of(other) && self.body == other.body
    }

    /// Its tag, the object that it is about, and the items that it counts or buys.
    fn names(&self) -> Vec<String> {
        let mut names = vec![self.tag.clone()];
        names.extend(self.about.clone());
        let counted = self.path.split_once("/inventory/");
        names.extend(counted.map(|(_, sku)| sku.to_owned()));
        let items = self.parameters.get("items").and_then(Value::as_array);
        let bought = items
            .into_iter()
            .flatten()
            .filter_map(|item| item.get("sku"));
        names.extend(bought.filter_map(Value::as_str).map(str::to_owned));
        names
    }

    /// A parameter, and null if it has none of this name.
    pub(crate) fn asked(&self, name: &str) -> Value {
        self.parameters.get(name).cloned().unwrap_or(Value::Null)
    }

    /// Uses another card, if it uses this one.
    pub(crate) fn replace_card(&mut self, card: &str, by: &str) {
        if let Some(source) = self.parameters.get_mut("source")
            && source == card
        {
            *source = by.into();
            self.body = self.body.replace(card, by);
        }
    }

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
    /// SHA-256 of the body alone, which the database has as well.
    pub(crate) body_digest: [u8; 32],
    /// `Original-Request`: the execution that the reply is from.
    pub(crate) execution: String,
    /// `Idempotency-Expires`.
    pub(crate) expires: DateTime<Utc>,
    pub(crate) body: Value,
}

impl Stored {
    fn code(&self) -> Option<&str> {
        self.body.pointer("/error/code")?.as_str()
    }

    /// Whether nothing was executed, because the key had been given up.
    pub(crate) fn is_of_a_given_up_key(&self) -> bool {
        self.code() == Some("idempotency_key_abandoned")
    }

    /// Whether nothing was executed, because the record of an earlier request has expired.
    pub(crate) fn is_of_an_expired_key(&self) -> bool {
        self.code() == Some("idempotency_key_expired")
    }
}

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

impl Verdict {
    pub(crate) fn stored(&self) -> Option<&Stored> {
        match self {
            Self::Stored(stored) => Some(stored),
            Self::Reused | Self::Unknown(_) | Self::Malformed(_) => None,
        }
    }
}

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
    /// The requests that were sent with the key: several if clients fight over it.
    pub(crate) variants: Vec<Request>,
    pub(crate) attempts: Vec<Attempt>,
}

impl KeyHistory {
    /// The stored answers, each with the request that it answered.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&Request, &Attempt, &Stored)> {
        let all = self.attempts.iter();
        all.filter_map(|one| {
            let request = self.variants.get(one.variant)?;
            Some((request, one, one.verdict.stored()?))
        })
    }

    /// When the last of its executions was first answered.
    pub(crate) fn last_execution_ended(&self) -> Option<DateTime<Utc>> {
        let (.., last) = self.answers().last()?;
        let mut of_it = self.answers();
        let (_, first, _) = of_it.find(|(.., stored)| stored.execution == last.execution)?;
        Some(first.ended)
    }

    /// Requests without an answer so far.
    pub(crate) fn open_variants(&self) -> Vec<usize> {
        let is_open = |variant: &usize| {
            let mut of_variant = self.attempts.iter().filter(|one| one.variant == *variant);
            of_variant.all(|one| matches!(one.verdict, Verdict::Unknown(_)))
        };
        (0..self.variants.len()).filter(is_open).collect()
    }

    /// The history as text, with so many of the first and of the last attempts.
    pub(crate) fn describe(&self, shown: usize) -> String {
        let mut text = format!("account {}, key {}\n", self.account, self.key);
        for (number, request) in self.variants.iter().enumerate() {
            let Request {
                method, path, body, ..
            } = request;
            let _ = writeln!(text, "  request {number}: {method} {path} {body}");
        }
        let length = self.attempts.len();
        for (number, attempt) in self.attempts.iter().enumerate() {
            let is_left_out = number >= shown && length - number > shown;
            if is_left_out && number == shown {
                let _ = writeln!(text, "  … {} attempts …", length - 2 * shown);
            }
            if is_left_out {
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

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Headers about a delivery or a connection, not about the outcome. The contract names them.
const DELIVERY_HEADERS: [&str; 10] = [
    "request-id",
    "idempotent-replayed",
    "preference-applied",
    "idempotency-key",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "date",
    // Below /v1, no other form of an error can be asked for. The answer to a key that was given up
    // is that of requests on both sides.
    "vary",
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
        let (_, value) = headers.find(|(header, _)| header == name)?;
        Some(value)
    }

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
                body_digest: Sha256::digest(&self.body).into(),
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

#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// G1 to G11, check or error; `tools/torture/README.md` says what each is.
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
    inner: Arc<Mutex<HistoryState>>,
    /// Only the keys of these accounts, and what was told of their objects.
    only: Option<Arc<[usize]>>,
}

#[derive(Debug, Default)]
struct HistoryState {
    keys: Vec<SharedKey>,
    /// The keys by what they are known by: their names, the tags of their requests, and the objects
    /// and items that their requests and answers name.
    by_name: HashMap<String, Vec<SharedKey>>,
    /// Rule and text of each violation.
    known_violations: HashSet<(&'static str, String)>,
    told: Vec<Told>,
    reads: Vec<Read>,
    totals: Totals,
}

/// Looks at the database while load and faults went on.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Looks {
    pub(crate) made: u64,
    /// The database could not be asked, or not in time.
    pub(crate) missed: u64,
}

/// What a client was told of an object: one of the states that checks compare with its row.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) account: usize,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) at: DateTime<Utc>,
}

/// An object that was read, with the answer: 200, or 404.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) reader: usize,
    pub(crate) owner: usize,
    pub(crate) object: String,
    pub(crate) status: u16,
    pub(crate) at: DateTime<Utc>,
}

/// Locks whatever a panic left: the history is evidence even then.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Totals {
    pub(crate) keys: usize,
    pub(crate) attempts: u64,
    pub(crate) outcomes: HashMap<String, u64>,
    /// The longest that a client waited from its first attempt to an answer.
    pub(crate) worst_stall: Duration,
    /// The most that a replica used, of each.
    pub(crate) most_used: Usage,
    pub(crate) looks: Looks,
    pub(crate) violations: Vec<Violation>,
}

/// How many of the keys that share a name are looked at before one is added.
const LOOKED_BACK: usize = 50;

impl HistoryState {
    fn know(&mut self, names: Vec<String>, key: &SharedKey) {
        for name in names {
            let keys = self.by_name.entry(name).or_default();
            // Many keys buy an item: only the last are looked at, and one may be in the list twice.
            let mut last = keys.iter().rev().take(LOOKED_BACK);
            if !last.any(|known| Arc::ptr_eq(known, key)) {
                keys.push(Arc::clone(key));
            }
        }
    }
}

/// The ids of the objects that an answer names.
pub(crate) fn objects_in(body: &Value) -> Vec<String> {
    let named = [
        "/id",
        "/charge",
        "/order",
        "/payment_intent",
        "/payment_method",
        "/latest_charge",
        "/error/charge",
        "/error/payment_intent/id",
    ];
    let named = named.map(|path| body.pointer(path));
    let steps = body.get("steps").and_then(Value::as_array);
    let resources = steps.into_iter().flatten().map(|step| step.get("resource"));
    let all = named.into_iter().chain(resources).flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl History {
    /// Adds a key that no client has used before, with the requests that it may be sent with.
    pub(crate) fn add(&self, account: usize, key: String, variants: Vec<Request>) -> SharedKey {
        let mut names = vec![key.clone()];
        names.extend(variants.iter().flat_map(Request::names));
        let history = Arc::new(Mutex::new(KeyHistory {
            account,
            key,
            variants,
            attempts: Vec::new(),
        }));
        let mut inner = lock(&self.inner);
        inner.keys.push(Arc::clone(&history));
        inner.totals.keys += 1;
        inner.know(names, &history);
        history
    }

    pub(crate) fn keys_about<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<SharedKey> {
        let inner = lock(&self.inner);
        let known = names.into_iter().filter_map(|name| inner.by_name.get(name));
        let mut keys = HashSet::new();
        let new = known.flatten().filter(|key| keys.insert(Arc::as_ptr(key)));
        new.cloned().collect()
    }

    pub(crate) fn request_of(&self, tag: &str) -> Option<(SharedKey, Request)> {
        self.keys_about([tag]).into_iter().find_map(|key| {
            let history = lock(&key);
            let request = history.variants.iter().find(|one| one.tag == tag).cloned();
            drop(history);
            Some((key, request?))
        })
    }

    pub(crate) fn keys(&self) -> Vec<SharedKey> {
        let mut keys = lock(&self.inner).keys.clone();
        if self.only.is_some() {
            keys.retain(|key| self.is_about(lock(key).account));
        }
        keys
    }

    /// The same history, of which only these accounts are looked at.
    pub(crate) fn of_accounts(&self, accounts: Arc<[usize]>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            only: Some(accounts),
        }
    }

    pub(crate) fn is_about(&self, account: usize) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.contains(&account))
    }

    /// Records an attempt, and a violation if it contradicts an earlier one.
    pub(crate) fn record(&self, key: &SharedKey, attempt: Attempt) {
        let outcome = match &attempt.verdict {
            Verdict::Stored(stored) => stored.status.to_string(),
            Verdict::Reused => "reused".to_owned(),
            Verdict::Unknown(why) | Verdict::Malformed(why) => why.chars().take(60).collect(),
        };
        let stored = attempt.verdict.stored();
        let names = stored.map_or_else(Vec::new, |stored| objects_in(&stored.body));
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
        inner.know(names, key);
        inner.totals.attempts += 1;
        *inner.totals.outcomes.entry(outcome).or_default() += 1;
    }

    pub(crate) fn violate(&self, rule: &'static str, what: String) {
        self.violate_at(rule, what, Vec::new());
    }

    /// Records a violation about the keys that are known by a tag, an id, or their name.
    pub(crate) fn violate_about(&self, rule: &'static str, what: String, name: &str) {
        self.violate_at(rule, what, self.keys_about([name]));
    }

    /// Records a violation about what a row names: by name, or as a prefix and a UUID.
    pub(crate) fn violate_of_row(&self, rule: &'static str, what: String, names: &[String]) {
        let names: Vec<String> = names.iter().map(|name| ids::of_row(name)).collect();
        let keys = self.keys_about(names.iter().map(String::as_str));
        self.violate_at(rule, what, keys);
    }

    /// Records a violation about these keys, once: checks run again and again.
    pub(crate) fn violate_at(&self, rule: &'static str, what: String, keys: Vec<SharedKey>) {
        let mut inner = lock(&self.inner);
        if inner.known_violations.insert((rule, what.clone())) {
            inner.totals.violations.push(Violation { rule, what, keys });
        }
    }

    /// What a check returned. An error is a violation: what was not checked may not hold.
    pub(crate) fn checked<T, E: Display>(&self, what: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.violate("error", format!("{what}: {error:#}"));
                None
            }
        }
    }

    /// Notes what a request without a key was told, and counts it as an outcome.
    pub(crate) fn tell(&self, outcome: String, told: Option<Told>) {
        let mut inner = lock(&self.inner);
        *inner.totals.outcomes.entry(outcome).or_default() += 1;
        inner.told.extend(told);
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        let mut told = lock(&self.inner).told.clone();
        told.retain(|told| self.is_about(told.account));
        told
    }

    pub(crate) fn saw(&self, read: Read) {
        lock(&self.inner).reads.push(read);
    }

    pub(crate) fn reads(&self) -> Vec<Read> {
        lock(&self.inner).reads.clone()
    }

    pub(crate) fn stalled(&self, long: Duration) {
        let mut inner = lock(&self.inner);
        inner.totals.worst_stall = inner.totals.worst_stall.max(long);
    }

    pub(crate) fn looked(&self, is_made: bool) {
        let looks = &mut lock(&self.inner).totals.looks;
        match is_made {
            true => looks.made += 1,
            false => looks.missed += 1,
        }
    }

    pub(crate) fn uses(&self, usage: Usage) {
        let most = &mut lock(&self.inner).totals.most_used;
        most.resident_mib = most.resident_mib.max(usage.resident_mib);
        most.descriptors = most.descriptors.max(usage.descriptors);
    }

    pub(crate) fn has_violations(&self) -> bool {
        !lock(&self.inner).totals.violations.is_empty()
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = lock(&self.inner).totals.clone();
        // The first of each rule, and then the others: only a few of them are shown whole.
        let mut rules = HashSet::new();
        let all = totals.violations.into_iter();
        let (first, others): (Vec<_>, Vec<_>) =
            all.partition(|violation| rules.insert(violation.rule));
        totals.violations = [first, others].concat();
        totals
    }
}
