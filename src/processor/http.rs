//! A card processor behind HTTP.
//!
//! Promise: what a reply, or the lack of one, is taken for errs on the side of doubt. "Not
//! executed" is said only where not one byte of the instruction can have left, or where the
//! processor itself says so about this very key.

use std::{error::Error, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use charge_once_client::transport::{TlsError, http_client_builder};
use reqwest::{Method, StatusCode, Url};
use tokio::{runtime::Handle, time::Instant};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    Asked, CardProcessor, Instruction,
    wire::{Message, Status},
};

/// The largest reply that is read, in bytes: an answer has about a hundred.
const REPLY_LIMIT: usize = 16 * 1024;

/// Idle connections are given up before the processor's 75 s keep-alive ends them: a request that
/// meets a connection just being closed is doubt, and doubt is expensive.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// How often an instruction that was certainly not executed is sent again within one call: enough
/// for a connection that was refused during a restart, few enough not to prolong an outage.
const RESENDS_MAX: usize = 2;

/// The pauses before sending again, jitter included, are within these.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// The client could not be made; a matter of configuration.
#[derive(Debug, thiserror::Error)]
pub enum HttpProcessorError {
    /// Operations can't be addressed below it.
    #[error("PROCESSOR_URL must be a URL such as http://127.0.0.1:8081, without a query")]
    Url,
    /// The TLS library has no protocol in common with itself.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] TlsError),
    /// The HTTP library refuses the settings.
    #[error("the HTTP client could not be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Sends instructions to `PROCESSOR_URL`. Make it on the runtime that outlives all callers.
#[derive(Debug, Clone)]
pub struct HttpProcessor {
    client: reqwest::Client,
    operations: Url,
    /// For a whole call, connecting and sending again included.
    time_limit: Duration,
    connect_limit: Duration,
    runtime: Handle,
}

/// How one attempt ended, before it is known what that means.
enum Attempt {
    /// The HTTP library gave up before the request was on its way.
    NotSent(String),
    /// The request was, or may have been, on its way, and no whole reply came back.
    Broken(String),
    /// A whole reply.
    Replied(StatusCode, Vec<u8>),
}

impl HttpProcessor {
    /// For the processor at `url`, with `time_limit` for each call.
    pub fn new(url: &str, time_limit: Duration) -> Result<Self, HttpProcessorError> {
        let operations = operations_below(url).ok_or(HttpProcessorError::Url)?;
        // A third of the time: what can't be connected to is then told apart from what doesn't
        // answer, and there is time left for another attempt.
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
            runtime: Handle::current(),
        })
    }

    /// One attempt, done by `deadline`.
    async fn attempt(
        &self,
        method: Method,
        key: Uuid,
        body: Option<Vec<u8>>,
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
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        match request.send().await {
            Ok(response) => read(response).await,
            Err(error) if never_left(&error) => Attempt::NotSent(text(error)),
            Err(error) => Attempt::Broken(text(error)),
        }
    }

    async fn execute_by(&self, deadline: Instant, key: Uuid, body: Vec<u8>) -> Asked {
        let send = || async {
            let attempt = self.attempt(Method::PUT, key, Some(body.clone()), deadline);
            match classify(key, attempt.await) {
                Asked::NotExecuted(reason) => Err(reason),
                asked @ (Asked::Answered(_) | Asked::Unknown(_)) => Ok(asked),
            }
        };
        // Every attempt up to the last one was certainly not executed, so the call as a whole may
        // say what the last one says. The first doubt ends it: it must not be talked over.
        let outcome = send
            .retry(
                ExponentialBuilder::default()
                    .with_min_delay(PAUSE_MIN)
                    .with_max_delay(PAUSE_MAX / 2)
                    .with_max_times(RESENDS_MAX)
                    .with_jitter(),
            )
            // With less time than it takes to see that nobody can be connected to, a certain "not
            // executed" would only turn into doubt.
            .when(|_| {
                let time_left = deadline.saturating_duration_since(Instant::now());
                time_left > self.connect_limit + PAUSE_MAX
            });
        match outcome.await {
            Ok(asked) => asked,
            Err(reason) => Asked::NotExecuted(reason),
        }
    }

    /// Runs a call where a caller that goes away can't cancel it half-way, and on the runtime that
    /// the pooled connections belong to: on another they would die with it.
    async fn on_own_runtime(&self, call: impl Future<Output = Asked> + Send + 'static) -> Asked {
        self.runtime
            .spawn(call.in_current_span())
            .await
            .unwrap_or_else(|_| Asked::Unknown("the call panicked, or was cut off".to_owned()))
    }
}

