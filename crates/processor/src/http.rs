//! A card processor behind HTTP.
//!
//! Promise: a reply, or the lack of one, is interpreted as doubt unless it is certain. "Not
//! executed" means that not one byte of the instruction can have been sent, or that the processor
//! itself said so about this key.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use charge_once_service::http_client::{TlsError, explain, http_client_builder, read_body};
use chrono::{DateTime, Utc};
use reqwest::{Method, StatusCode, Url};
use tokio::{runtime::Handle, time::Instant};
use tracing::{Instrument, field::Empty};
use uuid::Uuid;

use crate::{
    CardProcessor, Instruction, InstructionOutcome,
    wire::{LATE, Message, NOT_AFTER, Status, format_not_after},
};

/// The target of the span of each attempt, for a subscriber that collects traces.
pub const TRACE_TARGET: &str = "charge_once_processor::trace";

/// The header that a trace is continued by, in the form of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// The largest reply that is read, in bytes: an answer has about a hundred.
const REPLY_LIMIT: usize = 16 * 1024;

/// Idle connections are closed before the processor's 75 s keep-alive ends them. A request on a
/// connection that is being closed ends in doubt, which is expensive.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// How often one call repeats an attempt that was certainly not executed: enough for a connection
/// that is refused during a restart, and few enough not to prolong an outage.
const RESENDS_MAX: usize = 2;

/// The pauses before sending again, jitter included, are within these.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// The client could not be made, because of its configuration.
#[derive(Debug, thiserror::Error)]
pub enum HttpProcessorError {
    /// The URL can't be the base of operations' URLs.
    #[error("it must be a URL such as http://127.0.0.1:8081, without a query")]
    Url,
    /// The TLS library refuses its default protocol versions.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] TlsError),
    /// The HTTP library refuses the settings.
    #[error("the HTTP client could not be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Sends instructions to a URL. Make it on the runtime that outlives all callers.
#[derive(Debug, Clone)]
pub struct HttpProcessor {
    client: reqwest::Client,
    operations: Url,
    /// For a whole call, including connecting and repeated attempts.
    time_limit: Duration,
    connect_limit: Duration,
    traceparent: fn() -> Option<String>,
    runtime: Handle,
}

/// An instruction as it is sent. Only its body is the instruction, and every attempt has that one.
#[derive(Clone)]
struct Sent {
    body: Vec<u8>,
    not_after: DateTime<Utc>,
}

/// How one attempt ended, before it is interpreted.
enum Attempt {
    /// The HTTP library gave up before it sent any of the request.
    NotSent(String),
    /// The request was sent, or may have been, and no whole reply arrived.
    Broken(String),
    /// A whole reply.
    Replied(StatusCode, Vec<u8>),
}

impl HttpProcessor {
    /// For the processor at `url`, with `time_limit` for each call. `traceparent` is asked inside
    /// the span of each attempt, and what it says is sent as the header of that name.
    pub fn new(
        url: &str,
        time_limit: Duration,
        traceparent: fn() -> Option<String>,
    ) -> Result<Self, HttpProcessorError> {
        let operations = operations_below(url).ok_or(HttpProcessorError::Url)?;
        // A third of the time: a failure to connect is distinguished from a missing reply, and time
        // is left for another attempt.
        let connect_limit = time_limit / 3;
        let client = http_client_builder()?
            .connect_timeout(connect_limit)
            .pool_idle_timeout(IDLE_LIMIT)
            .build()?;
        Ok(Self {
            client,
            operations,
            time_limit,
            connect_limit,
            traceparent,
            runtime: Handle::current(),
        })
    }

