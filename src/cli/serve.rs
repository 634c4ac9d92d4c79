//! `charge-once serve`: the API.

use std::net::{SocketAddr, TcpListener};

use super::{BoxError, api_key, listen, print, print_document, reachable, session};
use crate::{
    config::{Config, ConfigError, DEFAULT_DEV_API_KEY},
    database::{Shards, connect_all, ensure_memory},
    http::{openapi, retention::unknown_route},
    server::{self, Listeners},
};

pub(super) fn run() -> Result<(), BoxError> {
    let config = Config::from_env()?;
    let refused_keys = config.refused_keys();
    let dev_api_key = config.dev_api_key.as_deref();
    if let Some(key) = dev_api_key.filter(|key| refused_keys.contains(key)) {
        return Err(public_key_for_strangers(key).into());
    }
    let by_route = config.values.ttl_by_route.as_ref();
    if let Some(expected) = by_route.and_then(|times| unknown_route(times, &mut openapi::usual())) {
        let variable = "IDEMPOTENCY_TTL_BY_ROUTE";
        return Err(ConfigError::Value { variable, expected }.into());
    }
    let listeners = Listeners {
        api: listen("BIND_ADDRESS", config.values.bind_address)?,
        metrics: listen_for_metrics(&config)?,
    };
    let work = async |shards: Shards, stop| {
        if let [only] = &*shards {
            only.database.ensure_is_only().await?;
        }
        for shard in shards.iter().filter(|shard| shard.database.is_checked()) {
            ensure_memory(&shard.database, config.values.key_memory).await?;
        }
        if let Some(key) = &config.dev_api_key {
            api_key::ensure_dev_key_in(&shards, key).await?;
        }
        for &key in refused_keys {
            if api_key::is_valid(&shards, key).await? {
                return Err(public_key_in_database(key).into());
            }
        }
        let scraped = listeners.metrics.as_ref().map(TcpListener::local_addr);
        let scraped = scraped.transpose()?;
        print_document(&banner(listeners.api.local_addr()?, scraped, &config))?;
        Ok(server::serve(listeners, shards, &config, stop).await?)
    };
    let connect = async |url: &str| connect_all(url, &config).await;
    session::serve(&config, &config.database, connect, work)
}

/// `charge-once work`: what servers with `BACKGROUND=off` leave to it.
pub(super) fn work() -> Result<(), BoxError> {
    let config = Config::from_env()?;
    let scraped = listen_for_metrics(&config)?;
    let connect = async |url: &str| connect_all(url, &config).await;
    session::serve(&config, &config.database, connect, async |shards, stop| {
        let version = crate::VERSION;
        let names: Vec<_> = shards.iter().map(|shard| &*shard.name).collect();
        let names = match &*names {
            // It may be any of several, and doesn't know.
            [_] => String::new(),
            names => format!(": {}", names.join(", ")),
        };
        print(&format!(
            "charge-once {version} works beside servers{names}"
        ))?;
        Ok(server::work(scraped, shards, &config, stop).await?)
    })
}

fn listen_for_metrics(config: &Config) -> Result<Option<TcpListener>, BoxError> {
    let address = config.values.metrics_address;
    let listening = address.map(|address| listen("METRICS_ADDRESS", address));
    Ok(listening.transpose()?)
}

/// Everyone knows a default key, so it is served beyond this machine only where that is wanted.
fn public_key_for_strangers(key: &str) -> ConfigError {
    ConfigError::Value {
        variable: "ALLOW_PUBLIC_DEV_KEY",
        expected: format!(
            "true where BIND_ADDRESS is more than this machine's and the API key is {key}, which \
             everyone knows. Better set DEV_API_KEY to a key of your own, or BIND_ADDRESS to 127.0.0.1:8080"
        ),
    }
}

/// An earlier start with another configuration has left the key there.
fn public_key_in_database(key: &str) -> String {
    format!(
        "BIND_ADDRESS is more than this machine's, and the database has the API key {key}, which \
         everyone knows. Revoke it (echo {key} | charge-once api-key revoke), or set \
         ALLOW_PUBLIC_DEV_KEY=true"
    )
}

/// What a person needs to make the first charge, to see what became of it, and to go on. It ends up
/// in logs, so it shows no key but the public one.
fn banner(address: SocketAddr, scraped: Option<SocketAddr>, config: &Config) -> String {
    let url = config.public_url(address);
    let mut text = format!(
        "charge-once {} serves {}\n",
        crate::VERSION,
        reachable(address)
    );
    if config.values.console {
        text.push_str(&format!("  Console     {url}/console\n"));
    }
    text.push_str(&format!("  Swagger UI  {url}/swagger-ui/\n"));
    if let Some(scraped) = scraped {
        text.push_str(&format!("  Metrics     {}/metrics\n", reachable(scraped)));
    }
    let (shown, key) = match config.dev_api_key.as_deref() {
        Some(DEFAULT_DEV_API_KEY) => (DEFAULT_DEV_API_KEY, DEFAULT_DEV_API_KEY),
        Some(_) => ("the one in DEV_API_KEY", "$DEV_API_KEY"),
        None => {
            text.push_str(
                "  API key     make one with: charge-once api-key create --account NAME\n",
            );
            return text;
        }
    };
    let charge = |idempotency_key: &str, card: &str| {
        format!(
            "curl -i {url}/charges -u \"{key}:\" -H 'Idempotency-Key: {idempotency_key}' \
             -d amount=2000 -d currency=usd -d source={card}\n"
        )
    };
    text.push_str(&format!(
        "  API key     {shown}\n\nCharge a test card; run it twice and it still charges once:\n\n{}",
        charge("my-first-charge", "tok_visa")
    ));
    if config.values.faults {
        text.push_str(&format!(
            "\nLose the reply of a charge; run it again and read that reply, of one charge:\n\n{}",
            charge("my-first-retry", "tok_lostReply")
        ));
    }
    text
}
