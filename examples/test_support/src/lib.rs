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

use charge_once_postgres::embedded::Throwaway;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::OnceCell,
    time::{Instant, timeout},
};

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

/// Sends `request`, which has a line `{upgrade}` among its headers, twice on one connection for
/// each way to ask for another protocol. Each is answered with `status` as if it did not ask (RFC
/// 9110, section 7.8). `says_close` tells whether the first reply says that the connection ends,
/// and then it does.
pub async fn answers_upgrades(address: SocketAddr, request: &str, status: u16, says_close: bool) {
    for upgrade in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        "Upgrade: TLS/1.2\r\nConnection: Upgrade\r\n",
        "Connection: keep-alive\r\nConnection: upgrade\r\n",
    ] {
        let mut socket = tokio::io::BufReader::new(TcpStream::connect(address).await.unwrap());
        let request = request.replace("{upgrade}\r\n", upgrade);
        for _ in 0..if says_close { 1 } else { 2 } {
            socket.write_all(request.as_bytes()).await.unwrap();
            let reading = timeout(PATIENCE, reply_head(&mut socket));
            let head = reading.await.expect("a reply");
            let expected = format!("http/1.1 {status} ");
            assert!(head.starts_with(&expected), "{request}{head}");
            assert!(!head.contains("upgrade"), "{request}{head}");
            assert_eq!(head.contains("connection: close"), says_close, "{head}");
        }
        if says_close {
            let ended = timeout(PATIENCE, socket.read(&mut [0])).await;
            assert_eq!(ended.expect("the end").unwrap(), 0);
        }
    }
}

/// The head of a reply in lower case. Its body is read, too.
async fn reply_head(socket: &mut tokio::io::BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(socket.read_line(&mut head).await.unwrap(), 0, "{head}");
    }
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).await.unwrap();
    head
}

/// Polls until `condition` holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
