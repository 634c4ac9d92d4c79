//! A PostgreSQL that others run, or a private one for as long as a program works.

use tokio::sync::oneshot;

use super::{EmbeddedError, EmbeddedPostgres, EmbeddedSettings};

/// Which PostgreSQL to use.
#[derive(Debug, Clone)]
pub enum DatabaseLocation {
    /// A server that others run.
    Url(String),
    /// A private one, which this process runs.
    Embedded(Box<EmbeddedSettings>),
}

impl DatabaseLocation {
    /// Starts the private PostgreSQL if there is to be one, keeps it running for as long as the
    /// work takes, which gets its URL, and stops it. Fails with what [`EmbeddedPostgres::start`] or
    /// the work fails with, and then with what [`EmbeddedPostgres::stop`] fails with: the first
    /// error is the one that a person needs.
    pub async fn run<E: From<EmbeddedError>>(
        &self,
        work: impl AsyncFnOnce(String) -> Result<(), E>,
    ) -> Result<(), E> {
        let settings = match self {
            Self::Url(url) => return work(url.clone()).await,
            Self::Embedded(settings) => (**settings).clone(),
        };
        let mut postgres = EmbeddedPostgres::start(settings).await?;
        let url = postgres.url();
        let (ended, has_ended) = oneshot::channel::<()>();
        let work = async {
            let outcome = work(url).await;
            drop(ended);
            outcome
        };
        let keep_running = postgres.keep_running(async {
            let _ = has_ended.await;
        });
        let (outcome, ()) = tokio::join!(work, keep_running);
        let stopped = postgres.stop().await.map_err(E::from);
        outcome.and(stopped)
    }
}
