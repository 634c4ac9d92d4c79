//! What the log tells of a client: where a retry does something twice, or would.
//!
//! Promise: no finding without the requests that show it. Two equal requests alone are no finding:
//! they may be two buyers. The first must have had no answer, or both follow one webhook that came
//! twice.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use strum::{IntoStaticStr, VariantArray};
use uuid::Uuid;

use crate::request_log::{LoggedOutcome, LoggedRequest};

/// A retry that comes sooner finds the server as it was. Jitter may choose so short a pause once,
/// but hardly for two retries in a row.
const PAUSE_MIN: Duration = Duration::from_millis(30);

/// What the client does within this time after a webhook is taken for its answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// The server may notice that late that a client has left, when that client asks again at once.
const NOTICED_WITHIN: Duration = Duration::from_millis(250);

/// Requests that a finding names.
const NAMED_MAX: usize = 10;

/// What the log has of an account's requests, and what came of them.
#[derive(Debug, Default)]
pub struct Tested {
    /// The oldest first.
    pub requests: Vec<LoggedRequest>,
    /// What requests made, by their keys.
    pub effects: HashMap<String, Effect>,
    /// The keys of requests that the client learned of by a webhook.
    pub told: HashSet<String>,
    /// The keys that the client gave up, with the first request that told it what became of each.
    pub given_up: HashMap<String, Uuid>,
    /// The webhooks that came more than once.
    pub redelivered: Vec<Redelivered>,
}

/// What a request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The id of the object.
    pub object: String,
    /// What the object is about, with its amount: two with one subject may be one too many.
    pub subject: Option<String>,
}

/// A webhook that came more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redelivered {
    /// The event.
    pub event: Uuid,
    /// The key of the request that made it happen.
    pub key: String,
    /// When it was sent, since the epoch of Unix, the first time first.
    pub at: Vec<Duration>,
}

/// What a finding says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FindingKind {
    /// Two effects of one operation, under two keys, after a reply that did not come.
    DoubleEffect,
    /// Two effects of one webhook that came twice.
    WebhookActedOnTwice,
    /// An effect that the client never learned of.
    LostEffect,
    /// Another key for an operation whose first request had no answer.
    NewKeyAfterFailure,
    /// Requests without a key.
    NoKey,
    /// The same request again, after an answer that is final.
    RetryOfFinalAnswer,
    /// Two retries in a row, each without a pause.
    RetryWithoutWaiting,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Money moved twice, or is lost.
    Critical,
    /// Money moves twice when a reply is lost at another moment.
    Warning,
    /// It costs time, and no money.
    Note,
}

impl FindingKind {
    /// All of them, the worst first.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Its name, such as `double_effect`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::DoubleEffect | Self::WebhookActedOnTwice | Self::LostEffect => Severity::Critical,
            Self::NewKeyAfterFailure | Self::NoKey => Severity::Warning,
            Self::RetryOfFinalAnswer | Self::RetryWithoutWaiting => Severity::Note,
        }
    }
}

impl Severity {
    /// Its name, such as `critical`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One thing that is wrong with a client.
#[derive(Debug)]
pub struct Finding<'a> {
    /// What it is.
    pub kind: FindingKind,
    /// The requests that show it, the oldest first: ten at most.
    pub requests: Vec<&'a LoggedRequest>,
    /// How many there are.
    pub count: usize,
    /// The objects that these requests made.
    pub objects: Vec<&'a str>,
    /// The webhook that it answered.
    pub event: Option<Uuid>,
}

/// When a request came, since the epoch of Unix, by its id.
pub fn began(request: &LoggedRequest) -> Duration {
    let made_at = request.id.get_timestamp().map(|made_at| made_at.to_unix());
    made_at.map_or(Duration::ZERO, |(seconds, nanos)| {
        Duration::new(seconds, nanos)
    })
}

fn ended(request: &LoggedRequest) -> Duration {
    began(request) + request.duration
}

/// Whether its client can't know what came of it.
fn is_unclear(request: &LoggedRequest) -> bool {
    matches!(
        request.outcome,
        LoggedOutcome::Unanswered | LoggedOutcome::Failed
    )
}

