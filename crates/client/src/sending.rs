//! Sends a request until its outcome is known, or gives up and says so.
//!
//! Promise: every attempt is the same bytes under the same key. Only a 2xx or a refusal that
//! decides all attempts is returned as an outcome; no error of the network is.

use std::time::Duration;

use reqwest::{
    Method,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde::de::DeserializeOwned;

use super::{
    Inner, Retry,
    error::{AttemptFailure, Error, GaveUp, Reason, Refusal},
    keyed_request::{self, KeyedRequest},
    retry::{Verdict, retry_after, verdict},
    transport::causes,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_WORKFLOW: HeaderName = HeaderName::from_static("idempotency-workflow");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On stored outcomes only.
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// An attempt with less time than this is not begun. The deadline could cut it off before it is
/// connected, and the call would be in doubt about an operation that was never sent.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(250);

/// A reply as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Whether it is the first reply again.
    pub replayed: bool,
    /// Whether the service keeps it under the key: it is then the answer to every attempt.
    pub stored: bool,
    /// `req_…`
    pub request_id: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
    pub(super) should_retry: Option<bool>,
    pub(super) retry_after: Option<Duration>,
}

impl Reply {
    fn new(status: u16, headers: &HeaderMap, body: Vec<u8>, now: Duration) -> Self {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status,
            replayed: text(&REPLAYED) == Some("true"),
            stored: headers.contains_key(&EXPIRES),
            request_id: text(&REQUEST_ID).map(str::to_owned),
            should_retry: text(&SHOULD_RETRY).and_then(|value| value.parse().ok()),
            retry_after: text(&RETRY_AFTER).and_then(|value| retry_after(value, now)),
            body,
        }
    }

    /// The object in it.
    pub fn object<T: DeserializeOwned>(self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| Error::Unreadable {
            reply: Box::new(self),
            error,
        })
    }

    /// A 2xx of the service has an object. A 2xx without one comes from a proxy in between, and
    /// taking it for an outcome would forget a payment.
    fn has_an_object(&self) -> bool {
        serde_json::from_slice(&self.body)
            .is_ok_and(|body: serde_json::Value| body.get("object").is_some())
    }
}

