//! The load generator: connections that send one request after the other.
//!
//! Promise: every reply is compared with what was expected, so nothing but the wanted work is
//! measured. A connection waits for its reply before it sends again.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long a reply may take before the run is given up.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

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

/// Sends requests to `address` on so many connections. `call` makes the request of a number that no
/// other request of this load has.
pub(crate) async fn run<F>(
    address: SocketAddr,
    connections: usize,
    until: &Until,
    call: F,
) -> anyhow::Result<Answered>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let call = Arc::new(call);
    let next = Arc::new(AtomicU64::new(0));
    // Connections are made before the clock starts.
    let ready = try_join_all((0..connections).map(|_| Connection::open(address))).await?;
    let began = Instant::now();
    let senders = ready.into_iter().map(|mut connection| {
        let (call, next, until) = (Arc::clone(&call), Arc::clone(&next), until.clone());
        tokio::spawn(async move { connection.send_all(&*call, &next, &until).await })
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
    let mut connection = Connection::open(address).await?;
    let request = Request::get(path)
        .header("host", &connection.host)
        .body(Full::default())?;
    let reply = connection.sender.send_request(request).await?;
    Ok(reply.status().as_u16())
}

/// One connection that is kept alive.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        // Its end shows at the sender.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_string(),
        })
    }

    /// Sends until the load ends. Returns the latencies in microseconds.
    async fn send_all(
        &mut self,
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
            self.send(&call).await?;
            let micros = began.elapsed().as_micros();
            latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }

    async fn send(&mut self, call: &Call) -> anyhow::Result<Bytes> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", call.api_key));
        if let Some(key) = &call.idempotency_key {
            request = request
                .header("idempotency-key", key)
                .header("content-type", "application/json");
        }
        let request = request.body(Full::from(call.body.clone()))?;
        let exchange = async {
            self.sender.ready().await?;
            let reply = self.sender.send_request(request).await?;
            read(reply, call).await
        };
        tokio::time::timeout(REPLY_LIMIT, exchange)
            .await
            .with_context(|| format!("{} {}: no reply", call.method, call.path))?
    }
}

async fn read(reply: Response<Incoming>, call: &Call) -> anyhow::Result<Bytes> {
    let status = reply.status().as_u16();
    let is_replay = reply.headers().contains_key("idempotent-replayed");
    let body = reply.into_body().collect().await?.to_bytes();
    if status != call.status {
        let said = String::from_utf8_lossy(&body);
        bail!("{} {}: {status}: {said}", call.method, call.path);
    }
    ensure!(
        is_replay == call.is_replay,
        "{} {}: the reply is {} replay",
        call.method,
        call.path,
        if is_replay { "a" } else { "no" }
    );
    Ok(body)
}