/// Whether its client knew how it had ended, or had left, before the other one came.
fn is_over_before(request: &LoggedRequest, other: &LoggedRequest) -> bool {
    // Where a fault has cut the reply, the moment is known.
    let is_cut = matches!(
        request.fault.as_deref(),
        Some("reply_lost" | "request_lost")
    );
    let has_left = request.outcome == LoggedOutcome::Unanswered && !is_cut;
    let tolerance = if has_left {
        NOTICED_WITHIN
    } else {
        Duration::ZERO
    };
    ended(request) <= began(other) + tolerance
}

/// Whether its client is to send it again.
pub fn is_to_be_retried(request: &LoggedRequest) -> bool {
    is_unclear(request) || request.outcome == LoggedOutcome::InUse || request.status == Some(429)
}

/// Whether the second one comes at once, after a first one that is to be sent again.
fn is_at_once(pair: &[&LoggedRequest]) -> bool {
    let &[before, request] = pair else {
        return false;
    };
    let pause = began(request).checked_sub(ended(before));
    is_to_be_retried(before) && pause.is_some_and(|pause| pause < PAUSE_MIN)
}

fn is_success(request: &LoggedRequest) -> bool {
    request
        .status
        .is_some_and(|status| (200..300).contains(&status))
}

fn key(request: &LoggedRequest) -> &str {
    request.idempotency_key.as_deref().unwrap_or_default()
}

/// An effect with the requests of its key.
struct Made<'a> {
    effect: &'a Effect,
    /// The request that made it.
    by: &'a LoggedRequest,
    /// All with its key, the oldest first.
    requests: Vec<&'a LoggedRequest>,
}

impl Made<'_> {
    /// Whether the client got the answer, at the first or at a later attempt.
    fn is_answered(&self) -> bool {
        self.requests.iter().any(|request| is_success(request))
    }
}

/// All that is wrong, the worst first. `is_assigned` tells a key that the server made.
pub fn findings(tested: &Tested, is_assigned: impl Fn(&str) -> bool) -> Vec<Finding<'_>> {
    let mut by_key = ByKey::new();
    for request in changing(tested).filter(|request| request.idempotency_key.is_some()) {
        by_key.entry(key(request)).or_default().push(request);
    }
    let mut findings = about_effects(tested, &by_key);
    let mut keyless = HashMap::<_, Vec<&LoggedRequest>>::new();
    for request in changing(tested).filter(|request| is_assigned(key(request))) {
        let route = (&request.method, &request.route);
        keyless.entry(route).or_default().push(request);
    }
    findings.extend(
        keyless
            .into_values()
            .map(|sent| finding(FindingKind::NoKey, sent)),
    );
    let (mut final_again, mut at_once) = (Vec::new(), Vec::new());
    for sent in by_key.values() {
        let pairs = sent.windows(2).filter(|pair| is_final_again(pair));
        final_again.extend(pairs.filter_map(|pair| pair.last()));
        let in_a_row = sent
            .windows(3)
            .filter(|sent| sent.windows(2).all(is_at_once));
        at_once.extend(in_a_row.flatten());
    }
    for (kind, shown) in [
        (FindingKind::RetryOfFinalAnswer, final_again),
        (FindingKind::RetryWithoutWaiting, at_once),
    ] {
        if !shown.is_empty() {
            findings.push(finding(kind, shown));
        }
    }
    let first = |finding: &Finding<'_>| finding.requests.first().map(|request| request.id);
    findings.sort_by_key(|finding| (finding.kind, first(finding)));
    findings
}

/// Requests by their keys, those of a key the oldest first.
type ByKey<'a> = HashMap<&'a str, Vec<&'a LoggedRequest>>;

/// Requests that change something.
fn changing(tested: &Tested) -> impl Iterator<Item = &LoggedRequest> {
    tested
        .requests
        .iter()
        .filter(|request| request.fingerprint.is_some())
}

/// Whether the second one was sent although the first one has an answer that is final.
fn is_final_again(pair: &[&LoggedRequest]) -> bool {
    let is_refusal = |one: &LoggedRequest| matches!(one.status, Some(400..=428 | 430..=499));
    matches!(pair, [before, again] if is_refusal(before)
        && before.outcome != LoggedOutcome::InUse
        && is_refusal(again)
        && again.outcome == LoggedOutcome::Replayed)
}