    async fn attempt(
        &self,
        method: Method,
        key: Uuid,
        sent: Option<Sent>,
        deadline: Instant,
    ) -> Attempt {
        let span = tracing::info_span!(
            target: TRACE_TARGET,
            "call processor",
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = method.as_str(),
            url.template = "/operations/{id}",
            http.response.status_code = Empty,
        );
        let attempted = self.exchange(method, key, sent, deadline);
        let attempted = attempted.instrument(span.clone()).await;
        let status = match &attempted {
            Attempt::Replied(status, _) => Some(*status),
            Attempt::NotSent(_) | Attempt::Broken(_) => None,
        };
        if let Some(status) = status {
            span.record("http.response.status_code", status.as_u16());
        }
        if !status.is_some_and(|status| status.is_success()) {
            span.record("otel.status_code", "ERROR");
        }
        attempted
    }

    async fn exchange(
        &self,
        method: Method,
        key: Uuid,
        sent: Option<Sent>,
        deadline: Instant,
    ) -> Attempt {
        let time_left = deadline.saturating_duration_since(Instant::now());
        if time_left.is_zero() {
            return Attempt::NotSent("no time was left to send it".to_owned());
        }
        let mut url = self.operations.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(&key.to_string());
        }
        let mut request = self.client.request(method, url).timeout(time_left);
        if let Some(traceparent) = (self.traceparent)() {
            request = request.header(TRACEPARENT, traceparent);
        }
        if let Some(Sent { body, not_after }) = sent {
            request = request
                .header("content-type", "application/json")
                .header(NOT_AFTER, format_not_after(not_after))
                .body(body);
        }
        match request.send().await {
            Ok(response) => read(response).await,
            Err(error) if never_left(&error) => Attempt::NotSent(text(error)),
            Err(error) => Attempt::Broken(text(error)),
        }
    }

    async fn execute_by(&self, deadline: Instant, key: Uuid, sent: Sent) -> InstructionOutcome {
        let send = || async {
            let attempt = self.attempt(Method::PUT, key, Some(sent.clone()), deadline);
            match classify(key, attempt.await) {
                InstructionOutcome::NotExecuted(reason) => Err(reason),
                asked @ (InstructionOutcome::Answered(_) | InstructionOutcome::Unknown(_)) => {
                    Ok(asked)
                }
            }
        };
        // All attempts before the last one were certainly not executed, so the call has the outcome
        // of the last one. The first doubt ends the call, because a later attempt can't remove it.
        let outcome = send
            .retry(
                ExponentialBuilder::default()
                    .with_min_delay(PAUSE_MIN)
                    .with_max_delay(PAUSE_MAX / 2)
                    .with_max_times(RESENDS_MAX)
                    .with_jitter(),
            )
            // With less time than a failure to connect takes, a certain "not executed" would turn
            // into doubt.
            .when(|_| {
                let time_left = deadline.saturating_duration_since(Instant::now());
                time_left > self.connect_limit + PAUSE_MAX
            });
        match outcome.await {
            Ok(asked) => asked,
            Err(reason) => InstructionOutcome::NotExecuted(reason),
        }
    }

    /// Runs a call in a task that a caller's disconnect can't cancel, and on the runtime of the
    /// pooled connections: they end with the runtime that made them.
    async fn on_own_runtime(
        &self,
        call: impl Future<Output = InstructionOutcome> + Send + 'static,
    ) -> InstructionOutcome {
        self.runtime
            .spawn(call.in_current_span())
            .await
            .unwrap_or_else(|_| {
                InstructionOutcome::Unknown("the call panicked, or was cut off".to_owned())
            })
    }
}

impl CardProcessor for HttpProcessor {
    async fn execute(
        &self,
        key: Uuid,
        instruction: &Instruction,
        not_after: DateTime<Utc>,
    ) -> InstructionOutcome {
        let deadline = Instant::now() + self.time_limit;
        let body = match serde_json::to_vec(instruction) {
            Ok(body) => body,
            Err(error) => {
                return InstructionOutcome::NotExecuted(format!("it can't be written: {error}"));
            }
        };
        let this = self.clone();
        let sent = Sent { body, not_after };
        self.on_own_runtime(async move { this.execute_by(deadline, key, sent).await })
            .await
    }

