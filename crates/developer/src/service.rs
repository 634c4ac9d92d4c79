//! What the commands share that are clients of a running service: where it is, the API key, and
//! what is said when it doesn't answer.
//!
//! Promise: they know the service by its replies, so they work wherever it runs. They need its URL
//! and an API key, and neither its database nor its environment.

use std::{pin::Pin, time::Duration};

use charge_once_client::{Client, ClientBuilder, Error, RetryPolicy};
use tokio::signal::unix::{SignalKind, signal};

use super::{BoxError, say};

/// Where the API key is read from: an argument would be seen by every user of the machine.
const API_KEY_VARIABLE: &str = "CHARGE_ONCE_API_KEY";

/// What the help of these commands says about their environment.
pub const AFTER_HELP: &str = "\
Environment variables:
  CHARGE_ONCE_API_KEY
      Your API key. There is no argument for it, because other users could see that.
  CHARGE_ONCE_URL [default: http://127.0.0.1:8080]
      Where the service is, unless --url says so.";

/// The service that a command is a client of.
#[derive(Debug, clap::Args)]
pub struct Service {
    /// Where the service is.
    #[arg(long, env = "CHARGE_ONCE_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
}

/// The API key from the environment.
pub fn api_key() -> Result<String, Error> {
    std::env::var(API_KEY_VARIABLE)
        .map_err(|_| Error::Unusable(format!("set {API_KEY_VARIABLE} to your API key")))
}

impl Service {
    /// The one at this URL.
    pub fn at(url: String) -> Self {
        Self { url }
    }

    /// Its URL, as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client that says when it tries again, and gives up `deadline` after a call began.
    pub fn client(&self, deadline: Duration) -> Result<Client, BoxError> {
        self.client_with(api_key()?, deadline)
    }

    /// As [`Service::client`], with this API key.
    pub fn client_with(&self, api_key: String, deadline: Duration) -> Result<Client, BoxError> {
        let builder = self.builder_with(api_key, deadline).on_retry(|retry| {
            let (failure, pause) = (&retry.failure, retry.pause.as_millis());
            say(&format!("{failure}; again in {pause} ms"));
        });
        Ok(builder.build()?)
    }

    /// What makes a client that gives up `deadline` after a call began.
    pub(crate) fn builder(&self, deadline: Duration) -> Result<ClientBuilder, Error> {
        Ok(self.builder_with(api_key()?, deadline))
    }

    fn builder_with(&self, api_key: String, deadline: Duration) -> ClientBuilder {
        let policy = RetryPolicy {
            deadline,
            ..RetryPolicy::default()
        };
        Client::builder(&self.url, api_key).retry_policy(policy)
    }

    /// The error for the person at the terminal, with the remedy where it is a setting.
    pub fn explain(&self, error: Error) -> BoxError {
        let url = &self.url;
        if let Error::Unauthenticated(refusal) = &error {
            let name = API_KEY_VARIABLE;
            return format!("the service at {url} refuses the API key in {name}: {refusal}").into();
        }
        if let Error::Invalid(refusal) = &error
            && refusal.code == "route_not_found"
        {
            return format!(
                "the service at {url} does not have that route: faults and reports need FAULTS=true"
            )
            .into();
        }
        if let Error::GaveUp(gave_up) = &error
            && !gave_up.sent
        {
            return format!(
                "the service at {url} can't be reached: {}. Start it, or set --url or \
                 CHARGE_ONCE_URL to where it is",
                gave_up.last
            )
            .into();
        }
        error.into()
    }
}

/// Runs a client's work to its end, or until the process is told to stop, which is `stopped`'s.
pub fn block_on(
    work: impl Future<Output = Result<(), BoxError>>,
    stopped: impl FnOnce() -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(async {
            let stop = stop_signal()?;
            tokio::select! {
                done = work => done,
                () = stop => stopped(),
            }
        })
}

/// Resolves when the process is told to stop.
pub type Stop = Pin<Box<dyn Future<Output = ()>>>;

/// Resolves at the first SIGTERM or SIGINT.
pub fn stop_signal() -> Result<Stop, BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }))
}