/// What is wrong with what was made, or with keys that should not have changed. What was made twice
/// is not reported again as lost.
fn about_effects<'a>(tested: &'a Tested, by_key: &ByKey<'a>) -> Vec<Finding<'a>> {
    let made = made(tested, by_key);
    let (mut findings, mut explained) = (Vec::new(), HashSet::new());
    let learned = Learned::of(tested);
    for (first, second) in doubles(&made, &learned) {
        explained.extend([key(first.by), key(second.by)]);
        findings.push(double(FindingKind::DoubleEffect, first, second, None));
    }
    for (first, second, event) in doubles_of_webhooks(&made, &tested.redelivered) {
        if explained.insert(key(second.by)) {
            let kind = FindingKind::WebhookActedOnTwice;
            findings.push(double(kind, first, second, Some(event)));
        }
    }
    for lost in made.iter().filter(|made| !made.is_answered()) {
        let is_told = tested.told.contains(key(lost.by)) || learned.has(lost);
        if !explained.contains(key(lost.by)) && !is_told {
            findings.push(Finding {
                objects: vec![&lost.effect.object],
                ..finding(FindingKind::LostEffect, lost.requests.clone())
            });
        }
    }
    for (first, again) in new_keys(changing(tested), by_key) {
        if learned.is_given_up(first, again) {
            continue;
        }
        if !explained.contains(key(again)) && !tested.effects.contains_key(key(first)) {
            findings.push(finding(FindingKind::NewKeyAfterFailure, vec![first, again]));
        }
    }
    findings
}

fn finding(kind: FindingKind, mut requests: Vec<&LoggedRequest>) -> Finding<'_> {
    requests.sort_by_key(|request| request.id);
    requests.dedup();
    let count = requests.len();
    requests.truncate(NAMED_MAX);
    Finding {
        kind,
        requests,
        count,
        objects: Vec::new(),
        event: None,
    }
}

fn double<'a>(
    kind: FindingKind,
    first: &Made<'a>,
    second: &Made<'a>,
    event: Option<Uuid>,
) -> Finding<'a> {
    let requests = [&*first.requests, &*second.requests];
    Finding {
        objects: vec![&first.effect.object, &second.effect.object],
        event,
        ..finding(kind, requests.concat())
    }
}

/// Each effect with the requests of its key, the oldest first.
fn made<'a>(tested: &'a Tested, by_key: &ByKey<'a>) -> Vec<Made<'a>> {
    let found = tested.effects.iter().filter_map(|(key, effect)| {
        let requests = by_key.get(&**key)?;
        let executed = |one: &&&LoggedRequest| one.outcome == LoggedOutcome::Executed;
        let by = requests.iter().find(executed);
        let by = by.or_else(|| requests.iter().find(|request| is_unclear(request)))?;
        Some(Made {
            effect,
            by,
            requests: requests.clone(),
        })
    });
    let mut made: Vec<_> = found.collect();
    made.sort_by_key(|made| made.by.id);
    made
}

/// The effects that ask for the same, each group the oldest first. One may be in two groups.
fn alike<'m, 'a>(made: &'m [Made<'a>]) -> impl Iterator<Item = Vec<&'m Made<'a>>> {
    let mut groups = HashMap::<(&[u8], &str), Vec<&Made<'a>>>::new();
    for one in made {
        let asked = one.by.fingerprint.as_deref().unwrap_or_default();
        groups.entry((asked, "")).or_default().push(one);
        if let Some(subject) = &one.effect.subject {
            groups.entry((&[], subject)).or_default().push(one);
        }
    }
    groups.into_values()
}

/// Two effects of equal requests, of which the client never got the first one's answer, nor read
/// what it had made. Each lost answer explains one effect.
fn doubles<'m, 'a>(
    made: &'m [Made<'a>],
    learned: &Learned<'_>,
) -> Vec<(&'m Made<'a>, &'m Made<'a>)> {
    let (mut doubles, mut explained) = (Vec::new(), HashSet::new());
    for group in alike(made) {
        let mut unanswered = Vec::<&Made<'_>>::new();
        for second in group {
            let earlier = unanswered.iter().rposition(|first| {
                is_over_before(first.by, second.by)
                    && first.effect.object != second.effect.object
                    && !learned.has_seen(first, second)
            });
            if let Some(earlier) = earlier {
                let first = unanswered.remove(earlier);
                if explained.insert(first.by.id) {
                    doubles.push((first, second));
                }
            }
            if !second.is_answered() {
                unanswered.push(second);
            }
        }
    }
    doubles
}

