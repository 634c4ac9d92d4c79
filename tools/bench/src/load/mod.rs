//! The load generator: connections that send one request after the other.
//!
//! Promise: every reply is compared with what was expected, so nothing but the wanted work is
//! measured. A connection waits for its reply before it sends again.

mod connection;
mod schedule;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use hyper::Method;
use tokio::runtime::Builder;

use self::connection::Connection;
pub(crate) use self::schedule::{Schedule, run_by};

/// A request, and the reply that it should have.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) api_key: String,
    /// `None` for a request that changes nothing.
    pub(crate) idempotency_key: Option<String>,
    /// JSON.
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
    /// Whether the reply says that it is a replay.
    pub(crate) is_replay: bool,
}

impl Call {
    pub(crate) fn get(path: String, api_key: String) -> Self {
        Self {
            method: Method::GET,
            path,
            api_key,
            idempotency_key: None,
            body: Vec::new(),
            status: 200,
            is_replay: false,
        }
    }
}

/// When the load ends.
#[derive(Debug, Clone)]
pub(crate) enum Until {
    /// So many requests have been answered.
    Count(u64),
    /// This time is over.
    For(Duration),
    /// It is set.
    Stopped(Arc<AtomicBool>),
}

/// What was measured from outside.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// Of each request, in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
    /// From the first request to the last reply.
    pub(crate) took: Duration,
}

/// Sends requests on so many connections, spread over `addresses`. `call` makes the request of a
/// number that no other request of this load has.
pub(crate) async fn run<F>(
    addresses: &[SocketAddr],
    connections: usize,
    until: &Until,
    call: F,
) -> anyhow::Result<Answered>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let (call, next) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let until = until.clone();
    on_connections(addresses, connections, move |connection, began| {
        let (call, next, until) = (Arc::clone(&call), Arc::clone(&next), until.clone());
        async move { send_all(connection, &*call, &next, &until, began).await }
    })
    .await
}

/// Runs `send` on each of so many connections, with the time when the load began. It returns its
/// latencies in microseconds, and when it ended.
///
/// The load has a thread of its own. Between several threads, it would take time to hand over to
/// itself, which is no time of the service.
async fn on_connections<F>(
    addresses: &[SocketAddr],
    connections: usize,
    send: impl Fn(Connection, Instant) -> F + Send + 'static,
) -> anyhow::Result<Answered>
where
    F: Future<Output = anyhow::Result<(Vec<u32>, Duration)>> + Send + 'static,
{
    let addresses = addresses.to_vec();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let load = async move {
        let addresses = addresses.iter().cycle().take(connections);
        // Connections are made before the clock starts.
        let ready = try_join_all(addresses.map(|address| Connection::open(*address))).await?;
        let began = Instant::now();
        let senders = ready.into_iter();
        let senders = senders.map(|connection| tokio::spawn(send(connection, began)));
        let mut answered = Answered::default();
        for sent in try_join_all(senders).await? {
            let (latencies_us, ended) = sent?;
            answered.latencies_us.extend(latencies_us);
            answered.took = answered.took.max(ended);
        }
        answered.latencies_us.sort_unstable();
        anyhow::Ok(answered)
    };
    tokio::task::spawn_blocking(move || runtime.block_on(load)).await?
}

/// Sends one request, and returns the body of its reply.
pub(crate) async fn send_one(address: SocketAddr, call: &Call) -> anyhow::Result<Bytes> {
    Connection::open(address).await?.send(call).await
}

/// Reads `path` without an API key, and returns the status.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    Connection::open(address).await?.status_of(path).await
}

/// Sends until the load ends. Returns the latencies in microseconds, and when it ended.
async fn send_all(
    mut connection: Connection,
    call: &impl Fn(u64) -> Call,
    next: &AtomicU64,
    until: &Until,
    began: Instant,
) -> anyhow::Result<(Vec<u32>, Duration)> {
    let mut latencies = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let is_over = match until {
            Until::Count(count) => number >= *count,
            Until::For(length) => began.elapsed() >= *length,
            Until::Stopped(stopped) => stopped.load(Ordering::Relaxed),
        };
        if is_over {
            return Ok((latencies, began.elapsed()));
        }
        let call = call(number);
        let sent = Instant::now();
        connection.send(&call).await?;
        latencies.push(micros(sent.elapsed()));
    }
}

fn micros(latency: Duration) -> u32 {
    u32::try_from(latency.as_micros()).unwrap_or(u32::MAX)
}