impl CardProcessor for HttpProcessor {
    async fn execute(&self, key: Uuid, instruction: &Instruction) -> Asked {
        let deadline = Instant::now() + self.time_limit;
        let body = match serde_json::to_vec(instruction) {
            Ok(body) => body,
            Err(error) => return Asked::NotExecuted(format!("it can't be written: {error}")),
        };
        let this = self.clone();
        self.on_own_runtime(async move { this.execute_by(deadline, key, body).await })
            .await
    }

    async fn look_up(&self, key: Uuid) -> Asked {
        let deadline = Instant::now() + self.time_limit;
        let this = self.clone();
        self.on_own_runtime(async move {
            let attempt = this.attempt(Method::GET, key, None, deadline).await;
            match classify(key, attempt) {
                answered @ Asked::Answered(_) => answered,
                // That a question wasn't sent, or wasn't dealt with, says nothing about the
                // instruction that it asks about.
                Asked::NotExecuted(reason) | Asked::Unknown(reason) => Asked::Unknown(reason),
            }
        })
        .await
    }
}

/// Where operations are addressed, whatever path the processor is at.
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
/// the TLS handshake. It stays truthful where connections are reused: if a pooled connection turns
/// out to be closed, the library makes a new one by itself only for a request that it got back
/// unstarted, before its first byte was written. A failure of *that* connection is then an error of
/// connecting, and nothing was sent. A request that was started on a pooled connection is never
/// repeated and ends in another kind of error.
///
/// The overall time limit is no such proof, even when it ends while connecting: it doesn't say when.
fn never_left(error: &reqwest::Error) -> bool {
    error.is_connect() || error.is_builder()
}

/// Reads a reply's body, up to [`REPLY_LIMIT`]. The request's time limit covers it.
async fn read(mut response: reqwest::Response) -> Attempt {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Attempt::Replied(response.status(), body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= REPLY_LIMIT => body.extend(chunk),
            Ok(Some(_)) => return Attempt::Broken("the reply is too large".to_owned()),
            Err(error) => return Attempt::Broken(text(error)),
        }
    }
}

/// What the end of an attempt means. Everything that isn't listed as certain is doubt.
///
/// | the attempt | means |
/// |---|---|
/// | was never on its way | not executed |
/// | ended without a whole reply: time limit, reset, end of the connection, too large | unknown |
/// | got a body that can't be read, or that is about another key | unknown |
/// | 200 and `done`, or `declined` with its code | answered |
/// | 503 and the word `not_executed` | not executed |
/// | 503 or another 5xx without that word: a proxy in between, a crash after the effect | unknown |
/// | `in_progress`: an earlier send may yet succeed or fail | unknown |
/// | `not_found`: the instruction may still be on its way | unknown |
/// | a redirect, 422, 400, any other status, or a word that doesn't go with the status | unknown |
fn classify(key: Uuid, attempt: Attempt) -> Asked {
    let (status, body) = match attempt {
        Attempt::NotSent(reason) => return Asked::NotExecuted(reason),
        Attempt::Broken(reason) => return Asked::Unknown(reason),
        Attempt::Replied(status, body) => (status, body),
    };
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return Asked::Unknown(format!("{status} with a body that can't be read"));
    };
    if message.key != key {
        return Asked::Unknown(format!("{status} about another key"));
    }
    match (status, message.status, message.definite()) {
        (StatusCode::OK, Status::Done | Status::Declined, Some(answer)) => Asked::Answered(answer),
        (StatusCode::SERVICE_UNAVAILABLE, Status::NotExecuted, _) => {
            Asked::NotExecuted("the processor says so".to_owned())
        }
        (_, said, _) => Asked::Unknown(format!("{status}, {said:?}")),
    }
}