    async fn look_up(&self, key: Uuid) -> InstructionOutcome {
        let deadline = Instant::now() + self.time_limit;
        let this = self.clone();
        self.on_own_runtime(async move {
            let attempt = this.attempt(Method::GET, key, None, deadline).await;
            match classify(key, attempt) {
                answered @ InstructionOutcome::Answered(_) => answered,
                // A look-up that wasn't sent or executed says nothing about the instruction.
                InstructionOutcome::NotExecuted(reason) | InstructionOutcome::Unknown(reason) => {
                    InstructionOutcome::Unknown(reason)
                }
            }
        })
        .await
    }
}

fn operations_below(url: &str) -> Option<Url> {
    let mut url: Url = url.trim().parse().ok()?;
    if !["http", "https"].contains(&url.scheme())
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return None;
    }
    url.path_segments_mut()
        .ok()?
        .pop_if_empty()
        .push("operations");
    Some(url)
}

/// Whether an error of `send` proves that nothing of this attempt's request was sent.
///
/// `is_connect` is true for errors of making a connection: name resolution, TCP and its time limit,
/// the TLS handshake. It is also true with reused connections. If a pooled connection turns out to
/// be closed, the library makes a new connection only for a request of which no byte was written. A
/// failure of *that* connection is an error of connecting, and nothing was sent. A request that was
/// started on a pooled connection is never repeated, and ends in another kind of error.
///
/// The overall time limit proves nothing, even if it ends while connecting: it doesn't say when.
fn never_left(error: &reqwest::Error) -> bool {
    error.is_connect() || error.is_builder()
}

/// Reads a reply's body, up to [`REPLY_LIMIT`]. The request's time limit covers it.
async fn read(mut response: reqwest::Response) -> Attempt {
    match read_body(&mut response, REPLY_LIMIT).await {
        Ok(Some(body)) => Attempt::Replied(response.status(), body),
        Ok(None) => Attempt::Broken("the reply is too large".to_owned()),
        Err(error) => Attempt::Broken(text(error)),
    }
}

/// Interprets the end of an attempt. Everything that isn't listed as certain is doubt.
///
/// | the attempt | means |
/// |---|---|
/// | was never sent | not executed |
/// | ended without a whole reply: time limit, reset, end of the connection, too large | unknown |
/// | got a body that can't be parsed, or that names another key | unknown |
/// | 200 and `done`, or `declined` with its code | answered |
/// | 503 and `not_executed` | not executed |
/// | 503 or another 5xx without it: a proxy in between, a crash after the effect | unknown |
/// | `in_progress`: an earlier attempt may still succeed or fail | unknown |
/// | `not_found`: the instruction may still be on its way | unknown |
/// | a redirect, 422, 400, any other status, or a `status` that doesn't fit it | unknown |
fn classify(key: Uuid, attempt: Attempt) -> InstructionOutcome {
    let (status, body) = match attempt {
        Attempt::NotSent(reason) => return InstructionOutcome::NotExecuted(reason),
        Attempt::Broken(reason) => return InstructionOutcome::Unknown(reason),
        Attempt::Replied(status, body) => (status, body),
    };
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return InstructionOutcome::Unknown(format!("{status} with a body that can't be read"));
    };
    if message.key != key {
        return InstructionOutcome::Unknown(format!("{status} about another key"));
    }
    match (status, message.status, message.definite()) {
        (StatusCode::OK, Status::Done | Status::Declined, Some(answer)) => {
            InstructionOutcome::Answered(answer)
        }
        (StatusCode::SERVICE_UNAVAILABLE, Status::NotExecuted, _) => {
            let reason = match message.code.as_deref() {
                Some(LATE) => {
                    "it came too late; do the processor's clock and the database's agree?"
                }
                Some(_) | None => "the processor says so",
            };
            InstructionOutcome::NotExecuted(reason.to_owned())
        }
        (_, said, _) => InstructionOutcome::Unknown(format!("{status}, {said:?}")),
    }
}

/// An error with its causes, without the URL, which may hold a password.
fn text(error: reqwest::Error) -> String {
    explain(&error.without_url())
}

#[cfg(test)]
mod tests;
