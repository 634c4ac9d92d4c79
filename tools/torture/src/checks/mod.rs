//! What must hold, judged from the clients' histories and from the database.
//! `tools/torture/README.md` says what each rule is.

pub(crate) mod database;
mod given_up;
pub(crate) mod homes;
mod intents;
mod objects;
mod outages;
pub(crate) mod processor;
mod records;
pub(crate) mod recovery;
mod remembered;
mod rows;

use chrono::TimeDelta;
use serde_json::Value;

use crate::{
    history::{Attempt, KeyHistory, Stored, TAG, Verdict},
    requests::{Expected, Verb},
};

/// `Idempotency-Expires` has whole seconds, so two of them may seem this much closer than they are.
const ROUNDING: TimeDelta = TimeDelta::seconds(1);

/// A rule, and what breaks it.
type Broken = (&'static str, String);

/// What an attempt contradicts: its own request, or an earlier answer to the same key.
pub(crate) fn contradiction(history: &KeyHistory, attempt: &Attempt) -> Option<Broken> {
    let stored = match &attempt.verdict {
        Verdict::Unknown(_) => return None,
        Verdict::Malformed(what) => return Some(("G4", what.clone())),
        Verdict::Reused if history.variants.len() == 1 => {
            let what = "a key that was sent with one request only is said to be another request's";
            return Some(("G4", what.to_owned()));
        }
        Verdict::Reused => return None,
        Verdict::Stored(stored) => stored,
    };
    if let Some(other) = another_requests(history, attempt, stored) {
        return Some(("G1", other));
    }
    for (_, other, earlier) in history.answers() {
        if earlier.execution != stored.execution {
            continue;
        }
        // A key that was given up answers each request.
        if other.variant != attempt.variant && !stored.is_of_a_given_up_key() {
            let what = "two requests under one key got the answer of one execution";
            return Some(("G1", what.to_owned()));
        }
        if earlier.digest != stored.digest {
            let what = format!(
                "two answers from {} differ: {} {} and {} {}",
                stored.execution, earlier.status, earlier.body, stored.status, stored.body
            );
            return Some(("G4", what));
        }
    }
    unexpected(history, attempt, stored).or_else(|| outdated(history, attempt, stored))
}

/// Whether a refusal because of an intent's status shows the intent in another status: it was read
/// at another moment than the decision was made.
fn outdated(history: &KeyHistory, attempt: &Attempt, stored: &Stored) -> Option<Broken> {
    let request = history.variants.get(attempt.variant)?;
    let error = stored.body.get("error")?;
    if error.get("code")? != "payment_intent_unexpected_state" {
        return None;
    }
    let shown = error.pointer("/payment_intent/status");
    let shown = shown.and_then(Value::as_str).unwrap_or_default();
    let is_ended = matches!(shown, "succeeded" | "canceled");
    let is_reason = match (request.verb, shown) {
        // It has no method, and none was named.
        (Verb::ConfirmIntent, "requires_payment_method") => true,
        (Verb::ConfirmIntent | Verb::UpdateIntent, _) => is_ended || shown == "requires_capture",
        (Verb::CaptureIntent, _) => !matches!(shown, "" | "requires_capture"),
        (Verb::RefundIntent, _) => !matches!(shown, "" | "succeeded"),
        (_, _) => is_ended,
    };
    (!is_reason).then(|| {
        let what = format!(
            "the request {} is refused because of the intent's status, and shows {shown:?}: {}",
            request.tag, stored.body
        );
        ("G4", what)
    })
}

/// Whether the answer is not the only one that the request can have.
fn unexpected(history: &KeyHistory, attempt: &Attempt, stored: &Stored) -> Option<Broken> {
    let request = history.variants.get(attempt.variant)?;
    let (rule, status, why) = match request.expected {
        _ if stored.is_of_a_given_up_key() || stored.is_of_an_expired_key() => return None,
        Expected::Any => return None,
        Expected::Refused => ("G3", 400, "can't be understood"),
        Expected::Missing => ("G6", 404, "is about another account's object"),
    };
    let tag = &request.tag;
    // Below /v1, an object that a parameter names is missing in Stripe's words.
    let code = stored.body.pointer("/error/code").and_then(Value::as_str);
    let is_missing = code == Some("resource_missing");
    let is_stripes = is_missing && stored.status == 400 && request.path.starts_with("/v1/");
    (stored.status != status && !(rule == "G6" && is_stripes)).then(|| {
        let what = format!("the request {tag} {why}, and is answered with");
        (rule, format!("{what} {} {}", stored.status, stored.body))
    })
}

/// Whether the answer shows an object that another request asked for.
fn another_requests(history: &KeyHistory, attempt: &Attempt, stored: &Stored) -> Option<String> {
    let request = history.variants.get(attempt.variant)?;
    let shown = stored.body.get("metadata")?.get(TAG)?.as_str()?;
    let is_other = request.is_tagged && shown != request.tag;
    is_other.then(|| {
        let object = stored.body.get("id").and_then(Value::as_str);
        format!(
            "the request {} is answered with {} of the request {shown}",
            request.tag,
            object.unwrap_or_default()
        )
    })
}

/// Executions of one key that are closer to each other than the retention.
pub(crate) fn windows_that_overlap(history: &KeyHistory, retention: TimeDelta) -> Option<Broken> {
    let mut executions: Vec<_> = history.answers().map(|(_, _, stored)| stored).collect();
    executions.sort_by_key(|stored| stored.expires);
    executions.windows(2).find_map(|pair| {
        let [earlier, later] = pair else { return None };
        let is_early = later.expires - earlier.expires < retention - ROUNDING;
        (earlier.execution != later.execution && is_early).then(|| {
            let what = format!(
                "{} and {} were both executed in one window",
                earlier.execution, later.execution
            );
            ("G1", what)
        })
    })
}