/// An error with its causes, without the URL, which may hold a password.
fn text(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::test_cards::{Decline, PROCESSING_ERROR},
        processor::Answer,
    };

    const KEY: Uuid = Uuid::from_u128(0x0192_3f45_6789_7abc_8def_0123_4567_89ab);

    fn said(status: u16, body: &str) -> Asked {
        let body = body.replace("KEY", &KEY.to_string());
        let status = StatusCode::from_u16(status).unwrap_or_default();
        classify(KEY, Attempt::Replied(status, body.into_bytes()))
    }

    #[test]
    fn only_a_whole_answer_for_this_key_is_an_answer() {
        let done = Asked::Answered(Answer::Done);
        assert_eq!(said(200, r#"{"key":"KEY","status":"done"}"#), done);
        assert_eq!(said(200, r#"{"status":"done","key":"KEY","x":1}"#), done);
        for (body, decline) in [
            (
                r#"{"key":"KEY","status":"declined","code":"processing_error"}"#,
                PROCESSING_ERROR,
            ),
            (
                r#"{"key":"KEY","status":"declined","code":"card_declined","decline_code":"lost_card"}"#,
                Decline::named("card_declined", Some("lost_card")),
            ),
        ] {
            assert_eq!(said(200, body), Asked::Answered(Answer::Declined(decline)));
        }
    }

    #[test]
    fn operations_are_below_whatever_path_the_processor_is_at() {
        for (url, operations) in [
            ("http://host:1", "http://host:1/operations"),
            ("http://host/", "http://host/operations"),
            ("https://u:p@host/a/b/", "https://u:p@host/a/b/operations"),
            ("https://host/a/b", "https://host/a/b/operations"),
        ] {
            assert_eq!(
                operations_below(url).map(String::from).as_deref(),
                Some(operations)
            );
        }
        for url in [
            "",
            "host:8081",
            "ftp://host",
            "http://",
            "http://h/?a",
            "http://h/#a",
        ] {
            assert_eq!(operations_below(url), None, "{url}");
        }
    }

    #[test]
    fn only_the_processor_s_own_word_for_this_key_is_not_executed() {
        let body = r#"{"key":"KEY","status":"not_executed"}"#;
        assert!(matches!(said(503, body), Asked::NotExecuted(_)));
        assert!(matches!(
            classify(KEY, Attempt::NotSent(String::new())),
            Asked::NotExecuted(_)
        ));
    }

    #[test]
    fn everything_else_is_doubt() {
        let another = r#"{"key":"00000000-0000-0000-0000-000000000000","status":"done"}"#;
        let another_refused =
            r#"{"key":"00000000-0000-0000-0000-000000000000","status":"not_executed"}"#;
        let done = r#"{"key":"KEY","status":"done"}"#;
        let refused = r#"{"key":"KEY","status":"not_executed"}"#;
        for (status, body) in [
            (200, another),
            (503, another_refused),
            (200, ""),
            (200, "{"),
            (200, "<html>"),
            (200, r#"{"status":"done"}"#),
            (200, r#"{"key":"KEY"}"#),
            (200, r#"{"key":"KEY","status":"Done"}"#),
            (
                200,
                r#"{"key":"KEY","status":"done","code":"expired_card"}"#,
            ),
            (200, r#"{"key":"KEY","status":"declined"}"#),
            (200, r#"{"key":"KEY","status":"done","status":"declined"}"#),
            (200, r#"{"key":"KEY","status":"done"}{}"#),
            (200, refused),
            (201, done),
            (202, done),
            (204, ""),
            (302, done),
            (400, r#"{"key":"KEY","status":"invalid"}"#),
            (404, r#"{"key":"KEY","status":"not_found"}"#),
            (404, refused),
            (409, r#"{"key":"KEY","status":"in_progress"}"#),
            (422, r#"{"key":"KEY","status":"another_instruction"}"#),
            (500, r#"{"key":"KEY","status":"unknown"}"#),
            (500, refused),
            (500, done),
            (502, refused),
            (503, ""),
            (503, done),
            (503, r#"{"status":"not_executed"}"#),
        ] {
            assert!(
                matches!(said(status, body), Asked::Unknown(_)),
                "{status} {body}"
            );
        }
        let broken = classify(KEY, Attempt::Broken(String::new()));
        assert!(matches!(broken, Asked::Unknown(_)));
    }
}
