//! Databases that were down when the process started, where a service has several.
//!
//! Promise: none of them is read or written before it has passed the checks of a start. Until then
//! its accounts get 503, and `/readyz` names it.

use std::time::Duration;

use charge_once_postgres::api_keys::find_account;
use futures_util::future::join_all;
use tokio::sync::watch;

use crate::database::{MemoryError, Shard, Shards, StartError, ensure_memory};

/// Pause between two attempts with one of them: as short as an account can notice.
const PAUSE: Duration = Duration::from_secs(1);

/// Checks each of them again and again until it can be served from, or until `stopping`. One that
/// has one of `refused_keys` is not served: strangers know these API keys.
pub async fn run(
    shards: Shards,
    refused_keys: &'static [&'static str],
    memory: Option<Duration>,
    mut stopping: watch::Receiver<bool>,
) {
    let late: Vec<_> = shards.unchecked().cloned().collect();
    let opening = late.into_iter();
    let opening = join_all(opening.map(|shard| open(shards.clone(), shard, refused_keys, memory)));
    tokio::select! {
        _ = opening => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

async fn open(
    shards: Shards,
    shard: Shard,
    refused_keys: &'static [&'static str],
    memory: Option<Duration>,
) {
    let mut told = String::new();
    while let Err(error) = try_to_open(&shards, &shard, refused_keys, memory).await {
        let error = error.to_string();
        if error != told {
            tracing::error!(shard = %shard.name, %error, "a shard is not served");
            told = error;
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::info!(shard = %shard.name, "a shard that was down at the start is served");
}

/// Why a shard isn't served.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("its API keys can't be read: {0}")]
    Database(#[from] sqlx::Error),
    #[error("it has the API key {0}, which everyone knows: revoke it, or set ALLOW_PUBLIC_DEV_KEY")]
    PublicKey(&'static str),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

async fn try_to_open(
    shards: &Shards,
    shard: &Shard,
    refused_keys: &'static [&'static str],
    memory: Option<Duration>,
) -> Result<(), NotServed> {
    let fit = shards.check(shard).await?;
    ensure_memory(&shard.database, memory).await?;
    if !refused_keys.is_empty() {
        let mut connection = shard.database.connect_aside().await?;
        for &key in refused_keys {
            if find_account(&mut connection, key).await?.is_some() {
                return Err(NotServed::PublicKey(key));
            }
        }
    }
    fit.open();
    Ok(())
}
