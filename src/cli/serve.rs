//! `charge-once serve`: the API.

use std::net::{SocketAddr, TcpListener};

use super::{BoxError, api_key, listen, print, reachable, session};
use crate::{
    config::{Config, DEFAULT_DEV_API_KEY, DatabaseLocation},
    database::SCHEMA,
    server::{self, Listeners},
};

pub(super) fn run() -> Result<(), BoxError> {
    let config = Config::from_env()?;
    let listeners = Listeners {
        api: listen("BIND_ADDRESS", config.bind_address)?,
        metrics: match config.metrics_address {
            None => None,
            Some(address) => Some(listen("METRICS_ADDRESS", address)?),
        },
    };
    let work = async |database, stop| {
        if let Some(key) = &config.dev_api_key {
            api_key::ensure_dev_key(&database, key).await?;
        }
        let scraped = listeners.metrics.as_ref().map(TcpListener::local_addr);
        let scraped = scraped.transpose()?;
        print(&banner(listeners.api.local_addr()?, scraped, &config))?;
        Ok(server::serve(listeners, database, &config, stop).await?)
    };
    session::serve(&config, &config.database, SCHEMA, work)
}

/// What a person needs to make the first charge.
fn banner(address: SocketAddr, scraped: Option<SocketAddr>, config: &Config) -> String {
    let url = reachable(address);
    let mut text = format!(
        "charge-once {} serves {url}\n  Swagger UI  {url}/swagger-ui/\n",
        env!("CARGO_PKG_VERSION"),
    );
    if let Some(scraped) = scraped {
        text.push_str(&format!("  Metrics     {}/metrics\n", reachable(scraped)));
    }
    let shared = matches!(config.database, DatabaseLocation::Url(_));
    match &config.dev_api_key {
        // One that was chosen for a shared database is a secret, and this ends up in logs.
        Some(key) if shared && key != DEFAULT_DEV_API_KEY => {
            text.push_str("  API key     the one in DEV_API_KEY\n");
        }
        Some(key) => text.push_str(&format!(
            "  API key     {key}\n\nCharge a test card; run it twice and it still charges once:\n\n\
             curl -i {url}/charges -H 'Authorization: Bearer {key}' \
             -H 'Idempotency-Key: my-first-charge' -H 'Content-Type: application/json' \
             -d '{{\"amount\":2000,\"currency\":\"usd\",\"source\":\"tok_visa\"}}'\n"
        )),
        None => text.push_str("  API key     make one with: charge-once api-key create\n"),
    }
    text
}
