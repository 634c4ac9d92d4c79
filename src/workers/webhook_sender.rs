//! Makes one attempt to deliver a webhook.
//!
//! Promise: it connects only to checked addresses, follows no redirect, ends within its time limit,
//! and reads only the status of the reply.

use std::{error::Error, net::SocketAddr, time::Instant};

use charge_once_client::transport::{TlsError, http_client_builder};
use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    header::CONTENT_TYPE,
};
use url::Url;

use crate::{
    config::Webhooks,
    domain::{
        public_addresses::is_public,
        webhook_delivery::{Attempt, signature},
        webhook_endpoint::{Secret, literal_address},
    },
};

const USER_AGENT: &str = concat!("charge-once/", env!("CARGO_PKG_VERSION"));

/// The name that Stripe's libraries look for.
const SIGNATURE_HEADER: &str = "stripe-signature";

/// The HTTP client can't be set up: a defect.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// The TLS library refuses its default protocol versions.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The client refuses its settings.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

/// Why a host can't be connected to. It is in the chain of causes of the client's error.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Unconnectable {
    #[error("refused: the host has a private, local or reserved address")]
    NotPublic,
    #[error("the host name has no address")]
    NoAddress,
}

/// Sends attempts. Cheap to share.
#[derive(Debug, Clone)]
pub struct Sender {
    client: Client,
    allow_private: bool,
}

impl Sender {
    /// A redirect could lead past every check of the URL, a proxy would resolve the name by itself,
    /// and the schedule in the database counts every attempt: the builder allows none of them.
    pub fn new(webhooks: &Webhooks) -> Result<Self, SenderError> {
        let client = http_client_builder()?
            .user_agent(USER_AGENT)
            .timeout(webhooks.timeout)
            .dns_resolver(CheckedResolver {
                allow_private: webhooks.allow_private,
            })
            // Each attempt resolves, checks and connects for itself.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self {
            client,
            allow_private: webhooks.allow_private,
        })
    }

    /// Sends `body` to `url`, signed at `t`, in unix seconds.
    pub async fn send(&self, url: &str, secret: &Secret, t: i64, body: Vec<u8>) -> Attempt {
        let began = Instant::now();
        let (response_status, error) = match self.post(url, secret, t, body).await {
            Ok(status) if (300..400).contains(&status) => {
                (Some(status), Some("redirects are not followed"))
            }
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error)),
        };
        Attempt {
            at: t,
            response_status,
            error: error.map(str::to_owned),
            duration_ms: i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }

    async fn post(
        &self,
        url: &str,
        secret: &Secret,
        t: i64,
        body: Vec<u8>,
    ) -> Result<u16, &'static str> {
        let url = Url::parse(url).map_err(|_| "the URL can't be read")?;
        // An address is never resolved, and the setting may have changed since the endpoint was
        // made.
        if !self.allow_private && literal_address(&url).is_some_and(|address| !is_public(address)) {
            return Err(explain(&Unconnectable::NotPublic));
        }
        let response = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE_HEADER, signature(secret, t, &body))
            .body(body)
            .send()
            .await
            .map_err(|error| explain(&error))?;
        // Dropped unread: only the status matters.
        Ok(response.status().as_u16())
    }
}

/// The reason of a missing reply, as the account may see it. The libraries' messages would reveal
/// the network of this service.
fn explain(error: &(dyn Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<Unconnectable>() {
            // One text for both: an account must not learn which names the network of this
            // service knows.
            Some(Unconnectable::NotPublic | Unconnectable::NoAddress) => {
                return "the host has no public address";
            }
            None => {}
        }
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            return "connection refused";
        }
        cause = error.source();
    }
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_timeout() => "timed out",
        Some(error) if error.is_connect() => "could not connect",
        Some(_) | None => "connection lost",
    }
}

/// Resolves a name once, and gives the checked addresses to the client. A hostile name server could
/// answer a second look-up with another address.
struct CheckedResolver {
    allow_private: bool,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(|_| Unconnectable::NoAddress)?
                .collect();
            // One private address is enough to refuse: no honest name has addresses of both kinds.
            if !allow_private && addresses.iter().any(|address| !is_public(address.ip())) {
                return Err(Unconnectable::NotPublic.into());
            }
            if addresses.is_empty() {
                return Err(Unconnectable::NoAddress.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
