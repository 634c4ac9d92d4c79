//! What a replica says of itself at `/metrics`.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;

use crate::client::http;

/// How long one look may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What a replica works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Busy {
    pub(crate) keys_in_flight: u64,
    /// Open connections of its pool.
    pub(crate) connections: u64,
    /// Those of them that no request has.
    pub(crate) idle: u64,
}

impl Busy {
    pub(crate) async fn read(address: SocketAddr) -> anyhow::Result<Self> {
        let reply = http(LIMIT)?.get(format!("http://{address}/metrics")).send();
        let body = reply.await?.error_for_status()?.bytes().await?;
        let text = String::from_utf8_lossy(&body);
        let gauge = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let line = lines.find(|(known, _)| *known == name);
            let (_, value) = line.with_context(|| format!("there is no {name}"))?;
            let value = value.trim().parse();
            value.with_context(|| format!("{name} is no count"))
        };
        Ok(Self {
            keys_in_flight: gauge("charge_once_idempotency_keys_in_flight")?,
            connections: gauge("charge_once_pool_connections")?,
            idle: gauge("charge_once_pool_connections_idle")?,
        })
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.keys_in_flight == 0 && self.idle == self.connections
    }
}
