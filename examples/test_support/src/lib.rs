//! What the tests of the examples share: a database for each test, the program as a process of its
//! own, and what every endpoint behind an idempotency key must do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

pub mod endpoint;

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use charge_once_embedded_postgres::Throwaway;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{sync::OnceCell, time::Instant};

/// A wait for a condition that takes longer fails.
const PATIENCE: Duration = Duration::from_secs(20);

static POSTGRES: OnceCell<Throwaway> = OnceCell::const_new();

/// The URL of an empty database of the test's own.
pub async fn empty_database() -> String {
    static CREATED: AtomicU32 = AtomicU32::new(0);
    let start = || async { Throwaway::start("examples").await.unwrap() };
    let postgres = POSTGRES.get_or_init(start).await;
    let name = format!("test_{}", CREATED.fetch_add(1, Ordering::Relaxed));
    postgres.create_database(&name, "template0").await.unwrap()
}

/// A client that uses no proxy and sends each request on a connection of its own.
pub fn http_client() -> reqwest::Client {
    // Where the workspace is built as one, the client speaks TLS, which needs a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy();
    builder.pool_max_idle_per_host(0).build().unwrap()
}

/// An example as a process of its own; killed when dropped.
#[derive(Debug)]
pub struct Program {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
    /// Kept open: a program that prints into a closed pipe fails.
    _output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts `program`, which prints `listening on http://…`, on a free port.
    pub fn start(program: &str, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(program)
            .env("BIND_ADDRESS", "127.0.0.1:0")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let address = output
            .by_ref()
            .lines()
            .map(Result::unwrap)
            .find_map(|line| {
                let (_, address) = line.split_once("listening on http://")?;
                address.split('/').next()?.parse().ok()
            });
        Self {
            address: address.expect("the program says where it listens"),
            process,
            _output: output,
        }
    }

    /// Sends SIGTERM; returns the exit code.
    pub async fn terminate(mut self) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let mut status = None;
        eventually("the process ends", || {
            status = self.process.try_wait().unwrap();
            std::future::ready(status.is_some())
        })
        .await;
        status.and_then(|status| status.code())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Polls until `condition` holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
