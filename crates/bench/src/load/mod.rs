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
    let (addresses, until) = (addresses.to_vec(), until.clone());
    on_one_thread(async move { send_until(&addresses, connections, until, call).await }).await
}

/// Runs load on a thread of its own. Between several threads, the load would take time to hand over to
/// itself, which is no time of the service.
async fn on_one_thread<T: Send + 'static>(
    load: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = tokio::task::spawn_blocking(move || runtime.block_on(load));
    ended.await?
}

async fn send_until<F>(
    addresses: &[SocketAddr],
    connections: usize,
    until: Until,
    call: F,
) -> anyhow::Result<Answered>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let call = Arc::new(call);
    let next = Arc::new(AtomicU64::new(0));
    // Connections are made before the clock starts.
    let ready = open(addresses, connections).await?;
    let began = Instant::now();
    let senders = ready.into_iter().map(|mut connection| {
        let (call, next, until) = (Arc::clone(&call), Arc::clone(&next), until.clone());
        tokio::spawn(async move { send_all(&mut connection, &*call, &next, &until).await })
    });
    let ended = try_join_all(senders).await?;
    let took = began.elapsed();
    let mut latencies_us = Vec::new();
    for latencies in ended {
        latencies_us.extend(latencies?);
    }
    latencies_us.sort_unstable();
    Ok(Answered { latencies_us, took })
}

/// Sends one request, and returns the body of its reply.
pub(crate) async fn send_one(address: SocketAddr, call: &Call) -> anyhow::Result<Bytes> {
    Connection::open(address).await?.send(call).await
}

/// Reads `path` without an API key, and returns the status.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    Connection::open(address).await?.status_of(path).await
}

/// Makes connections, to each address in turns.
async fn open(addresses: &[SocketAddr], connections: usize) -> anyhow::Result<Vec<Connection>> {
    let addresses = addresses.iter().cycle().take(connections);
    try_join_all(addresses.map(|address| Connection::open(*address))).await
}

/// Sends until the load ends. Returns the latencies in microseconds.
async fn send_all(
    connection: &mut Connection,
    call: &impl Fn(u64) -> Call,
    next: &AtomicU64,
    until: &Until,
) -> anyhow::Result<Vec<u32>> {
    let mut latencies = Vec::new();
    let start = Instant::now();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let is_over = match until {
            Until::Count(count) => number >= *count,
            Until::For(length) => start.elapsed() >= *length,
            Until::Stopped(stopped) => stopped.load(Ordering::Relaxed),
        };
        if is_over {
            return Ok(latencies);
        }
        let call = call(number);
        let began = Instant::now();
        connection.send(&call).await?;
        latencies.push(micros(began.elapsed()));
    }
}

fn micros(latency: Duration) -> u32 {
    u32::try_from(latency.as_micros()).unwrap_or(u32::MAX)
}
