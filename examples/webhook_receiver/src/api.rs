//! Retrieves objects: an event says that one has changed, and only the API says what it is.

use std::{fmt, time::Duration};

use serde::Deserialize;

/// The service that sends the events. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    url: String,
    key: String,
}

/// The part of a charge that is used here.
#[derive(Deserialize)]
pub(crate) struct Charge {
    pub(crate) amount_captured: i64,
    pub(crate) amount_refunded: i64,
}

impl Api {
    /// `url` is the service's, and `key` an API key of the account whose events are received.
    ///
    /// # Errors
    ///
    /// If no client can be made, such as without certificates of authorities on this machine.
    pub fn new(url: String, key: String) -> Result<Self, reqwest::Error> {
        // Another part of the process may have chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(2))
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { http, url, key })
    }

    pub(crate) async fn charge(&self, id: &str) -> Result<Charge, reqwest::Error> {
        let url = format!("{}/charges/{id}", self.url.trim_end_matches('/'));
        let reply = self.http.get(url).bearer_auth(&self.key).send().await?;
        reply.error_for_status()?.json().await
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key.
        f.debug_struct("Api").field("url", &self.url).finish()
    }
}