pub(super) enum Message<'a> {
    /// Changes nothing; no key, and may be repeated at will.
    Read(&'a str),
    /// Needs no key: done twice, it does nothing more.
    Delete(&'a str),
    Change(&'a KeyedRequest),
}

impl Message<'_> {
    fn key(&self) -> Option<String> {
        match self {
            Self::Read(_) | Self::Delete(_) => None,
            Self::Change(operation) => Some(operation.key.clone()),
        }
    }

    /// The error for a refusal that decides every attempt.
    fn refused(&self, refusal: Refusal) -> Error {
        match self {
            // Something may have been executed under the key. What, is no longer kept.
            Self::Change(operation) if refusal.code == "idempotency_key_expired" => {
                Error::Expired(Box::new((*operation).clone()))
            }
            Self::Read(_) | Self::Delete(_) | Self::Change(_) => refusal.into_error(),
        }
    }
}

/// Sends until there is an outcome. `was_sent` says that an earlier attempt may have been received,
/// or may still be on its way. `deadline` is for all attempts and the pauses between them.
pub(super) async fn send(
    inner: &Inner,
    message: &Message<'_>,
    mut was_sent: bool,
    deadline: Duration,
) -> Result<Reply, Error> {
    let until = inner.clock.monotonic() + deadline;
    let shortest = SHORTEST_ATTEMPT.min(inner.policy.attempt_timeout);
    let too_late_after =
        |pause: Duration| inner.clock.monotonic().saturating_add(pause + shortest) >= until;
    let mut attempts = 0;
    let mut sent = was_sent;
    loop {
        attempts += 1;
        let left = until.saturating_sub(inner.clock.monotonic());
        let attempt = attempt(inner, message, left.min(inner.policy.attempt_timeout)).await;
        sent |= !matches!(attempt, Err(AttemptFailure::NotConnected(_)));
        let gave_up = |reason, last| {
            Err(Error::GaveUp(Box::new(GaveUp {
                key: message.key(),
                attempts,
                sent,
                reason,
                last,
            })))
        };
        let (failure, asked_for) = match judge(attempt, message, &mut was_sent) {
            Judged::Done(reply) => {
                inner.budget.answered();
                return Ok(reply);
            }
            Judged::Refused(refusal) => {
                inner.budget.answered();
                return Err(message.refused(refusal));
            }
            Judged::Doubtful(refusal) => {
                inner.budget.answered();
                return gave_up(Reason::EarlierAttempt, AttemptFailure::Answered(refusal));
            }
            Judged::ToldNotTo(failure) => return gave_up(Reason::ToldNotTo, failure),
            Judged::TryAgain { failure, asked_for } => (failure, asked_for),
        };
        let pause = inner.policy.pause(attempts, asked_for);
        if too_late_after(pause) {
            return gave_up(Reason::Deadline, failure);
        }
        // A call that waits for a request in flight asks a service that works: no outage grows.
        let in_flight =
            matches!(&failure, AttemptFailure::Answered(refusal) if refusal.status == 409);
        if !in_flight && !inner.budget.take() {
            return gave_up(Reason::Budget, failure);
        }
        let retry = Retry {
            attempts,
            pause,
            failure,
        };
        if let Some(on_retry) = &inner.on_retry {
            on_retry(&retry);
        }
        inner.clock.sleep(pause).await;
        // A busy machine may sleep longer than it was told to.
        if too_late_after(Duration::ZERO) {
            return gave_up(Reason::Deadline, retry.failure);
        }
    }
}

enum Judged {
    Done(Reply),
    Refused(Refusal),
    /// Refused, but an earlier attempt may have been executed, or arrive after this one.
    Doubtful(Refusal),
    ToldNotTo(AttemptFailure),
    TryAgain {
        failure: AttemptFailure,
        /// The pause that the service asked for.
        asked_for: Option<Duration>,
    },
}

/// Judges an attempt, and notes whether it may have been received.
fn judge(
    attempt: Result<Reply, AttemptFailure>,
    message: &Message<'_>,
    was_sent: &mut bool,
) -> Judged {
    let again = |failure, asked_for| Judged::TryAgain { failure, asked_for };
    let reply = match attempt {
        Ok(reply) => reply,
        Err(failure) => {
            *was_sent |= !matches!(failure, AttemptFailure::NotConnected(_));
            return again(failure, None);
        }
    };
    match verdict(reply.status, reply.should_retry) {
        Verdict::Done if reply.has_an_object() => Judged::Done(reply),
        Verdict::Done => {
            *was_sent = true;
            let why = "an answer that is not the service's".to_owned();
            again(AttemptFailure::NoAnswer(why), None)
        }
        Verdict::Refused if *was_sent && !reply.stored && message.key().is_some() => {
            Judged::Doubtful(Refusal::of(&reply))
        }
        Verdict::Refused => Judged::Refused(Refusal::of(&reply)),
        // The key was given up, or has expired: the 409 that decide every attempt.
        Verdict::Undecided { .. } if reply.stored && reply.status == 409 => {
            Judged::Refused(Refusal::of(&reply))
        }
        Verdict::Undecided { retry } => {
            // A rate limit comes before the key is looked at.
            *was_sent |= reply.status != 429;
            let failure = AttemptFailure::Answered(Refusal::of(&reply));
            match retry {
                true => again(failure, reply.retry_after),
                false => Judged::ToldNotTo(failure),
            }
        }
    }
}

async fn attempt(
    inner: &Inner,
    message: &Message<'_>,
    timeout: Duration,
) -> Result<Reply, AttemptFailure> {
    let to = |method, server: &str, path: &str| {
        let url = format!("{server}{path}");
        inner.http.request(method, url)
    };
    let request = match message {
        Message::Read(path) => to(Method::GET, &inner.server, path),
        Message::Delete(path) => to(Method::DELETE, &inner.server, path),
        Message::Change(operation) => {
            let method = match operation.method {
                keyed_request::Method::Post => Method::POST,
                keyed_request::Method::Put => Method::PUT,
            };
            let mut request = to(method, &operation.server, &operation.path)
                .header(IDEMPOTENCY_KEY, &operation.key)
                .header(CONTENT_TYPE, "application/json")
                .body(operation.body.clone());
            if let Some(workflow) = &operation.workflow {
                request = request.header(IDEMPOTENCY_WORKFLOW, workflow);
            }
            request
        }
    };
    let sent = request
        .bearer_auth(&inner.api_key)
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .timeout(timeout)
        .send();
    let response = sent.await.map_err(failure)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    // A reply whose end is missing is no reply.
    let body = response.bytes().await.map_err(failure)?.to_vec();
    Ok(Reply::new(status, &headers, body, inner.clock.unix_time()))
}

fn failure(error: reqwest::Error) -> AttemptFailure {
    let not_connected = error.is_connect();
    let what = if error.is_timeout() {
        "no answer in time"
    } else if not_connected {
        "could not connect"
    } else {
        "the answer was lost"
    };
    let mut why = what.to_owned();
    // The first one has the URL.
    for cause in causes(&error).skip(1) {
        why.push_str(&format!(": {cause}"));
    }
    if not_connected {
        AttemptFailure::NotConnected(why)
    } else {
        AttemptFailure::NoAnswer(why)
    }
}
