//! A network that fails: a TCP proxy whose fault can change at any moment.
//!
//! Promise: with no fault, every byte is forwarded in both directions, unchanged and in order.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};

/// What the network does from now on, to open connections and to new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    /// Forwards everything.
    None,
    /// Forwards each piece later by this much.
    Delayed(Duration),
    /// Forwards nothing and closes nothing, like a pulled cable.
    Stalled,
    /// Closes every connection, new ones too.
    Cut,
    /// Closes every connection and refuses new ones: nothing is ever sent.
    Unreachable,
    /// Ends the direction to the server and keeps the other one open.
    HalfClosed,
    /// Forwards what the client sends, and closes the connection in place of the answer.
    LosesAnswers,
    /// Forwards a `COMMIT` to PostgreSQL, and closes the connection in place of the answer.
    LosesAnswersToCommit,
    /// Swallows a `COMMIT` and closes the connection.
    LosesCommits,
}

/// Where a proxy forwards to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A TCP proxy on a port of its own.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    fault: watch::Sender<NetworkFault>,
}

impl Proxy {
    /// Listens on a free local port and forwards to `target`.
    pub(crate) async fn start(target: Target) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("a proxy can't listen")?;
        let address = listener.local_addr()?;
        let fault = watch::Sender::new(NetworkFault::None);
        tokio::spawn(listen(listener, target, fault.clone()));
        Ok(Self { address, fault })
    }

    /// Changes what the network does.
    pub(crate) fn inject(&self, fault: NetworkFault) {
        self.fault.send_replace(fault);
    }
}

/// Listens on the address, but for the times when it is unreachable.
async fn listen(listener: TcpListener, target: Target, fault: watch::Sender<NetworkFault>) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut now = fault.subscribe();
    let mut listener = Some(listener);
    loop {
        // The port is free while it is unreachable, and may be taken for a moment.
        let listening = match listener.take() {
            Some(listening) => Ok(listening),
            None => TcpListener::bind(address).await,
        };
        if let Ok(listening) = listening {
            let is_unreachable = |fault: &NetworkFault| *fault == NetworkFault::Unreachable;
            tokio::select! {
                () = accept(listening, target.clone(), fault.clone()) => {}
                _ = now.wait_for(is_unreachable) => {}
            }
        }
        let is_reachable = |fault: &NetworkFault| *fault != NetworkFault::Unreachable;
        if now.wait_for(is_reachable).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn accept(listener: TcpListener, target: Target, fault: watch::Sender<NetworkFault>) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, fault) = (target.clone(), fault.subscribe());
        tokio::spawn(async move {
            if *fault.borrow() == NetworkFault::Cut {
                return;
            }
            let _ = client.set_nodelay(true);
            let (from_client, to_client) = client.into_split();
            match target {
                Target::Tcp(address) => {
                    let Ok(server) = TcpStream::connect(address).await else {
                        return;
                    };
                    let _ = server.set_nodelay(true);
                    let (from_server, to_server) = server.into_split();
                    forward(from_client, to_server, from_server, to_client, fault).await;
                }
                Target::Unix(socket) => {
                    let Ok(server) = UnixStream::connect(socket).await else {
                        return;
                    };
                    let (from_server, to_server) = server.into_split();
                    forward(from_client, to_server, from_server, to_client, fault).await;
                }
            }
        });
    }
}

/// Forwards until either side ends, or a fault ends both.
async fn forward(
    from_client: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    fault: watch::Receiver<NetworkFault>,
) {
    let commit_was_sent = AtomicBool::new(false);
    let commit_was_sent = &commit_was_sent;
    let requests = pass_on(
        from_client,
        to_server,
        fault.clone(),
        move |fault, bytes| match fault {
            NetworkFault::LosesCommits => !holds_commit(bytes),
            NetworkFault::LosesAnswersToCommit => {
                commit_was_sent.fetch_or(holds_commit(bytes), Ordering::SeqCst);
                true
            }
            NetworkFault::HalfClosed => false,
            NetworkFault::None
            | NetworkFault::Delayed(_)
            | NetworkFault::Stalled
            | NetworkFault::Cut
            | NetworkFault::Unreachable
            | NetworkFault::LosesAnswers => true,
        },
    );
    let answers = pass_on(from_server, to_client, fault.clone(), move |fault, _| {
        // PostgreSQL has answered, so it has committed.
        fault != NetworkFault::LosesAnswers && !commit_was_sent.load(Ordering::SeqCst)
    });
    let mut is_cut = fault;
    tokio::select! {
        _ = is_cut.wait_for(closes) => {}
        () = answers => {}
        () = async {
            requests.await;
            // A half-closed connection still carries answers, for a while.
            tokio::time::sleep(HALF_CLOSED_FOR).await;
        } => {}
    }
}

/// Whether open connections end.
fn closes(fault: &NetworkFault) -> bool {
    matches!(fault, NetworkFault::Cut | NetworkFault::Unreachable)
}

/// How long answers still pass after the other direction has ended.
const HALF_CLOSED_FOR: Duration = Duration::from_secs(2);

fn holds_commit(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|window| window == b"COMMIT\0")
}

/// Passes on what `passes` lets through, to the end of the stream or the first piece that it stops.
async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<NetworkFault>,
    mut passes: impl FnMut(NetworkFault, &[u8]) -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let Some(bytes) = buffer.get(..length) else {
            return;
        };
        let stalled = |fault: &NetworkFault| *fault != NetworkFault::Stalled;
        let now = match fault.wait_for(stalled).await {
            Ok(fault) => *fault,
            Err(_) => return,
        };
        if let NetworkFault::Delayed(by) = now {
            tokio::time::sleep(by).await;
        }
        if !passes(now, bytes) || to.write_all(bytes).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
