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
pub(crate) use self::schedule::Schedule;

/// A request, and the reply that it should have.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) api_key: String,
    /// `None` for a request that changes nothing.
    pub(crate) idempotency_key: Option<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
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
    Count(u64),
    For(Duration),
    Stopped(Arc<AtomicBool>),
    Due(Schedule),
    /// At the pace of the schedule.
    Paced(Schedule, Arc<AtomicBool>),
}

#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// Of each request, in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
    /// From the first request to the last reply; of a schedule, until the last request was sent,
    /// and one distance more: a schedule that is kept takes its length.
    pub(crate) took: Duration,
}

/// Sends requests on so many connections, spread over `addresses`. `call` makes the request of a
/// number that no other request of this load has.
///
/// The load has a thread of its own. Between several threads, it would take time to hand over to
/// itself, which is no time of the service.
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
    let (call, next) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let load = async move {
        let addresses = addresses.iter().cycle().take(connections);
        // Connections are made before the clock starts.
        let ready = try_join_all(addresses.map(|address| Connection::open(*address))).await?;
        let began = Instant::now();
        let senders = ready.into_iter().map(|connection| {
            let (call, next, until) = (Arc::clone(&call), Arc::clone(&next), until.clone());
            tokio::spawn(async move { send_all(connection, &*call, &next, &until, began).await })
        });
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

pub(crate) async fn send_one(address: SocketAddr, call: &Call) -> anyhow::Result<Bytes> {
    Connection::open(address).await?.send(call).await
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
    let mut sent = Duration::ZERO;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let ended = match until {
            Until::Count(count) => (number >= *count).then(|| began.elapsed()),
            Until::For(length) => Some(began.elapsed()).filter(|elapsed| elapsed >= length),
            Until::Stopped(stopped) | Until::Paced(_, stopped) => {
                stopped.load(Ordering::Relaxed).then(|| began.elapsed())
            }
            Until::Due(schedule) => (number >= schedule.requests()).then(|| sent + schedule.due(1)),
        };
        if let Some(ended) = ended {
            return Ok((latencies, ended));
        }
        let call = call(number);
        let free = began.elapsed();
        let from = match until {
            Until::Due(schedule) | Until::Paced(schedule, _) => {
                let due = schedule.due(number);
                if free < due {
                    tokio::time::sleep_until((began + due).into()).await;
                }
                sent = began.elapsed();
                schedule::counts_from(due, free, sent)
            }
            Until::Count(_) | Until::For(_) | Until::Stopped(_) => free,
        };
        connection.send(&call).await?;
        let latency = began.elapsed().saturating_sub(from);
        latencies.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }
}