/// Two effects that ask for the same, each soon after another delivery of one webhook.
fn doubles_of_webhooks<'m, 'a>(
    made: &'m [Made<'a>],
    redelivered: &[Redelivered],
) -> Vec<(&'m Made<'a>, &'m Made<'a>, Uuid)> {
    let answers = |made: &Made<'_>, at: &Duration| {
        let after = began(made.by).checked_sub(*at);
        after.is_some_and(|after| after <= ANSWERED_WITHIN)
    };
    let mut doubles = Vec::new();
    for group in alike(made) {
        for pair in group.windows(2) {
            let &[first, second] = pair else { continue };
            let keys = [first, second].map(|made| key(made.by));
            let caused = |webhook: &&Redelivered| {
                let mut deliveries = webhook.at.windows(2);
                deliveries.any(|pair| match pair {
                    // The times are whole seconds.
                    [one, next] => {
                        answers(first, one)
                            && began(first.by) < *next + Duration::from_secs(1)
                            && answers(second, next)
                    }
                    _ => false,
                }) && !keys.contains(&&*webhook.key)
            };
            if let Some(webhook) = redelivered.iter().find(caused) {
                doubles.push((first, second, webhook.event));
            }
        }
    }
    doubles
}

/// What the client has asked for, each with the last request that was answered.
struct Learned<'a> {
    /// By segments of paths, of which some are ids: all requests, the oldest first.
    named: HashMap<&'a str, Vec<Uuid>>,
    /// By routes that were read.
    read: HashMap<&'a str, Uuid>,
    given_up: &'a HashMap<String, Uuid>,
}

impl<'a> Learned<'a> {
    fn of(tested: &'a Tested) -> Self {
        let (mut named, mut read) = (HashMap::<_, Vec<_>>::new(), HashMap::new());
        for request in tested.requests.iter().filter(|request| is_success(request)) {
            let path = request.path.as_deref().unwrap_or_default();
            for segment in path.split('/').filter(|segment| segment.contains('_')) {
                named.entry(segment).or_default().push(request.id);
            }
            if request.outcome == LoggedOutcome::Read {
                read.insert(&*request.route, request.id);
            }
        }
        let given_up = &tested.given_up;
        Self {
            named,
            read,
            given_up,
        }
    }

    /// Whether the client asked for an effect after it was made, or for a list that has it.
    fn has(&self, lost: &Made<'_>) -> bool {
        let named = self.named.get(&*lost.effect.object);
        let last = named.and_then(|named| named.last());
        let last = last.max(self.read.get(&*lost.by.route));
        let last = last.max(self.given_up.get(key(lost.by)));
        last.is_some_and(|last| *last > lost.by.id)
    }

    /// Whether the client gave the key of a request up before it sent another one.
    fn is_given_up(&self, request: &LoggedRequest, before: &LoggedRequest) -> bool {
        let given_up = self.given_up.get(key(request));
        given_up.is_some_and(|by| *by < before.id)
    }

    /// Whether the client asked for the first effect before it made the second.
    fn has_seen(&self, first: &Made<'_>, second: &Made<'_>) -> bool {
        let between = |id: &Uuid| *id > first.by.id && *id < second.by.id;
        let named = self.named.get(&*first.effect.object);
        named.is_some_and(|named| named.iter().any(between))
            || self.is_given_up(first.by, second.by)
    }
}

/// A request that was to be sent again, and the next one that asks for the same: it has another
/// key, and the first key is never used again.
fn new_keys<'a>(
    changing: impl Iterator<Item = &'a LoggedRequest>,
    by_key: &ByKey<'a>,
) -> Vec<(&'a LoggedRequest, &'a LoggedRequest)> {
    let mut asking = HashMap::<&[u8], Vec<&LoggedRequest>>::new();
    for request in changing {
        let asked = request.fingerprint.as_deref().unwrap_or_default();
        asking.entry(asked).or_default().push(request);
    }
    let mut found = Vec::new();
    for pair in asking.values().flat_map(|sent| sent.windows(2)) {
        let &[first, again] = pair else { continue };
        let is_last = by_key.get(key(first)).and_then(|sent| sent.last()) == Some(&first);
        if is_to_be_retried(first)
            && is_last
            && key(first) != key(again)
            && is_over_before(first, again)
        {
            found.push((first, again));
        }
    }
    found
}
