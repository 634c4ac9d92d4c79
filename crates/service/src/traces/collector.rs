//! The way to the collector.
//!
//! Promise: a collector that fails costs a log line a minute, which never shows what was sent to
//! it.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::http_client::{explain, http_client_builder, read_body};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

use super::TracesError;

/// The pause between two log lines about a collector that fails.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The largest answer of a collector that is read, in bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// Sends spans.
#[derive(Debug)]
pub(super) struct Collector {
    client: reqwest::Client,
    /// The exporter has a thread of its own, without a runtime.
    runtime: Handle,
    /// When it was last told that the collector fails, while it does.
    told: Mutex<Option<Instant>>,
}

impl Collector {
    pub(super) fn new(timeout: Duration, runtime: Handle) -> Result<Self, TracesError> {
        let builder = http_client_builder().map_err(|error| TracesError::Client(error.into()))?;
        let client = builder.timeout(timeout).build();
        Ok(Self {
            client: client.map_err(|error| TracesError::Client(error.into()))?,
            runtime,
            told: Mutex::default(),
        })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = request.try_into()?;
        let client = self.client.clone();
        // Ends with the process at the latest: then nothing waits for it.
        let sending = async move { exchange(&client, request).await };
        let sent = self.runtime.spawn(sending);
        let answered = sent.await.map_err(HttpError::from).flatten();
        match &answered {
            Ok(answer) if answer.status().is_success() => self.works_again(),
            Ok(answer) => self.fails(&format!("the collector answered {}", answer.status())),
            Err(error) => self.fails(&explain(&**error)),
        }
        answered
    }

    fn fails(&self, cause: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TOLD_AGAIN_AFTER) {
            *told = Some(Instant::now());
            tracing::warn!(
                cause,
                "traces can't be sent to OTEL_EXPORTER_OTLP_ENDPOINT; spans are lost meanwhile"
            );
        }
    }

    fn works_again(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.take().is_some() {
            tracing::info!("traces are sent again");
        }
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}

async fn exchange(
    client: &reqwest::Client,
    request: reqwest::Request,
) -> Result<Response<Bytes>, HttpError> {
    let response = client.execute(request).await;
    let mut response = response.map_err(reqwest::Error::without_url)?;
    let body = read_body(&mut response, ANSWER_MAX).await;
    let body = body.map_err(reqwest::Error::without_url)?;
    let body = body.ok_or("the collector's answer is too large")?;
    let mut answer = Response::new(Bytes::from(body));
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(answer)
}
